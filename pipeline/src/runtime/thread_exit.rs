//! Destructors of thread-local objects of linked code.
//!
//! They are registered with the C library, which runs them newest first when the thread ends, and on the main
//! thread before the handlers of `atexit`. Linked code may be removed before a thread ends: it stays in memory, with all that it may
//! call, until its destructors have run (`endings::pin`).

use std::ffi::{c_int, c_void};

use uruk_core::ExecutorAddr;
use uruk_core::sync::Arc;

use super::endings::{self, Pin};
use super::exit::ExitError;

type Destructor = unsafe extern "C-unwind" fn(*mut c_void);

/// A registered destructor, with the values that keep its code alive.
struct Pinned {
    destructor: Destructor,
    object: *mut c_void,
    _pins: Vec<Arc<Pin>>,
}

unsafe extern "C" {
    #[link_name = "__cxa_thread_atexit_impl"]
    fn library_thread_atexit(destructor: Destructor, object: *mut c_void, dso: *mut c_void) -> c_int;
    /// Names our own executable or library, which stays loaded until the destructor has run.
    static __dso_handle: *mut c_void;
}

/// `__cxa_thread_atexit_impl` and `__cxa_thread_atexit` for linked code.
///
/// # Safety
/// `destructor` can be called with `object` when the thread ends, or its code is there as long as a pin of it.
pub(super) unsafe extern "C" fn thread_atexit(
    destructor: Destructor,
    object: *mut c_void,
    dso: *mut c_void,
) -> c_int {
    /// The code is being unmapped, so that the destructor could not run.
    const REFUSED: c_int = -1;
    let own = (&raw const __dso_handle).cast_mut().cast();
    let Some(pins) = endings::pin(ExecutorAddr::from_ptr(destructor as *const u8), dso) else {
        return REFUSED;
    };
    if pins.is_empty() {
        // SAFETY: passed on to the caller.
        return unsafe { library_thread_atexit(destructor, object, own) };
    }
    let pinned = Box::into_raw(Box::new(Pinned { destructor, object, _pins: pins }));
    // SAFETY: `run` takes exactly this argument, once.
    let refused = unsafe { library_thread_atexit(run, pinned.cast(), own) };
    if refused != 0 {
        // SAFETY: the C library did not keep the argument, so it is still ours.
        drop(unsafe { Box::from_raw(pinned) });
    }
    refused
}

/// Runs a pinned destructor. An exception that leaves it meets no destructor of ours in this frame.
unsafe extern "C-unwind" fn run(pinned: *mut c_void) {
    let pinned = pinned.cast::<Pinned>();
    // SAFETY: `thread_atexit` registered the pointer together with this function, which is called once; the
    // destructor may be called by that function's contract.
    unsafe { ((*pinned).destructor)((*pinned).object) };
    // SAFETY: as above; this ends the pin.
    drop(unsafe { Box::from_raw(pinned) });
}

/// Has `action` done when this thread ends, also where it is the process's first and leaves `main` by `pthread_exit`: the C library runs
/// destructors of thread-local variables on no such thread. Not when the process ends before.
///
/// # Errors
/// [`ExitError::Refused`] if the process has as many keys of threads as it may have. Each call takes one.
pub fn on_end_of_thread(action: impl FnOnce() + 'static) -> Result<(), ExitError> {
    let mut key = 0;
    // SAFETY: the key can be written; `run_action` takes what is set below.
    if unsafe { libc::pthread_key_create(&raw mut key, Some(run_action)) } != 0 {
        return Err(ExitError::Refused);
    }
    let action: Box<ThreadExitAction> = Box::new(Box::new(action));
    let argument = Box::into_raw(action);
    // SAFETY: the key was made above.
    if unsafe { libc::pthread_setspecific(key, argument.cast()) } == 0 {
        return Ok(());
    }
    // SAFETY: the C library kept neither: both are still ours.
    unsafe {
        libc::pthread_key_delete(key);
        drop(Box::from_raw(argument));
    }
    Err(ExitError::Refused)
}

type ThreadExitAction = Box<dyn FnOnce()>;

unsafe extern "C" fn run_action(action: *mut c_void) {
    // SAFETY: `on_end_of_thread` set the pointer for this function, which is called once.
    let action = unsafe { Box::from_raw(action.cast::<ThreadExitAction>()) };
    action();
}

#[cfg(test)]
mod tests {
    use std::any::Any;

    use super::super::endings::{CodeKeeper, Ending};
    use super::*;
    use crate::executor::{CodeExtent, Home};
    use uruk_core::sync::thread;

    static ORDER: uruk_core::sync::Mutex<Vec<usize>> = uruk_core::sync::Mutex::new(Vec::new());

    unsafe extern "C-unwind" fn note(object: *mut c_void) {
        ORDER.lock().push(object.addr());
    }

    struct NoteOnDrop;

    impl CodeKeeper for NoteOnDrop {
        fn hold_all(&self) -> Box<dyn Any + Send + Sync> {
            Box::new(())
        }
    }

    impl Drop for NoteOnDrop {
        fn drop(&mut self) {
            ORDER.lock().push(1000);
        }
    }

    #[test]
    fn an_action_is_done_when_its_thread_ends() {
        let done = Arc::new(uruk_core::sync::Latch::new());
        let thread = thread::spawn({
            let done = done.clone();
            move || {
                let action = done.clone();
                on_end_of_thread(move || action.open()).expect("a key is free");
                done.is_open()
            }
        });
        assert!(!thread.join().expect("no panic"));
        done.wait();
    }

    #[test]
    fn destructors_run_newest_first_and_pins_end_after_them() {
        static DSO: u64 = 0;
        let dso = (&raw const DSO).cast_mut().cast::<c_void>();
        let start = dso.expose_provenance() as u64;
        let extent =
            CodeExtent { home: Home::default(), ranges: std::iter::once(start..start + 8).collect() };
        let ending = Ending::new(extent).expect("room for handlers of forks");
        let code: Arc<dyn CodeKeeper> = Arc::new(NoteOnDrop);
        endings::kept_by(ending.number(), Arc::downgrade(&code), 1);
        let register = |object, dso| {
            // SAFETY: `note` can be called at any time.
            let refused = unsafe { thread_atexit(note, std::ptr::without_provenance_mut(object), dso) };
            assert_eq!(refused, 0);
        };
        thread::spawn(move || {
            register(1, std::ptr::null_mut());
            register(2, std::ptr::with_exposed_provenance_mut(start as usize));
            drop(code);
            register(3, std::ptr::null_mut());
        })
        .join()
        .unwrap();
        assert_eq!(*ORDER.lock(), [3, 2, 1000, 1]);
        drop(ending);
    }
}
