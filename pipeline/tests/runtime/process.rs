//! Symbols of the process, seen as linked code would use them.

use std::ffi::{CStr, c_char, c_void};

use uruk_core::sync::{Arc, thread};
use uruk_core::{ExecutorAddr, SymbolFlags};
use uruk_pipeline::runtime::process::{LoadLibraryError, ProcessSymbols, jit_overrides, set_program_symbols};
use uruk_pipeline::runtime::tls;

fn override_named(name: &str) -> ExecutorAddr {
    jit_overrides().into_iter().find(|(known, _)| *known == name).unwrap().1.address
}

#[test]
fn functions_and_data_of_the_c_library_are_found_and_told_apart() {
    let symbols = ProcessSymbols::new();
    let strlen = symbols.lookup("strlen").unwrap();
    assert_eq!(strlen.flags, SymbolFlags::EXPORTED | SymbolFlags::CALLABLE);
    // SAFETY: the address is that of `strlen`.
    let function: extern "C" fn(*const c_char) -> usize =
        unsafe { std::mem::transmute(strlen.address.to_ptr::<()>()) };
    assert_eq!(function(c"four".as_ptr()), 4);
    assert_eq!(symbols.lookup("stdout").unwrap().flags, SymbolFlags::EXPORTED);
    assert!(symbols.lookup("cos").unwrap().flags.contains(SymbolFlags::CALLABLE));
    assert!(symbols.lookup("_Unwind_RaiseException").is_some());
    assert!(symbols.lookup("no_such_symbol_anywhere").is_none());
    assert!(symbols.lookup("zero\0byte").is_none());
}

#[test]
fn the_cxx_library_is_loaded_when_it_is_needed() {
    let symbols = ProcessSymbols::new();
    assert!(symbols.lookup("_ZSt4cout").is_some());
    assert!(symbols.lookup("__gxx_personality_v0").unwrap().flags.contains(SymbolFlags::CALLABLE));
}

#[test]
fn the_engine_itself_is_not_seen_unless_asked_for() {
    assert_ne!(
        ProcessSymbols::new().lookup("_dl_find_object").map(|found| found.address),
        ProcessSymbols::whole_process().lookup("_dl_find_object").map(|found| found.address)
    );
}

#[test]
fn allocation_functions_are_those_of_the_process() {
    // SAFETY: dlsym with a terminated name has no other obligation.
    let malloc = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"malloc".as_ptr()) };
    assert_eq!(ProcessSymbols::new().lookup("malloc").unwrap().address, ExecutorAddr::from_ptr(malloc));
}

#[test]
fn thread_local_variables_come_as_descriptors_for_every_thread() {
    let symbols = ProcessSymbols::new();
    let errno = symbols.lookup("errno").or_else(|| symbols.lookup("__libc_errno"));
    let resolver = symbols.lookup("__resp").or(errno).unwrap();
    assert_eq!(resolver.flags, SymbolFlags::EXPORTED | SymbolFlags::THREAD_LOCAL);
    let check = move || {
        // SAFETY: the address is that of a function of this type, and the descriptor is one of a loaded library.
        let (ours, real) = unsafe {
            let get: extern "C" fn(*const tls::TlsIndex) -> *mut c_void =
                std::mem::transmute(tls::tls_get_addr_address().to_ptr::<()>());
            (get(resolver.address.to_ptr()), libc::dlsym(libc::RTLD_DEFAULT, c"__resp".as_ptr()))
        };
        (ours.addr(), real.addr())
    };
    let (ours, real) = check();
    assert_eq!(ours, real);
    let (there, real_there) = thread::spawn(check).join().unwrap();
    assert_eq!(there, real_there);
    assert_ne!(ours, there);
}

#[test]
fn a_version_is_asked_for_by_name() {
    let symbols = ProcessSymbols::new();
    let (old, new) = (symbols.lookup("memcpy@GLIBC_2.2.5"), symbols.lookup("memcpy@GLIBC_2.14"));
    assert!(old.is_some() && new.is_some());
    assert_ne!(old.map(|found| found.address), new.map(|found| found.address));
    assert!(symbols.lookup("memcpy@GLIBC_1.0").is_none());
    assert!(ProcessSymbols::new().allow_only(["memcpy"]).lookup("memcpy@GLIBC_2.2.5").is_some());
}

