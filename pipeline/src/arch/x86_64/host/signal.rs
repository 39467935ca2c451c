//! The registers of a thread that a signal has stopped.

use std::ffi::c_void;

/// How many registers a frame has, by their numbers in DWARF.
pub(crate) const REGISTERS: usize = 17;
/// The stack pointer among them.
pub(crate) const STACK_POINTER: usize = 7;
/// Where the code goes on.
pub(crate) const GOES_ON: usize = 16;
/// The register that unwind tables call the return address.
pub(crate) const RETURN_ADDRESS: usize = 16;
/// Whether a call leaves the address behind it on the stack.
pub(crate) const IS_CALLED_THROUGH_STACK: bool = true;

/// Those of the thread at the moment of the signal.
///
/// # Safety
/// `context` is the third argument of a signal handler.
pub(crate) unsafe fn registers_of_signal(context: *const c_void) -> [u64; REGISTERS] {
    use libc::*;
    // SAFETY: the caller's obligation: the system passes a `ucontext_t`.
    let registers = unsafe { &(*context.cast::<ucontext_t>()).uc_mcontext.gregs };
    let in_order = [
        REG_RAX, REG_RDX, REG_RCX, REG_RBX, REG_RSI, REG_RDI, REG_RBP, REG_RSP, REG_R8, REG_R9, REG_R10,
        REG_R11, REG_R12, REG_R13, REG_R14, REG_R15, REG_RIP,
    ];
    in_order.map(|register| registers[register as usize] as u64)
}
