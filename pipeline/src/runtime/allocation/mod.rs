//! Programs that replace `malloc`, `operator new` and their kin, as seen by every shared library.
//!
//! Natively a definition of the executable's takes the place of the library's for the whole process. So the command
//! exports all of these functions. Each is one jump, at first to the function of the libraries:
//!
//! ```text
//!  libstdc++ ─ operator delete ─▶ forwarder ─▶ libstdc++'s own         until a program replaces it
//!                                           └▶ guard ─▶ the program's   from then on, if it does
//! ```
//! [`replace`] turns the jumps over, once, when the program has been linked and before any of it runs.
//!
//! **Memory that was allocated before** then meets the program's functions, which did not allocate it. So the places where the library's
//! heap lies at that moment are remembered (`earlier.rs`). The guards keep such memory from the program: freeing it does nothing, and
//! resizing it copies it. Memory that the library's functions give out afterwards lies elsewhere (`guards.rs`), so no address is taken for
//! another's.
//!
//! **The engine's own memory** never meets the program: its allocator ([`EngineAllocator`]) calls the library's
//! functions directly, before and after.

mod earlier;
mod engine;
mod guards;

use std::ffi::{CStr, c_void};
use std::io;
use std::ptr;

use uruk_core::ExecutorAddr;
use uruk_core::sync::atomic::{AtomicPtr, Ordering};

pub use engine::EngineAllocator;

/// Gives a macro the names of the functions that a program may replace.
#[doc(hidden)]
#[macro_export]
macro_rules! with_allocation_functions {
    ($($receiver:tt)+) => {
        $($receiver)+! {
            malloc calloc realloc free memalign aligned_alloc posix_memalign valloc pvalloc malloc_usable_size
            _Znwm _Znam _ZnwmRKSt9nothrow_t _ZnamRKSt9nothrow_t
            _ZnwmSt11align_val_t _ZnamSt11align_val_t
            _ZnwmSt11align_val_tRKSt9nothrow_t _ZnamSt11align_val_tRKSt9nothrow_t
            _ZdlPv _ZdaPv _ZdlPvm _ZdaPvm _ZdlPvRKSt9nothrow_t _ZdaPvRKSt9nothrow_t
            _ZdlPvSt11align_val_t _ZdaPvSt11align_val_t _ZdlPvmSt11align_val_t _ZdaPvmSt11align_val_t
            _ZdlPvSt11align_val_tRKSt9nothrow_t _ZdaPvSt11align_val_tRKSt9nothrow_t
        }
    };
}

/// Defines the functions that a program may replace, for the whole process. For executables on x86-64 only.
#[macro_export]
macro_rules! export_allocation_functions {
    () => {
        $crate::with_allocation_functions!($crate::export_allocation_functions);

        #[used]
        // SAFETY: `.preinit_array` holds addresses of functions that are called before all constructors; this one
        // needs nothing but the dynamic linker, which is ready by then.
        #[unsafe(link_section = ".preinit_array")]
        static FIND_ALLOCATION_FUNCTIONS: extern "C" fn() = $crate::runtime::allocation::find_functions;

        #[link(name = "stdc++")]
        // SAFETY: that is how the library declares it; it is not called.
        unsafe extern "C" {
            fn __cxa_pure_virtual();
        }

        /// Has the C++ library loaded before the functions are looked for: half of them are in it.
        #[used]
        static NEEDS_CXX_LIBRARY: unsafe extern "C" fn() = __cxa_pure_virtual;

        #[global_allocator]
        static ENGINE_ALLOCATOR: $crate::runtime::allocation::EngineAllocator =
            $crate::runtime::allocation::EngineAllocator;
    };
    ($($name:ident)+) => {
        #[expect(non_snake_case, reason = "the names are the C++ compiler's")]
        mod allocation_functions {$(
            /// Jumps to the function of this name that counts.
            // SAFETY: takes the place of the library's function; its arguments, result and stack are left as they are.
            #[unsafe(no_mangle)]
            #[unsafe(naked)]
            unsafe extern "C" fn $name() {
                ::std::arch::naked_asm!(
                    "jmp qword ptr [rip + {functions} + {offset}]",
                    functions = sym $crate::runtime::allocation::FUNCTIONS,
                    offset = const 8 * $crate::runtime::allocation::AllocationFunction::$name as usize,
                )
            }
        )+}
    };
}

macro_rules! functions {
    ($($name:ident)+) => {
        /// A function that a program may replace.
        #[doc(hidden)]
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[expect(non_camel_case_types, reason = "the names are those of the functions")]
        pub enum AllocationFunction {
            $(#[doc = concat!("`", stringify!($name), "`")] $name),+
        }

        impl AllocationFunction {
            const ALL: &[(Self, &CStr)] = &[$((
                Self::$name,
                match CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                    Ok(name) => name,
                    Err(_) => c"",
                },
            )),+];
        }
    };
}

with_allocation_functions!(functions);

const COUNT: usize = AllocationFunction::ALL.len();

/// Where each function is.
#[doc(hidden)]
#[derive(Debug)]
#[repr(transparent)]
pub struct AllocationFunctions([AtomicPtr<c_void>; COUNT]);

/// Where each forwarder jumps to.
#[doc(hidden)]
pub static FUNCTIONS: AllocationFunctions = AllocationFunctions::of_c_library();
/// The functions of the libraries, unaffected by a program's replacements.
static LIBRARY: AllocationFunctions = AllocationFunctions::of_c_library();
/// The functions of the program, where it has one.
static PROGRAM: AllocationFunctions = AllocationFunctions([const { AtomicPtr::new(ptr::null_mut()) }; COUNT]);

