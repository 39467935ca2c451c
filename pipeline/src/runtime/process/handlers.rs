//! Handlers of signals. One may interrupt the C library in the middle of an allocation, and must not be compiled then. So it is compiled
//! when it is installed, with what it calls.
//!
//! The handler that reports the end of the process is not shown, and takes the place of `SIG_DFL` ([`fatal`]).

use std::ffi::c_int;

use uruk_core::ExecutorAddr;

use crate::runtime::call_through::{handler_comes, handler_goes, prepare};
use crate::runtime::fatal::{self, Shown as _};

unsafe extern "C" {
    fn __sysv_signal(signal: c_int, handler: libc::sighandler_t) -> libc::sighandler_t;
    fn sigset(signal: c_int, handler: libc::sighandler_t) -> libc::sighandler_t;
}

/// Compiles a handler before it is installed, and has the engine's work on other threads know of it.
fn prepare_handler(signal: c_int, handler: libc::sighandler_t) {
    const SIG_HOLD: libc::sighandler_t = 2;
    if ![libc::SIG_DFL, libc::SIG_IGN, libc::SIG_ERR, SIG_HOLD].contains(&handler) {
        prepare(ExecutorAddr::new(handler as u64));
        handler_comes(signal);
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
    let new = unsafe { action.as_ref() }.map(|action| action.sa_sigaction);
    new.into_iter().for_each(|handler| prepare_handler(signal, handler));
    // SAFETY: the caller's obligation, passed on.
    let result = unsafe { libc::sigaction(signal, action, before) };
    if result == 0 {
        // SAFETY: the caller's obligation; it was written.
        if let Some(before) = unsafe { before.as_mut() } {
            *before = before.shown();
        }
        after(signal, new);
    }
    result
}

/// Follows each handler that a program has set.
fn after(signal: c_int, new: Option<libc::sighandler_t>) {
    if new == Some(libc::SIG_DFL) {
        handler_goes(signal);
        fatal::stand_in_for_default(signal);
    }
}

/// Sets a handler with one of the C library's functions; the handler that the program saw before.
fn set(
    signal: c_int,
    handler: libc::sighandler_t,
    set: impl FnOnce(c_int, libc::sighandler_t) -> libc::sighandler_t,
) -> libc::sighandler_t {
    prepare_handler(signal, handler);
    let before = set(signal, handler).shown();
    after(signal, (before != libc::SIG_ERR).then_some(handler));
    before
}

/// `signal` for linked code.
///
/// # Safety
/// `handler` is a handler.
pub(super) unsafe extern "C" fn signal(signal: c_int, handler: libc::sighandler_t) -> libc::sighandler_t {
    // SAFETY: the caller's obligation, passed on.
    set(signal, handler, |signal, handler| unsafe { libc::signal(signal, handler) })
}

/// `signal` for linked code, as System V had it: a handler is called once.
///
/// # Safety
/// `handler` is a handler.
pub(super) unsafe extern "C" fn sysv_signal(
    signal: c_int,
    handler: libc::sighandler_t,
) -> libc::sighandler_t {
    // SAFETY: the caller's obligation, passed on.
    set(signal, handler, |signal, handler| unsafe { __sysv_signal(signal, handler) })
}

/// `sigset` for linked code.
///
/// # Safety
/// `handler` is a handler, or `SIG_HOLD`.
pub(super) unsafe extern "C" fn linked_sigset(
    signal: c_int,
    handler: libc::sighandler_t,
) -> libc::sighandler_t {
    // SAFETY: the caller's obligation, passed on.
    set(signal, handler, |signal, handler| unsafe { sigset(signal, handler) })
}
