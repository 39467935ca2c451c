//! Lazy binding of functions that choose their own implementation (`IFUNC`).
//!
//! The linker makes a PLT entry for such a symbol whose slot first leads to a stub that loads the address of an
//! [`IfuncDescriptor`] into `%r11` and jumps to [`lazy_thunk`]. The thunk calls the resolver, stores its answer into
//! the slot, and goes on to it as if nothing had been in between: every register that may carry an argument is
//! kept, vector registers in full width too.
//!
//! Threads that race call the resolver more than once and store the same answer.

use uruk_core::ExecutorAddr;
use uruk_core::sync::atomic::{AtomicU64, Ordering};

use super::registers::{self, uruk_call_keeping_vectors};

/// What a stub hands to the thunk. The linker writes it into data of the object.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct IfuncDescriptor {
    /// The slot that the PLT entry jumps through.
    pub slot: *mut u64,
    /// The resolver: called with the address of this descriptor, answers the address of the implementation.
    pub resolver: extern "C" fn() -> u64,
}

/// The address of the thunk that binds on the first call.
///
/// The stub jumps to it (it does not call) with the address of an [`IfuncDescriptor`] in `%r11` and everything
/// else as the caller left it.
///
/// # Cost
/// Each passage saves and restores the vector state and runs the resolver; once for each symbol.
pub fn lazy_thunk() -> ExecutorAddr {
    registers::prepare();
    ExecutorAddr::from_ptr(uruk_ifunc_lazy_thunk as unsafe extern "C" fn() as *const u8)
}

/// Binds the function now, as a process does before it runs any of its code, rather than on its first call.
///
/// # Safety
/// `descriptor` is the address of an [`IfuncDescriptor`] that a finished link wrote and that is still there, and
/// its resolver can run.
pub unsafe fn bind(descriptor: ExecutorAddr) {
    // SAFETY: the caller's obligation. The slot is a word of its own that calls read in one piece.
    unsafe {
        let descriptor = *descriptor.to_ptr::<IfuncDescriptor>();
        let implementation = (descriptor.resolver)();
        AtomicU64::from_ptr(descriptor.slot).store(implementation, Ordering::Relaxed); // one word, the same from every thread
    }
}

unsafe extern "C" {
    fn uruk_ifunc_lazy_thunk();
}

// The general registers that may carry arguments are kept below the frame pointer, all others by `registers.rs`. Unwinding out
// of the resolver goes by `%rbp`.
std::arch::global_asm!(
    ".pushsection .text.uruk_ifunc_lazy_thunk, \"ax\", @progbits",
    ".p2align 4",
    ".globl uruk_ifunc_lazy_thunk",
    ".hidden uruk_ifunc_lazy_thunk",
    ".type uruk_ifunc_lazy_thunk, @function",
    "uruk_ifunc_lazy_thunk:",
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
    "push rax", // the number of vector registers of a variadic call
    "push r10", // the static chain
    "push r12",
    ".cfi_offset r12, -88",
    "mov r12, r11",
    "mov r11, [r12 + 8]",
    "mov rdi, r12", // for `call_through.rs`; other resolvers take nothing
    "call {call}",
    "mov r11, rax",
    "mov rax, [r12]",
    "mov [rax], r11",
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
    ".cfi_def_cfa rsp, 8",
    ".cfi_restore rbp",
    ".cfi_restore r12",
    "jmp r11",
    ".cfi_endproc",
    ".size uruk_ifunc_lazy_thunk, . - uruk_ifunc_lazy_thunk",
    ".popsection",
    call = sym uruk_call_keeping_vectors,
);

#[cfg(test)]
mod tests {
    use super::*;
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

    #[unsafe(naked)]
    extern "C-unwind" fn enter(_: &IfuncDescriptor, _: u64) -> u64 {
        // Shifts nothing: the descriptor comes in %rdi, so the callee sees it as its first argument.
        core::arch::naked_asm!("mov r11, rdi", "jmp {thunk}", thunk = sym uruk_ifunc_lazy_thunk)
    }

    /// Calls the thunk with nine arguments, the descriptor in `%r11`.
    fn call_through(descriptor: &IfuncDescriptor) -> f64 {
        let result: f64;
        // SAFETY: a C call with the stack aligned and all clobbers declared; the seventh integer goes on the stack.
        unsafe {
            std::arch::asm!(
                "sub rsp, 8",
                "push 7",
                "call {thunk}",
                "add rsp, 16",
                thunk = sym uruk_ifunc_lazy_thunk,
                in("r11") descriptor,
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
        registers::with_either_state(|| {
            let mut slot = 0;
            let descriptor = IfuncDescriptor { slot: &raw mut slot, resolver: resolve_to_sum };
            let direct: Sum = sum;
            assert_eq!(call_through(&descriptor), direct(1, 2, 3, 4, 5, 6, 7, 8.0, 9.0));
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
        let descriptor = IfuncDescriptor { slot: &raw mut slot, resolver };
        let caught = catch_unwind(|| enter(&descriptor, 0)).unwrap_err();
        assert_eq!(*caught.downcast::<&str>().unwrap(), "no implementation");
    }
}
