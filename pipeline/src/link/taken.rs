//! The functions of a graph whose address its code or its data takes.

use std::collections::HashSet;

use rustc_hash::FxHashMap;

use super::graph::{Binding, LinkGraph, Location, SectionRole, SymbolId};
use crate::arch::Class;

impl LinkGraph<'_> {
    /// The names for others of functions whose address something here takes, or may take: where no stub can stand for them without giving them
    /// two addresses.
    ///
    /// # Cost
    /// Linear in the graph.
    pub(crate) fn functions_with_taken_addresses(&self) -> HashSet<Box<str>> {
        // Names of one place are one function.
        let mut places = FxHashMap::<_, Vec<SymbolId>>::default();
        for (index, symbol) in self.symbols.iter().enumerate() {
            if let Location::Block(block, offset) = symbol.location
                && symbol.binding != Binding::Local
            {
                places.entry((block, offset)).or_default().push(SymbolId::of(index));
            }
        }
        let mut taken = HashSet::new();
        for block in &self.blocks {
            let role = self.sections[block.section.index()].role;
            // It describes the code, not the function.
            if role == SectionRole::EhFrame {
                continue;
            }
            for edge in &self.edges[block.edge_range()] {
                if edge.kind.class() == Class::Branch {
                    continue;
                }
                let target = self.symbols[edge.target.index()];
                let Location::Block(block, offset) = target.location else { continue };
                // Where that is not known, an entry of a table refers to the symbol itself.
                let into =
                    self.arch.points_into(edge.kind, edge.addend, role == SectionRole::Code).unwrap_or(0);
                // An entry of a table of distances has its own place in its addend: its target alone tells the function.
                for place in [offset, offset.wrapping_add_signed(into)] {
                    let symbols = places.get(&(block, place)).into_iter().flatten();
                    taken.extend(symbols.map(|symbol| self.text(self.symbols[symbol.index()].name).into()));
                }
            }
        }
        taken
    }
}
