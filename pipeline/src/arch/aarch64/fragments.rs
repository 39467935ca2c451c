//! The function around a fragment of code in `.init` or `.fini`, as in the C library's `crti.o` and `crtn.o`.

use super::padding::NO_OP;
use super::{code_bytes, instruction};

/// `nop ...; stp x29, x30, [sp, #-16]!; mov x29, sp`. As much of its end as the fragment's alignment asks for is used.
const START: [u8; 64] = code_bytes(&{
    let mut code = [NO_OP; 16];
    (code[14], code[15]) = (0xa9bf_7bfd, 0x9100_03fd);
    code
});
const START_BYTES_MIN: u64 = 8;
/// `ret`.
const RETURN: u32 = 0xd65f_03c0;
/// `ldp x29, x30, [sp], #16; ret`
const END: [u8; 8] = code_bytes(&[0xa8c1_7bfd, RETURN]);

pub(in crate::arch) fn fragment_start(align: u64) -> Option<&'static [u8]> {
    let bytes = align.max(START_BYTES_MIN);
    let start = START.len().checked_sub(usize::try_from(bytes).ok()?)?;
    Some(&START[start..])
}

pub(in crate::arch) const fn fragment_end() -> &'static [u8] {
    &END
}

pub(in crate::arch) fn returns(fragment: &[u8]) -> bool {
    fragment.len().checked_sub(4).and_then(|last| instruction(&fragment[last..])) == Some(RETURN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fragment_begins_where_its_alignment_wants_it() {
        for align in [1_u64, 4, 8, 16, 32, 64] {
            let start = fragment_start(align).expect("a start");
            assert!(start.ends_with(&START[56..]) && (start.len() as u64).is_multiple_of(align), "{align}");
        }
        assert!(fragment_start(128).is_none());
        assert!(returns(fragment_end()) && !returns(fragment_start(4).expect("a start")) && !returns(&[]));
    }
}
