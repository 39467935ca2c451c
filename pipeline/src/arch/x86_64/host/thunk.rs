//! The thunk through which first calls go. `runtime/ifunc.rs` says what it does.

use super::vectors::uruk_call_keeping_vectors;

unsafe extern "C" {
    pub(crate) fn uruk_ifunc_lazy_thunk();
}

// The general registers that a call may change are kept around the frame pointer, all others by `vectors.rs`. Unwinding out of the
// resolver goes by `%rbp`. The place that the stub has called from is taken off the stack at once, so that its caller is the thunk's. No register
// is left for where to go on, so the thunk returns there; the processor has foreseen a return, if to the stub.
std::arch::global_asm!(
    ".pushsection .text.uruk_ifunc_lazy_thunk, \"ax\", @progbits",
    ".p2align 4",
    ".globl uruk_ifunc_lazy_thunk",
    ".hidden uruk_ifunc_lazy_thunk",
    ".type uruk_ifunc_lazy_thunk, @function",
    "uruk_ifunc_lazy_thunk:",
    ".cfi_startproc",
    ".cfi_def_cfa rsp, 16",
    "xchg [rsp], r11",
    "push rbp",
    ".cfi_def_cfa_offset 24",
    ".cfi_offset rbp, -24",
    "mov rbp, rsp",
    ".cfi_def_cfa_register rbp",
    "push rdi",
    "push rsi",
    "push rdx",
    "push rcx",
    "push r8",
    "push r9",
    "push rax", // the number of vector registers of a variadic call
    "push r10", // the static chain
    "push r12",
    ".cfi_offset r12, -96",
    "movsxd r12, dword ptr [r11]",
    "add r12, r11",
    "mov r11, [r12 + 8]",
    "mov rdi, r12", // for `call_through.rs`; other resolvers take nothing
    "call {call}",
    "mov rcx, [r12]",
    "mov [rcx], rax",
    "mov r11, [rbp + 8]",
    "mov [rbp + 8], rax",
    "pop r12",
    "pop r10",
    "pop rax",
    "pop r9",
    "pop r8",
    "pop rcx",
    "pop rdx",
    "pop rsi",
    "pop rdi",
    "pop rbp",
    ".cfi_def_cfa rsp, 16",
    ".cfi_restore rbp",
    ".cfi_restore r12",
    "ret",
    ".cfi_endproc",
    ".size uruk_ifunc_lazy_thunk, . - uruk_ifunc_lazy_thunk",
    ".popsection",
    call = sym uruk_call_keeping_vectors,
);

#[cfg(test)]
mod tests {
    use super::super::vectors;
    use super::*;
    use crate::runtime::ifunc::{IfuncDescriptor, lazy_thunk};
    use std::panic::{catch_unwind, resume_unwind};

    extern "C-unwind" fn sum(a: u64, b: u64, c: u64, d: u64, e: u64, f: u64, g: u64, x: f64, y: f64) -> f64 {
        (a + 2 * b + 3 * c + 4 * d + 5 * e + 6 * f + 7 * g) as f64 + x * 100.0 + y * 1000.0
    }

    extern "C" fn resolve_to_sum() -> u64 {
        // Uses registers that the thunk has to keep.
        let noise: f64 = (0..10).map(|i| f64::from(i) * 1.5).sum();
        std::hint::black_box(noise);
        sum as extern "C-unwind" fn(u64, u64, u64, u64, u64, u64, u64, f64, f64) -> f64 as *const () as u64
    }

    extern "C-unwind" fn resolve_by_throwing() -> u64 {
        resume_unwind(Box::new("no implementation"))
    }

    type Sum = extern "C-unwind" fn(u64, u64, u64, u64, u64, u64, u64, f64, f64) -> f64;

    /// A descriptor, and its distance from where the call of the thunk would come back.
    #[repr(C)]
    struct Place {
        distance: i64,
        descriptor: IfuncDescriptor,
    }

    impl Place {
        fn new(slot: &mut u64, resolver: extern "C" fn() -> u64) -> Self {
            Self { distance: 8, descriptor: IfuncDescriptor { slot, resolver } }
        }
    }

    /// A stub whose place comes in `%rdi`, which the callee sees as its first argument.
    #[unsafe(naked)]
    extern "C-unwind" fn enter(_: &Place) -> u64 {
        core::arch::naked_asm!("push rdi", "jmp {thunk}", thunk = sym uruk_ifunc_lazy_thunk)
    }

    /// The same of `%r11`.
    #[unsafe(naked)]
    extern "C-unwind" fn enter_by_r11() {
        core::arch::naked_asm!("push r11", "jmp {thunk}", thunk = sym uruk_ifunc_lazy_thunk)
    }

    #[unsafe(naked)]
    extern "C" fn r11() -> u64 {
        core::arch::naked_asm!("mov rax, r11", "ret")
    }

    extern "C" fn resolve_to_r11() -> u64 {
        r11 as extern "C" fn() -> u64 as *const () as u64
    }

    /// Calls the thunk with nine arguments, the place in `%r11`.
    fn call_through(place: &Place) -> f64 {
        let result: f64;
        // SAFETY: a C call with the stack aligned and all clobbers declared; the seventh integer goes on the stack.
        unsafe {
            std::arch::asm!(
                "sub rsp, 8",
                "push 7",
                "call {enter}",
                "add rsp, 16",
                enter = sym enter_by_r11,
                in("r11") place,
                in("rdi") 1_u64,
                in("rsi") 2_u64,
                in("rdx") 3_u64,
                in("rcx") 4_u64,
                in("r8") 5_u64,
                in("r9") 6_u64,
                inout("xmm0") 8.0_f64 => result,
                in("xmm1") 9.0_f64,
                clobber_abi("C"),
            );
        }
        result
    }

    #[test]
    fn arguments_arrive_and_the_slot_is_bound() {
        lazy_thunk();
        vectors::with_either_state(|| {
            let mut slot = 0;
            let place = Place::new(&mut slot, resolve_to_sum);
            let direct: Sum = sum;
            assert_eq!(call_through(&place), direct(1, 2, 3, 4, 5, 6, 7, 8.0, 9.0));
            // SAFETY: the slot was filled by the thunk.
            assert_eq!(unsafe { (&raw const slot).read_volatile() }, resolve_to_sum());
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
        let place = Place::new(&mut slot, resolver);
        let caught = catch_unwind(|| enter(&place)).unwrap_err();
        assert_eq!(*caught.downcast::<&str>().unwrap(), "no implementation");
    }

    /// The eleventh argument of `preserve_none` is there.
    #[test]
    fn the_register_that_other_conventions_leave_to_stubs_is_kept() {
        lazy_thunk();
        let mut slot = 0;
        let place = Place::new(&mut slot, resolve_to_r11);
        let result: u64;
        // SAFETY: as in `call_through`.
        unsafe {
            std::arch::asm!(
                "call {enter}",
                enter = sym enter,
                inout("rdi") &raw const place => _,
                in("r11") 4711_u64,
                lateout("rax") result,
                clobber_abi("C"),
            );
        }
        assert_eq!(result, 4711);
    }
}
