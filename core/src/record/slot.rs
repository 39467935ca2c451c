//! A slot: the only definition of a name in four words, which are read while they may be written.
//!
//! | word | holds |
//! |---|---|
//! | name | the identity of the name; [`VACANT`]; or [`GRAVE`], where a definition was |
//! | row | its id |
//! | dylib | generation, index (24 bits) and the flags (8 bits) |
//! | address | the address |
//!
//! A vacant slot is filled at any time, the name last. All other changes of a slot happen within a closed gate, which
//! warns a reader of a mixture of two definitions.

use crate::ids::{DylibId, Id, RowId};
use crate::sync::atomic::{Ordering, fence};
use crate::sync::weakened;
use crate::{ExecutorAddr, SymbolFlags, SymbolName};

use super::definitions::RecordedDefinition;
use super::word::{Word, written};

pub(super) type Slot = [Word; 4];

/// The name of a slot without a definition, behind which none of the names that belong before it is found.
pub(super) const VACANT: u64 = 0;

/// The name of a slot whose definition went away.
pub(super) const GRAVE: u64 = 1;

const FLAG_BITS: u32 = u8::BITS;
const DYLIB_BITS: u32 = 24;

/// Whether a slot can hold the definition. All but those of a session with millions of dylibs do.
pub(super) fn fits(name: &SymbolName, definition: &RecordedDefinition) -> bool {
    identity_of(name) > GRAVE && definition.is_ready && definition.dylib.index() < 1 << DYLIB_BITS
}

/// The identity of a name. A model replays its orders, in which addresses must have no part.
#[inline]
pub(super) fn identity_of(name: &SymbolName) -> u64 {
    #[cfg(any(uruk_loom, uruk_shuttle))]
    return identity_of_text(name.as_str());
    #[cfg(not(any(uruk_loom, uruk_shuttle)))]
    return name.identity() as u64;
}

#[cfg(any(uruk_loom, uruk_shuttle))]
pub(super) fn identity_of_text(text: &str) -> u64 {
    use std::hash::BuildHasher;
    // Neither of the marks.
    rustc_hash::FxBuildHasher.hash_one(text) | 2
}

/// Fills a vacant slot.
pub(super) fn fill([name, row, dylib, address]: &Slot, identity: u64, definition: &RecordedDefinition) {
    let RecordedDefinition { dylib: id, row: row_id, address: at, flags, .. } = *definition;
    let place = u64::from(id.index()) << FLAG_BITS | u64::from(flags.bits());
    // ordering[record-change]: Release fence. Pairs with the Acquire fence in `read`; a reader that sees any of the words
    // below sees that the gate was closed since its first look, even if another thread cleared the slot. Model:
    // loom-tests/tests/models/table.rs.
    if !weakened("table::fills_without_fence") {
        fence(Ordering::Release);
    }
    if weakened("table::names_first") {
        name.store(identity, Ordering::Release);
    }
    // Relaxed: the name publishes them; during a change, the gate warns readers.
    row.store(pack(row_id), Ordering::Relaxed);
    dylib.store(u64::from(id.generation()) << 32 | place, Ordering::Relaxed);
    address.store(at.value(), Ordering::Relaxed);
    // ordering[record-publish]: Release. Pairs with the Acquire in `name_of`; a reader that is told an address sees what was
    // done to make it Ready. Model: loom-tests/tests/models/ready.rs.
    let release = if weakened("ready::publishes_unordered") { Ordering::Relaxed } else { Ordering::Release };
    name.store(identity, release);
}

/// Leaves `mark` instead of a definition.
pub(super) fn clear([name, ..]: &Slot, mark: u64) {
    // Relaxed: within a closed gate.
    name.store(mark, Ordering::Relaxed);
}

/// The slot's name, or its mark.
#[inline]
pub(super) fn name_of([name, ..]: &Slot) -> u64 {
    // ordering[record-publish]: Acquire. Pairs with the Release in `fill`.
    name.load(Ordering::Acquire)
}

/// The same for the writer.
#[inline]
pub(super) fn written_name_of([name, ..]: &Slot) -> u64 {
    written(name)
}

/// The definition in a slot, once its name was read.
#[inline]
pub(super) fn definition_in([_, row, dylib, address]: &Slot) -> RecordedDefinition {
    // Relaxed: the name that was read comes before them.
    definition(row.load(Ordering::Relaxed), dylib.load(Ordering::Relaxed), address.load(Ordering::Relaxed))
}

/// The same for the writer.
#[inline]
pub(super) fn written_definition_in([_, row, dylib, address]: &Slot) -> RecordedDefinition {
    definition(written(row), written(dylib), written(address))
}

#[inline]
fn definition(row: u64, dylib: u64, address: u64) -> RecordedDefinition {
    RecordedDefinition {
        dylib: DylibId::new((dylib as u32) >> FLAG_BITS, (dylib >> 32) as u32),
        row: unpack(row),
        address: ExecutorAddr::new(address),
        flags: SymbolFlags::from_bits_retain(dylib as u8),
        is_ready: true,
    }
}

fn pack(id: RowId) -> u64 {
    u64::from(id.generation()) << 32 | u64::from(id.index())
}

fn unpack(word: u64) -> RowId {
    RowId::new(word as u32, (word >> 32) as u32)
}
