//! [`OnceCall`]: variables of a library that the engine and the program share.

use std::ffi::c_void;
use std::ptr::{self, NonNull};

use uruk_core::sync::atomic::{AtomicPtr, Ordering};

/// The thread-local variables that `std::call_once` of libstdc++ sets and reads back. LLVM uses `call_once` too, so a first call between
/// the two would leave them changed.
pub(super) struct OnceCall([(*mut usize, usize); 2]);

impl OnceCall {
    pub(super) fn save() -> Self {
        let library = Self::library();
        Self([c"_ZSt15__once_callable", c"_ZSt11__once_call"].map(|name| {
            let variable = match library {
                None => ptr::null_mut(),
                // SAFETY: a handle that is never given back, and a name that ends in a zero.
                Some(library) => unsafe { libc::dlsym(library.as_ptr(), name.as_ptr()) }.cast::<usize>(),
            };
            // SAFETY: this thread's variable of that name, a pointer.
            let value = if variable.is_null() { 0 } else { unsafe { *variable } };
            (variable, value)
        }))
    }

    /// The library, if it is loaded. It may have come with LLVM, in a place where a search by symbol does not find it.
    fn library() -> Option<NonNull<c_void>> {
        static LIBRARY: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());
        // Relaxed: every writer stores the same value.
        NonNull::new(LIBRARY.load(Ordering::Relaxed)).or_else(|| {
            // SAFETY: a name that ends in a zero. A loaded library is not loaded again; it stays from now on.
            let library =
                unsafe { libc::dlopen(c"libstdc++.so.6".as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
            LIBRARY.store(library, Ordering::Relaxed); // as above
            NonNull::new(library)
        })
    }

    pub(super) fn restore(self) {
        for (variable, value) in self.0.into_iter().filter(|(variable, _)| !variable.is_null()) {
            // SAFETY: as in `save`; the thread is the same.
            unsafe { *variable = value };
        }
    }
}
