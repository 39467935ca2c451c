//! The function around a fragment of code in `.init` or `.fini`, as in the C library's `crti.o` and `crtn.o`.

/// `nop ...; sub $8, %rsp`. As much of its end as the fragment's alignment asks for is used.
const START: [u8; 64] = {
    const NOP: u8 = 0x90;
    let mut code = [NOP; 64];
    [code[60], code[61], code[62], code[63]] = MAKE_ROOM;
    code
};
const MAKE_ROOM: [u8; 4] = [0x48, 0x83, 0xec, 8];
const RETURN: u8 = 0xc3;
/// `add $8, %rsp; ret`
const END: [u8; 5] = [0x48, 0x83, 0xc4, 8, RETURN];

pub(in crate::arch) fn fragment_start(align: u64) -> Option<&'static [u8]> {
    let bytes = align.max(MAKE_ROOM.len() as u64);
    let start = START.len().checked_sub(usize::try_from(bytes).ok()?)?;
    Some(&START[start..])
}

pub(in crate::arch) const fn fragment_end() -> &'static [u8] {
    &END
}

pub(in crate::arch) fn returns(fragment: &[u8]) -> bool {
    fragment.last() == Some(&RETURN)
}
