//! Keeping LLVM's static destructors from running while workers still compile.
//!
//! `exit` runs the static destructors of every library, libLLVM's among them, while other threads go on. A worker in the middle of a
//! compile then works with destroyed tables: 85 of 300 such exits crashed. An executable that defines `__cxa_atexit` itself and passes each
//! call to [`cxa_atexit`] never registers libLLVM's destructors, so they never run. A process that ends can afford that. A library must not
//! do that to its host; it should not call `exit` while it compiles.
//!
//! The command uses [`export_cxa_atexit!`](crate::export_cxa_atexit).

use std::ffi::{CStr, c_int, c_void};
use std::ptr;

use uruk_core::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

/// Defines `__cxa_atexit` for the whole process, without libLLVM's destructors. For executables only.
#[macro_export]
macro_rules! export_cxa_atexit {
    () => {
        /// Registers a destructor to run at exit, unless it is one of libLLVM's.
        ///
        /// # Safety
        /// As for the C library's function of this name.
        // SAFETY: takes the place of the C library's function, to which it passes on every call but libLLVM's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn __cxa_atexit(
            function: ::std::option::Option<unsafe extern "C" fn(*mut ::std::ffi::c_void)>,
            argument: *mut ::std::ffi::c_void,
            dso: *mut ::std::ffi::c_void,
        ) -> ::std::ffi::c_int {
            // SAFETY: passed on to the caller.
            unsafe { $crate::runtime::cxa_filter::cxa_atexit(function, argument, dso) }
        }
    };
}

pub(super) type ExitHandler = Option<unsafe extern "C" fn(*mut c_void)>;
pub(super) type CxaAtexit = unsafe extern "C" fn(ExitHandler, *mut c_void, *mut c_void) -> c_int;

/// Registers `function` with the C library unless `dso` is in libLLVM, in which case it claims to have done so.
///
/// Works from the first constructor of a library on, before `main` and before Rust's runtime.
///
/// # Safety
/// As for the C library's `__cxa_atexit`.
///
/// # Cost
/// One walk over the loaded objects for each library that registers anything; two loads afterwards.
pub unsafe extern "C" fn cxa_atexit(function: ExitHandler, argument: *mut c_void, dso: *mut c_void) -> c_int {
    if is_dropped(dso) {
        return 0;
    }
    match library_function() {
        // SAFETY: passed on to the caller.
        Some(real) => unsafe { real(function, argument, dso) },
        None => -1,
    }
}

/// The handle that was judged last, and whether it was libLLVM's in the lowest bit. A library registers its
/// destructors one after another, so one entry is enough.
static LAST: AtomicU64 = AtomicU64::new(0);

fn is_dropped(dso: *mut c_void) -> bool {
    let handle = dso.addr() as u64;
    if handle == 0 {
        return false;
    }
    // Relaxed: handle and verdict are one word, and nothing else depends on it. Handles are pointers to pointers, so
    // their lowest bit is free.
    let last = LAST.load(Ordering::Relaxed);
    if last & !1 == handle & !1 {
        return last & 1 != 0;
    }
    let dropped = object_name_starts_with(handle, "libLLVM");
    LAST.store(handle & !1 | u64::from(dropped), Ordering::Relaxed);
    dropped
}

/// The C library's `__cxa_atexit`.
pub(super) fn library_function() -> Option<CxaAtexit> {
    static REAL: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());
    // Relaxed: a function's address, valid since the process started; threads that race store the same value.
    let mut real = REAL.load(Ordering::Relaxed);
    if real.is_null() {
        // SAFETY: dlsym with a terminated name has no other obligation.
        real = unsafe { libc::dlsym(libc::RTLD_NEXT, c"__cxa_atexit".as_ptr()) };
        REAL.store(real, Ordering::Relaxed);
    }
    // SAFETY: the C library's function has this type.
    (!real.is_null()).then(|| unsafe { std::mem::transmute::<*mut c_void, CxaAtexit>(real) })
}

/// Whether the file name of the loaded object that contains `address` starts with `prefix`.
fn object_name_starts_with(address: u64, prefix: &str) -> bool {
    let mut search = PrefixSearch { address, prefix, found: false };
    // SAFETY: the callback gets back the pointer to `search`, which outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(visit), (&raw mut search).cast()) };
    search.found
}

struct PrefixSearch<'a> {
    address: u64,
    prefix: &'a str,
    found: bool,
}

unsafe extern "C" fn visit(info: *mut libc::dl_phdr_info, _: usize, data: *mut c_void) -> c_int {
    // SAFETY: dl_iterate_phdr passes a valid description and the pointer given to it.
    let (info, search) = unsafe { (&*info, &mut *data.cast::<PrefixSearch<'_>>()) };
    // SAFETY: the description's program headers are `dlpi_phnum` valid entries.
    let headers = unsafe { std::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum)) };
    let inside = headers.iter().any(|header| {
        let start = info.dlpi_addr.wrapping_add(header.p_vaddr);
        header.p_type == libc::PT_LOAD && search.address.wrapping_sub(start) < header.p_memsz
    });
    if !inside {
        return 0;
    }
    if !info.dlpi_name.is_null() {
        // SAFETY: the name is a terminated string while the object is loaded.
        let path = unsafe { CStr::from_ptr(info.dlpi_name) }.to_bytes();
        let file = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
        search.found = file.starts_with(search.prefix.as_bytes());
    }
    1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_are_told_apart_by_their_file_names() {
        let libc_address = libc::strlen as *const () as u64;
        assert!(object_name_starts_with(libc_address, "libc."));
        assert!(!object_name_starts_with(libc_address, "libLLVM"));
        assert!(!object_name_starts_with(
            objects_are_told_apart_by_their_file_names as *const () as u64,
            "libc."
        ));
        assert!(!object_name_starts_with(8, ""));
    }

    #[test]
    fn nothing_but_llvm_is_dropped() {
        static HANDLE: usize = 0;
        let own = (&raw const HANDLE).cast_mut().cast();
        assert!(!is_dropped(ptr::null_mut()) && !is_dropped(own) && !is_dropped(own));
        let real = library_function().unwrap();
        assert_ne!(real as *const (), cxa_atexit as *const ());
    }
}
