//! The end of the process: handlers that linked code registers, and work of ours that comes after them.
//!
//! Handlers of linked code that may go before the process does are kept by `endings`. All other handlers go to the C library and name no
//! owner: they run when the process exits and at no other time. That is so for all code of a program that has the process for itself
//! ([`Platform::of_process`](crate::platform::Platform::of_process)).
//!
//! `atexit` and its kin are not in the shared C library: each natively linked program carries its own copy, which
//! names the program as the owner of the handler. Linked code has no such copy, so it gets these.
//!
//! A handler that [`on_exit`] registers before any program code runs comes after everything the program registers: exit handlers run newest
//! first. `exit` may be called on any thread.

use std::ffi::{c_int, c_void};
use std::ptr;

use uruk_core::ExecutorAddr;

use super::endings::{self, ExitCall, Registration};
use super::{cxa_filter, forks};

/// Writes out the buffers of the C library's output streams, so that later output comes after them.
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
    let action: Box<ExitAction> = Box::new(Box::new(action));
    let argument = Box::into_raw(action);
    // SAFETY: `run` takes exactly this argument, once.
    if unsafe { library_on_exit(run, argument.cast()) } == 0 {
        return Ok(());
    }
    // SAFETY: the C library did not keep the argument, so it is still ours.
    drop(unsafe { Box::from_raw(argument) });
    Err(ExitError::Refused)
}

type ExitAction = Box<dyn FnOnce(c_int) + Send>;

/// Why a handler could not be registered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ExitError {
    /// The C library refused.
    #[error("the C library has no room for another exit handler")]
    Refused,
}

unsafe extern "C" fn run(status: c_int, action: *mut c_void) {
    // SAFETY: `on_exit` registered the pointer together with this function, which is called once.
    let action = unsafe { Box::from_raw(action.cast::<ExitAction>()) };
    action(status);
}

unsafe extern "C" {
    #[link_name = "on_exit"]
    fn library_on_exit(function: HandlerWithStatus, argument: *mut c_void) -> c_int;
    fn __cxa_at_quick_exit(function: Handler, dso: *mut c_void) -> c_int;
    fn __register_atfork(prepare: Fork, parent: Fork, child: Fork, dso: *mut c_void) -> c_int;
}

type Handler = unsafe extern "C" fn(*mut c_void);
type HandlerWithStatus = unsafe extern "C" fn(c_int, *mut c_void);
type Fork = Option<unsafe extern "C" fn()>;

/// The result of `atexit` when there is no room.
const REFUSED: c_int = -1;

/// Keeps `call` for the code it belongs to. If that code is not in our table, the C library keeps it.
///
/// # Safety
/// As for [`endings::register`].
unsafe fn keep(call: ExitCall, dso: *mut c_void, by_library: impl FnOnce() -> c_int) -> c_int {
    // SAFETY: passed on to the caller.
    match unsafe { endings::register(call, dso) } {
        Registration::Kept => 0,
        Registration::Refused => REFUSED,
        Registration::Unknown => by_library(),
    }
}

/// `__cxa_atexit` for linked code.
///
/// # Safety
/// `function` can be called with `argument` until its code goes.
pub(super) unsafe extern "C" fn cxa_atexit(
    function: Handler,
    argument: *mut c_void,
    dso: *mut c_void,
) -> c_int {
    let call = ExitCall::Handler {
        function: address(function as *const ()),
        argument: argument.expose_provenance(),
    };
    // A handler without known code is the process's: it has a null owner, so no library's end runs it.
    let by_library = || match cxa_filter::library_function() {
        // SAFETY: passed on to the caller.
        Some(register) => unsafe { register(Some(function), argument, ptr::null_mut()) },
        None => REFUSED,
    };
    // SAFETY: passed on to the caller.
    unsafe { keep(call, dso, by_library) }
}

/// `atexit` for linked code. A handler without parameters may be called with one that it does not look at.
///
/// # Safety
/// `function` can be called until its code goes.
pub(super) unsafe extern "C" fn atexit(function: Handler) -> c_int {
    // SAFETY: passed on to the caller.
    unsafe { cxa_atexit(function, ptr::null_mut(), ptr::null_mut()) }
}

/// `on_exit` for linked code. Its handlers find zero as the status when they run before the process exits.
///
/// # Safety
/// `function` can be called with `argument` until its code goes.
pub(super) unsafe extern "C" fn linked_on_exit(function: HandlerWithStatus, argument: *mut c_void) -> c_int {
    let (address, value) = (address(function as *const ()), argument.expose_provenance());
    let call = ExitCall::WithStatus { function: address, argument: value };
    // SAFETY: passed on to the caller.
    unsafe { keep(call, ptr::null_mut(), || library_on_exit(function, argument)) }
}

/// `__cxa_at_quick_exit` for linked code. The C library forgets the handler when the code goes, and does not run it.
///
/// # Safety
/// `function` can be called until its code goes.
pub(super) unsafe extern "C" fn cxa_at_quick_exit(function: Handler, dso: *mut c_void) -> c_int {
    let owner = endings::owner_for_library(function as usize as u64, dso);
    // SAFETY: passed on to the caller.
    unsafe { __cxa_at_quick_exit(function, owner) }
}

/// `at_quick_exit` for linked code.
///
/// # Safety
/// `function` can be called until its code goes.
pub(super) unsafe extern "C" fn at_quick_exit(function: Handler) -> c_int {
    // SAFETY: passed on to the caller.
    unsafe { cxa_at_quick_exit(function, ptr::null_mut()) }
}

/// `__register_atfork` for linked code. The C library forgets the functions when the code goes.
///
/// # Safety
/// The functions can be called until their code goes.
pub(super) unsafe extern "C" fn register_atfork(
    prepare: Fork,
    parent: Fork,
    child: Fork,
    dso: *mut c_void,
) -> c_int {
    // Ours come first: the program's run before they take the runtime's locks, and after they let them go.
    if let Err(code) = forks::watch() {
        return code;
    }
    let function = prepare.or(parent).or(child).map_or(0, |function| function as usize as u64);
    let owner = endings::owner_for_library(function, dso);
    // SAFETY: passed on to the caller.
    unsafe { __register_atfork(prepare, parent, child, owner) }
}

/// `pthread_atfork` for linked code.
///
/// # Safety
/// The functions can be called until their code goes.
pub(super) unsafe extern "C" fn pthread_atfork(prepare: Fork, parent: Fork, child: Fork) -> c_int {
    // SAFETY: passed on to the caller.
    unsafe { register_atfork(prepare, parent, child, ptr::null_mut()) }
}

fn address(function: *const ()) -> ExecutorAddr {
    ExecutorAddr::from_ptr(function)
}
