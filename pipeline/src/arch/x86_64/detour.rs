//! Initial-exec code whose variable is at no fixed distance: the load of the distance becomes a jump to a detour.
//!
//! ```text
//!  mov x@GOTTPOFF(%rip), %reg    ->    jmp detour; nop
//!
//!  detour:  lea -128(%rsp), %rsp       what lies below the stack pointer is the function's
//!           pushf; push %rax
//!           lea pair(%rip), %rax       the pair of resolver and argument, as for TLS descriptors
//!           call *(%rax)               the distance on this thread, for now
//!           mov %rax, %reg
//!           pop %rax; popf
//!           lea 128(%rsp), %rsp
//!           jmp back
//! ```
//! So does `add`, but for the flags, which it sets itself. Executables' code reaches the variables of shared libraries in this
//! way, which natively are all there before the process starts. It costs a call where there was a load.
//!
//! Pure: an instruction is rewritten only if its bytes are exactly of a known form, else nothing is touched.

use super::relax::END_OF_INSTRUCTION;
use super::{DistanceLoad, EdgeKind, kinds};

/// Room for a detour.
const DETOUR_BYTES: u64 = 48;

/// Bytes of the instruction in front of its displacement, and behind its start.
const DISPLACEMENT_OFFSET: usize = 3;
const INSTRUCTION_BYTES: usize = 7;
const FIELD_BYTES: u64 = 4;

const REX_W: u8 = 0x48;
const REX_R: u8 = 0x04;

pub(in crate::arch) const fn detour_bytes() -> u64 {
    DETOUR_BYTES
}

/// Only of the forms that the ABI has for it.
pub(in crate::arch) fn distance_load(
    kind: EdgeKind,
    bytes: &[u8],
    offset: usize,
    addend: i64,
) -> Option<DistanceLoad> {
    let is_relaxable = kind == kinds::TLS_DISTANCE_ENTRY_DELTA_32_RELAXABLE;
    is_relaxable.then(|| wanted(bytes, offset, addend)).flatten()
}

fn wanted(bytes: &[u8], offset: usize, addend: i64) -> Option<DistanceLoad> {
    const MOV_LOAD: u8 = 0x8b;
    const ADD_LOAD: u8 = 0x03;
    const STACK_POINTER: u8 = 4;
    let start = offset.checked_sub(DISPLACEMENT_OFFSET)?;
    let &[rex, opcode, modrm] = bytes.get(start..offset)? else { return None };
    let is_known = rex & !REX_R == REX_W && modrm & 0xc7 == 0x05 && addend == END_OF_INSTRUCTION;
    let register = (rex & REX_R) << 1 | modrm >> 3 & 7;
    (is_known && matches!(opcode, MOV_LOAD | ADD_LOAD) && register != STACK_POINTER)
        .then_some(DistanceLoad { register, adds: opcode == ADD_LOAD })
}

pub(in crate::arch) fn write_detour_jump(bytes: &mut [u8], offset: usize, place: u64, detour: u64) -> bool {
    const JUMP_BYTES: u64 = 5;
    let start = place - DISPLACEMENT_OFFSET as u64;
    let distance = detour.wrapping_sub(start + JUMP_BYTES).cast_signed();
    let (Ok(distance), Some(first)) = (i32::try_from(distance), offset.checked_sub(DISPLACEMENT_OFFSET))
    else {
        return false;
    };
    let Some(instruction) = bytes.get_mut(first..first + INSTRUCTION_BYTES) else { return false };
    instruction[0] = 0xe9;
    instruction[1..5].copy_from_slice(&distance.to_le_bytes());
    instruction[5..].copy_from_slice(&[0x66, 0x90]);
    true
}

