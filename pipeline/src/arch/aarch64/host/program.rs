//! Code of program images that are made by hand.

const RETURN: u32 = 0xd65f_03c0;

/// The code of start files: three functions, 16 bytes each. The first two return. The third is the start, which is not entered twice.
pub(crate) const START_FILES: [u8; 48] = {
    let mut code = [0; 48]; // all others are undefined
    let [first, second, third, fourth] = RETURN.to_le_bytes();
    (code[0], code[1], code[2], code[3]) = (first, second, third, fourth);
    (code[16], code[17], code[18], code[19]) = (first, second, third, fourth);
    code
};

/// `ldr x0, argument; ldr x16, function; br x16`, and both.
pub(crate) fn jump_with_argument(function: u64, argument: u64) -> Vec<u8> {
    const LOAD_X0: u32 = 0x5800_0080;
    const LOAD_X16: u32 = 0x5800_00b0;
    const JUMP: u32 = 0xd61f_0200;
    const TRAP: u32 = 0;
    let code = [LOAD_X0, LOAD_X16, JUMP, TRAP].into_iter().flat_map(u32::to_le_bytes);
    code.chain(argument.to_le_bytes()).chain(function.to_le_bytes()).collect()
}
