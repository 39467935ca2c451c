//! The state in which a process starts.

/// Gives this thread the floating-point state that a process starts with.
pub(crate) fn start_floating_point() {
    // SAFETY: the state is the one that compiled code expects.
    unsafe {
        std::arch::asm!("msr fpcr, xzr", "msr fpsr, xzr", options(nostack));
    }
}
