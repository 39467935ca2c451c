//! The bytes of linked code, read where it lies.

use std::ops::Range;
use std::slice;

use super::code::NamedCode;

/// The bytes from an address of `code` to the end of the segment that has it. Nothing if none has it.
///
/// # Safety
/// The code is registered and stays so while the bytes are used, and the address is in a segment that is never written.
pub(super) unsafe fn bytes_from(code: &NamedCode, address: u64) -> &[u8] {
    let Some(range) = code.ranges.iter().find(|range| range.contains(&address)) else { return &[] };
    // SAFETY: the segment is mapped as long as the code is registered, and is final.
    unsafe { bytes(address..range.end) }
}

/// The instructions of `code`.
///
/// # Safety
/// The code is registered and stays so while the bytes are used.
pub(super) unsafe fn instructions(code: &NamedCode) -> &[u8] {
    // SAFETY: as above; instructions are never written.
    unsafe { bytes(code.code.clone()) }
}

/// A copy of at most `len` bytes of instructions at an address. Nothing if `code` has no such address.
///
/// # Safety
/// The code is registered and stays so until this returns.
pub(super) unsafe fn copy(code: &NamedCode, address: u64, len: usize) -> Vec<u8> {
    if !code.code.contains(&address) {
        return Vec::new();
    }
    let end = address.saturating_add(len as u64).min(code.code.end);
    // SAFETY: as above; instructions are never written.
    unsafe { bytes(address..end) }.to_vec()
}

/// # Safety
/// The addresses are mapped, and stay as they are for the lifetime.
unsafe fn bytes<'a>(range: Range<u64>) -> &'a [u8] {
    let len = usize::try_from(range.end.saturating_sub(range.start)).unwrap_or(0);
    if len == 0 {
        return &[];
    }
    // SAFETY: the caller's obligation.
    unsafe { slice::from_raw_parts(std::ptr::with_exposed_provenance(range.start as usize), len) }
}
