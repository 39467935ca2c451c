//! Code of program images that are made by hand.

/// The code of start files: three functions, 16 bytes each. The first two return. The third is the start, which is not entered twice.
pub(crate) const START_FILES: [u8; 48] = {
    const RETURN: u8 = 0xc3;
    /// `ud2`.
    const UNDEFINED: [u8; 2] = [0x0f, 0x0b];
    let mut code = [0xcc; 48];
    (code[0], code[16]) = (RETURN, RETURN);
    (code[32], code[33]) = (UNDEFINED[0], UNDEFINED[1]);
    code
};

/// `mov $argument, %rdi; mov $function, %rax; jmp *%rax`
pub(crate) fn jump_with_argument(function: u64, argument: u64) -> Vec<u8> {
    let mut code = Vec::with_capacity(22);
    code.extend([0x48, 0xbf]);
    code.extend(argument.to_le_bytes());
    code.extend([0x48, 0xb8]);
    code.extend(function.to_le_bytes());
    code.extend([0xff, 0xe0]);
    code
}
