//! Bytes before functions and at their start that are no code: padding to align them, and data that is jumped over.

use super::instruction;

/// `nop`.
pub(super) const NO_OP: u32 = 0xd503_201f;
/// `brk #1`, which compilers fill with.
const TRAP: u32 = 0xd420_0020;

pub(in crate::arch) fn is_padding(bytes: &[u8]) -> bool {
    let (words, rest) = bytes.as_chunks();
    let are_all = |wanted: u32| words.iter().all(|word| u32::from_le_bytes(*word) == wanted);
    bytes.iter().all(|byte| *byte == 0) || rest.is_empty() && (are_all(NO_OP) || are_all(TRAP))
}

pub(in crate::arch) fn begins_with_jump_over(code: &[u8]) -> bool {
    let Some(jump) = instruction(code).filter(|first| first >> 26 == 0b000_101) else { return false };
    // A distance in instructions, of 26 bits with the sign.
    let distance = i64::from((jump << 6).cast_signed() >> 6) * 4;
    usize::try_from(distance).is_ok_and(|distance| distance > 4 && distance < code.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    #[test]
    fn padding_is_zeros_no_ops_and_traps() {
        for padding in [&[0, 0][..], &[NO_OP, NO_OP, NO_OP], &[TRAP], &[]] {
            assert!(is_padding(&code(padding)), "{padding:x?}");
        }
        assert!(is_padding(&[0; 7]));
        for other in [&[NO_OP, 0][..], &[77], &[NO_OP, 0xd65f_03c0]] {
            assert!(!is_padding(&code(other)), "{other:x?}");
        }
        assert!(!is_padding(&code(&[NO_OP])[..3]), "cut off");
    }

    #[test]
    fn a_jump_over_data_leads_forward_and_stays_in_the_function() {
        let over = |words: &[u32]| begins_with_jump_over(&code(words));
        assert!(over(&[0x1400_0002, 77, NO_OP]));
        // To another function, back, to the next instruction, to itself, and a call.
        for first in [0x1400_0003, 0x17ff_ffff, 0x1400_0001, 0x1400_0000, 0x9400_0002] {
            assert!(!over(&[first, 77, NO_OP]), "{first:#x}");
        }
        assert!(!begins_with_jump_over(&[0, 0]));
    }
}
