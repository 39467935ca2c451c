//! Instructions that a linker may rewrite: none is, so far. Each question is answered by "no", or by an error.
//!
//! An access through the global offset table takes two instructions, whose edges are applied one by one.

use super::{DistanceLoad, EdgeKind, FarForm, Operands};

pub(in crate::arch) const fn far_form(_bytes: &[u8], _offset: usize, _addend: i64) -> Option<FarForm> {
    None
}

/// Distances count from the instruction.
pub(in crate::arch) const fn pointed_offset(addend: i64) -> i64 {
    addend
}

pub(in crate::arch) const fn load_pointer(
    _bytes: &mut [u8],
    _offset: usize,
    _place: u64,
    _pointer: u64,
) -> bool {
    false
}

pub(in crate::arch) const fn access_directly(
    _kind: EdgeKind,
    _bytes: &mut [u8],
    _offset: usize,
    _operands: &Operands,
) -> bool {
    false
}

/// No load takes a detour, so initial-exec code needs a distance that all threads share.
pub(in crate::arch) const fn distance_load(
    _kind: EdgeKind,
    _bytes: &[u8],
    _offset: usize,
    _addend: i64,
) -> Option<DistanceLoad> {
    None
}

/// One instruction, of which none is ever written.
pub(in crate::arch) const fn detour_bytes() -> u64 {
    4
}

pub(in crate::arch) const fn write_detour_jump(
    _bytes: &mut [u8],
    _offset: usize,
    _place: u64,
    _detour: u64,
) -> bool {
    false
}

pub(in crate::arch) const fn write_detour(
    _detour: &mut [u8],
    address: u64,
    _load: DistanceLoad,
    pair: u64,
    _place: u64,
) -> Result<(), i64> {
    Err(pair.wrapping_sub(address).cast_signed())
}
