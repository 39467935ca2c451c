//! Code of program images that are made by hand.

/// `ldr x0, argument; ldr x16, function; br x16`, and both.
pub(crate) fn jump_with_argument(function: u64, argument: u64) -> Vec<u8> {
    const LOAD_X0: u32 = 0x5800_0080;
    const LOAD_X16: u32 = 0x5800_00b0;
    const JUMP: u32 = 0xd61f_0200;
    const TRAP: u32 = 0;
    let code = [LOAD_X0, LOAD_X16, JUMP, TRAP].into_iter().flat_map(u32::to_le_bytes);
    code.chain(argument.to_le_bytes()).chain(function.to_le_bytes()).collect()
}
