//! Threads that linked code starts.
//!
//! A thread has its own copies of the program's thread-local variables before any program code runs on it, as in a native process. So a
//! signal handler may be the first to touch one, whichever code it interrupted. If the executable keeps a reserve in its thread-local
//! block, the thread is known to it, and its stack is larger by as much.
//!
//! Linked code gets [`pthread_create`] in place of the C library's. An executable that uses
//! [`export_pthread_create!`](crate::export_pthread_create) gives it to libraries that start threads on the program's behalf
//! too, such as the C++ library's `std::thread`. `thrd_create` has to be ours as well: the C library's does not go by that name. Nothing of ours stays on the new thread's stack.

use std::ffi::{c_int, c_void};
use std::ptr;
use std::time::Duration;

use uruk_core::sync::atomic::{AtomicPtr, Ordering};

use super::{fatal, tls};
use crate::arch::host;

/// Defines `pthread_create` for the whole process. For executables only.
#[macro_export]
macro_rules! export_pthread_create {
    () => {
        /// Starts a thread, which has the thread-local variables of linked code from the start.
        ///
        /// # Safety
        /// As for the C library's function of this name.
        // SAFETY: takes the place of the C library's function, to which it passes on every call.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn pthread_create(
            thread: *mut ::std::ffi::c_void,
            attributes: *const ::std::ffi::c_void,
            routine: *const ::std::ffi::c_void,
            argument: *mut ::std::ffi::c_void,
        ) -> ::std::ffi::c_int {
            // SAFETY: passed on to the caller.
            unsafe { $crate::runtime::threads::pthread_create(thread, attributes, routine, argument) }
        }
    };
}

type Routine = unsafe extern "C-unwind" fn(*mut c_void) -> *mut c_void;
type PthreadCreate = unsafe extern "C" fn(*mut c_void, *const c_void, *const c_void, *mut c_void) -> c_int;

/// The work of a new thread.
struct ThreadStart {
    routine: *const c_void,
    argument: *mut c_void,
    /// As [`tls::reserve_writes`] was before the thread existed.
    reserve_writes: Option<u64>,
}

/// Where [`prepare`] sends the thread: in the two registers of a result.
#[repr(C)]
struct RoutineCall {
    routine: *const c_void,
    argument: *mut c_void,
}

/// The C library's `pthread_create`, and the new thread has the thread-local variables of linked code from the start.
///
/// # Safety
/// As for the C library's function.
pub unsafe extern "C" fn pthread_create(
    thread: *mut c_void,
    attributes: *const c_void,
    routine: *const c_void,
    argument: *mut c_void,
) -> c_int {
    let Some(real) = library_function() else { return libc::EAGAIN };
    let reserve_writes = tls::reserve_writes();
    if reserve_writes.is_none() && !tls::has_modules() && !fatal::is_reporting() {
        // SAFETY: passed on to the caller.
        return unsafe { real(thread, attributes, routine, argument) };
    }
    // SAFETY: the attributes are null or valid, as the caller guarantees.
    let enlarged =
        unsafe { reserve_writes.and(attributes.cast::<libc::pthread_attr_t>().as_ref()).and_then(enlarged) };
    let attributes = enlarged.as_ref().map_or(attributes, |enlarged| ptr::from_ref(enlarged).cast());
    let start = Box::into_raw(Box::new(ThreadStart { routine, argument, reserve_writes }));
    let entry: Routine = uruk_thread_start;
    // SAFETY: passed on to the caller; `uruk_thread_start` takes exactly this argument, once.
    let refused = unsafe { real(thread, attributes, entry as *const c_void, start.cast()) };
    if refused != 0 {
        // SAFETY: no thread was started, so the box is still ours.
        drop(unsafe { Box::from_raw(start) });
    }
    refused
}

/// C11's `thrd_create`, over [`pthread_create`].
///
/// The routine answers an `int`: the lower half of the register in which a pointer is answered, and all that `thrd_join`
/// looks at.
///
/// # Safety
/// As for the C library's function.
pub(super) unsafe extern "C" fn thrd_create(
    thread: *mut c_void,
    routine: *const c_void,
    argument: *mut c_void,
) -> c_int {
    const SUCCESS: c_int = 0;
    const ERROR: c_int = 2;
    const NO_MEMORY: c_int = 3;
    // SAFETY: passed on to the caller; a `thrd_t` is a `pthread_t`.
    match unsafe { pthread_create(thread, ptr::null(), routine, argument) } {
        0 => SUCCESS,
        libc::ENOMEM => NO_MEMORY,
        _ => ERROR,
    }
}

