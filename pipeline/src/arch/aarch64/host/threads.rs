//! The first function of a thread that linked code starts.

/// Defines `uruk_thread_start`: it goes on to the function that `$prepare` answers, with the argument that it answers. It leaves by a jump: the
/// routine's caller is the C library, as the routine and an unwinder expect.
macro_rules! define_thread_start {
    ($prepare:path) => {
        std::arch::global_asm!(
            ".pushsection .text.uruk_thread_start, \"ax\", @progbits",
            ".p2align 4",
            ".globl uruk_thread_start",
            ".hidden uruk_thread_start",
            ".type uruk_thread_start, @function",
            "uruk_thread_start:",
            ".cfi_startproc",
            "stp x29, x30, [sp, #-16]!",
            ".cfi_def_cfa_offset 16",
            ".cfi_offset x29, -16",
            ".cfi_offset x30, -8",
            "bl {prepare}",
            "ldp x29, x30, [sp], #16",
            ".cfi_def_cfa_offset 0",
            ".cfi_restore x29",
            ".cfi_restore x30",
            "mov x16, x0",
            "mov x0, x1",
            "br x16",
            ".cfi_endproc",
            ".size uruk_thread_start, . - uruk_thread_start",
            ".popsection",
            prepare = sym $prepare,
        );
    };
}
pub(crate) use define_thread_start;
