//! References to a function that has a stub elsewhere lead there.

use std::collections::HashMap;

use rustc_hash::FxHashMap;

use super::error::LinkError;
use super::graph::{Binding, LinkGraph, Location, SectionRole, Symbol, SymbolId};
use super::x86_64::EdgeKind;

/// What the body of a function is called that has a stub, and whether another definition may have taken its place.
pub(crate) type BodyOf<'b> = &'b dyn Fn(&str) -> Option<(&'b str, bool)>;

impl LinkGraph<'_> {
    /// Gives functions the names that `body_of` says. Calls go on leading to them, unless they may have been replaced; whoever takes an
    /// address, or may do so, gets what has the function's own name elsewhere.
    ///
    /// # Errors
    /// [`LinkError::Object`] if there is no room for more names.
    ///
    /// # Cost
    /// Linear in the graph.
    pub(crate) fn put_behind_stubs(mut self, body_of: BodyOf<'_>) -> Result<Self, LinkError> {
        let (mut bodies, mut named) = (FxHashMap::default(), HashMap::new());
        for index in 0..self.symbols.len() {
            let symbol = self.symbols[index];
            if symbol.binding == Binding::Local || !matches!(symbol.location, Location::Block(..)) {
                continue;
            }
            let Some((name, may_be_replaced)) = body_of(self.text(symbol.name)) else { continue };
            let body = match named.get(name) {
                Some(body) => *body,
                None => {
                    let body = SymbolId::of(self.symbols.len());
                    named.insert(name, body);
                    let name = self.add_name(name)?;
                    self.symbols.push(Symbol { name, binding: Binding::Strong, exported: false, ..symbol });
                    body
                }
            };
            bodies.insert(SymbolId::of(index), (body, may_be_replaced));
            self.symbols[index] =
                Symbol { location: Location::Undefined, binding: Binding::Strong, size: 0, ..symbol };
        }
        for block in 0..self.blocks.len() {
            let section = self.blocks[block].section;
            let describes_code = self.sections[section.index()].role == SectionRole::EhFrame;
            let range = self.blocks[block].edge_range();
            for edge in &mut self.edges[range] {
                if let Some((body, may_be_replaced)) = bodies.get(&edge.target)
                    && (describes_code || edge.kind == EdgeKind::Branch32 && !may_be_replaced)
                {
                    edge.target = *body;
                }
            }
        }
        Ok(self)
    }
}
