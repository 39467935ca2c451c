//! Instructions that the linker may rewrite, in place and without changing their length.
//!
//! Two directions. An access through the global offset table becomes direct when the symbol can be reached. And a direct `lea` of a symbol
//! that turns out too far away becomes a load from the table, so that position-independent executables' objects link against libraries at
//! any distance.
//!
//! Pure: an instruction is rewritten only if its bytes are exactly of a known form, else nothing is touched.

use super::{EdgeKind, FarForm, Operands, kinds};

/// The encoding of `[rip + disp32]` in a ModRM byte, for every register.
const fn is_rip_relative(modrm: u8) -> bool {
    modrm & 0xc7 == 0x05
}

const LEA: u8 = 0x8d;
const MOV_LOAD: u8 = 0x8b;
/// The addend of a displacement that ends its instruction.
pub(super) const END_OF_INSTRUCTION: i64 = -4;

pub(in crate::arch) fn far_form(bytes: &[u8], offset: usize, addend: i64) -> Option<FarForm> {
    if is_branch(bytes, offset, addend) {
        Some(FarForm::Stub)
    } else {
        is_lea(bytes, offset).then_some(FarForm::Pointer)
    }
}

pub(in crate::arch) const fn pointed_offset(addend: i64) -> i64 {
    addend.wrapping_sub(END_OF_INSTRUCTION)
}

pub(in crate::arch) fn load_pointer(bytes: &mut [u8], offset: usize, place: u64, pointer: u64) -> bool {
    let end = place.wrapping_add_signed(-END_OF_INSTRUCTION);
    make_load(bytes, offset, pointer.wrapping_sub(end).cast_signed())
}

pub(in crate::arch) fn access_directly(
    kind: EdgeKind,
    bytes: &mut [u8],
    offset: usize,
    operands: &Operands,
) -> bool {
    let Operands { place, target, addend, .. } = *operands;
    let distance = target.wrapping_sub(place).cast_signed().wrapping_add(addend);
    kind == kinds::GOT_ENTRY_DELTA_32_RELAXABLE && make_direct(bytes, offset, addend, distance)
}

/// Rewrites the access through the table whose displacement is at `offset`, so that it refers to the symbol
/// itself; `distance` is `S + A - P`. Says whether it did.
///
/// ```text
/// mov  x@GOTPCREL(%rip), %reg   ->   lea x(%rip), %reg
/// call *x@GOTPCREL(%rip)        ->   addr32 call x
/// jmp  *x@GOTPCREL(%rip)        ->   jmp x; nop
/// ```
/// The other instructions that assemblers mark (`test`, `add`, ...) would need the address itself as their operand.
fn make_direct(bytes: &mut [u8], offset: usize, addend: i64, distance: i64) -> bool {
    const INDIRECT: u8 = 0xff;
    const CALL_INDIRECT: u8 = 0x15;
    const JUMP_INDIRECT: u8 = 0x25;
    let Ok(distance) = i32::try_from(distance) else { return false };
    let (Some(start), true) = (offset.checked_sub(2), addend == END_OF_INSTRUCTION) else { return false };
    let Some(instruction) = bytes.get_mut(start..offset + 4) else { return false };
    match (instruction[0], instruction[1]) {
        (MOV_LOAD, modrm) if is_rip_relative(modrm) => {
            instruction[0] = LEA;
            instruction[2..].copy_from_slice(&distance.to_le_bytes());
        }
        (INDIRECT, CALL_INDIRECT) => {
            instruction[..2].copy_from_slice(&[0x67, 0xe8]);
            instruction[2..].copy_from_slice(&distance.to_le_bytes());
        }
        (INDIRECT, JUMP_INDIRECT) => {
            // The displacement moves one byte towards the start, and so does the end that it counts from.
            let Some(distance) = distance.checked_add(1) else { return false };
            instruction[0] = 0xe9;
            instruction[1..5].copy_from_slice(&distance.to_le_bytes());
            instruction[5] = 0x90;
        }
        _ => return false,
    }
    true
}

/// Whether the displacement at `offset` belongs to a direct call or jump, which may go through a stub.
fn is_branch(bytes: &[u8], offset: usize, addend: i64) -> bool {
    let before = |back: usize| offset.checked_sub(back).and_then(|at| bytes.get(at)).copied();
    let plain = matches!(before(1), Some(0xe8 | 0xe9));
    let conditional = before(2) == Some(0x0f) && matches!(before(1), Some(0x80..=0x8f));
    addend == END_OF_INSTRUCTION && (plain || conditional)
}

