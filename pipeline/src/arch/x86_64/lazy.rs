//! Templates of lazy functions. The processor keeps the order of loads, so a jump through a word acquires.

use super::{CALLS_AT, CodeField, CodeTemplate, FieldTarget, LazyTemplates, kinds};

static TEMPLATES: LazyTemplates = LazyTemplates {
    slot_stub: SLOT_STUB,
    group_stub: GROUP_STUB,
    cold: COLD,
    counting: COUNTING,
    common_frame: COMMON_FRAME,
    distance: kinds::DELTA_32,
};

/// `jmp *slot(%rip)`, and ten bytes that are never reached. Eight stubs in a line of the cache are more jumps than the processor can foresee
/// there: with stubs of 8 bytes, calls that cycle over 1,000 functions took 9 ns more than without stubs; with these they take 4 more.
const SLOT_STUB: CodeTemplate = CodeTemplate {
    code: &padded::<16>(&[0xff, 0x25, 0, 0, 0, 0]),
    fields: &[(FieldTarget::Word, displacement(2))],
};

/// There are conventions in which any register has an argument, so `%r11` is kept where no signal handler writes:
///
/// ```text
///   mov %r11, -8(%rsp);   mov root(%rip), %r11;   mov 8*number(%r11), %r11
///   mov %r11, -16(%rsp);  mov -8(%rsp), %r11;     jmp *-16(%rsp)
/// ```
const GROUP_STUB: CodeTemplate = CodeTemplate {
    code: &padded::<48>(&[
        0x4c, 0x89, 0x5c, 0x24, 0xf8, 0x4c, 0x8b, 0x1d, 0, 0, 0, 0, 0x4d, 0x8b, 0x9b, 0, 0, 0, 0, 0x4c, 0x89,
        0x5c, 0x24, 0xf0, 0x4c, 0x8b, 0x5c, 0x24, 0xf8, 0xff, 0x64, 0x24, 0xf0,
    ]),
    fields: &[(FieldTarget::Word, displacement(8))],
};
/// The 32 bits of such a stub that say which byte of the table it jumps through.
const TABLE_OFFSET_AT: usize = 15;

/// `call *thunk(%rip)`, how far away the descriptor is, and six bytes that are never reached. The distance is read where the call would come
/// back.
const COLD: CodeTemplate = CodeTemplate {
    code: &padded::<16>(&[0xff, 0x15, 0, 0, 0, 0, 0, 0, 0, 0]),
    fields: &[(FieldTarget::Thunk, displacement(2)), (FieldTarget::Descriptor, distance(6))],
};

/// `decl calls(%rip); jz cold; jmp *body(%rip)`, and 14 bytes that are never reached.
const COUNTING: CodeTemplate = CodeTemplate {
    code: &padded::<32>(&[0xff, 0x0d, 0, 0, 0, 0, 0x0f, 0x84, 0, 0, 0, 0, 0xff, 0x25, 0, 0, 0, 0]),
    fields: &[
        (FieldTarget::Counted, CodeField { addend: CALLS_AT - 4, ..displacement(2) }),
        (FieldTarget::Cold, displacement(8)),
        (FieldTarget::Counted, displacement(14)),
    ],
};

/// The frame lies 8 bytes above the stack pointer, and begins with the return address.
const COMMON_FRAME: [u8; 24] =
    [20, 0, 0, 0, 0, 0, 0, 0, 1, b'z', b'R', 0, 1, 0x78, 16, 1, 0x1b, 0x0c, 7, 8, 0x90, 1, 0, 0];

pub(in crate::arch) fn lazy_templates() -> &'static LazyTemplates {
    &TEMPLATES
}

pub(in crate::arch) fn write_table_offset(stub: &mut [u8], offset: u32) {
    stub[TABLE_OFFSET_AT..][..4].copy_from_slice(&offset.to_le_bytes());
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
