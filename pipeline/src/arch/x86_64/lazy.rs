//! Templates of lazy functions: stubs, the cold part that a first call goes through, and parts that count calls.
//!
//! `lazy/stubs.rs` puts them into a graph. Linked code is not read: `runtime/call_through/table.rs` finds stubs by their addresses.

use super::{CodeField, kinds};

/// A stub, and the field that leads to the word that it jumps through.
#[derive(Debug)]
pub(crate) struct StubTemplate {
    pub(crate) code: &'static [u8],
    pub(crate) operand: CodeField,
    /// For stubs of a group: the place of 32 bits that say which byte of the table the stub jumps through.
    pub(crate) table_offset_at: Option<usize>,
}

/// `jmp *slot(%rip)`, and ten bytes that are never reached. Eight stubs in a line of the cache are more jumps than the processor can foresee
/// there: with stubs of 8 bytes, calls that cycle over 1,000 functions took 9 ns more than without stubs; with these they take 4 more.
pub(crate) const SLOT_STUB: StubTemplate = StubTemplate {
    code: &padded::<16>(&[0xff, 0x25, 0, 0, 0, 0]),
    operand: displacement(2),
    table_offset_at: None,
};

/// There are conventions in which any register has an argument, so `%r11` is kept where no signal handler writes:
///
/// ```text
///   mov %r11, -8(%rsp);   mov root(%rip), %r11;   mov 8*number(%r11), %r11
///   mov %r11, -16(%rsp);  mov -8(%rsp), %r11;     jmp *-16(%rsp)
/// ```
pub(crate) const GROUP_STUB: StubTemplate = StubTemplate {
    code: &padded::<48>(&[
        0x4c, 0x89, 0x5c, 0x24, 0xf8, 0x4c, 0x8b, 0x1d, 0, 0, 0, 0, 0x4d, 0x8b, 0x9b, 0, 0, 0, 0, 0x4c, 0x89,
        0x5c, 0x24, 0xf0, 0x4c, 0x8b, 0x5c, 0x24, 0xf8, 0xff, 0x64, 0x24, 0xf0,
    ]),
    operand: displacement(8),
    table_offset_at: Some(15),
};

/// `call *thunk(%rip)`, how far away the descriptor is, and six bytes that are never reached.
pub(crate) const COLD: &[u8] = &padded::<16>(&[0xff, 0x15, 0, 0, 0, 0, 0, 0, 0, 0]);
/// Where a cold part says where the thunk is.
pub(crate) const COLD_THUNK: CodeField = displacement(2);
/// Where it says where the descriptor is: that field is read where the call would come back.
pub(crate) const COLD_DESCRIPTOR: CodeField = distance(6);

/// `decl calls(%rip); jz cold; jmp *body(%rip)`, and 14 bytes that are never reached.
pub(crate) const COUNTING: &[u8] =
    &padded::<32>(&[0xff, 0x0d, 0, 0, 0, 0, 0x0f, 0x84, 0, 0, 0, 0, 0xff, 0x25, 0, 0, 0, 0]);
/// Where a counting part says where its calls are counted, where the cold part is, and where the pointer to the body is.
pub(crate) const COUNTING_CALLS: CodeField = displacement(2);
pub(crate) const COUNTING_COLD: CodeField = displacement(8);
pub(crate) const COUNTING_BODY: CodeField = displacement(14);

/// Call frame information: in stubs and cold parts the stack is as it was when they were called.
///
/// ```text
///   0  common entry: the frame lies 8 bytes above the stack pointer, and begins with the return address
///  24  entry of all stubs: 28 back to 0, where they begin, how long they are
///  44  entry of all counting and cold parts: 48 back to 0, the same
/// ```
#[rustfmt::skip]
const FRAMES: [u8; 64] = [
    20, 0, 0, 0, 0, 0, 0, 0, 1, b'z', b'R', 0, 1, 0x78, 16, 1, 0x1b, 0x0c, 7, 8, 0x90, 1, 0, 0,
    16, 0, 0, 0, 28, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
    16, 0, 0, 0, 48, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
];
/// Where the entries say where the code begins. The length of the code stands behind that.
pub(crate) const FRAMES_STUBS: CodeField = distance(32);
pub(crate) const FRAMES_COLD: CodeField = distance(52);

/// Call frame information of stubs and cold parts of these lengths.
pub(crate) fn stub_frames(stub_bytes: usize, cold_bytes: usize) -> [u8; 64] {
    let mut frames = FRAMES;
    for (field, bytes) in [(FRAMES_STUBS, stub_bytes), (FRAMES_COLD, cold_bytes)] {
        // A graph of more than 2 GiB is refused anyway.
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        frames[field.offset as usize + 4..][..4].copy_from_slice(&bytes.to_le_bytes());
    }
    frames
}

/// The displacement of an instruction that ends with it.
const fn displacement(offset: u64) -> CodeField {
    CodeField { offset, kind: kinds::DELTA_32, addend: -4 }
}

/// A distance from the field itself.
const fn distance(offset: u64) -> CodeField {
    CodeField { offset, kind: kinds::DELTA_32, addend: 0 }
}

/// `code`, and `int3` up to `BYTES`.
const fn padded<const BYTES: usize>(code: &[u8]) -> [u8; BYTES] {
    let mut padded = [0xcc; BYTES];
    padded.split_at_mut(code.len()).0.copy_from_slice(code);
    padded
}
