//! Templates of lazy functions. `x16` and `x17` are free for the code between a call and its function.
//!
//! ```text
//!  stub:       adrp x16, slot; add x16, x16, slot; ldar x16, [x16]; br x16                       16 bytes
//!  of a group: adrp x16, root; ldr x16, [x16, root]; movz x17, offset; movk x17, offset
//!              add x16, x16, x17; ldar x16, [x16]; br x16; udf                             32
//!  cold:       adrp x17, descriptor; add x17, x17, descriptor
//!              adrp x16, thunk; ldr x16, [x16, thunk]; br x16; udf                           24
//!  counting:   adrp x16, counted; add x16, x16, counted
//!              ldr w17, [x16, #8]; sub w17, w17, #1; str w17, [x16, #8]; cbz w17, 1f
//!              ldar x16, [x16]; br x16; 1: b cold; udf                              40
//! ```
//!
//! **Order.** A jump orders no loads: the processor may load the data of a function before it knows where the jump leads. So `ldar`, an
//! acquire, loads the word that a stub jumps through. The loads of the counting part and of the body come after it. It pairs with the Release
//! of the thread that leads the stub (`call_through/slot.rs`). The counting part loads its body in the same way, because a thread that
//! read an older value of the slot may find a newer body.
//!
//! A plain load finds the table of a group. The load of the table's entry needs that address, so it comes after, and it acquires too. The body sees all
//! that came before the table was published.
//!
//! Fetches of instructions are no loads. All processors fetch a body anew before a stub can lead to it, where the system grants that
//! (`memory/cores.rs`).
//!
//! Source: Arm Architecture Reference Manual, B2.3, "Definition of the Arm memory model".

use super::stubs::{ADD_TO_X17, JUMP, LOAD_X16, PAGE_TO_X16, PAGE_TO_X17, TRAP};
use super::{CALLS_AT, CodeField, CodeTemplate, EdgeKind, FieldTarget, LazyTemplates, code_bytes, kinds};

static TEMPLATES: LazyTemplates = LazyTemplates {
    slot_stub: CodeTemplate {
        code: &code_bytes::<16>(&[PAGE_TO_X16, ADD_TO_X16, ACQUIRE_X16, JUMP]),
        fields: &[
            (FieldTarget::Word, field(0, kinds::PAGE_21)),
            (FieldTarget::Word, field(4, kinds::LOW_12)),
        ],
    },
    group_stub: CodeTemplate {
        code: &code_bytes::<32>(&[
            PAGE_TO_X16,
            LOAD_X16,
            MOVE_TO_X17,
            MOVE_TO_UPPER_X17,
            ADD_X17_TO_X16,
            ACQUIRE_X16,
            JUMP,
            TRAP,
        ]),
        fields: &[
            (FieldTarget::Word, field(0, kinds::PAGE_21)),
            (FieldTarget::Word, field(4, kinds::ACCESS_64_LOW_12)),
        ],
    },
    cold: CodeTemplate {
        code: &code_bytes::<24>(&[PAGE_TO_X17, ADD_TO_X17, PAGE_TO_X16, LOAD_X16, JUMP, TRAP]),
        fields: &[
            (FieldTarget::Descriptor, field(0, kinds::PAGE_21)),
            (FieldTarget::Descriptor, field(4, kinds::LOW_12)),
            (FieldTarget::Thunk, field(8, kinds::PAGE_21)),
            (FieldTarget::Thunk, field(12, kinds::ACCESS_64_LOW_12)),
        ],
    },
    counting: CodeTemplate {
        code: &code_bytes::<40>(&[
            PAGE_TO_X16,
            ADD_TO_X16,
            LOAD_CALLS,
            ONE_CALL_LESS,
            STORE_CALLS,
            TO_COLD_IF_NONE,
            ACQUIRE_X16,
            JUMP,
            TO_COLD,
            TRAP,
        ]),
        fields: &[
            (FieldTarget::Counted, field(0, kinds::PAGE_21)),
            (FieldTarget::Counted, field(4, kinds::LOW_12)),
            (FieldTarget::Cold, field(32, kinds::JUMP_26)),
        ],
    },
    common_frame: COMMON_FRAME,
    distance: kinds::DELTA_32,
};

/// `add x16, x16, #0`.
const ADD_TO_X16: u32 = 0x9100_0210;
// ordering[slot-target]: Acquire.
/// `ldar x16, [x16]`.
const ACQUIRE_X16: u32 = 0xc8df_fe10;
/// `movz x17, #0`.
const MOVE_TO_X17: u32 = 0xd280_0011;
/// `movk x17, #0, lsl #16`.
const MOVE_TO_UPPER_X17: u32 = 0xf2a0_0011;
/// `add x16, x16, x17`.
const ADD_X17_TO_X16: u32 = 0x8b11_0210;
/// `ldr w17, [x16, #8]`.
const LOAD_CALLS: u32 = 0xb940_0a11;
/// `sub w17, w17, #1`.
const ONE_CALL_LESS: u32 = 0x5100_0631;
/// `str w17, [x16, #8]`.
const STORE_CALLS: u32 = 0xb900_0a11;
/// `cbz w17, .+12`.
const TO_COLD_IF_NONE: u32 = 0x3400_0071;
/// `b 0`.
const TO_COLD: u32 = 0x1400_0000;

const _: () = assert!(CALLS_AT == 8);

/// The instructions of a group's stub that hold the halves of an offset in the table, and where they stand.
const TABLE_OFFSET: [(usize, u32); 2] = [(8, MOVE_TO_X17), (12, MOVE_TO_UPPER_X17)];

/// The frame lies at the stack pointer, and the return address is in `x30`.
const COMMON_FRAME: [u8; 24] =
    [20, 0, 0, 0, 0, 0, 0, 0, 1, b'z', b'R', 0, 4, 0x78, 30, 1, 0x1b, 0x0c, 31, 0, 0, 0, 0, 0];

pub(in crate::arch) fn lazy_templates() -> &'static LazyTemplates {
    &TEMPLATES
}

pub(in crate::arch) fn write_table_offset(stub: &mut [u8], offset: u32) {
    let halves = [offset & 0xffff, offset >> 16];
    for ((at, instruction), half) in TABLE_OFFSET.into_iter().zip(halves) {
        stub[at..][..4].copy_from_slice(&(instruction | half << 5).to_le_bytes());
    }
}

const fn field(offset: u64, kind: EdgeKind) -> CodeField {
    CodeField { offset, kind, addend: 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stub_of_a_group_holds_its_offset_in_two_halves() {
        let mut stub = TEMPLATES.group_stub.code.to_vec();
        write_table_offset(&mut stub, 0x0012_3458);
        // movz x17, #0x3458; movk x17, #0x12, lsl #16
        assert_eq!(stub[8..16], code_bytes::<8>(&[0xd286_8b11, 0xf2a0_0251]));
        write_table_offset(&mut stub, 0);
        assert_eq!(stub, TEMPLATES.group_stub.code);
    }
}
