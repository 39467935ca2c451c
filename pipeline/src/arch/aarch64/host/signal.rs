//! The registers of a thread that a signal has stopped.

use std::ffi::c_void;

/// How many registers a frame has: `x0` to `x30` and the stack pointer by their numbers in DWARF, and where the code goes on.
pub(crate) const REGISTERS: usize = 33;
/// The stack pointer among them.
pub(crate) const STACK_POINTER: usize = 31;
/// Where the code goes on, which has no number in DWARF.
pub(crate) const GOES_ON: usize = 32;
/// The register that unwind tables call the return address.
pub(crate) const RETURN_ADDRESS: usize = 30;
/// Whether a call leaves the address behind it on the stack.
pub(crate) const IS_CALLED_THROUGH_STACK: bool = false;

/// Those of the thread at the moment of the signal.
///
/// # Safety
/// `context` is the third argument of a signal handler.
pub(crate) unsafe fn registers_of_signal(context: *const c_void) -> [u64; REGISTERS] {
    // SAFETY: the caller's obligation: the system passes a `ucontext_t`.
    let stopped = unsafe { &(*context.cast::<libc::ucontext_t>()).uc_mcontext };
    let mut registers = [0; REGISTERS];
    registers[..31].copy_from_slice(&stopped.regs);
    (registers[STACK_POINTER], registers[GOES_ON]) = (stopped.sp, stopped.pc);
    registers
}
