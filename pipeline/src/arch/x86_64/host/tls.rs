//! The functions behind TLS descriptors, and the thread pointer. `runtime/tls/resolvers.rs` says what they do.

/// Whether variables at a fixed distance from the thread pointer lie below it.
pub(crate) const VARIABLES_LIE_BELOW: bool = true;

/// The calling thread's thread pointer.
#[inline]
pub(crate) fn thread_pointer() -> u64 {
    let pointer: u64;
    // SAFETY: the ABI has the thread pointer stored where it points to.
    unsafe {
        std::arch::asm!("mov {}, fs:0", out(reg) pointer, options(nostack, preserves_flags, readonly));
    }
    pointer
}

/// Defines the resolvers, of which one calls `$get`. The general registers are kept below the frame pointer, all others by `vectors.rs`.
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
            "mov rax, [rax + 8]",
            "ret",
            ".cfi_endproc",
            ".size uruk_tls_fixed, . - uruk_tls_fixed",
            ".p2align 4",
            ".globl uruk_tls_absent",
            ".hidden uruk_tls_absent",
            ".type uruk_tls_absent, @function",
            "uruk_tls_absent:",
            ".cfi_startproc",
            "mov rax, fs:0",
            "neg rax",
            "ret",
            ".cfi_endproc",
            ".size uruk_tls_absent, . - uruk_tls_absent",
            ".p2align 4",
            ".globl uruk_tls_dynamic",
            ".hidden uruk_tls_dynamic",
            ".type uruk_tls_dynamic, @function",
            "uruk_tls_dynamic:",
            ".cfi_startproc",
            "push rbp",
            ".cfi_def_cfa_offset 16",
            ".cfi_offset rbp, -16",
            "mov rbp, rsp",
            ".cfi_def_cfa_register rbp",
            "push rdi",
            "push rsi",
            "push rdx",
            "push rcx",
            "push r8",
            "push r9",
            "push r10",
            "push r11",
            "mov rdi, [rax + 8]",
            "lea r11, [rip + {get}]",
            "call {call}",
            "sub rax, fs:0",
            "mov rdi, [rbp - 8]",
            "mov rsi, [rbp - 16]",
            "mov rdx, [rbp - 24]",
            "mov rcx, [rbp - 32]",
            "mov r8, [rbp - 40]",
            "mov r9, [rbp - 48]",
            "mov r10, [rbp - 56]",
            "mov r11, [rbp - 64]",
            "leave",
            ".cfi_restore rbp",
            ".cfi_def_cfa rsp, 8",
            "ret",
            ".cfi_endproc",
            ".size uruk_tls_dynamic, . - uruk_tls_dynamic",
            ".popsection",
            call = sym $crate::arch::host::uruk_call_keeping_vectors,
            get = sym $get,
        );
    };
}
pub(crate) use define_tls_resolvers;

#[cfg(test)]
mod tests {
    use super::super::vectors;
    use super::thread_pointer;
    use crate::executor::TlsResolvers;
    use crate::runtime::tls::{TlsIndex, register_module};
    use std::arch::asm;

    use uruk_core::ExecutorAddr;

    /// Calls the resolver with known values in the registers, and gives their values afterwards.
    fn call(function: ExecutorAddr, argument: u64) -> (u64, [u64; 4], [u8; 32], [u8; 32]) {
        let pair = [function.value(), argument];
        let (mut distance, mut general) = (pair.as_ptr().addr() as u64, [11_u64, 22, 33, 44]);
        let (first, second) = ([0x5a_u8; 32], [0xc3_u8; 32]);
        let (mut low, mut high) = ([0; 32], [0; 32]);
        assert!(std::arch::is_x86_feature_detected!("avx"), "the test asks for whole vector registers");
        // SAFETY: the resolver takes the pair's address in `rax` and keeps everything else, as the test checks; all that it might not keep
        // is declared.
        unsafe {
            asm!(
                "vmovdqu ymm0, [{first}]",
                "vmovdqu ymm15, [{second}]",
                "call [rax]",
                "vmovdqu [{low}], ymm0",
                "vmovdqu [{high}], ymm15",
                first = in(reg) first.as_ptr(),
                second = in(reg) second.as_ptr(),
                low = in(reg) low.as_mut_ptr(),
                high = in(reg) high.as_mut_ptr(),
                inout("rax") distance,
                inout("rdi") general[0],
                inout("rdx") general[1],
                inout("r8") general[2],
                inout("r11") general[3],
                out("ymm0") _, out("ymm15") _,
            );
        }
        (distance, general, low, high)
    }

    fn assert_kept((distance, general, low, high): (u64, [u64; 4], [u8; 32], [u8; 32])) -> u64 {
        assert_eq!(general, [11, 22, 33, 44]);
        assert_eq!((low, high), ([0x5a; 32], [0xc3; 32]));
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
        let (mut first, mut again) = (0, 1);
        let _choice = vectors::CHOICE.lock();
        for distance in [&mut first, &mut again] {
            *distance = assert_kept(call(resolvers.dynamic, (&raw const index).addr() as u64));
        }
        assert_eq!(first, again);
        let variable = std::ptr::with_exposed_provenance::<u64>(pointer.wrapping_add(first) as usize);
        // SAFETY: the resolver has given this thread its block.
        assert_eq!(unsafe { *variable }, 8);
        assert_eq!(assert_kept(call(resolvers.fixed, 123)), 123);
        assert_eq!(assert_kept(call(resolvers.absent, 0)), pointer.wrapping_neg());
        drop(module);
    }
}
