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
            "sub rsp, 8",
            ".cfi_def_cfa_offset 16",
            "call {prepare}",
            "add rsp, 8",
            ".cfi_def_cfa_offset 8",
            "mov rdi, rdx",
            "jmp rax",
            ".cfi_endproc",
            ".size uruk_thread_start, . - uruk_thread_start",
            ".popsection",
            prepare = sym $prepare,
        );
    };
}
pub(crate) use define_thread_start;
