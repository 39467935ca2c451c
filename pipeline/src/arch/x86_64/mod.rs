//! x86-64: its relocations, the instructions that the linker knows, and its templates of code.
//!
//! Source: System V psABI for AMD64.

mod detour;
mod encode;
mod features;
mod fragments;
pub mod kinds;
pub(crate) mod lazy;
mod levels;
mod padding;
mod program;
mod relax;
mod relocations;
mod stubs;
mod trampoline;
mod translations;

use object::elf::{EM_X86_64, Machine};

use super::kind::{
    Class, CodeField, DistanceLoad, EdgeKind, FarForm, IfuncParts, Meaning, Operands, Overflow, SlotKind,
};

pub(super) use detour::{detour_bytes, distance_load, write_detour, write_detour_jump};
pub(super) use encode::{encode, field_bytes, points_into, value};
pub use features::{CodeNeeds, Features};
pub(super) use fragments::{fragment_end, fragment_start, returns};
pub(super) use kinds::{kind_name, kind_of_number};
pub use levels::{ProcessorLevel, ProcessorTarget};
pub(super) use padding::{begins_with_jump_over, is_padding};
pub(crate) use program::{START_FILES, jump_with_argument};
pub(super) use relax::{access_directly, far_form, load_pointer, pointed_offset};
pub(crate) use relocations::loaded_slot;
pub(super) use relocations::{debug_field_bytes, foreign_name, meaning};
pub(super) use stubs::{
    entry_bytes, ifunc_first_call, ifunc_stub_bytes, stub_bytes, write_entry, write_ifunc_stub, write_stub,
};
pub(crate) use trampoline::{Register, Trampoline, WordBase};
pub(crate) use translations::discard_translations;

pub(super) const fn name() -> &'static str {
    "x86-64"
}

pub(super) const fn machine() -> Machine {
    EM_X86_64
}

/// The length of a range of memory in which every instruction reaches everything: that of a displacement of 32 bits.
pub(crate) const REACH_BYTES: usize = 2 << 30;

/// Whether processors fetch the instructions that were written where no code lay before. The caches of data and of instructions agree here;
/// old instructions alone may have been fetched already.
pub(crate) const FETCHES_NEW_CODE: bool = true;

pub(super) const fn pointer() -> EdgeKind {
    kinds::POINTER_64
}

pub(super) const fn distance_back() -> EdgeKind {
    kinds::NEGATIVE_DELTA_32
}
