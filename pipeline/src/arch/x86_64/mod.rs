//! x86-64: its relocations, the instructions that the linker knows, and its templates of code.
//!
//! Source: System V psABI for AMD64.

mod detour;
mod encode;
mod features;
mod fragments;
#[cfg(target_arch = "x86_64")]
pub(crate) mod host;
pub mod kinds;
mod lazy;
mod levels;
mod padding;
mod relax;
mod relocations;
mod start_files;
mod stubs;
#[cfg(target_arch = "x86_64")]
mod trampoline;

use object::elf::{EM_X86_64, Machine};

use super::kind::{
    Class, CodeField, DistanceLoad, EdgeKind, FarForm, IfuncParts, Meaning, Operands, Overflow,
};
use super::lazy::{CALLS_AT, CodeTemplate, FieldTarget, LazyTemplates};

pub(super) use detour::{detour_bytes, distance_load, write_detour, write_detour_jump};
pub(super) use encode::{encode, field_bytes, points_into, value};
pub use features::{CodeNeeds, Features};
pub(super) use fragments::{fragment_end, fragment_start, returns};
pub(super) use kinds::{kind_name, kind_of_number};
pub(super) use lazy::{lazy_templates, write_table_offset};
pub use levels::{ProcessorLevel, ProcessorTarget};
pub(super) use padding::{begins_with_jump_over, is_padding};
pub(super) use relax::{access_directly, far_form, load_pointer, pointed_offset};
pub(super) use relocations::{debug_field_bytes, foreign_name, meaning};
pub(super) use start_files::start_files;
pub(super) use stubs::{
    answered_address, entry_bytes, ifunc_first_call, ifunc_stub_bytes, stub_bytes, write_entry,
    write_ifunc_stub, write_stub,
};
#[cfg(target_arch = "x86_64")]
pub(crate) use trampoline::{Register, Trampoline, WordBase};

pub(super) const fn name() -> &'static str {
    "x86-64"
}

pub(super) const fn machine() -> Machine {
    EM_X86_64
}

pub(super) const fn pointer() -> EdgeKind {
    kinds::POINTER_64
}

pub(super) const fn distance_back() -> EdgeKind {
    kinds::NEGATIVE_DELTA_32
}
