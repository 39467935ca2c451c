//! Process symbols as a generator of a dylib, looked up through a session.

use uruk_core::sync::Arc;
use uruk_core::{ExecutionSession, JitDylibLookupFlags, LookupError, SymbolFlags};
use uruk_pipeline::runtime::process::{ProcessSymbols, ProcessSymbolsGenerator, jit_overrides};

fn session_with(symbols: ProcessSymbols) -> (ExecutionSession, uruk_core::SearchOrder) {
    let session = ExecutionSession::new();
    let process = session.create_jit_dylib("process").unwrap();
    let _id = process.add_generator(Arc::new(ProcessSymbolsGenerator::new(Arc::new(symbols))));
    (session, [(process, JitDylibLookupFlags::MatchExportedSymbolsOnly)].into())
}

#[test]
fn a_lookup_finds_the_process_and_prefers_the_overrides() {
    let (session, order) = session_with(ProcessSymbols::new());
    let strlen = session.lookup_symbol(&order, &session.intern("strlen")).unwrap();
    assert_eq!(Some(strlen), ProcessSymbols::new().lookup("strlen"));
    assert!(strlen.flags.contains(SymbolFlags::CALLABLE));
    for (name, definition) in jit_overrides() {
        assert_eq!(session.lookup_symbol(&order, &session.intern(name)).unwrap(), definition);
    }
    // The second time it is defined already.
    assert_eq!(session.lookup_symbol(&order, &session.intern("strlen")).unwrap(), strlen);
}

#[test]
fn what_the_process_lacks_or_hides_is_not_found() {
    let (session, order) = session_with(ProcessSymbols::new().allow_only(["strlen"]));
    for name in ["no_such_symbol_anywhere", "system", "atexit"] {
        let error = session.lookup_symbol(&order, &session.intern(name)).unwrap_err();
        assert!(matches!(error, LookupError::NotFound { .. }), "{error}");
    }
    assert!(session.lookup_symbol(&order, &session.intern("strlen")).is_ok());
}

#[test]
fn a_shared_library_is_a_dylib_of_its_own() {
    let (session, order) = session_with(ProcessSymbols::of_library("libm.so.6").unwrap());
    let cos = session.lookup_symbol(&order, &session.intern("cos")).unwrap();
    assert_eq!(Some(cos), ProcessSymbols::new().lookup("cos"));
    assert!(cos.flags.contains(SymbolFlags::CALLABLE));
    // The C++ library is in the process by now, and no part of this one.
    assert!(ProcessSymbols::new().lookup("_ZSt4cout").is_some());
    let error = session.lookup_symbol(&order, &session.intern("_ZSt4cout")).unwrap_err();
    assert!(error.to_string().contains("libm.so.6"), "{error}");
    let allowed = ProcessSymbols::of_library("libm.so.6").unwrap().allow_only(["sin"]);
    let (session, order) = session_with(allowed);
    assert!(session.lookup_symbol(&order, &session.intern("sin")).is_ok());
    assert!(session.lookup_symbol(&order, &session.intern("cos")).is_err());
    assert!(ProcessSymbols::of_library("/no/such/library.so").is_err());
}
