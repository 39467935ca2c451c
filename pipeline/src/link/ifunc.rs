//! Indirect functions: symbols whose code is chosen by a resolver, when they are called first.
//!
//! A resolver may call other functions and read relocated data, so it cannot run while its object is being linked.
//! Each indirect function therefore gets a stub, which is its one address for calls and pointers alike:
//!
//! ```text
//!  code       stub:    jmp *slot(%rip); int3; int3              8 bytes
//!             first:   call *thunk(%rip)                        6
//!                      distance from here to the descriptor     4
//!                      int3, six times                          6
//!  data       slot:    address of `first`, later of the chosen code
//!  constants  descriptor: { address of slot u64, address of resolver u64 }
//!             thunk:      address of the thunk, once a graph
//! ```
//!
//! # What the thunk does
//! It is entered with every register as the caller of the indirect function left it. It takes the address of the distance off the stack, calls
//! the resolver (`extern "C" fn() -> u64`, no arguments, stack aligned), stores the result in the slot, and goes on there with every
//! register as it was. Several threads may do so at once: the store is of one aligned word, and each gets an answer that is right.

use super::error::LinkError;
use super::graph::{LinkGraph, Location, SectionRole, SymbolId, SymbolKind};

/// Size of a stub with its first-call sequence.
pub(super) const STUB_BYTES: u64 = 24;
/// Size of a slot.
pub(super) const SLOT_BYTES: u64 = 8;
/// Size of a descriptor.
pub(super) const DESCRIPTOR_BYTES: u64 = 16;
/// Size of the pointer to the thunk.
pub(super) const THUNK_BYTES: u64 = 8;
/// Where the first-call sequence starts, in the stub.
pub(super) const FIRST_CALL_OFFSET: u64 = 8;

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

/// The addresses that a stub refers to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Parts {
    pub(super) stub: u64,
    pub(super) slot: u64,
    pub(super) descriptor: u64,
    pub(super) thunk: u64,
}

/// Writes a stub with its first-call sequence.
///
/// # Errors
/// The distance that does not fit.
pub(super) fn write_stub(bytes: &mut [u8], parts: Parts) -> Result<(), i64> {
    let distance = |to: u64, end: u64| {
        let distance = to.wrapping_sub(parts.stub + end).cast_signed();
        i32::try_from(distance).map(i32::to_le_bytes).map_err(|_| distance)
    };
    bytes[..STUB_BYTES as usize].fill(0xcc);
    bytes[..2].copy_from_slice(&[0xff, 0x25]);
    bytes[2..6].copy_from_slice(&distance(parts.slot, 6)?);
    bytes[8..10].copy_from_slice(&[0xff, 0x15]);
    bytes[10..14].copy_from_slice(&distance(parts.thunk, 14)?);
    bytes[14..18].copy_from_slice(&distance(parts.descriptor, 14)?);
    Ok(())
}
