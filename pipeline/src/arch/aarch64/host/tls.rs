//! The functions behind TLS descriptors, and the thread pointer. `runtime/tls/resolvers.rs` says what they do.

/// Whether variables at a fixed distance from the thread pointer lie below it.
pub(crate) const VARIABLES_LIE_BELOW: bool = false;

/// The calling thread's thread pointer.
#[inline]
pub(crate) fn thread_pointer() -> u64 {
    let pointer: u64;
    // SAFETY: reads a register.
    unsafe {
        std::arch::asm!("mrs {}, tpidr_el0", out(reg) pointer, options(nostack, preserves_flags, nomem));
    }
    pointer
}

/// Defines the resolvers, of which one calls `$get`. Descriptors come in `x0`, and distances go there. The other general registers are kept
/// above the frame pointer, but for the address that the call comes back to, and vector registers by `vectors.rs`.
macro_rules! define_tls_resolvers {
    ($get:path) => {
        std::arch::global_asm!(
            ".pushsection .text.uruk_tls_resolvers, \"ax\", @progbits",
            ".p2align 4",
            ".globl uruk_tls_fixed",
            ".hidden uruk_tls_fixed",
            ".type uruk_tls_fixed, @function",
            "uruk_tls_fixed:",
            ".cfi_startproc",
            "ldr x0, [x0, #8]",
            "ret",
            ".cfi_endproc",
            ".size uruk_tls_fixed, . - uruk_tls_fixed",
            ".p2align 4",
            ".globl uruk_tls_absent",
            ".hidden uruk_tls_absent",
            ".type uruk_tls_absent, @function",
            "uruk_tls_absent:",
            ".cfi_startproc",
            "mrs x0, tpidr_el0",
            "neg x0, x0",
            "ret",
            ".cfi_endproc",
            ".size uruk_tls_absent, . - uruk_tls_absent",
            ".p2align 4",
            ".globl uruk_tls_dynamic",
            ".hidden uruk_tls_dynamic",
            ".type uruk_tls_dynamic, @function",
            "uruk_tls_dynamic:",
            ".cfi_startproc",
            "stp x29, x30, [sp, #-160]!",
            ".cfi_def_cfa_offset 160",
            ".cfi_offset x29, -160",
            ".cfi_offset x30, -152",
            "mov x29, sp",
            ".cfi_def_cfa x29, 160",
            "stp x1, x2, [sp, #16]",
            "stp x3, x4, [sp, #32]",
            "stp x5, x6, [sp, #48]",
            "stp x7, x8, [sp, #64]",
            "stp x9, x10, [sp, #80]",
            "stp x11, x12, [sp, #96]",
            "stp x13, x14, [sp, #112]",
            "stp x15, x16, [sp, #128]",
            "stp x17, x18, [sp, #144]",
            "ldr x0, [x0, #8]",
            "adrp x16, {get}",
            "add x16, x16, :lo12:{get}",
            "bl {call}",
            "mrs x1, tpidr_el0",
            "sub x0, x0, x1",
            "ldp x1, x2, [sp, #16]",
            "ldp x3, x4, [sp, #32]",
            "ldp x5, x6, [sp, #48]",
            "ldp x7, x8, [sp, #64]",
            "ldp x9, x10, [sp, #80]",
            "ldp x11, x12, [sp, #96]",
            "ldp x13, x14, [sp, #112]",
            "ldp x15, x16, [sp, #128]",
            "ldp x17, x18, [sp, #144]",
            "ldp x29, x30, [sp], #160",
            ".cfi_def_cfa sp, 0",
            ".cfi_restore x29",
            ".cfi_restore x30",
            "ret",
            ".cfi_endproc",
            ".size uruk_tls_dynamic, . - uruk_tls_dynamic",
            ".popsection",
            get = sym $get,
            call = sym $crate::arch::host::uruk_call_keeping_vectors,
        );
    };
}
pub(crate) use define_tls_resolvers;

#[cfg(test)]
mod tests {
    use std::arch::asm;

    use uruk_core::ExecutorAddr;

    use super::thread_pointer;
    use crate::executor::TlsResolvers;
    use crate::runtime::tls::{TlsIndex, register_module};

    /// Calls the resolver with known values in the registers, and gives their values afterwards.
    fn call(function: ExecutorAddr, argument: u64) -> (u64, [u64; 7], [u64; 4]) {
        let pair = [function.value(), argument];
        let (mut distance, mut general) = (pair.as_ptr().addr() as u64, [1_u64, 22, 33, 44, 55, 66, 77]);
        let mut vectors = [5_u64, 6, 7, 8];
        general[0] = function.value();
        // SAFETY: the resolver takes the pair's address in `x0` and keeps everything else, as the test checks; all that it might not keep is
        // declared.
        unsafe {
            asm!(
                "ldp q0, q31, [{vectors}]",
                "blr x1",
                "stp q0, q31, [{vectors}]",
                vectors = in(reg) vectors.as_mut_ptr(),
                inout("x0") distance,
                inout("x1") general[0],
                inout("x2") general[1],
                inout("x8") general[2],
                inout("x9") general[3],
                inout("x15") general[4],
                inout("x16") general[5],
                inout("x17") general[6],
                out("v0") _, out("v31") _, out("x30") _,
            );
        }
        (distance, general, vectors)
    }

    fn distance_if_kept(function: ExecutorAddr, argument: u64) -> u64 {
        let (distance, general, vectors) = call(function, argument);
        assert_eq!(general, [function.value(), 22, 33, 44, 55, 66, 77]);
        assert_eq!(vectors, [5, 6, 7, 8]);
        distance
    }

    #[test]
    fn resolvers_keep_every_register_even_when_they_allocate() {
        static IMAGE: [u64; 2] = [7, 8];
        let module = register_module(16, 16, 8).expect("a slot is free");
        module.initialize(ExecutorAddr::from_ptr(IMAGE.as_ptr()));
        let index = TlsIndex { module: module.id(), offset: 8 };
        let resolvers = TlsResolvers::of_process();
        let pointer = thread_pointer();
        let [first, again] =
            [(); 2].map(|()| distance_if_kept(resolvers.dynamic, (&raw const index).addr() as u64));
        assert_eq!(first, again);
        let variable = std::ptr::with_exposed_provenance::<u64>(pointer.wrapping_add(first) as usize);
        // SAFETY: the resolver has given this thread its block.
        assert_eq!(unsafe { *variable }, 8);
        assert_eq!(distance_if_kept(resolvers.fixed, 123), 123);
        assert_eq!(distance_if_kept(resolvers.absent, 0), pointer.wrapping_neg());
        drop(module);
    }
}
