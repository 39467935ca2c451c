//! The `uruk` command.
//!
//! `main` is the C library's, not Rust's: the standard library's would change what a program finds when it
//! starts, such as an ignored SIGPIPE and a handler for SIGSEGV.

#![cfg_attr(not(test), no_main)]

#[cfg_attr(
    test,
    expect(dead_code, reason = "under test the harness brings the `main`, so nobody calls ours")
)]
mod cli;

// Workers may still compile when the program calls `exit`; LLVM's static destructors would pull the
// ground from under them.
uruk::pipeline::export_cxa_atexit!();

// Threads that the program starts through a library, such as `std::thread`, start like its own.
uruk::pipeline::export_pthread_create!();

// A program that replaces `malloc` or `operator new` does so for the libraries too.
uruk::pipeline::export_allocation_functions!();

// Objects compiled for executables have their thread-local variables here.
uruk::pipeline::export_tls_reserve!();

/// Where the process starts.
#[cfg(not(test))]
// SAFETY: the one `main` of this executable; the C runtime calls it with these arguments. `std::env` has
// its own way to them, so they are not looked at here.
#[unsafe(no_mangle)]
extern "C" fn main(_argc: std::ffi::c_int, _argv: *const *const std::ffi::c_char) -> std::ffi::c_int {
    offer_tls_reserve(); // without it such objects are refused, with an error that says how to compile them
    cli::main()
}
