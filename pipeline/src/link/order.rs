//! The order of code where the owner has one, and what such an order leaves out.
//!
//! Functions move by blocks. A compiler that puts each into a section of its own (`-ffunction-sections`) has one block a function; otherwise
//! all the code of an object moves together.

use rustc_hash::{FxHashMap, FxHashSet};

use super::graph::{BlockId, LinkGraph, Location, Section, SectionRole};
use super::section_bounds::is_identifier;

/// The functions that come first.
#[derive(Clone, Copy)]
#[expect(missing_debug_implementations, reason = "closures have no useful Debug")]
pub struct CodeOrder<'o> {
    /// The place of a function, by the names of its object and its own. The others follow as they were.
    pub place: &'o dyn Fn(&str, &str) -> Option<u32>,
    /// Whether code and data go that these functions do not need, nor functions that run at start or end.
    pub is_whole: bool,
}

/// The name of a function, of which this may be a version (`versions.rs`).
fn without_target(name: &str) -> &str {
    name.rsplit_once('@').map_or(name, |(name, _)| name)
}

/// The blocks of functions that have a place, in that order.
pub(super) fn first(graph: &LinkGraph<'_>, order: &CodeOrder<'_>) -> Vec<BlockId> {
    let mut places = FxHashMap::<BlockId, u32>::default();
    for symbol in &graph.symbols {
        let Location::Block(block, _) = symbol.location else { continue };
        if graph.section_of(block).role != SectionRole::Code {
            continue;
        }
        let object = graph.objects.get(symbol.object.index()).map_or("", |name| name);
        if let Some(place) = (order.place)(object, without_target(graph.text(symbol.name))) {
            places.entry(block).and_modify(|known| *known = place.min(*known)).or_insert(place);
        }
    }
    let mut first: Vec<(u32, BlockId)> = places.into_iter().map(|(block, place)| (place, block)).collect();
    first.sort_unstable();
    first.into_iter().map(|(_, block)| block).collect()
}

/// Whether the contents of a section may go where nothing refers to them. Not functions for start and end, nor a section that others find by its
/// bounds.
pub(super) fn may_go(graph: &LinkGraph<'_>, section: &Section) -> bool {
    section.init.is_none() && !is_identifier(graph.text(section.name))
}

/// Marks what goes unless something that stays refers to it: all but `first`, functions for start and end, and sections that others find by
/// their bounds.
pub(super) fn leave_out_all_but(graph: &mut LinkGraph<'_>, first: &[BlockId]) {
    let first: FxHashSet<BlockId> = first.iter().copied().collect();
    let may_go: Vec<bool> = graph
        .sections
        .iter()
        .map(|section| {
            !section.role.is_tls() && section.role != SectionRole::EhFrame && may_go(graph, section)
        })
        .collect();
    for (index, block) in graph.blocks.iter_mut().enumerate() {
        let goes = may_go[block.section.index()] && !first.contains(&BlockId::of(index));
        block.discardable |= goes;
    }
}
