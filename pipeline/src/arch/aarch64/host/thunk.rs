//! The thunk through which first calls go. `runtime/ifunc.rs` says what it does.

use super::vectors::uruk_call_keeping_vectors;

unsafe extern "C" {
    pub(crate) fn uruk_ifunc_lazy_thunk();
}

// The descriptor comes in `x17`. That and `x16` are free between a call and its function, and all other general registers are kept: they are
// saved above the frame pointer, by which unwinding out of the resolver goes.
std::arch::global_asm!(
    ".pushsection .text.uruk_ifunc_lazy_thunk, \"ax\", @progbits",
    ".p2align 4",
    ".globl uruk_ifunc_lazy_thunk",
    ".hidden uruk_ifunc_lazy_thunk",
    ".type uruk_ifunc_lazy_thunk, @function",
    "uruk_ifunc_lazy_thunk:",
    ".cfi_startproc",
    "stp x29, x30, [sp, #-160]!",
    ".cfi_def_cfa_offset 160",
    ".cfi_offset x29, -160",
    ".cfi_offset x30, -152",
    "mov x29, sp",
    ".cfi_def_cfa x29, 160",
    "stp x0, x1, [sp, #16]",
    "stp x2, x3, [sp, #32]",
    "stp x4, x5, [sp, #48]",
    "stp x6, x7, [sp, #64]",
    "stp x8, x9, [sp, #80]", // the place of a result in memory is in x8
    "stp x10, x11, [sp, #96]",
    "stp x12, x13, [sp, #112]",
    "stp x14, x15, [sp, #128]",
    "stp x18, x19, [sp, #144]", // the static chain is in x18
    ".cfi_offset x19, -8",
    "mov x19, x17",
    "ldr x16, [x17, #8]",
    "mov x0, x17", // for `call_through.rs`; other resolvers take nothing
    "bl {call}",
    "ldr x17, [x19]",
    "str x0, [x17]",
    "mov x16, x0",
    "ldp x0, x1, [sp, #16]",
    "ldp x2, x3, [sp, #32]",
    "ldp x4, x5, [sp, #48]",
    "ldp x6, x7, [sp, #64]",
    "ldp x8, x9, [sp, #80]",
    "ldp x10, x11, [sp, #96]",
    "ldp x12, x13, [sp, #112]",
    "ldp x14, x15, [sp, #128]",
    "ldp x18, x19, [sp, #144]",
    "ldp x29, x30, [sp], #160",
    ".cfi_def_cfa sp, 0",
    ".cfi_restore x19",
    ".cfi_restore x29",
    ".cfi_restore x30",
    "br x16",
    ".cfi_endproc",
    ".size uruk_ifunc_lazy_thunk, . - uruk_ifunc_lazy_thunk",
    ".popsection",
    call = sym uruk_call_keeping_vectors,
);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::ifunc::{IfuncDescriptor, lazy_thunk};
    use std::arch::asm;
    use std::panic::{catch_unwind, resume_unwind};

    extern "C" fn resolve_to_all() -> u64 {
        // Uses registers that the thunk has to keep.
        let noise: f64 = (0..10).map(|i| f64::from(i) * 1.5).sum();
        std::hint::black_box(noise);
        all as extern "C" fn() as *const () as u64
    }

    extern "C-unwind" fn resolve_by_throwing() -> u64 {
        resume_unwind(Box::new("no implementation"))
    }

    /// Adds all registers in which an argument may come: twice the number of each, so that none stands for another.
    #[unsafe(naked)]
    extern "C" fn all() {
        core::arch::naked_asm!(
            "add x0, x0, x1",
            "add x0, x0, x2",
            "add x0, x0, x3",
            "add x0, x0, x4",
            "add x0, x0, x5",
            "add x0, x0, x6",
            "add x0, x0, x7",
            "add x0, x0, x8",
            "add x0, x0, x9",
            "add x0, x0, x10",
            "add x0, x0, x11",
            "add x0, x0, x12",
            "add x0, x0, x13",
            "add x0, x0, x14",
            "add x0, x0, x15",
            "mov x1, v0.d[1]",
            "add x0, x0, x1",
            "mov x1, v31.d[1]",
            "add x0, x0, x1",
            "ret",
        )
    }

    /// As a stub does: the descriptor comes in `x0`.
    #[unsafe(naked)]
    extern "C-unwind" fn enter(_: &IfuncDescriptor) -> u64 {
        core::arch::naked_asm!("mov x17, x0", "b {thunk}", thunk = sym uruk_ifunc_lazy_thunk)
    }

    #[test]
    fn arguments_arrive_and_the_slot_is_bound() {
        lazy_thunk();
        super::super::vectors::with_either_state(|| {
            let mut slot = 0;
            let descriptor = IfuncDescriptor { slot: &raw mut slot, resolver: resolve_to_all };
            let sum: u64;
            // SAFETY: a C call with all clobbers declared.
            unsafe {
                asm!(
                    "mov v0.d[1], {first}",
                    "mov v31.d[1], {second}",
                    "mov x17, x16", // may have been one of the two
                    "bl {thunk}",
                    thunk = sym uruk_ifunc_lazy_thunk,
                    first = in(reg) 1_u64 << 32,
                    second = in(reg) 1_u64 << 33,
                    in("x16") &raw const descriptor,
                    inout("x0") 1_u64 << 0 => sum,
                    in("x1") 1_u64 << 1, in("x2") 1_u64 << 2, in("x3") 1_u64 << 3, in("x4") 1_u64 << 4,
                    in("x5") 1_u64 << 5, in("x6") 1_u64 << 6, in("x7") 1_u64 << 7, in("x8") 1_u64 << 8,
                    in("x9") 1_u64 << 9, in("x10") 1_u64 << 10, in("x11") 1_u64 << 11, in("x12") 1_u64 << 12,
                    in("x13") 1_u64 << 13, in("x14") 1_u64 << 14, in("x15") 1_u64 << 15,
                    clobber_abi("C"),
                );
            }
            assert_eq!(sum, 0x3_0000_ffff, "{sum:#x}");
            // SAFETY: the slot was filled by the thunk.
            assert_eq!(unsafe { (&raw const slot).read_volatile() }, resolve_to_all());
        });
    }

    #[test]
    fn an_exception_leaves_a_resolver() {
        lazy_thunk();
        let mut slot = 0;
        // SAFETY: the types differ in whether unwinding is announced, which is what this test is about.
        let resolver = unsafe {
            std::mem::transmute::<extern "C-unwind" fn() -> u64, extern "C" fn() -> u64>(resolve_by_throwing)
        };
        let descriptor = IfuncDescriptor { slot: &raw mut slot, resolver };
        let caught = catch_unwind(|| enter(&descriptor)).unwrap_err();
        assert_eq!(*caught.downcast::<&str>().unwrap(), "no implementation");
    }
}
