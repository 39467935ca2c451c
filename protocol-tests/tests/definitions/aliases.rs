//! Aliases and re-exports: chains, cycles, across dylibs, no needless work.

use protocol_tests::*;
use uruk_core::{
    AliasMap, AliasTarget, ExecutionSession, JitDylibLookupFlags, LookupError, LookupRequest, SymbolFlags,
    reexports, shared_error, symbol_aliases,
};

fn aliases(session: &ExecutionSession, pairs: &[(&str, &str)]) -> AliasMap {
    let target = |source: &str| AliasTarget { source: session.intern(source), flags: EXPORTED };
    pairs.iter().map(|(alias, source)| (session.intern(alias), target(source))).collect()
}

#[test]
fn an_alias_has_its_sources_address() {
    let (session, main) = session();
    define_simple(&main, "unit", &["a"]);
    main.define(symbol_aliases(aliases(&session, &[("b", "a")]))).unwrap();
    let found = session.lookup(LookupRequest::new(order(&main), set(&session, &["a", "b"]))).unwrap();
    assert_eq!(found[&session.intern("a")].address, found[&session.intern("b")].address);
}

#[test]
fn chains_within_one_unit_and_across_units() {
    let (session, main) = session();
    define_simple(&main, "unit", &["a"]);
    main.define(symbol_aliases(aliases(&session, &[("b", "a"), ("c", "b"), ("d", "c")]))).unwrap();
    main.define(symbol_aliases(aliases(&session, &[("e", "d")]))).unwrap();
    session.lookup_symbol(&order(&main), &session.intern("e")).unwrap();
}

#[test]
fn an_alias_is_ready_when_its_source_is() {
    let (session, main) = session();
    let parked = define_parked(&main, "unit", &["a"]);
    main.define(symbol_aliases(aliases(&session, &[("b", "a")]))).unwrap();
    let ready = look_up_later(&session, request(&main, &["b"]));
    let resolved = look_up_later(&session, request(&main, &["b"]).until_resolved());
    let responsibility = parked.try_recv().unwrap().attach();
    let definitions = addresses(responsibility.symbols());
    let responsibility = responsibility.notify_resolved(&definitions).unwrap();
    assert!(resolved.try_recv().unwrap().is_ok());
    assert!(ready.try_recv().is_err());
    responsibility.notify_emitted(Vec::new()).unwrap();
    assert!(ready.try_recv().unwrap().is_ok());
}

#[test]
fn a_cycle_within_a_unit_is_named() {
    let (session, main) = session();
    main.define(symbol_aliases(aliases(&session, &[("a", "b"), ("b", "a")]))).unwrap();
    let error = session.lookup_symbol(&order(&main), &session.intern("a")).unwrap_err();
    assert!(error.in_full().contains("aliases form a cycle: `"), "{error}");
}

#[test]
fn a_cycle_across_units_is_an_error_and_not_a_wait() {
    let (session, main) = session();
    for (alias, source) in [("a", "b"), ("b", "c"), ("c", "a")] {
        main.define(symbol_aliases(aliases(&session, &[(alias, source)]))).unwrap();
    }
    let error = session.lookup_symbol(&order(&main), &session.intern("a")).unwrap_err();
    assert!(error.in_full().contains("aliases form a cycle: `c` -> `a` -> `b` -> `c`"), "{error}");
}

#[test]
fn an_alias_of_itself_is_a_cycle() {
    let (session, main) = session();
    main.define(symbol_aliases(aliases(&session, &[("a", "a")]))).unwrap();
    let error = session.lookup_symbol(&order(&main), &session.intern("a")).unwrap_err();
    assert!(error.in_full().contains("`a` -> `a`"), "{error}");
}

#[test]
fn aliases_nobody_asked_for_materialize_nothing() {
    let (session, main) = session();
    define_simple(&main, "unit", &["a"]);
    let untouched = define_parked(&main, "untouched", &["x"]);
    main.define(symbol_aliases(aliases(&session, &[("b", "a"), ("y", "x")]))).unwrap();
    session.lookup_symbol(&order(&main), &session.intern("b")).unwrap();
    assert!(untouched.try_recv().is_err());
    let later = look_up_later(&session, request(&main, &["y"]));
    finish(untouched.try_recv().unwrap().attach());
    assert!(later.try_recv().unwrap().is_ok());
}

#[test]
fn reexports_cross_dylibs() {
    let (session, main) = session();
    let other = session.create_jit_dylib("other").unwrap();
    define_simple(&other, "unit", &["a"]);
    let flags = JitDylibLookupFlags::MatchExportedSymbolsOnly;
    main.define(reexports(other, flags, aliases(&session, &[("a", "a"), ("b", "a")]))).unwrap();
    let found = session.lookup(LookupRequest::new(order(&main), set(&session, &["a", "b"]))).unwrap();
    assert_eq!(found.len(), 2);
}