pub(in crate::arch) fn write_detour(
    detour: &mut [u8],
    address: u64,
    load: DistanceLoad,
    pair: u64,
    place: u64,
) -> Result<(), i64> {
    const SPARE_THE_RED_ZONE: [u8; 5] = [0x48, 0x8d, 0x64, 0x24, 0x80];
    const SAVE: [u8; 2] = [0x9c, 0x50];
    const LEA_RAX: [u8; 3] = [0x48, 0x8d, 0x05];
    const CALL: [u8; 2] = [0xff, 0x10];
    const POP_RAX: u8 = 0x58;
    const JUMP: u8 = 0xe9;
    let mut code = Vec::with_capacity(DETOUR_BYTES as usize);
    code.extend(SPARE_THE_RED_ZONE);
    code.extend(SAVE);
    code.extend(LEA_RAX);
    code.extend(displacement(address, code.len(), pair)?);
    code.extend(CALL);
    let DistanceLoad { register, adds } = load;
    let is_rax = register == 0;
    // REX.B and the low bits name the destination, `rax` is the source.
    let rex = REX_W | register >> 3;
    let modrm = 0xc0 | register & 7;
    match (adds, is_rax) {
        // The saved value takes its place, so that the pop brings the sum, or the distance, back.
        (true, true) => code.extend([0x48, 0x01, 0x04, 0x24]), // add %rax, (%rsp)
        (false, true) => code.extend([0x48, 0x89, 0x04, 0x24]), // mov %rax, (%rsp)
        (true, false) => code.extend([rex, 0x01, modrm]),      // add %rax, %reg
        (false, false) => code.extend([rex, 0x89, modrm]),     // mov %rax, %reg
    }
    code.push(POP_RAX);
    if adds {
        code.extend([0x48, 0x8d, 0xa4, 0x24, 0x88, 0, 0, 0]); // lea 136(%rsp), %rsp: past the flags too
    } else {
        code.push(0x9d); // popf
        code.extend([0x48, 0x8d, 0xa4, 0x24, 0x80, 0, 0, 0]); // lea 128(%rsp), %rsp
    }
    code.push(JUMP);
    code.extend(displacement(address, code.len(), place + FIELD_BYTES)?);
    detour[..code.len()].copy_from_slice(&code);
    detour[code.len()..].fill(0xcc);
    Ok(())
}

/// The displacement at `offset` in the detour that leads to `target`.
fn displacement(address: u64, offset: usize, target: u64) -> Result<[u8; 4], i64> {
    let distance = target.wrapping_sub(address + offset as u64 + 4).cast_signed();
    i32::try_from(distance).map(i32::to_le_bytes).map_err(|_| distance)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_two_forms_of_the_abi_are_known_and_no_others() {
        let with = |bytes: [u8; 3]| wanted(&[&bytes[..], &[0; 4]].concat(), 3, -4);
        assert_eq!(with([0x48, 0x8b, 0x05]), Some(DistanceLoad { register: 0, adds: false }));
        assert_eq!(with([0x4c, 0x03, 0x3d]), Some(DistanceLoad { register: 15, adds: true }));
        // A comparison, 32 bits, another addressing mode, the stack pointer.
        for other in [[0x48, 0x3b, 0x05], [0x40, 0x8b, 0x05], [0x48, 0x8b, 0x80], [0x48, 0x8b, 0x25]] {
            assert_eq!(with(other), None, "{other:x?}");
        }
        assert_eq!(wanted(&[0x8b, 0x05, 0, 0, 0, 0], 2, -4), None);
        assert_eq!(wanted(&[0x48, 0x8b, 0x05, 0, 0, 0, 0], 3, 0), None);
    }

    #[test]
    fn every_detour_has_room_and_what_is_too_far_is_told() {
        for register in (0..16).filter(|register| *register != 4) {
            for adds in [false, true] {
                let mut detour = [0; DETOUR_BYTES as usize];
                let wanted = DistanceLoad { register, adds };
                assert_eq!(write_detour(&mut detour, 0x1000, wanted, 0x2000, 0x3000), Ok(()));
                assert!(write_detour(&mut detour, 0x1000, wanted, 0x1_0000_0000, 0x3000).is_err());
            }
        }
        assert!(!write_detour_jump(&mut [0; 7], 3, 0x1003, 0x1_0000_0000));
    }
}
