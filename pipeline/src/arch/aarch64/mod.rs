//! AArch64: its relocations and its templates of code.
//!
//! No instruction is rewritten here. Far variables are reached through the global offset table alone, as position-independent code does,
//! and far functions through stubs.
//!
//! Source: ELF for the Arm 64-bit Architecture (AAELF64).

mod encode;
mod fragments;
#[cfg(target_arch = "aarch64")]
pub(crate) mod host;
pub mod kinds;
mod lazy;
mod padding;
mod relocations;
mod rewrites;
mod start_files;
mod stubs;

use object::elf::{EM_AARCH64, Machine};

use super::kind::{
    Class, CodeField, DistanceLoad, EdgeKind, FarForm, IfuncParts, Meaning, Operands, Overflow,
};
use super::lazy::{CALLS_AT, CodeTemplate, FieldTarget, LazyTemplates};

pub(super) use encode::{encode, field_bytes, points_into, value};
pub(super) use fragments::{fragment_end, fragment_start, returns};
pub(super) use kinds::{kind_name, kind_of_number};
pub(super) use lazy::{lazy_templates, write_table_offset};
pub(super) use padding::{begins_with_jump_over, is_padding};
pub(super) use relocations::{debug_field_bytes, foreign_name, meaning};
pub(super) use rewrites::{
    access_directly, detour_bytes, distance_load, far_form, load_pointer, pointed_offset, write_detour,
    write_detour_jump,
};
pub(super) use start_files::start_files;
pub(super) use stubs::{
    answered_address, entry_bytes, ifunc_first_call, ifunc_stub_bytes, stub_bytes, write_entry,
    write_ifunc_stub, write_stub,
};

pub(super) const fn name() -> &'static str {
    "AArch64"
}

pub(super) const fn machine() -> Machine {
    EM_AARCH64
}

pub(super) const fn pointer() -> EdgeKind {
    kinds::POINTER_64
}

pub(super) const fn distance_back() -> EdgeKind {
    kinds::NEGATIVE_DELTA_32
}

/// The instruction at the start of `bytes`.
fn instruction(bytes: &[u8]) -> Option<u32> {
    bytes.first_chunk().map(|word| u32::from_le_bytes(*word))
}

/// The bytes of instructions.
const fn code_bytes<const BYTES: usize>(code: &[u32]) -> [u8; BYTES] {
    let mut bytes = [0; BYTES];
    let mut index = 0;
    while index < BYTES {
        bytes[index] = code[index / 4].to_le_bytes()[index % 4];
        index += 1;
    }
    bytes
}
