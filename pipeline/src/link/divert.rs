//! References to a function with a stub elsewhere lead to the stub.

use std::collections::HashMap;

use rustc_hash::FxHashMap;

use super::error::LinkError;
use super::graph::{Binding, LinkGraph, Location, SectionRole, Symbol, SymbolId};
use crate::arch::Class;

/// The name of the body of a function with a stub, and whether another definition may have taken its place.
pub(crate) type BodyOf<'b> = &'b dyn Fn(&str) -> Option<(&'b str, bool)>;

impl LinkGraph<'_> {
    /// Gives functions the names that `body_of` says. Calls go on leading to them, unless they may have been replaced. Code that takes an
    /// address, or may do so, gets the function's own name, which is defined elsewhere. References to the middle of a function stay.
    ///
    /// # Errors
    /// [`LinkError::Object`] if there is no room for more names.
    ///
    /// # Cost
    /// Linear in the graph.
    pub(crate) fn put_behind_stubs(mut self, body_of: BodyOf<'_>) -> Result<Self, LinkError> {
        let (mut bodies, mut named, mut places) =
            (FxHashMap::default(), HashMap::new(), FxHashMap::default());
        for index in 0..self.symbols.len() {
            let symbol = self.symbols[index];
            let Location::Block(block, offset) = symbol.location else { continue };
            if symbol.binding == Binding::Local {
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
            places.entry((block, offset)).or_insert(SymbolId::of(index));
            self.symbols[index] =
                Symbol { location: Location::Undefined, binding: Binding::Strong, size: 0, ..symbol };
        }
        let arch = self.arch;
        for block in 0..self.blocks.len() {
            let role = self.sections[self.blocks[block].section.index()].role;
            if role == SectionRole::EhFrame {
                // It describes the code, not the function.
                for edge in &mut self.edges[self.blocks[block].edge_range()] {
                    edge.target = bodies.get(&edge.target).map_or(edge.target, |(body, _)| *body);
                }
                continue;
            }
            for edge in &mut self.edges[self.blocks[block].edge_range()] {
                let into = arch.points_into(edge.kind, edge.addend, role == SectionRole::Code);
                if let Some((body, may_be_replaced)) = bodies.get(&edge.target) {
                    let is_call = edge.kind.class() == Class::Branch && !may_be_replaced;
                    if is_call || into.is_some_and(|into| into != 0) {
                        edge.target = *body;
                    }
                } else if let Symbol {
                    binding: Binding::Local, location: Location::Block(block, offset), ..
                } = self.symbols[edge.target.index()]
                    && edge.kind.class() != Class::Branch
                    && let Some(into) = into
                    && let Some(function) = places.get(&(block, offset.wrapping_add_signed(into)))
                {
                    // Another name of the function, which others do not know, or a distance from the start of its section.
                    edge.addend -= into;
                    edge.target = *function;
                }
            }
        }
        Ok(self)
    }
}