/// Whether the displacement at `offset` belongs to a `lea` with a 64-bit destination, which can be turned into a load.
///
/// A `lea` has no immediate, so its displacement ends it for every addend.
fn is_lea(bytes: &[u8], offset: usize) -> bool {
    const REX_W: u8 = 0x48;
    const REX_WR: u8 = 0x4c;
    /// An EVEX instruction with the same last three bytes would start here.
    const EVEX: u8 = 0x62;
    let Some(start) = offset.checked_sub(3) else { return false };
    let Some(&[rex, opcode, modrm]) = bytes.get(start..offset) else { return false };
    matches!(rex, REX_W | REX_WR)
        && opcode == LEA
        && is_rip_relative(modrm)
        && offset.checked_sub(6).is_none_or(|at| bytes[at] != EVEX)
}

/// Turns the `lea` whose displacement is at `offset` into a load of the pointer that lies `distance` away from the end
/// of the instruction; see [`is_lea`].
///
/// ```text
/// lea x+8(%rip), %reg   ->   mov pointer_to_x_plus_8(%rip), %reg
/// ```
fn make_load(bytes: &mut [u8], offset: usize, distance: i64) -> bool {
    let Ok(distance) = i32::try_from(distance) else { return false };
    if !is_lea(bytes, offset) {
        return false;
    }
    let Some(field) = bytes.get_mut(offset - 2..offset + 4) else { return false };
    field[0] = MOV_LOAD;
    field[2..].copy_from_slice(&distance.to_le_bytes());
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accesses_through_the_table_become_direct() {
        let mut load = [0x48, 0x8b, 0x05, 0, 0, 0, 0];
        assert!(make_direct(&mut load, 3, -4, 0x1234));
        assert_eq!(load, [0x48, 0x8d, 0x05, 0x34, 0x12, 0, 0]);
        let mut call = [0xff, 0x15, 0, 0, 0, 0];
        assert!(make_direct(&mut call, 2, -4, -2));
        assert_eq!(call, [0x67, 0xe8, 0xfe, 0xff, 0xff, 0xff]);
        let mut jump = [0xff, 0x25, 0, 0, 0, 0];
        assert!(make_direct(&mut jump, 2, -4, 0x10));
        assert_eq!(jump, [0xe9, 0x11, 0, 0, 0, 0x90]);
    }

    #[test]
    fn other_instructions_and_distances_stay_as_they_are() {
        let compare = [0x48, 0x3b, 0x05, 0, 0, 0, 0];
        let mut bytes = compare;
        assert!(!make_direct(&mut bytes, 3, -4, 0x1234));
        assert!(!make_direct(&mut bytes, 3, -5, 0x1234));
        assert_eq!(bytes, compare);
        let mut load = [0x48, 0x8b, 0x05, 0, 0, 0, 0];
        assert!(!make_direct(&mut load, 3, -4, 1 << 31));
        assert!(!make_direct(&mut load, 1, -4, 0));
    }

    #[test]
    fn a_lea_becomes_a_load_and_its_double_among_vector_instructions_does_not() {
        let mut lea = [0x66, 0x48, 0x8d, 0x3d, 0, 0, 0, 0];
        assert!(make_load(&mut lea, 4, 0x20));
        assert_eq!(lea, [0x66, 0x48, 0x8b, 0x3d, 0x20, 0, 0, 0]);
        let vpermb = [0x62, 0xf2, 0x7d, 0x48, 0x8d, 0x05, 0, 0, 0, 0];
        assert!(!is_lea(&vpermb, 6));
        assert!(!is_lea(&[0x8d, 0x05, 0, 0, 0, 0], 2));
    }

    #[test]
    fn branches_are_told_by_their_opcodes() {
        assert!(is_branch(&[0xe8, 0, 0, 0, 0], 1, -4));
        assert!(is_branch(&[0x0f, 0x84, 0, 0, 0, 0], 2, -4));
        assert!(!is_branch(&[0x48, 0x8d, 0x05, 0, 0, 0, 0], 3, -4));
        assert!(!is_branch(&[0, 0, 0, 0], 0, -4));
    }
}
