//! Templates of the linker's own code. `x16` and `x17` are free for the code between a call and its function.
//!
//! ```text
//!  stub:            adrp x16, entry; ldr x16, [x16, entry]; br x16; udf     16 bytes
//!  indirect         adrp x16, slot; ldr x16, [x16, slot]; br x16; udf       16
//!  function:        first: adrp x17, descriptor; add x17, x17, descriptor    8
//!                   adrp x16, thunk; ldr x16, [x16, thunk]; br x16; udf     16
//!  entry:           ldr x16, 8; br x16; address of function u64             16
//! ```

use super::encode::encode;
use super::{EdgeKind, IfuncParts, Operands, kinds};

/// `adrp x16, 0`.
pub(super) const PAGE_TO_X16: u32 = 0x9000_0010;
/// `adrp x17, 0`.
pub(super) const PAGE_TO_X17: u32 = 0x9000_0011;
/// `add x17, x17, #0`.
pub(super) const ADD_TO_X17: u32 = 0x9100_0231;
/// `ldr x16, [x16]`.
pub(super) const LOAD_X16: u32 = 0xf940_0210;
/// `br x16`.
pub(super) const JUMP: u32 = 0xd61f_0200;
/// `udf #0`.
pub(super) const TRAP: u32 = 0;
/// `ldr x16, .+8`.
const LOAD_BEHIND: u32 = 0x5800_0050;

const JUMP_BYTES: usize = 16;

pub(in crate::arch) const fn stub_bytes() -> u64 {
    JUMP_BYTES as u64
}

pub(in crate::arch) fn write_stub(stub: &mut [u8], address: u64, entry: u64) -> Result<(), i64> {
    let code = [
        placed(PAGE_TO_X16, kinds::PAGE_21, address, entry)?,
        placed(LOAD_X16, kinds::ACCESS_64_LOW_12, address + 4, entry)?,
        JUMP,
        TRAP,
    ];
    put(stub, &code);
    Ok(())
}

pub(in crate::arch) const fn ifunc_stub_bytes() -> u64 {
    40
}

pub(in crate::arch) const fn ifunc_first_call() -> u64 {
    JUMP_BYTES as u64
}

pub(in crate::arch) fn write_ifunc_stub(bytes: &mut [u8], parts: IfuncParts) -> Result<(), i64> {
    let IfuncParts { stub, slot, descriptor, thunk } = parts;
    let (jump, first) = bytes.split_at_mut(JUMP_BYTES);
    let first_call = stub + ifunc_first_call();
    write_stub(jump, stub, slot)?;
    let code = [
        placed(PAGE_TO_X17, kinds::PAGE_21, first_call, descriptor)?,
        placed(ADD_TO_X17, kinds::LOW_12, first_call + 4, descriptor)?,
    ];
    put(first, &code);
    write_stub(&mut first[8..], first_call + 8, thunk)
}

/// Two instructions make an address here. All resolvers are asked.
pub(in crate::arch) const fn answered_address(_: &[u8]) -> Option<(usize, bool)> {
    None
}

pub(in crate::arch) const fn entry_bytes() -> usize {
    16
}

pub(in crate::arch) fn write_entry(entry: &mut [u8], function: u64) {
    put(entry, &[LOAD_BEHIND, JUMP]);
    entry[8..16].copy_from_slice(&function.to_le_bytes());
}

/// The instruction at `place` with a field that leads to `target`; else the distance.
fn placed(instruction: u32, kind: EdgeKind, place: u64, target: u64) -> Result<u32, i64> {
    let mut bytes = instruction.to_le_bytes();
    let operands = Operands { place, target, ..Operands::default() };
    encode(kind, &operands, &mut bytes).map_err(|_| target.wrapping_sub(place).cast_signed())?;
    Ok(u32::from_le_bytes(bytes))
}

fn put(bytes: &mut [u8], code: &[u32]) {
    for (room, instruction) in bytes.chunks_exact_mut(4).zip(code) {
        room.copy_from_slice(&instruction.to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(bytes: &[u8]) -> Vec<u32> {
        bytes.as_chunks().0.iter().map(|word| u32::from_le_bytes(*word)).collect()
    }

    #[test]
    fn a_stub_reaches_four_gibibytes_and_says_when_it_does_not() {
        let mut stub = [0xff; 16];
        assert_eq!(write_stub(&mut stub, 0x1_0000_0ffc, 0x1_0000_2018), Ok(()));
        // adrp x16, two pages on; ldr x16, [x16, #0x18]
        assert_eq!(words(&stub), [0xd000_0010, 0xf940_0e10, JUMP, TRAP]);
        assert_eq!(write_stub(&mut stub, 0x1_0000_0000, 0), Ok(()));
        assert_eq!(write_stub(&mut stub, 0, 0x1_0000_0000), Err(0x1_0000_0000));
        assert_eq!(write_stub(&mut stub, 0, 0x1004), Err(0x1000), "a word is aligned");
    }

    #[test]
    fn the_stub_of_an_indirect_function_passes_its_descriptor_on() {
        let mut stub = [0xff; 40];
        let parts = IfuncParts { stub: 0x10_0000, slot: 0x10_1008, descriptor: 0x10_2123, thunk: 0x10_3010 };
        assert_eq!(write_ifunc_stub(&mut stub, parts), Ok(()));
        let jump = [0xb000_0010, 0xf940_0610, JUMP, TRAP];
        let first = [0xd000_0011, 0x9104_8e31, 0xf000_0010, 0xf940_0a10, JUMP, TRAP];
        assert_eq!(words(&stub), [&jump[..], &first].concat());
        for out_of_reach in [
            IfuncParts { slot: 1 << 40, ..parts },
            IfuncParts { descriptor: 1 << 40, ..parts },
            IfuncParts { thunk: 1 << 40, ..parts },
        ] {
            assert!(write_ifunc_stub(&mut stub, out_of_reach).is_err());
        }
    }
}
