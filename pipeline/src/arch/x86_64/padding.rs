//! Bytes before functions and at their start that are no code: padding to align them, and data that is jumped over.

/// Prefixes that lengthen a no-op: operand size, and the code segment.
const PREFIXES: [u8; 2] = [0x66, 0x2e];
const ZERO: u8 = 0;
const TRAP: u8 = 0xcc;

/// The no-ops of assemblers without their prefixes, the longest first. A displacement that is not zero would be a word to read.
const NO_OPS: [&[u8]; 6] = [
    &[0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0],
    &[0x0f, 0x1f, 0x80, 0, 0, 0, 0],
    &[0x0f, 0x1f, 0x44, 0, 0],
    &[0x0f, 0x1f, 0x40, 0],
    &[0x0f, 0x1f, 0],
    &[0x90],
];

pub(in crate::arch) fn is_padding(bytes: &[u8]) -> bool {
    let is_all = |byte| bytes.iter().all(|other| *other == byte);
    is_all(ZERO) || is_all(TRAP) || are_no_ops(bytes)
}

fn are_no_ops(mut bytes: &[u8]) -> bool {
    while !bytes.is_empty() {
        let prefixes = bytes.iter().take_while(|byte| PREFIXES.contains(byte)).count();
        let rest = &bytes[prefixes..];
        let Some(after) = NO_OPS.iter().find_map(|no_op| rest.strip_prefix(*no_op)) else { return false };
        bytes = after;
    }
    true
}

pub(in crate::arch) fn begins_with_jump_over(code: &[u8]) -> bool {
    let (jump_bytes, distance) = match *code {
        [0xeb, distance, ..] => (2, i32::from(distance.cast_signed())),
        [0xe9, a, b, c, d, ..] => (5, i32::from_le_bytes([a, b, c, d])),
        _ => return false,
    };
    usize::try_from(distance).is_ok_and(|distance| distance > 0 && jump_bytes + distance < code.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_length_that_assemblers_fill_is_padding() {
        const LONGEST: [u8; 11] = [0x66, 0x66, 0x2e, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0];
        for first in NO_OPS.into_iter().chain([&[0x66, 0x90][..], &LONGEST, &[]]) {
            for second in NO_OPS {
                assert!(is_padding(&[first, second].concat()), "{first:x?} {second:x?}");
            }
        }
        assert!(is_padding(&[ZERO; 12]) && is_padding(&[TRAP; 5]));
    }

    #[test]
    fn words_cut_off_instructions_and_code_are_not() {
        let words: [&[u8]; 6] = [
            &[77, 0, 0, 0],
            &[0x90, 0x90, 0, 0, 0, 0],
            &[0x0f, 0x1f, 0x80, 7, 0, 0, 0],
            &[0x0f, 0x1f, 0x84, 0, 0],
            &[0x66],
            &[0x90, 0xc3],
        ];
        for bytes in words {
            assert!(!is_padding(bytes), "{bytes:x?}");
        }
    }

    #[test]
    fn a_jump_over_data_leads_forward_and_stays_in_the_function() {
        let over = |code: &[u8]| begins_with_jump_over(code);
        assert!(over(&[0xeb, 4, 7, 0, 0, 0, 0xc3]) && over(&[0xe9, 4, 0, 0, 0, 7, 0, 0, 0, 0xc3]));
        // To another function, back, to the next instruction, to an address that the linker knows, and cut off.
        let others: [&[u8]; 5] =
            [&[0xeb, 4, 0xc3], &[0xeb, 0xf0, 0xc3], &[0xeb, 0, 0xc3], &[0xe9, 0, 0, 0, 0, 0xc3], &[0xeb]];
        assert!(!others.into_iter().any(over));
    }
}
