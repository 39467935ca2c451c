//! Templates of the linker's own code.
//!
//! ```text
//!  stub:            jmp *entry(%rip); int3; int3                       8 bytes
//!  indirect         jmp *slot(%rip); int3; int3                        8
//!  function:        first: call *thunk(%rip)                           6
//!                   distance from here to the descriptor               4
//!                   int3, six times                                    6
//!  entry:           jmp *2(%rip); int3; int3; address of function u64  16
//! ```

use super::IfuncParts;

/// `jmp *displacement(%rip)`, before its displacement.
const JUMP: [u8; 2] = [0xff, 0x25];
/// `call *displacement(%rip)`, before its displacement.
const CALL: [u8; 2] = [0xff, 0x15];
/// `int3`.
const TRAP: u8 = 0xcc;

pub(in crate::arch) const fn stub_bytes() -> u64 {
    8
}

pub(in crate::arch) fn write_stub(stub: &mut [u8], address: u64, entry: u64) -> Result<(), i64> {
    stub[2..6].copy_from_slice(&displacement(address + 6, entry)?);
    stub[..2].copy_from_slice(&JUMP);
    stub[6..8].fill(TRAP);
    Ok(())
}

pub(in crate::arch) const fn ifunc_stub_bytes() -> u64 {
    24
}

pub(in crate::arch) const fn ifunc_first_call() -> u64 {
    8
}

pub(in crate::arch) fn write_ifunc_stub(bytes: &mut [u8], parts: IfuncParts) -> Result<(), i64> {
    let IfuncParts { stub, slot, descriptor, thunk } = parts;
    bytes[..ifunc_stub_bytes() as usize].fill(TRAP);
    bytes[..2].copy_from_slice(&JUMP);
    bytes[2..6].copy_from_slice(&displacement(stub + 6, slot)?);
    bytes[8..10].copy_from_slice(&CALL);
    bytes[10..14].copy_from_slice(&displacement(stub + 14, thunk)?);
    bytes[14..18].copy_from_slice(&displacement(stub + 14, descriptor)?);
    Ok(())
}

pub(in crate::arch) fn answered_address(code: &[u8]) -> Option<(usize, bool)> {
    /// `endbr64`, at the start of functions that are called by pointers.
    const LANDING: [u8; 4] = [0xf3, 0x0f, 0x1e, 0xfa];
    const RETURN: u8 = 0xc3;
    let code_at = if code.starts_with(&LANDING) { LANDING.len() } else { 0 };
    let (field_at, is_distance) = match code.get(code_at..)? {
        [0x48, 0x8d, 0x05, ..] => (code_at + 3, true), // lea rax, [rip + field]
        [0x48, 0x8b, 0x05, ..] => (code_at + 3, false), // mov rax, [rip + field]
        [0xb8, ..] => (code_at + 1, false),            // mov eax, field
        _ => return None,
    };
    (code.get(field_at + 4) == Some(&RETURN)).then_some((field_at, is_distance))
}

pub(in crate::arch) const fn entry_bytes() -> usize {
    16
}

pub(in crate::arch) fn write_entry(entry: &mut [u8], function: u64) {
    entry[..8].copy_from_slice(&[JUMP[0], JUMP[1], 2, 0, 0, 0, TRAP, TRAP]);
    entry[8..16].copy_from_slice(&function.to_le_bytes());
}

/// The 32 bits that lead from the end of an instruction to `target`; else the distance.
fn displacement(end: u64, target: u64) -> Result<[u8; 4], i64> {
    let distance = target.wrapping_sub(end).cast_signed();
    i32::try_from(distance).map(i32::to_le_bytes).map_err(|_| distance)
}