#[test]
fn a_missing_source_fails_the_alias() {
    let (session, main) = session();
    main.define(symbol_aliases(aliases(&session, &[("b", "a")]))).unwrap();
    let error = session.lookup_symbol(&order(&main), &session.intern("b")).unwrap_err();
    assert!(matches!(error, LookupError::Failed(_)));
    assert!(error.in_full().ends_with("not found: `a` (searched `main`)"), "{error}");
}

#[test]
fn ten_thousand_aliases_in_one_chain() {
    let (session, main) = session();
    define_simple(&main, "unit", &["s0"]);
    let names: Vec<String> = (0..10_001).map(|index| format!("s{index}")).collect();
    let pairs: Vec<(&str, &str)> =
        names.windows(2).map(|pair| (pair[1].as_str(), pair[0].as_str())).collect();
    for chunk in pairs.chunks(100) {
        main.define(symbol_aliases(aliases(&session, chunk))).unwrap();
    }
    session.lookup_symbol(&order(&main), &session.intern("s10000")).unwrap();
}

#[test]
fn a_cycle_across_dylibs_names_its_aliases() {
    let (session, main) = session();
    let other = session.create_jit_dylib("other").unwrap();
    let all = JitDylibLookupFlags::MatchAllSymbols;
    main.define(reexports(other.clone(), all, aliases(&session, &[("a", "b")]))).unwrap();
    other.define(reexports(main.clone(), all, aliases(&session, &[("b", "a")]))).unwrap();
    let error = session.lookup_symbol(&order(&main), &session.intern("a")).unwrap_err();
    assert!(error.in_full().contains("aliases form a cycle: `b` -> `a` -> `b`"), "{error}");
}

#[test]
fn a_chain_of_reexports_crosses_dylibs() {
    let (session, main) = session();
    define_simple(&main, "unit", &["a"]);
    let mut last = main.clone();
    for index in 0..20 {
        let next = session.create_jit_dylib(&format!("dylib {index}")).unwrap();
        let flags = JitDylibLookupFlags::MatchExportedSymbolsOnly;
        next.define(reexports(last, flags, aliases(&session, &[("a", "a")]))).unwrap();
        last = next;
    }
    let a = session.intern("a");
    let source = session.lookup_symbol(&order(&main), &a).unwrap();
    assert_eq!(session.lookup_symbol(&order(&last), &a).unwrap().address, source.address);
}

#[test]
fn reexports_see_of_their_source_what_their_flags_say() {
    let (session, main) = session();
    let other = session.create_jit_dylib("other").unwrap();
    let hidden = [(session.intern("h"), SymbolFlags::CALLABLE)].into_iter().collect();
    other.define(TestUnit::new("hidden", hidden, finish).boxed()).unwrap();
    let exported_only = JitDylibLookupFlags::MatchExportedSymbolsOnly;
    main.define(reexports(other.clone(), exported_only, aliases(&session, &[("x", "h")]))).unwrap();
    main.define(reexports(other, JitDylibLookupFlags::MatchAllSymbols, aliases(&session, &[("y", "h")])))
        .unwrap();
    assert!(session.lookup_symbol(&order(&main), &session.intern("x")).is_err());
    let shown = session.lookup_symbol(&order(&main), &session.intern("y")).unwrap();
    assert_eq!(shown.flags, EXPORTED, "an alias has flags of its own");
}

#[test]
fn a_failed_source_fails_its_aliases_with_the_cause() {
    let (session, main) = session();
    main.define(
        TestUnit::new("broken", exported(&session, &["a"]), |responsibility| {
            responsibility.fail(shared_error("no memory"));
        })
        .boxed(),
    )
    .unwrap();
    main.define(symbol_aliases(aliases(&session, &[("b", "a"), ("c", "b")]))).unwrap();
    let error = session.lookup_symbol(&order(&main), &session.intern("c")).unwrap_err();
    assert!(error.in_full().ends_with("no memory"), "{error}");
}

#[test]
fn an_alias_removed_before_it_is_searched_materializes_nothing() {
    let (session, main) = session();
    let untouched = define_parked(&main, "unit", &["a"]);
    main.define(symbol_aliases(aliases(&session, &[("b", "a"), ("c", "a")]))).unwrap();
    main.remove(&[session.intern("b")]).unwrap();
    assert!(matches!(
        session.lookup_symbol(&order(&main), &session.intern("b")),
        Err(LookupError::NotFound { .. })
    ));
    assert!(untouched.try_recv().is_err());
}
