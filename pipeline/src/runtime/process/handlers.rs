//! Handlers of signals. One may interrupt the C library in the middle of an allocation, and must not be compiled then. So it is compiled
//! when it is installed, with what it calls.

use std::ffi::c_int;

use uruk_core::ExecutorAddr;

use crate::runtime::call_through::prepare;

unsafe extern "C" {
    fn __sysv_signal(signal: c_int, handler: libc::sighandler_t) -> libc::sighandler_t;
}

fn prepare_handler(handler: libc::sighandler_t) {
    if ![libc::SIG_DFL, libc::SIG_IGN, libc::SIG_ERR].contains(&handler) {
        prepare(ExecutorAddr::new(handler as u64));
    }
}

/// `sigaction` for linked code.
///
/// # Safety
/// Both are null, or an action that may be read, and one that may be written.
pub(super) unsafe extern "C" fn sigaction(
    signal: c_int,
    action: *const libc::sigaction,
    before: *mut libc::sigaction,
) -> c_int {
    // SAFETY: the caller's obligation. Both kinds of handlers lie in one place.
    if let Some(action) = unsafe { action.as_ref() } {
        prepare_handler(action.sa_sigaction);
    }
    // SAFETY: the caller's obligation, passed on.
    unsafe { libc::sigaction(signal, action, before) }
}

/// `signal` for linked code.
///
/// # Safety
/// `handler` is a handler.
pub(super) unsafe extern "C" fn signal(signal: c_int, handler: libc::sighandler_t) -> libc::sighandler_t {
    prepare_handler(handler);
    // SAFETY: the caller's obligation, passed on.
    unsafe { libc::signal(signal, handler) }
}

/// `signal` for linked code, as System V had it: a handler is called once.
///
/// # Safety
/// `handler` is a handler.
pub(super) unsafe extern "C" fn sysv_signal(
    signal: c_int,
    handler: libc::sighandler_t,
) -> libc::sighandler_t {
    prepare_handler(handler);
    // SAFETY: the caller's obligation, passed on.
    unsafe { __sysv_signal(signal, handler) }
}
