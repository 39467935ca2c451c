//! The state in which a process starts.

/// Gives this thread the floating-point state that a process starts with.
pub(crate) fn start_floating_point() {
    let mxcsr_at_start = 0x1f80_u32;
    // SAFETY: the state is the one that compiled code expects; the registers of the old unit are declared lost.
    unsafe {
        std::arch::asm!(
            "fninit",
            "ldmxcsr [{control}]",
            control = in(reg) &raw const mxcsr_at_start,
            out("st(0)") _, out("st(1)") _, out("st(2)") _, out("st(3)") _,
            out("st(4)") _, out("st(5)") _, out("st(6)") _, out("st(7)") _,
            options(nostack),
        );
    }
}
