//! Whether a graph has to be placed below 2 GiB, and which of its references have to lead there.
//!
//! Code that was not built position-independent holds addresses in 32 bits. `linking/low.rs` says where such addresses come from.

use rustc_hash::FxHashSet;

use super::graph::{Binding, LinkGraph, Location, SectionRole, SymbolId};
use crate::arch::Class;

/// Says of a name whether an object may need it below 2 GiB.
pub type IsWantedLow<'o> = &'o dyn Fn(&str) -> bool;

/// The part of low addresses in a graph.
#[derive(Debug, Default)]
pub(super) struct LowPlan {
    /// Whether the graph is placed low.
    pub(super) is_low: bool,
    /// The references to others that are held in 32 bits.
    pub(super) externals: FxHashSet<SymbolId>,
}

/// Finds out whether a graph has to be placed low; `wanted` says what others want there, if there are such others.
pub(super) fn plan(graph: &LinkGraph<'_>, wanted: Option<IsWantedLow<'_>>) -> LowPlan {
    let mut plan = LowPlan::default();
    let mut reads_others = false;
    for (id, block) in graph.live_blocks() {
        let is_code = graph.sections[block.section.index()].role == SectionRole::Code;
        for edge in graph.edges(id) {
            let location = graph.symbols[edge.target.index()].location;
            match edge.kind.class() {
                Class::LowAddress => {
                    plan.is_low |= !matches!(location, Location::Absolute(_));
                    if location == Location::Undefined {
                        plan.externals.insert(edge.target);
                    }
                }
                Class::Near if location == Location::Undefined && is_code => {
                    let (content, offset) = (graph.content(id), edge.offset as usize);
                    reads_others |= graph.arch.far_form(content, offset, edge.addend).is_none();
                }
                _ => {}
            }
        }
    }
    if let Some(wanted) = wanted {
        let is_wanted = |index: usize| {
            let symbol = &graph.symbols[index];
            let is_live =
                matches!(symbol.location, Location::Block(block, _) if graph.blocks[block.index()].live);
            is_live && symbol.binding != Binding::Local && wanted(graph.symbol_name(SymbolId::of(index)))
        };
        plan.is_low = plan.is_low || reads_others || (0..graph.symbols.len()).any(is_wanted);
    }
    plan
}
