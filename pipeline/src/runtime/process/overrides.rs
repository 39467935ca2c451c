//! Functions that linked code gets instead of the C library's, or that the C library lacks.
//!
//! | name | why |
//! |---|---|
//! | `__tls_get_addr` | serves modules of linked code too |
//! | `atexit`, `at_quick_exit`, `pthread_atfork` | only in the static part of the C library |
//! | `__cxa_atexit`, `on_exit` | the handler runs before its code goes |
//! | `__cxa_at_quick_exit`, `__register_atfork` | the C library forgets the functions when their code goes |
//! | `__cxa_thread_atexit_impl`, `__cxa_thread_atexit` | hold on to the code until the destructor has run |
//! | `dlopen` | what is opened may refer to the program, as if that exported all it has |
//! | `dlsym`, `dlvsym` | `RTLD_NEXT` and `RTLD_DEFAULT` depend on the caller's library, and linked code is in none |
//! | `dladdr` | linked functions belong to the program, as in an executable |
//! | `dl_iterate_phdr` | linked code is an object of the process too (`image.rs`) |
//! | `getauxval` | the header and the entry are the program's, as in its block at start |
//! | `pthread_create`, `thrd_create` | the new thread has the thread-local variables of linked code from the start |
//! | `_dl_find_object` | an unwinder inside linked code has to find linked code |
//! | `_Unwind_FindEnclosingFunction` | a function that is compiled when it is called has its stub's address |
//! | `sigaction`, `signal` and its kin | what a handler calls is compiled before a signal comes; ours is not shown (`fatal.rs`) |
//! | `sigaltstack` | the stack of our handler is not shown |
//! | `__libc_malloc` and its kin | a program that replaces `malloc` builds on them; see `allocation` |
//!
//! None of them takes the place of the C library's function for the rest of the process.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr;
use std::sync::OnceLock;

use uruk_core::sync::Arc;
use uruk_core::{ExecutorAddr, ExecutorSymbolDef, SymbolFlags};

use super::entries::is_entry;
use super::handlers;
use super::library::last_error;
use super::program::undefined_symbol;
use super::stand_in::StandIn;
use crate::runtime::forks::{LockOrder, RuntimeLock};
use crate::runtime::{allocation, exit, fatal, image, thread_exit, threads, tls, unwind};

/// The definitions that linked code sees in place of the process's.
pub fn jit_overrides() -> Vec<(&'static str, ExecutorSymbolDef)> {
    let function = |address: *const ()| {
        ExecutorSymbolDef::new(ExecutorAddr::from_ptr(address), SymbolFlags::EXPORTED | SymbolFlags::CALLABLE)
    };
    let thread_atexit = function(thread_exit::thread_atexit as *const ());
    let mut overrides = vec![
        ("__tls_get_addr", function(tls::tls_get_addr_address().to_ptr::<()>())),
        ("atexit", function(exit::atexit as *const ())),
        ("__cxa_atexit", function(exit::cxa_atexit as *const ())),
        ("on_exit", function(exit::linked_on_exit as *const ())),
        ("__cxa_at_quick_exit", function(exit::cxa_at_quick_exit as *const ())),
        ("__register_atfork", function(exit::register_atfork as *const ())),
        ("at_quick_exit", function(exit::at_quick_exit as *const ())),
        ("pthread_atfork", function(exit::pthread_atfork as *const ())),
        ("__cxa_thread_atexit_impl", thread_atexit),
        ("__cxa_thread_atexit", thread_atexit),
        ("dlopen", function(dlopen as *const ())),
        ("dlsym", function(dlsym as *const ())),
        ("dlvsym", function(dlvsym as *const ())),
        ("dladdr", function(dladdr as *const ())),
        ("dl_iterate_phdr", function(image::dl_iterate_phdr as *const ())),
        ("getauxval", function(image::getauxval as *const ())),
        ("pthread_create", function(threads::pthread_create as *const ())),
        ("thrd_create", function(threads::thrd_create as *const ())),
        ("sigaction", function(handlers::sigaction as *const ())),
        ("signal", function(handlers::signal as *const ())),
        ("bsd_signal", function(handlers::signal as *const ())),
        ("ssignal", function(handlers::signal as *const ())),
        ("__sysv_signal", function(handlers::sysv_signal as *const ())),
        ("sigset", function(handlers::linked_sigset as *const ())),
        ("sigaltstack", function(fatal::sigaltstack as *const ())),
        ("_dl_find_object", function(unwind::find_object as *const ())),
        ("_Unwind_FindEnclosingFunction", function(find_enclosing_function as *const ())),
    ];
    for name in [
        "__libc_malloc",
        "__libc_calloc",
        "__libc_realloc",
        "__libc_memalign",
        "__libc_valloc",
        "__libc_pvalloc",
    ] {
        let behind = CString::new(name).ok().and_then(|name| allocation::behind_program(&name));
        overrides.extend(behind.map(|address| (name, function(address.cast_const().cast()))));
    }
    overrides
}

/// The functions that libraries which were loaded for a program are given too: those that tell of the program, and those that would show
/// a handler of ours.
pub(super) fn told_to_libraries(name: &CStr) -> Option<*mut c_void> {
    let function = match name.to_bytes() {
        b"dladdr" => dladdr as *const (),
        b"dl_iterate_phdr" => image::dl_iterate_phdr as *const (),
        b"getauxval" => image::getauxval as *const (),
        b"sigaction" if fatal::is_reporting() => handlers::sigaction as *const (),
        b"signal" | b"ssignal" | b"bsd_signal" if fatal::is_reporting() => handlers::signal as *const (),
        b"sigaltstack" if fatal::is_reporting() => fatal::sigaltstack as *const (),
        _ => return None,
    };
    Some(function.cast_mut().cast())
}

