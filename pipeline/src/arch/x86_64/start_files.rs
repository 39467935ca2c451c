//! The code of start files, which a program may refer to.

/// The code of start files: three functions, 16 bytes each. The first two return. The third is the start, which is not entered twice.
const START_FILES: [u8; 48] = {
    const RETURN: u8 = 0xc3;
    /// `ud2`.
    const UNDEFINED: [u8; 2] = [0x0f, 0x0b];
    let mut code = [0xcc; 48];
    (code[0], code[16]) = (RETURN, RETURN);
    (code[32], code[33]) = (UNDEFINED[0], UNDEFINED[1]);
    code
};

pub(in crate::arch) fn start_files() -> &'static [u8; 48] {
    &START_FILES
}
