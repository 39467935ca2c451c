//! The code of start files, which a program may refer to.

/// The code of start files: three functions, 16 bytes each. The first two return. The third is the start, which is not entered twice.
const START_FILES: [u8; 48] = {
    const RETURN: u32 = 0xd65f_03c0;
    let mut code = [0; 48]; // all others are undefined
    let [first, second, third, fourth] = RETURN.to_le_bytes();
    (code[0], code[1], code[2], code[3]) = (first, second, third, fourth);
    (code[16], code[17], code[18], code[19]) = (first, second, third, fourth);
    code
};

pub(in crate::arch) fn start_files() -> &'static [u8; 48] {
    &START_FILES
}