/// Finds what the program itself defines, for `dlsym(RTLD_DEFAULT, ...)` out of linked code.
pub type ProgramSymbols = Arc<dyn Fn(&CStr) -> Option<ExecutorAddr> + Send + Sync>;

/// Sets how `dlsym` finds what the program defines. The function may link code and wait for it.
pub fn set_program_symbols(find: ProgramSymbols) {
    let earlier = PROGRAM_SYMBOLS.lock().replace(find);
    drop(earlier);
}

/// Held to read or set the function; never while it runs.
pub(in crate::runtime) static PROGRAM_SYMBOLS: RuntimeLock<Option<ProgramSymbols>> =
    RuntimeLock::new(LockOrder::ProgramSymbols, None);

/// `dlopen` for linked code: what a library lacks and the program defines is defined for it, one name after the other.
///
/// # Safety
/// As for the C library's function.
unsafe extern "C" fn dlopen(path: *const c_char, flags: c_int) -> *mut c_void {
    let mut defined = Vec::new();
    loop {
        // SAFETY: the caller's obligation, passed on.
        let handle = unsafe { libc::dlopen(path, flags) };
        if !handle.is_null() {
            return handle;
        }
        let missing = undefined_symbol(&last_error()).filter(|name| !defined.contains(name));
        // SAFETY: the name is terminated.
        let found =
            missing.and_then(|name| Some((unsafe { program_symbol(ptr::null_mut(), name.as_ptr()) }?, name)));
        let is_new = found.is_some_and(|(address, name)| {
            defined.push(name.clone());
            StandIn::define(name, address.value()).is_ok()
        });
        if !is_new {
            // SAFETY: as above. It fails again, and says why to who asks `dlerror`.
            return unsafe { libc::dlopen(path, flags) };
        }
    }
}

/// `dlsym` for linked code: `RTLD_DEFAULT` and the program's own handle see the program first, `RTLD_NEXT` what comes
/// behind it.
///
/// # Safety
/// `name` is a terminated string; `handle` is one that `dlsym` takes.
unsafe extern "C" fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void {
    // SAFETY: the caller's obligation.
    if let Some(address) = unsafe { program_symbol(handle, name) } {
        return address.to_ptr();
    }
    if handle == libc::RTLD_NEXT
        // SAFETY: the caller's obligation.
        && let Some(address) = allocation::behind_program(unsafe { CStr::from_ptr(name) })
    {
        return address;
    }
    // SAFETY: the caller's obligation, passed on.
    let address = unsafe { libc::dlsym(handle, name) };
    // Not a tail call: for RTLD_NEXT the C library looks at the return address, which has to be ours.
    std::hint::black_box(address)
}

/// `dlvsym` for linked code. The program's definitions have no version, so any version finds them.
///
/// # Safety
/// As for [`dlsym`], and `version` is a terminated string.
unsafe extern "C" fn dlvsym(handle: *mut c_void, name: *const c_char, version: *const c_char) -> *mut c_void {
    // SAFETY: the caller's obligation.
    if let Some(address) = unsafe { program_symbol(handle, name) } {
        return address.to_ptr();
    }
    // SAFETY: the caller's obligation, passed on.
    let address = unsafe { libc::dlvsym(handle, name, version) };
    // Not a tail call, as in `dlsym`.
    std::hint::black_box(address)
}

/// `_Unwind_FindEnclosingFunction` for linked code: of a function that is compiled when it is called it is the address that the program
/// knows.
extern "C" fn find_enclosing_function(address: *mut c_void) -> *mut c_void {
    // SAFETY: of what is in no code the unwinder says so.
    unwind::functions::function_at(unsafe { _Unwind_FindEnclosingFunction(address) })
}

/// `dladdr` for linked code: functions of the program are in the file that the process was started from, under no name,
/// as in an executable that exports nothing.
///
/// # Safety
/// `info` can be written.
unsafe extern "C" fn dladdr(address: *const c_void, info: *mut libc::Dl_info) -> c_int {
    // SAFETY: the caller's obligation.
    let known = unsafe { libc::dladdr(address, info) };
    let is_linked = |address| unwind::is_linked(address) || is_entry(address);
    if known != 0 || !is_linked(address.addr() as u64) {
        return known;
    }
    // SAFETY: the caller's obligation; our own code is in a loaded file.
    unsafe {
        let known = libc::dladdr(own_code(), info);
        (*info).dli_fname = program_invocation_name;
        (*info).dli_sname = ptr::null();
        (*info).dli_saddr = ptr::null_mut();
        known
    }
}

fn own_code() -> *const c_void {
    dladdr as unsafe extern "C" fn(*const c_void, *mut libc::Dl_info) -> c_int as *const c_void
}

unsafe extern "C" {
    fn _Unwind_FindEnclosingFunction(address: *mut c_void) -> *mut c_void;

    static program_invocation_name: *mut c_char;
}

/// # Safety
/// `name` is a terminated string.
unsafe fn program_symbol(handle: *mut c_void, name: *const c_char) -> Option<ExecutorAddr> {
    if handle != libc::RTLD_DEFAULT && handle.addr() != own_handle() {
        return None;
    }
    let find = PROGRAM_SYMBOLS.lock().clone()?;
    // SAFETY: the caller's obligation.
    find(unsafe { CStr::from_ptr(name) })
}

/// The result of `dlopen(NULL)`: the handle of the program as a whole.
fn own_handle() -> usize {
    static HANDLE: OnceLock<usize> = OnceLock::new();
    // SAFETY: opening the program itself loads nothing.
    *HANDLE.get_or_init(|| unsafe { libc::dlopen(ptr::null(), libc::RTLD_LAZY) }.addr())
}