#[test]
fn an_allow_list_hides_the_rest() {
    let symbols = ProcessSymbols::new().allow_only(["strlen"]);
    assert!(symbols.lookup("strlen").is_some());
    assert!(symbols.lookup("system").is_none());
}

#[test]
fn a_library_that_cannot_be_loaded_says_why() {
    let symbols = ProcessSymbols::new();
    let error = symbols.load_library("/nowhere/libmissing.so").unwrap_err();
    let LoadLibraryError::Refused { path, message } = &error else { panic!("{error}") };
    assert_eq!(&**path, "/nowhere/libmissing.so");
    assert!(message.contains("No such file"), "{message}");
    symbols.load_library("libm.so.6").unwrap();
    assert_eq!(symbols.searched()[0], "libm.so.6");
    assert!(symbols.searched().iter().any(|name| name == "libc.so.6"));
}

#[test]
fn dlsym_for_linked_code_sees_the_program_and_what_comes_behind_it() {
    static VARIABLE: u32 = 5;
    set_program_symbols(Arc::new(|name: &CStr| {
        (name == c"variable_of_the_program").then(|| ExecutorAddr::from_ptr(&raw const VARIABLE))
    }));
    // SAFETY: the address is that of `dlsym`'s replacement, which has this type.
    let dlsym: unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void =
        unsafe { std::mem::transmute(override_named("dlsym").to_ptr::<()>()) };
    // SAFETY: the handles and names are valid.
    unsafe {
        let own = libc::dlopen(std::ptr::null(), libc::RTLD_LAZY);
        let variable = c"variable_of_the_program".as_ptr();
        assert_eq!(dlsym(libc::RTLD_DEFAULT, variable), (&raw const VARIABLE).cast_mut().cast());
        assert_eq!(dlsym(own, variable), (&raw const VARIABLE).cast_mut().cast());
        assert!(dlsym(libc::RTLD_NEXT, variable).is_null());
        assert!(!dlsym(libc::RTLD_NEXT, c"malloc".as_ptr()).is_null());
        assert!(!dlsym(libc::RTLD_DEFAULT, c"malloc".as_ptr()).is_null());
    }
}

#[test]
fn overrides_are_callable() {
    for (name, definition) in jit_overrides() {
        assert!(!definition.address.is_null());
        assert!(definition.flags.contains(SymbolFlags::CALLABLE), "{name}");
    }
}

/// Any name that a library had was taken for one: `inline int glob` of a program jumped into libc.
#[test]
fn an_instance_of_a_library_is_a_vague_variable() {
    let symbols = ProcessSymbols::new();
    // A variable of a template is unique, and type information weak.
    for shared in ["_ZNSt7__cxx1110moneypunctIcLb0EE2idE", "_ZTISt9exception"] {
        assert!(symbols.has_instance_of(shared), "{shared}");
    }
    // A function, an indirect function, variables that are strong or another's default, one that C++ defines once, nothing.
    for other in ["glob", "index", "optind", "environ", "__environ", "_ZSt4cout", "errno", "no_such_symbol"] {
        assert!(!symbols.has_instance_of(other), "{other}");
    }
    assert!(!ProcessSymbols::new().allow_only(["strlen"]).has_instance_of("_ZTISt9exception"));
}

#[test]
fn who_is_no_program_has_nothing_to_bind() {
    let symbols = ProcessSymbols::new();
    let references = symbols.references_to_program();
    assert!(references.required.is_empty() && references.optional.is_empty());
    symbols.begin_libraries(|constructors| panic!("{constructors:?}"));
    let of_program = ProcessSymbols::of_program().references_to_program();
    assert!(of_program.required.is_empty() && of_program.optional.contains("optind"), "{of_program:?}");
}
