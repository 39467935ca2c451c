//! Thread-local values of the executable's own that outlive those of the program.
//!
//! A function that is called for the first time by a destructor is compiled then, on the thread that ends. The engine keeps what a thread
//! does in thread-local values, and `exit` destroys those before it runs any handler. An executable that defines
//! `__cxa_thread_atexit_impl` itself and passes each call to [`cxa_thread_atexit`] has its own values destroyed last: when a thread ends,
//! after the destructors of the program's values and keys. When the process ends, they stay.
//!
//! The command uses [`export_cxa_thread_atexit!`](crate::export_cxa_thread_atexit).

use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::OnceLock;

use uruk_core::sync::atomic::{AtomicPtr, Ordering};

/// Defines `__cxa_thread_atexit_impl` for the whole process. For executables only.
#[macro_export]
macro_rules! export_cxa_thread_atexit {
    () => {
        /// Registers a destructor of a thread-local value.
        ///
        /// # Safety
        /// As for the C library's function of this name.
        // SAFETY: takes the place of the C library's function, to which it passes on the calls of all but the executable.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn __cxa_thread_atexit_impl(
            destructor: unsafe extern "C" fn(*mut ::std::ffi::c_void),
            value: *mut ::std::ffi::c_void,
            dso: *mut ::std::ffi::c_void,
        ) -> ::std::ffi::c_int {
            // SAFETY: passed on to the caller.
            unsafe { $crate::runtime::late_values::cxa_thread_atexit(destructor, value, dso) }
        }
    };
}

type Destructor = unsafe extern "C" fn(*mut c_void);
type CxaThreadAtexit = unsafe extern "C" fn(Destructor, *mut c_void, *mut c_void) -> c_int;

unsafe extern "C" {
    /// The executable's own, here: this library is part of it.
    static __dso_handle: *mut c_void;
}

/// The values of one thread, the latest at the end.
struct Values {
    values: Vec<(Destructor, *mut c_void)>,
    /// How often the C library has come to destroy them.
    rounds: u32,
}

/// The C library goes over the values of keys four times. Those that the program sets in the first three are gone before ours.
const LAST_ROUND: u32 = 3;

/// Notes a destructor of the executable's for the thread's very end, and passes others on to the C library.
///
/// # Safety
/// As for the C library's `__cxa_thread_atexit_impl`.
pub unsafe extern "C" fn cxa_thread_atexit(
    destructor: Destructor,
    value: *mut c_void,
    dso: *mut c_void,
) -> c_int {
    let is_own = dso == (&raw const __dso_handle).cast_mut().cast();
    match key().filter(|_| is_own) {
        // SAFETY: passed on to the caller.
        None => unsafe { library_function().map_or(-1, |real| real(destructor, value, dso)) },
        Some(key) => {
            // SAFETY: the key is ours, and so is what it holds; no other thread knows of that.
            unsafe {
                let mut values = libc::pthread_getspecific(key).cast::<Values>();
                if values.is_null() {
                    values = Box::into_raw(Box::new(Values { values: Vec::new(), rounds: 0 }));
                    libc::pthread_setspecific(key, values.cast());
                }
                (*values).values.push((destructor, value));
            }
            0
        }
    }
}

unsafe extern "C" fn destroy(values: *mut c_void) {
    let values = values.cast::<Values>();
    // SAFETY: only the thread that made it comes here, and has taken it from its key.
    unsafe {
        if (*values).rounds < LAST_ROUND
            && let Some(key) = key()
        {
            (*values).rounds += 1;
            libc::pthread_setspecific(key, values.cast());
            return;
        }
        let mut values = Box::from_raw(values);
        while let Some((destructor, value)) = values.values.pop() {
            destructor(value);
        }
    }
}

fn key() -> Option<libc::pthread_key_t> {
    static KEY: OnceLock<Option<libc::pthread_key_t>> = OnceLock::new();
    *KEY.get_or_init(|| {
        let mut key = 0;
        // SAFETY: the function is there as long as the executable.
        (unsafe { libc::pthread_key_create(&raw mut key, Some(destroy)) } == 0).then_some(key)
    })
}

fn library_function() -> Option<CxaThreadAtexit> {
    static FOUND: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());
    // Relaxed: the same value, whoever writes it.
    let mut found = FOUND.load(Ordering::Relaxed);
    if found.is_null() {
        // SAFETY: a name that ends in a zero.
        found = unsafe { libc::dlsym(libc::RTLD_NEXT, c"__cxa_thread_atexit_impl".as_ptr()) };
        FOUND.store(found, Ordering::Relaxed);
    }
    // SAFETY: the C library's function of this name has this type; null is `None`.
    unsafe { std::mem::transmute::<*mut c_void, Option<CxaThreadAtexit>>(found) }
}
