//! Destructors of thread-local objects of linked code.
//!
//! They are registered with the C library, which runs them newest first when the thread ends, and on the main
//! thread before the handlers of `atexit`. Linked code may be removed before a thread ends; the hook set by
//! [`set_pin_hook`] can hold on to it until the destructor has run.

use std::any::Any;
use std::ffi::{c_int, c_void};

use uruk_core::ExecutorAddr;
use uruk_core::sync::Arc;

use crate::memory::StaticForkLock;

/// Answers a value that keeps the code at an address in place for as long as it lives, or `None` if nothing has to be kept.
pub type PinHook = Arc<dyn Fn(ExecutorAddr) -> Option<Box<dyn Any + Send>> + Send + Sync>;

/// Sets what keeps the code of a destructor alive until it has run. Applies to destructors registered from now on.
///
/// The value the hook answers is dropped on the ending thread, right after the destructor.
pub fn set_pin_hook(hook: PinHook) {
    let earlier = PIN_HOOK.lock().replace(hook);
    drop(earlier);
}

/// Held to read or set the hook; never while the hook runs.
pub(in crate::runtime) static PIN_HOOK: StaticForkLock<Option<PinHook>> = StaticForkLock::new(None);

type Destructor = unsafe extern "C-unwind" fn(*mut c_void);

/// A registered destructor with what keeps its code alive.
struct Pinned {
    destructor: Destructor,
    object: *mut c_void,
    _pin: Box<dyn Any + Send>,
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
/// `destructor` can be called with `object` when the thread ends.
pub(super) unsafe extern "C" fn thread_atexit(
    destructor: Destructor,
    object: *mut c_void,
    _: *mut c_void,
) -> c_int {
    let own = (&raw const __dso_handle).cast_mut().cast();
    let hook = PIN_HOOK.lock().clone();
    let code = ExecutorAddr::from_ptr(destructor as *const u8);
    match hook.and_then(|hook| hook(code)) {
        // SAFETY: passed on to the caller.
        None => unsafe { library_thread_atexit(destructor, object, own) },
        Some(pin) => {
            let pinned = Box::into_raw(Box::new(Pinned { destructor, object, _pin: pin }));
            // SAFETY: `run` takes exactly this argument, once.
            let refused = unsafe { library_thread_atexit(run, pinned.cast(), own) };
            if refused != 0 {
                // SAFETY: the C library did not keep the argument, so it is still ours.
                drop(unsafe { Box::from_raw(pinned) });
            }
            refused
        }
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use uruk_core::sync::thread;

    static ORDER: uruk_core::sync::Mutex<Vec<usize>> = uruk_core::sync::Mutex::new(Vec::new());

    unsafe extern "C-unwind" fn note(object: *mut c_void) {
        ORDER.lock().push(object.addr());
    }

    struct NoteOnDrop;

    impl Drop for NoteOnDrop {
        fn drop(&mut self) {
            ORDER.lock().push(1000);
        }
    }

    #[test]
    fn destructors_run_newest_first_and_pins_end_after_them() {
        let register = |object| {
            // SAFETY: `note` can be called at any time.
            let refused = unsafe {
                thread_atexit(note, std::ptr::without_provenance_mut(object), std::ptr::null_mut())
            };
            assert_eq!(refused, 0);
        };
        thread::spawn(move || {
            register(1);
            set_pin_hook(Arc::new(|_| Some(Box::new(NoteOnDrop))));
            register(2);
            set_pin_hook(Arc::new(|_| None));
            register(3);
        })
        .join()
        .unwrap();
        assert_eq!(*ORDER.lock(), [3, 2, 1000, 1]);
    }
}
