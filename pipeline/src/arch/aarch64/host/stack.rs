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
        "stp x29, x30, [sp, #-16]!",
        ".cfi_def_cfa_offset 16",
        ".cfi_offset x29, -16",
        ".cfi_offset x30, -8",
        "mov x29, sp",
        ".cfi_def_cfa x29, 16",
        "mov sp, x2",
        "mov x16, x0",
        "mov x0, x1",
        "blr x16",
        "mov sp, x29",
        "ldp x29, x30, [sp], #16",
        ".cfi_def_cfa sp, 0",
        ".cfi_restore x29",
        ".cfi_restore x30",
        "ret",
        ".cfi_endproc",
    )
}
