//! Dropping definitions that other units provide.
//!
//! The session decides which of several definitions of a name counts; here the others become references to it,
//! and their blocks go unless something that stays refers to them by another way (a local name, an offset in the
//! section). A COMDAT group whose every name is defined elsewhere goes as a whole, local names included. A frame
//! description entry goes with its function.
//!
//! Excepted are the pointers of the unwind tables: two pointers of one name cannot be told apart, so each unit keeps its own.
//!
//! This is no garbage collection: a definition without references stays, unless it is discarded, or the owner wants some functions and what
//! they need (`order.rs`).

use super::graph::{Binding, BlockId, LinkGraph, Location};
use super::order::{self, CodeOrder};

/// Pointers through which unwind tables name routines and types, eight constant bytes each. Tables hold a 32-bit
/// distance to them, which another unit's may be too far away for; so each unit keeps its own, as a local name.
const UNWINDER_POINTERS: &str = "DW.ref.";

/// Drops the definitions that `is_discarded` says belong to another unit, and what an order of code leaves out. Gives the code that comes first.
///
/// # Cost
/// One pass over the symbols, and one more with an order; over the edges only if something was discarded.
pub(super) fn prune(
    graph: &mut LinkGraph<'_>,
    is_discarded: &dyn Fn(&str) -> bool,
    order: Option<&CodeOrder<'_>>,
) -> Vec<BlockId> {
    let phase = uruk_core::phase!("link.prune", symbols = graph.symbols.len());
    let _inside = uruk_core::inside(phase);
    discard_definitions(graph, is_discarded);
    let mut first = order.map_or_else(Vec::new, |order| order::first(graph, order));
    if order.is_some_and(|order| order.is_whole) {
        order::leave_out_all_but(graph, &first);
    }
    if graph.blocks.iter().any(|block| block.discardable) {
        mark(graph);
    }
    first.retain(|block| graph.blocks[block.index()].live);
    first
}

/// Turns discarded definitions into references, and marks the blocks that may go with them.
fn discard_definitions(graph: &mut LinkGraph<'_>, is_discarded: &dyn Fn(&str) -> bool) {
    let mut lost = vec![false; graph.blocks.len()];
    let mut kept = vec![false; graph.blocks.len()];
    for index in 0..graph.symbols.len() {
        let symbol = graph.symbols[index];
        if symbol.binding == Binding::Local
            || !matches!(symbol.location, Location::Block(..) | Location::Absolute(_))
        {
            continue;
        }
        let mut discarded = is_discarded(graph.text(symbol.name));
        if discarded && graph.text(symbol.name).starts_with(UNWINDER_POINTERS) {
            graph.symbols[index].binding = Binding::Local;
            discarded = false;
        }
        if let Location::Block(block, _) = symbol.location {
            (if discarded { &mut lost } else { &mut kept })[block.index()] = true;
        }
        if discarded {
            graph.symbols[index].location = Location::Undefined;
            // Another unit has it, so it must be there.
            graph.symbols[index].binding = Binding::Strong;
            graph.symbols[index].common = false;
        }
    }
    // A block may be discardable already, when graphs were merged; a name that counts still keeps it.
    for (index, block) in graph.blocks.iter_mut().enumerate() {
        block.discardable = (block.discardable || lost[index]) && !kept[index];
    }
    for group in &graph.groups {
        let blocks = || group.sections.iter().flat_map(|section| graph.sections[section.index()].blocks());
        let any_lost = blocks().any(|block| lost[block.index()]);
        let any_kept = blocks().any(|block| kept[block.index()]);
        if any_lost && !any_kept {
            for section in &group.sections {
                for block in graph.sections[section.index()].blocks() {
                    graph.blocks[block.index()].discardable = true;
                }
            }
        }
    }
}

/// Whether each block would stay now. The graph is as it was.
pub(super) fn live(graph: &mut LinkGraph<'_>) -> Vec<bool> {
    let (blocks, frames) = (graph.blocks.clone(), graph.frames.clone());
    mark(graph);
    graph.frames = frames;
    std::mem::replace(&mut graph.blocks, blocks).iter().map(|block| block.live).collect()
}

/// Keeps what cannot go and everything it refers to. Frame description entries follow their function, not the
/// other way round.
fn mark(graph: &mut LinkGraph<'_>) {
    let mut frames: Vec<(BlockId, BlockId)> = graph
        .frames
        .iter()
        .filter_map(|frame| {
            let function = graph.edges[frame.function as usize].target;
            match graph.symbols[function.index()].location {
                Location::Block(block, _) => Some((block, frame.block)),
                _ => None,
            }
        })
        .collect();
    frames.sort_unstable();

    let mut is_frame = vec![false; graph.blocks.len()];
    for frame in &graph.frames {
        is_frame[frame.block.index()] = true;
    }
    let mut work = Vec::new();
    for (index, block) in graph.blocks.iter_mut().enumerate() {
        let stays = block.live && !block.discardable && !is_frame[index];
        block.live = stays;
        if stays {
            work.push(BlockId::of(index));
        }
    }
    while let Some(block) = work.pop() {
        let first = frames.partition_point(|(function, _)| *function < block);
        let described =
            frames[first..].iter().take_while(|(function, _)| *function == block).map(|(_, frame)| *frame);
        let targets = graph.edges[graph.blocks[block.index()].edge_range()].iter().filter_map(|edge| {
            match graph.symbols[edge.target.index()].location {
                Location::Block(target, _) => Some(target),
                _ => None,
            }
        });
        for next in described.chain(targets) {
            let next_block = &mut graph.blocks[next.index()];
            if !next_block.live {
                next_block.live = true;
                work.push(next);
            }
        }
    }
    let blocks = &graph.blocks;
    graph.frames.retain(|frame| blocks[frame.block.index()].live);
}
