//! Indirect functions: symbols whose code is chosen by a resolver, when they are called first.
//!
//! A resolver may call other functions and read relocated data, so it cannot run while its object is being linked.
//! Each indirect function therefore gets a stub, which is its one address for calls and pointers alike. A resolver that only answers a
//! function of its object is not asked: the indirect function is that function.
//!
//! ```text
//!  code       stub:    jump to the address in the slot
//!             first:   call of the thunk
//!                      distance from here to the descriptor, 32 bits
//!  data       slot:    address of `first`, later of the chosen code
//!  constants  descriptor: { address of slot u64, address of resolver u64 }
//!             thunk:      address of the thunk, once a graph
//! ```
//!
//! # The thunk
//! The thunk is entered with every register as the caller of the indirect function left it. It takes the address of the distance off the
//! stack, calls the resolver (`extern "C" fn() -> u64`, no arguments, stack aligned), stores the result in the slot, and goes on there with
//! every register as it was. Several threads may do so at once: the store is of one aligned word, and each gets a right answer.

use super::error::LinkError;
use super::graph::{BlockId, LinkGraph, Location, SectionRole, Symbol, SymbolId, SymbolKind};
use crate::arch::Class;

/// Size of a slot.
pub(super) const SLOT_BYTES: u64 = 8;
/// Size of a descriptor.
pub(super) const DESCRIPTOR_BYTES: u64 = 16;
/// Size of the pointer to the thunk.
pub(super) const THUNK_BYTES: u64 = 8;

/// The indirect functions of a graph. Aliases of one resolver share a stub, so that their addresses agree.
#[derive(Debug, Default)]
pub(super) struct IndirectFunctions {
    by_symbol: rustc_hash::FxHashMap<SymbolId, u64>,
    /// One symbol for each stub.
    pub(super) resolvers: Vec<SymbolId>,
}

impl IndirectFunctions {
    /// The index of the stub of a symbol.
    pub(super) fn get(&self, symbol: SymbolId) -> Option<u64> {
        self.by_symbol.get(&symbol).copied()
    }

    pub(super) fn count(&self) -> u64 {
        self.resolvers.len() as u64
    }
}

/// Makes an indirect function whose resolver always answers the same function another name of that function. The compiler does so too, where
/// it takes the address in the object itself: a stub would be a second address.
pub(super) fn bind_constant(graph: &mut LinkGraph<'_>) {
    for index in 0..graph.symbols.len() {
        let symbol = graph.symbols[index];
        let Location::Block(block, offset) = symbol.location else { continue };
        if symbol.kind == SymbolKind::IndirectFunction
            && graph.blocks[block.index()].live
            && let Some(function) = answered_function(graph, block, offset)
        {
            let Symbol { location, size, .. } = graph.symbols[function];
            graph.symbols[index] = Symbol { location, size, kind: SymbolKind::Code, ..symbol };
        }
    }
}

/// The index of the function of the graph that the resolver always answers.
fn answered_function(graph: &LinkGraph<'_>, block: BlockId, offset: u64) -> Option<usize> {
    const FIELD_BYTES: u64 = 4;
    let code = graph.content(block).get(usize::try_from(offset).ok()?..)?;
    let (field, is_distance) = graph.arch.answered_address(code)?;
    let at = offset + field as u64;
    let edge = graph.edges(block).iter().find(|edge| (at..at + FIELD_BYTES).contains(&edge.offset));
    let (start, distance) = match edge {
        None if is_distance => {
            let distance = i32::from_le_bytes(*code[field..].first_chunk()?);
            (Location::Block(block, at + FIELD_BYTES), i64::from(distance))
        }
        Some(edge) => {
            let addend = match edge.kind.class() {
                Class::Near | Class::GotEntry => edge.addend.checked_add_unsigned(FIELD_BYTES)?,
                Class::LowAddress => edge.addend,
                _ => return None,
            };
            (graph.symbols[edge.target.index()].location, addend)
        }
        None => return None,
    };
    let Location::Block(block, start) = start else { return None };
    let location = Location::Block(block, start.checked_add_signed(distance)?);
    graph.symbols.iter().position(|symbol| symbol.kind == SymbolKind::Code && symbol.location == location)
}

/// Finds the indirect functions that a graph defines.
///
/// # Errors
/// [`LinkError::Object`] if the resolver of one is no code: it is going to be called.
pub(super) fn plan(graph: &LinkGraph<'_>) -> Result<IndirectFunctions, LinkError> {
    let mut plan = IndirectFunctions::default();
    let mut by_place = std::collections::HashMap::new();
    for (index, symbol) in graph.symbols.iter().enumerate() {
        let Location::Block(block, offset) = symbol.location else { continue };
        if symbol.kind != SymbolKind::IndirectFunction || !graph.blocks[block.index()].live {
            continue;
        }
        let id = SymbolId::of(index);
        if graph.section_of(block).role != SectionRole::Code || offset >= graph.blocks[block.index()].size {
            let what =
                format!("the resolver of the indirect function `{}` is no code", graph.symbol_name(id));
            return Err(LinkError::Object { site: Box::new(graph.site(block, offset)), what: what.into() });
        }
        let next = plan.count();
        let stub = *by_place.entry((block, offset)).or_insert_with(|| {
            plan.resolvers.push(id);
            next
        });
        plan.by_symbol.insert(id, stub);
    }
    Ok(plan)
}
