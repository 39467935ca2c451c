//! Calls on another stack.

use std::ffi::c_void;

/// Calls `function` with `data` on the stack that ends at `top`. Backtraces go on through it.
///
/// # Safety
/// `top` is the end, aligned to 16 bytes, of memory that is large enough and otherwise unused. `function` may be called with `data`.
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn call_on(function: extern "C" fn(*mut c_void), data: *mut c_void, top: usize) {
    core::arch::naked_asm!(
        ".cfi_startproc",
        "push rbp",
        ".cfi_def_cfa_offset 16",
        ".cfi_offset rbp, -16",
        "mov rbp, rsp",
        ".cfi_def_cfa_register rbp",
        "mov rsp, rdx",
        "mov rax, rdi",
        "mov rdi, rsi",
        "call rax",
        "mov rsp, rbp",
        "pop rbp",
        ".cfi_def_cfa rsp, 8",
        ".cfi_restore rbp",
        "ret",
        ".cfi_endproc",
    )
}