/// A new thread's preparation before it goes on to its routine.
unsafe extern "C" fn prepare(start: *mut ThreadStart) -> RoutineCall {
    // A handler that ran before this is done would have to allocate, perhaps in the middle of the allocator.
    let _signals = tls::SignalsBlocked::now();
    // SAFETY: `pthread_create` made the box for this thread.
    let ThreadStart { routine, argument, reserve_writes } = *unsafe { Box::from_raw(start) };
    tls::start_thread(reserve_writes);
    fatal::give_stack();
    RoutineCall { routine, argument }
}

/// The same attributes with a stack that is larger by the reserve, which the C library places on it; a stack that the program
/// asks for is to hold as much as natively. `None` for a stack of the program's own, which has the size it has.
fn enlarged(attributes: &libc::pthread_attr_t) -> Option<libc::pthread_attr_t> {
    // A copy as of plain memory: what the attributes point to is read while the thread is created, and belongs to the original.
    let mut copy = *attributes;
    let (mut address, mut bytes) = (ptr::null_mut(), 0);
    // SAFETY: the attributes are valid, and everything else can be written.
    unsafe {
        libc::pthread_attr_getstack(attributes, &raw mut address, &raw mut bytes);
        let is_own = address.addr().wrapping_add(bytes) != 0;
        libc::pthread_attr_getstacksize(attributes, &raw mut bytes);
        let bytes = bytes.checked_add(tls::RESERVE_BYTES + tls::RESERVE_ALIGN)?;
        (!is_own && libc::pthread_attr_setstacksize(&raw mut copy, bytes) == 0).then_some(copy)
    }
}

/// Has this thread run when no other thread of the process wants the processor, or nearly so.
pub(crate) fn stand_back() {
    const NICE: c_int = 10;
    // SAFETY: concerns this thread alone: on Linux the process's number stands for it. A refusal does no harm.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, libc::gettid() as libc::id_t, NICE) };
}

/// For how long this thread has had a processor.
pub(crate) fn time_on_processor() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the time can be written.
    let failed = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) } != 0;
    let (seconds, nanoseconds) = (u64::try_from(time.tv_sec), u32::try_from(time.tv_nsec));
    if failed { Duration::ZERO } else { Duration::new(seconds.unwrap_or(0), nanoseconds.unwrap_or(0)) }
}

fn library_function() -> Option<PthreadCreate> {
    static REAL: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());
    // Relaxed: a function's address, valid since the process started; threads that race store the same value.
    let mut real = REAL.load(Ordering::Relaxed);
    if real.is_null() {
        // SAFETY: dlsym with a terminated name has no other obligation.
        real = unsafe { libc::dlsym(libc::RTLD_NEXT, c"pthread_create".as_ptr()) };
        REAL.store(real, Ordering::Relaxed);
    }
    // SAFETY: the C library's function has this type, its pointers seen as untyped ones.
    (!real.is_null()).then(|| unsafe { std::mem::transmute::<*mut c_void, PthreadCreate>(real) })
}

unsafe extern "C-unwind" {
    fn uruk_thread_start(start: *mut c_void) -> *mut c_void;
}

host::define_thread_start!(prepare);

#[cfg(test)]
mod tests {
    use super::*;
    use uruk_core::ExecutorAddr;

    unsafe extern "C-unwind" fn double(argument: *mut c_void) -> *mut c_void {
        ptr::without_provenance_mut(argument.addr() * 2)
    }

    #[test]
    fn argument_and_result_pass_through() {
        static IMAGE: u64 = 7;
        let image = ExecutorAddr::from_ptr(&raw const IMAGE);
        let module = tls::register_module(8, 8, 8).expect("a slot is free");
        module.initialize(image);
        let (mut thread, mut result) = (0 as libc::pthread_t, ptr::null_mut());
        let routine: Routine = double;
        let argument = ptr::without_provenance_mut(21);
        // SAFETY: the handle can be written; `double` follows no pointer.
        let joined = unsafe {
            let handle = (&raw mut thread).cast();
            assert_eq!(pthread_create(handle, ptr::null(), routine as *const c_void, argument), 0);
            libc::pthread_join(thread, &raw mut result)
        };
        assert_eq!((joined, result.addr()), (0, 42));
        drop(module);
    }
}
