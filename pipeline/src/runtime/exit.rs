//! The end of the process: handlers that linked code registers, and work of ours that comes after them.
//!
//! `atexit` and its kin are not in the shared C library: each natively linked program carries its own copy, which
//! names the program as the owner of the handler. Linked code has no such copy, so it gets these, which name no
//! owner: the handlers run when the process exits and at no other time.
//!
//! What is registered by [`on_exit`] before any program code runs after everything the program registers: exit
//! handlers run newest first. `exit` may be called on any thread.

use std::ffi::{c_int, c_void};
use std::ptr;

use super::forks;

/// Writes out what the C library's output streams still hold, so that what is printed next comes after it.
pub fn flush_streams() {
    // SAFETY: a null stream stands for all of them.
    unsafe { libc::fflush(ptr::null_mut()) };
}

/// Runs `action` with the exit status when the process calls `exit`, after everything that is registered later.
///
/// It does not run at `_exit`, `quick_exit`, or when a signal ends the process, as no handler does.
///
/// # Errors
/// [`ExitError::Refused`] if the C library has no memory for another handler.
pub fn on_exit(action: impl FnOnce(c_int) + Send + 'static) -> Result<(), ExitError> {
    let action: Box<Action> = Box::new(Box::new(action));
    let argument = Box::into_raw(action);
    // SAFETY: `run` takes exactly this argument, once.
    if unsafe { library_on_exit(run, argument.cast()) } == 0 {
        return Ok(());
    }
    // SAFETY: the C library did not keep the argument, so it is still ours.
    drop(unsafe { Box::from_raw(argument) });
    Err(ExitError::Refused)
}

type Action = Box<dyn FnOnce(c_int) + Send>;

/// Why a handler could not be registered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ExitError {
    /// The C library refused.
    #[error("the C library has no memory for another exit handler")]
    Refused,
}

unsafe extern "C" fn run(status: c_int, action: *mut c_void) {
    // SAFETY: `on_exit` registered the pointer together with this function, which is called once.
    let action = unsafe { Box::from_raw(action.cast::<Action>()) };
    action(status);
}

unsafe extern "C" {
    #[link_name = "on_exit"]
    fn library_on_exit(function: unsafe extern "C" fn(c_int, *mut c_void), argument: *mut c_void) -> c_int;
    fn __cxa_atexit(function: Handler, argument: *mut c_void, dso: *mut c_void) -> c_int;
    fn __cxa_at_quick_exit(function: Handler, dso: *mut c_void) -> c_int;
    fn __register_atfork(prepare: Fork, parent: Fork, child: Fork, dso: *mut c_void) -> c_int;
}

type Handler = unsafe extern "C" fn(*mut c_void);
type Fork = Option<unsafe extern "C" fn()>;

/// What `__dso_handle` is for linked code: the owner that its static destructors name. As in an executable it
/// holds a null pointer; its address belongs to no library, so that no `dlclose` runs the destructors.
#[derive(Debug)]
#[repr(transparent)]
pub(super) struct DsoHandle(usize);

pub(super) static DSO_HANDLE: DsoHandle = DsoHandle(0);

/// `atexit` for linked code. A handler without parameters may be called with one that it does not look at.
///
/// # Safety
/// `function` can be called until the process ends.
pub(super) unsafe extern "C" fn atexit(function: Handler) -> c_int {
    // SAFETY: passed on to the caller.
    unsafe { __cxa_atexit(function, ptr::null_mut(), ptr::null_mut()) }
}

/// `at_quick_exit` for linked code.
///
/// # Safety
/// `function` can be called until the process ends.
pub(super) unsafe extern "C" fn at_quick_exit(function: Handler) -> c_int {
    // SAFETY: passed on to the caller.
    unsafe { __cxa_at_quick_exit(function, ptr::null_mut()) }
}

/// `pthread_atfork` for linked code.
///
/// # Safety
/// The functions can be called until the process ends.
pub(super) unsafe extern "C" fn pthread_atfork(prepare: Fork, parent: Fork, child: Fork) -> c_int {
    // Ours come first: the program's run before they take the runtime's locks, and after they let them go.
    if let Err(code) = forks::watch() {
        return code;
    }
    // SAFETY: passed on to the caller.
    unsafe { __register_atfork(prepare, parent, child, ptr::null_mut()) }
}
