//! Calls that linked code does not notice: it goes on after them with every vector register as it was.
//!
//! As on x86-64, the stubs keep the general registers themselves and call through `uruk_call_keeping_vectors`.

use uruk_core::sync::atomic::{AtomicU64, Ordering};

/// Whether the processor has registers of the Scalable Vector Extension, of which `v0` to `v31` are parts: 1 if it does.
static IS_SCALABLE: AtomicU64 = AtomicU64::new(0);

/// Finds out what the processor has. To be called before linked code gets the address of a stub.
pub(crate) fn prepare() {
    set(is_scalable());
}

fn set(is_scalable: bool) {
    // Relaxed: the value never changes but in tests, and linked code that calls a stub was handed over with more than this.
    IS_SCALABLE.store(is_scalable.into(), Ordering::Relaxed);
}

fn is_scalable() -> bool {
    // SAFETY: reads the auxiliary vector.
    unsafe { libc::getauxval(libc::AT_HWCAP) & libc::HWCAP_SVE != 0 }
}

unsafe extern "C" {
    /// Calls the function in `x16`, with the argument in `x0`, and gives its result in `x0`. Of the general registers it keeps those that a call
    /// keeps, and of the others all.
    pub(crate) fn uruk_call_keeping_vectors();
}

// The predicates lie above the vectors. The register of first faults is not kept: no convention has a call keep it. Unwinding out of the function
// goes by the frame pointer.
std::arch::global_asm!(
    ".pushsection .text.uruk_call_keeping_vectors, \"ax\", @progbits",
    ".arch_extension sve",
    ".p2align 4",
    ".globl uruk_call_keeping_vectors",
    ".hidden uruk_call_keeping_vectors",
    ".type uruk_call_keeping_vectors, @function",
    "uruk_call_keeping_vectors:",
    ".cfi_startproc",
    "stp x29, x30, [sp, #-48]!",
    ".cfi_def_cfa_offset 48",
    ".cfi_offset x29, -48",
    ".cfi_offset x30, -40",
    "stp x19, x20, [sp, #16]",
    ".cfi_offset x19, -32",
    ".cfi_offset x20, -24",
    "str x21, [sp, #32]",
    ".cfi_offset x21, -16",
    "mov x29, sp",
    ".cfi_def_cfa x29, 48",
    "mrs x20, fpcr",
    "mrs x21, fpsr",
    "adrp x9, :got:{scalable}",
    "ldr x9, [x9, :got_lo12:{scalable}]",
    "ldr x19, [x9]",
    "cbz x19, 2f",
    "addvl sp, sp, #-32",
    "addvl sp, sp, #-2",
    "addvl x9, sp, #31",
    "addvl x9, x9, #1",
    ".irp number, 0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31",
    "str z\\number, [sp, #\\number, mul vl]",
    ".endr",
    ".irp number, 0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15",
    "str p\\number, [x9, #\\number, mul vl]",
    ".endr",
    "blr x16",
    "addvl x9, sp, #31",
    "addvl x9, x9, #1",
    ".irp number, 0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31",
    "ldr z\\number, [sp, #\\number, mul vl]",
    ".endr",
    ".irp number, 0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15",
    "ldr p\\number, [x9, #\\number, mul vl]",
    ".endr",
    "b 3f",
    "2:",
    "sub sp, sp, #512",
    ".irp number, 0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31",
    "str q\\number, [sp, #16 * \\number]",
    ".endr",
    "blr x16",
    ".irp number, 0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31",
    "ldr q\\number, [sp, #16 * \\number]",
    ".endr",
    "3:",
    "msr fpcr, x20",
    "msr fpsr, x21",
    "mov sp, x29",
    "ldr x21, [sp, #32]",
    "ldp x19, x20, [sp, #16]",
    "ldp x29, x30, [sp], #48",
    ".cfi_def_cfa sp, 0",
    ".cfi_restore x19",
    ".cfi_restore x20",
    ".cfi_restore x21",
    ".cfi_restore x29",
    ".cfi_restore x30",
    "ret",
    ".cfi_endproc",
    ".size uruk_call_keeping_vectors, . - uruk_call_keeping_vectors",
    ".arch_extension nosve",
    ".popsection",
    scalable = sym IS_SCALABLE,
);

/// Does `action` as on this processor, and as on one that has no scalable vectors. Both keep `v0` to `v31`, so tests beside it see no difference.
#[cfg(test)]
pub(crate) fn with_either_state(mut action: impl FnMut()) {
    for state in [is_scalable(), false] {
        set(state);
        action();
    }
    prepare();
}