impl AllocationFunctions {
    /// The four that the dynamic linker calls before anything of ours runs, under the names by which they cannot be
    /// replaced. All others are found by [`find_functions`].
    const fn of_c_library() -> Self {
        let mut functions = [const { AtomicPtr::new(ptr::null_mut()) }; COUNT];
        functions[AllocationFunction::malloc as usize] = AtomicPtr::new(__libc_malloc as *mut c_void);
        functions[AllocationFunction::calloc as usize] = AtomicPtr::new(__libc_calloc as *mut c_void);
        functions[AllocationFunction::realloc as usize] = AtomicPtr::new(__libc_realloc as *mut c_void);
        functions[AllocationFunction::free as usize] = AtomicPtr::new(__libc_free as *mut c_void);
        Self(functions)
    }

    fn get(&self, function: AllocationFunction) -> *mut c_void {
        self.at(function as usize)
    }

    fn at(&self, index: usize) -> *mut c_void {
        // Relaxed: a function's address, stored before there is a second thread, or before the program runs.
        self.0[index].load(Ordering::Relaxed)
    }

    fn set(&self, function: AllocationFunction, address: *mut c_void) {
        // Relaxed: see `at`.
        self.0[function as usize].store(address, Ordering::Relaxed);
    }
}

/// Finds the functions of the libraries, which `LD_PRELOAD` may have changed.
#[doc(hidden)]
pub extern "C" fn find_functions() {
    for (function, name) in AllocationFunction::ALL {
        // SAFETY: dlsym with a terminated name has no other obligation.
        let address = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
        if !address.is_null() {
            LIBRARY.set(*function, address);
            FUNCTIONS.set(*function, address);
        }
    }
}

/// The names of the functions that a program may replace.
pub fn function_names() -> impl Iterator<Item = &'static str> {
    AllocationFunction::ALL.iter().filter_map(|(_, name)| name.to_str().ok())
}

/// Lets every library of the process see the program's replacements: `find` gives the program's definition of a function. Does nothing if
/// it defines none. To be called once, before any of the program runs.
///
/// # Errors
/// [`ReplaceError`]: nothing is replaced then.
///
/// # Safety
/// The executable has [`export_allocation_functions!`](crate::export_allocation_functions). An address that `find` gives can be called as
/// the function of that name, until the process ends. No other thread allocates at the time.
pub unsafe fn replace(find: impl Fn(&str) -> Option<ExecutorAddr>) -> Result<(), ReplaceError> {
    let found: Vec<_> = AllocationFunction::ALL
        .iter()
        .filter_map(|(function, name)| Some((*function, find(name.to_str().ok()?)?)))
        .collect();
    if found.is_empty() {
        return Ok(());
    }
    earlier::remember()?;
    for (function, address) in &found {
        PROGRAM.set(*function, address.to_ptr::<c_void>());
    }
    for (function, _) in AllocationFunction::ALL {
        let program = PROGRAM.get(*function);
        let guard =
            if program.is_null() { guards::of_library(*function) } else { guards::of_program(*function) };
        match guard {
            Some(guard) => FUNCTIONS.set(*function, guard),
            None if program.is_null() => {}
            None => FUNCTIONS.set(*function, program),
        }
    }
    Ok(())
}

/// Why a program cannot replace the functions that allocate.
#[derive(Debug, thiserror::Error)]
pub enum ReplaceError {
    /// It is not known which memory has been given out already.
    #[error(
        "the program replaces functions that allocate, and where earlier memory lies is not known: {path} cannot be read; mount /proc, or link the program without these functions"
    )]
    Maps {
        /// The unreadable file.
        path: &'static str,
        /// The system's error.
        source: io::Error,
    },
    /// The heap could shrink, and the program's memory could lie where earlier memory was.
    #[error(
        "the program replaces functions that allocate, and the heap cannot be kept where it is: sbrk({bytes}) failed; allow the process more data (`ulimit -d`), or link the program without these functions"
    )]
    Keep {
        /// The size of the request.
        bytes: usize,
        /// The system's error.
        source: io::Error,
    },
}

/// Whether the executable's functions are the forwarders.
pub(crate) fn has_forwarders() -> bool {
    !LIBRARY.get(AllocationFunction::memalign).is_null()
}

/// The function that linked code gets for the C library's function `name` when it asks for the one behind its own (`dlsym(RTLD_NEXT,
/// "malloc")`, `__libc_malloc`).
pub(super) fn behind_program(name: &CStr) -> Option<*mut c_void> {
    let name = name.to_bytes();
    let name = name.strip_prefix(b"__libc_").unwrap_or(name);
    let (function, _) = AllocationFunction::ALL.iter().find(|(_, known)| known.to_bytes() == name)?;
    // Only where the forwarders are in use are there addresses of earlier memory to keep from the program.
    if !has_forwarders() {
        return None;
    }
    guards::of_library(*function)
}

unsafe extern "C" {
    fn __libc_malloc(size: usize) -> *mut c_void;
    fn __libc_calloc(count: usize, size: usize) -> *mut c_void;
    fn __libc_realloc(memory: *mut c_void, size: usize) -> *mut c_void;
    fn __libc_free(memory: *mut c_void);
}
