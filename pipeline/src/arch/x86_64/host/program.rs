//! Code of program images that are made by hand.

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
