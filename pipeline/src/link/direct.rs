//! Direct references: distances that code holds itself. Their targets have to lie in the same image.

use super::graph::{Binding, BlockId, LinkGraph, Location};
use crate::arch::Class;

impl LinkGraph<'_> {
    /// The names that the graph does not define and refers to by a distance, which no table or stub can stand for: mostly hidden definitions of
    /// another file.
    pub(crate) fn direct_references(&self) -> impl Iterator<Item = &str> {
        let pointer = self.arch.pointer();
        let live =
            (0..self.blocks().len()).map(BlockId::of).filter(|block| self.blocks()[block.index()].live);
        live.flat_map(|block| self.edges(block)).filter_map(move |edge| {
            let is_direct = match edge.kind.class() {
                Class::Near | Class::TlsOffset | Class::TlsDistance => true,
                Class::Direct => edge.kind != pointer,
                _ => false,
            };
            let target = &self.symbols()[edge.target.index()];
            (is_direct && target.location == Location::Undefined).then(|| self.symbol_name(edge.target))
        })
    }

    /// The names that it defines for other objects.
    pub(crate) fn defined_names(&self) -> impl Iterator<Item = &str> {
        let global = self.symbols().iter().filter(|symbol| {
            symbol.binding != Binding::Local
                && matches!(symbol.location, Location::Block(..) | Location::Absolute(_))
        });
        global.map(|symbol| self.text(symbol.name))
    }
}
