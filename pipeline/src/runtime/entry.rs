//! The frames through which program code is entered.
//!
//! They are written in assembly (`arch/*/host/entry.rs`) and end the chain of frames. An exception that the program does not catch finds the
//! end of the stack there, so that `std::terminate` is called with the program's frames still in place, as in a native process. No Rust
//! destructor and no `catch_unwind` lies in them or is ever unwound.

use std::ffi::{c_char, c_int};
use std::ptr;

use uruk_core::ExecutorAddr;

use crate::arch::host::{
    uruk_enter_function, uruk_enter_handler, uruk_enter_program, uruk_enter_program_and_exit,
};

/// Calls a program's `main`.
///
/// # Safety
/// `entry` is the address of code that can be called as `int main(int, char **, char **)`; `argv` and `envp` are
/// null-terminated arrays of strings that live as long as the process.
pub unsafe fn call_main(
    entry: ExecutorAddr,
    argc: c_int,
    argv: *mut *mut c_char,
    envp: *mut *mut c_char,
) -> c_int {
    // SAFETY: passed on to the caller.
    unsafe { uruk_enter_program(entry.value(), argc, argv, envp) }
}

/// Calls a program's `main` and exits with its result.
///
/// Both happen out of one frame: an exception that leaves an exit handler finds the end of the stack there too, and
/// `std::terminate` speaks of it.
///
/// # Safety
/// As for [`call_main`], on a thread that may end the process.
pub unsafe fn call_main_and_exit(
    entry: ExecutorAddr,
    argc: c_int,
    argv: *mut *mut c_char,
    envp: *mut *mut c_char,
) -> ! {
    // SAFETY: passed on to the caller.
    unsafe { uruk_enter_program_and_exit(entry.value(), argc, argv, envp) }
}

/// Calls an element of an `.init_array`, which gets what `main` gets.
///
/// # Safety
/// As for [`call_main`], for a function `void (int, char **, char **)`.
pub unsafe fn call_initializer(
    function: ExecutorAddr,
    argc: c_int,
    argv: *mut *mut c_char,
    envp: *mut *mut c_char,
) {
    // SAFETY: passed on to the caller. After a function without a result, that of the register is ignored.
    unsafe { uruk_enter_program(function.value(), argc, argv, envp) };
}

/// The registers in which a C function has its arguments. After a call, the first of each kind has the result of that kind.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallRegisters {
    /// Integers and pointers.
    pub integers: [u64; 6],
    /// Floating-point numbers, each in the lowest bits.
    pub floats: [u64; 8],
}

/// Calls a function, and leaves its result in `registers`. One with fewer parameters does not look at the rest.
///
/// # Safety
/// `function` is the address of code that can be called with these arguments.
pub unsafe fn call_function(function: ExecutorAddr, registers: &mut CallRegisters) {
    // SAFETY: passed on to the caller. The registers are there until the function has returned.
    unsafe { uruk_enter_function(function.value(), ptr::from_mut(registers).cast()) };
}

/// Calls an exit handler or an element of a `.fini_array`. A function with fewer parameters does not look at the rest.
///
/// # Safety
/// `function` is the address of code that can be called with these arguments.
pub unsafe fn call_handler(function: ExecutorAddr, first: usize, second: usize) {
    // SAFETY: passed on to the caller.
    unsafe { uruk_enter_handler(function.value(), first, second) };
}

#[cfg(test)]
mod tests {
    use super::*;

    unsafe extern "C" {
        fn _Unwind_RaiseException(exception: *mut UnwindException) -> c_int;
    }

    #[repr(C, align(16))]
    struct UnwindException {
        class: u64,
        cleanup: usize,
        private: [u64; 2],
    }

    extern "C" fn main(argc: c_int, argv: *mut *mut c_char, envp: *mut *mut c_char) -> c_int {
        argc * 100 + argv.addr() as c_int * 10 + envp.addr() as c_int
    }

    extern "C-unwind" fn throws(_: c_int, _: *mut *mut c_char, _: *mut *mut c_char) -> c_int {
        let mut exception = UnwindException { class: 1, cleanup: 0, private: [0; 2] };
        // SAFETY: the exception lives for the whole search, which finds no handler and returns.
        unsafe { _Unwind_RaiseException(&raw mut exception) }
    }

    #[test]
    fn arguments_and_result_pass_through() {
        let entry = ExecutorAddr::from_ptr(main as extern "C" fn(_, _, _) -> _ as *const u8);
        // SAFETY: `main` has the required type and does not follow the pointers.
        let status =
            unsafe { call_main(entry, 3, ptr::without_provenance_mut(4), ptr::without_provenance_mut(5)) };
        assert_eq!(status, 345);
    }

    #[test]
    fn arguments_of_both_kinds_and_results_pass_through() {
        extern "C" fn digits(a: u64, b: u64, c: u64, d: u64, e: u64, f: u64) -> u64 {
            [a, b, c, d, e, f].iter().fold(0, |sum, digit| sum * 10 + digit)
        }
        type Eight = extern "C" fn(f64, f64, f64, f64, f64, f64, f64, f64) -> f64;
        extern "C" fn eight(a: f64, b: f64, c: f64, d: f64, e: f64, f: f64, g: f64, h: f64) -> f64 {
            [a, b, c, d, e, f, g, h].iter().fold(0.0, |sum, digit| sum * 10.0 + digit)
        }
        let floats = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.5].map(f64::to_bits);
        let mut registers = CallRegisters { integers: [1, 2, 3, 4, 5, 6], floats };
        let function = ExecutorAddr::from_ptr(digits as extern "C" fn(_, _, _, _, _, _) -> _ as *const u8);
        // SAFETY: the function has the required type.
        unsafe { call_function(function, &mut registers) };
        assert_eq!(registers.integers[0], 123_456);

        let mut registers = CallRegisters { floats, ..CallRegisters::default() };
        // SAFETY: as above.
        unsafe { call_function(ExecutorAddr::from_ptr(eight as Eight as *const u8), &mut registers) };
        assert_eq!(f64::from_bits(registers.floats[0]), 12_345_678.5);
    }

    #[test]
    fn an_exception_ends_its_search_at_the_entry() {
        const END_OF_STACK: c_int = 5;
        let entry = ExecutorAddr::from_ptr(throws as extern "C-unwind" fn(_, _, _) -> _ as *const u8);
        // SAFETY: `throws` has the required type.
        let code = unsafe { call_main(entry, 0, ptr::null_mut(), ptr::null_mut()) };
        // Before GCC 13.3, that of AArch64 gives an argument back in place of its result (GCC's bug 114843).
        assert!(code == END_OF_STACK || cfg!(target_arch = "aarch64"), "{code}");
    }
}
