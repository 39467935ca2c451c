//! Padding between functions: what compilers, assemblers and linkers put there.

/// Whether `bytes` holds nothing that a program could read: zeros, traps and instructions that do nothing.
pub(in crate::arch) fn is_padding(mut bytes: &[u8]) -> bool {
    while let [first, rest @ ..] = bytes {
        bytes = match first {
            0x00 | 0xcc => rest,
            _ => match bytes.get(nop_bytes(bytes)..) {
                Some(rest) if rest.len() < bytes.len() => rest,
                _ => return false,
            },
        };
    }
    true
}

/// The length of the instruction at the start of `bytes` if it does nothing: `nop` with prefixes, or `nop` with an operand. Else zero.
fn nop_bytes(bytes: &[u8]) -> usize {
    let prefixes = bytes.iter().take_while(|byte| matches!(byte, 0x66 | 0x2e)).count();
    match bytes[prefixes..] {
        [0x90, ..] => prefixes + 1,
        [0x0f, 0x1f, operand, ..] => {
            let has_index = operand & 7 == 4 && operand >> 6 != 3;
            let displacement = match (operand >> 6, operand & 7) {
                (1, _) => 1,
                (2, _) | (0, 5) => 4,
                _ => 0,
            };
            prefixes + 3 + usize::from(has_index) + displacement
        }
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::is_padding;

    #[test]
    fn every_length_that_assemblers_fill_is_padding() {
        const LONGEST: [u8; 11] = [0x66, 0x66, 0x2e, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0];
        let nops: [&[u8]; 10] = [
            &[],
            &[0x90],
            &[0x66, 0x90],
            &[0x0f, 0x1f, 0x00],
            &[0x0f, 0x1f, 0x40, 0x00],
            &[0x0f, 0x1f, 0x44, 0x00, 0x00],
            &[0x66, 0x0f, 0x1f, 0x44, 0x00, 0x00],
            &[0x0f, 0x1f, 0x80, 0, 0, 0, 0],
            &[0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0],
            &LONGEST,
        ];
        for first in nops {
            for second in nops {
                assert!(is_padding(&[first, second, &[0, 0xcc, 0xcc]].concat()), "{first:x?} {second:x?}");
            }
        }
    }

    #[test]
    fn words_cut_off_instructions_and_code_are_not() {
        for bytes in [&[77, 0, 0, 0][..], &[0x0f, 0x1f], &[0x0f, 0x1f, 0x84, 0, 0], &[0x66], &[0x90, 0xc3]] {
            assert!(!is_padding(bytes), "{bytes:x?}");
        }
    }
}
