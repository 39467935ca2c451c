//! Responsibilities: requested symbols, replace, delegate, defining more, refusals, groups.

use std::sync::{Arc, mpsc};

use protocol_tests::*;
use uruk_core::{
    DefineError, DelegateError, DependenceGroup, EmitError, ExecutorSymbolDef, JitDylibLookupFlags,
    LookupError, ResolveError, SymbolFlags, SymbolFlagsMap, SymbolMap,
};

#[test]
fn requested_symbols_are_those_somebody_waits_for() {
    let (session, main) = session();
    let parked = define_parked(&main, "unit", &["a", "b", "c"]);
    let _answer = look_up_later(&session, request(&main, &["b"]));
    let responsibility = parked.recv().unwrap().attach();
    assert_eq!(responsibility.requested_symbols(), [session.intern("b")]);
    assert_eq!(responsibility.symbols().len(), 3);
    finish(responsibility);
}

#[test]
fn what_is_replaced_is_materialized_when_somebody_asks() {
    let (session, main) = session();
    let parked = define_parked(&main, "unit", &["a", "b"]);
    let a = look_up_later(&session, request(&main, &["a"]));
    let mut responsibility = parked.recv().unwrap().attach();
    let rest = responsibility.delegate([session.intern("b")]).unwrap();
    let (send, ran) = mpsc::channel();
    let replacement = TestUnit::new("rest", exported(&session, &["b"]), move |responsibility| {
        send.send(()).unwrap();
        finish(responsibility);
    });
    rest.replace(replacement.boxed()).unwrap();
    finish(responsibility);
    assert!(a.recv().unwrap().is_ok());
    assert!(ran.try_recv().is_err());
    let late = TestUnit::new("late", exported(&session, &["b"]), finish);
    assert!(
        matches!(main.define(late.boxed()), Err(DefineError::Duplicate { .. })),
        "given back, not overridable"
    );
    session.lookup_symbol(&order(&main), &session.intern("b")).unwrap();
    ran.try_recv().unwrap();
}

#[test]
fn what_is_replaced_while_somebody_waits_runs_at_once() {
    let (session, main) = session();
    let parked = define_parked(&main, "unit", &["a"]);
    let answer = look_up_later(&session, request(&main, &["a"]));
    let replacement = TestUnit::new("replacement", exported(&session, &["a"]), finish);
    parked.recv().unwrap().attach().replace(replacement.boxed()).unwrap();
    assert!(answer.try_recv().unwrap().is_ok());
}

#[test]
fn a_replacement_must_cover_exactly_the_symbols() {
    let (session, main) = session();
    let parked = define_parked(&main, "unit", &["a", "b"]);
    let answer = look_up_later(&session, request(&main, &["a"]));
    let replacement = TestUnit::new("replacement", exported(&session, &["a"]), finish);
    let refused = parked.recv().unwrap().attach().replace(replacement.boxed()).unwrap_err();
    assert!(matches!(refused.error, DefineError::NotCovered { .. }));
    finish(refused.responsibility);
    assert!(answer.recv().unwrap().is_ok());
}

/// The story: a hidden definition in the first dylib hides nothing from lookups of exported symbols, so the record of the
/// name, Ready in the second, answered them. A unit that replaced itself by one that exports the name changed the row and
/// not the record, and the two paths answered differently.
#[test]
fn a_replacement_must_promise_the_same_flags() {
    let (session, main) = session();
    let second = session.create_jit_dylib("second").unwrap();
    define_simple(&second, "ready", &["a"]);
    let a = session.intern("a");
    let ready = session.lookup_symbol(&order(&second), &a).unwrap();
    let hidden: SymbolFlagsMap = [(a.clone(), SymbolFlags::CALLABLE)].into_iter().collect();
    let (send, parked) = std::sync::mpsc::channel();
    let unit = TestUnit::new("hidden", hidden.clone(), move |responsibility| {
        send.send(responsibility.detach()).unwrap();
    });
    main.define(unit.boxed()).unwrap();
    let waits = look_up_later(&session, request(&main, &["a"]));
    let replacement = |symbols| TestUnit::new("replacement", symbols, finish).boxed();
    let exports = replacement(exported(&session, &["a"]));
    let refused = parked.recv().unwrap().attach().replace(exports).unwrap_err();
    let error = refused.error.to_string();
    assert!(
        matches!(refused.error, DefineError::Flags { promised: SymbolFlags::CALLABLE, given: EXPORTED, .. }),
        "{error}"
    );
    assert!(
        ["`replacement`", "`a`", "EXPORTED | CALLABLE"].iter().all(|part| error.contains(part)),
        "{error}"
    );
    let exported_only = JitDylibLookupFlags::MatchExportedSymbolsOnly;
    let both = [(main, exported_only), (second, exported_only)].into();
    assert_eq!(session.lookup_symbol(&both, &a).unwrap(), ready);
    // What it took over as weak it may promise as strong, and the other way round.
    let weak = hidden.into_iter().map(|(name, flags)| (name, flags | SymbolFlags::WEAK)).collect();
    refused.responsibility.replace(replacement(weak)).unwrap();
    assert_eq!(waits.recv().unwrap().unwrap()[&a].flags, SymbolFlags::CALLABLE);
    assert_eq!(session.lookup_symbol(&both, &a).unwrap(), ready);
}

#[test]
fn delegating_what_is_not_covered_is_refused() {
    let (session, main) = session();
    let parked = define_parked(&main, "unit", &["a"]);
    let _answer = look_up_later(&session, request(&main, &["a"]));
    let mut responsibility = parked.recv().unwrap().attach();
    let refused = responsibility.delegate([session.intern("x")]);
    assert!(matches!(refused, Err(DelegateError::NotCovered { .. })));
    finish(responsibility);
}

#[test]
fn further_symbols_may_be_defined_while_materializing() {
    let (session, main) = session();
    let parked = define_parked(&main, "unit", &["a"]);
    define_simple(&main, "other", &["weak"]);
    let _answer = look_up_later(&session, request(&main, &["a"]));
    let mut responsibility = parked.recv().unwrap().attach();
    let mut more = exported(&session, &["more"]);
    more.insert(session.intern("weak"), EXPORTED | SymbolFlags::WEAK);
    let accepted = responsibility.define_materializing(more).unwrap();
    assert_eq!(accepted.into_keys().collect::<Vec<_>>(), [session.intern("more")]);
    let duplicate = responsibility.define_materializing(exported(&session, &["weak"]));
    assert!(matches!(duplicate, Err(DefineError::Duplicate { .. })));
    finish(responsibility);
    session.lookup(&order(&main), set(&session, &["a", "more", "weak"])).unwrap();
}

#[test]
fn addresses_must_be_complete_expected_and_as_promised() {
    let (session, main) = session();
    let parked = define_parked(&main, "unit", &["a", "b"]);
    let answer = look_up_later(&session, request(&main, &["a"]));
    let responsibility = parked.recv().unwrap().attach();
    let [a, b, c] = ["a", "b", "c"].map(|name| session.intern(name));
    let refused = responsibility.notify_resolved(&[(a.clone(), at(1))].into_iter().collect()).unwrap_err();
    assert_eq!(refused.to_string(), "unit `unit` gave no address for: `b`");
    let all: SymbolMap = [&a, &b, &c].into_iter().map(|name| (name.clone(), at(1))).collect();
    let refused = refused.responsibility.notify_resolved(&all).unwrap_err();
    assert!(matches!(&refused.error, ResolveError::Unexpected { symbols, .. } if *symbols == [c]));
    let mut wrong: SymbolMap = [&a, &b].into_iter().map(|name| (name.clone(), at(1))).collect();
    wrong.insert(b, ExecutorSymbolDef::new(at(1).address, SymbolFlags::CALLABLE));
    let refused = refused.responsibility.notify_resolved(&wrong).unwrap_err();
    assert!(matches!(refused.error, ResolveError::Flags { .. }));
    finish(refused.responsibility);
    assert!(answer.recv().unwrap().is_ok());
}

#[test]
fn a_refusal_can_fail_the_symbols_with_its_reason() {
    let (session, main) = session();
    let unit = TestUnit::new("unit", exported(&session, &["a"]), |responsibility| {
        responsibility.notify_resolved(&SymbolMap::default()).unwrap_err().fail();
    });
    main.define(unit.boxed()).unwrap();
    let error = session.lookup_symbol(&order(&main), &session.intern("a")).unwrap_err();
    assert!(error.to_string().ends_with("failed: unit `unit` gave no address for: `a`"), "{error}");
}

#[test]
fn groups_name_covered_symbols_once() {
    let (session, main) = session();
    let parked = define_parked(&main, "unit", &["a"]);
    let answer = look_up_later(&session, request(&main, &["a"]));
    let responsibility = parked.recv().unwrap().attach();
    let definitions = addresses(responsibility.symbols());
    let resolved = responsibility.notify_resolved(&definitions).unwrap();
    let group =
        |name: &str| DependenceGroup { symbols: vec![session.intern(name)], dependencies: Vec::new() };
    let refused = resolved.notify_emitted(vec![group("a"), group("a")]).unwrap_err();
    assert!(matches!(refused.error, EmitError::Unexpected { .. }));
    let refused = refused.responsibility.notify_emitted(vec![group("x")]).unwrap_err();
    assert!(matches!(refused.error, EmitError::Unexpected { .. }));
    refused.responsibility.notify_emitted(vec![group("a")]).unwrap();
    assert!(answer.recv().unwrap().is_ok());
}

#[test]
fn a_dependency_nobody_searched_is_claimed_by_the_emission() {
    let (session, main) = session();
    // Searched and given back: its token is known, and nobody wants it.
    let parked = define_parked(&main, "unit of b", &["b", "other"]);
    let other = look_up_later(&session, request(&main, &["other"]));
    let mut responsibility = parked.recv().unwrap().attach();
    let b = session.intern("b");
    let token = responsibility.dependency(&b).unwrap();
    let rest = responsibility.delegate([b.clone()]).unwrap();
    rest.replace(TestUnit::new("rest", exported(&session, &["b"]), finish).boxed()).unwrap();
    finish(responsibility);
    assert!(other.recv().unwrap().is_ok());
    let unit = TestUnit::new("unit of a", exported(&session, &["a"]), move |responsibility| {
        let symbols = responsibility.symbols().keys().cloned().collect();
        finish_with(responsibility, vec![DependenceGroup { symbols, dependencies: vec![token] }]);
    });
    main.define(unit.boxed()).unwrap();
    session.lookup_symbol(&order(&main), &session.intern("a")).unwrap();
}

#[test]
fn work_that_nobody_wants_any_more_is_put_back() {
    let (session, main) = session();
    // The unit's task waits behind a running one, so that the query can be withdrawn before it starts.
    let (inner_session, inner_main) = (session.clone(), main.clone());
    let (send, ran) = mpsc::channel();
    let wanted = TestUnit::new("wanted", exported(&session, &["a"]), move |responsibility| {
        send.send(()).unwrap();
        finish(responsibility);
    });
    main.define(wanted.boxed()).unwrap();
    let outer = TestUnit::new("outer", exported(&session, &["outer"]), move |responsibility| {
        drop(inner_session.lookup_future(request(&inner_main, &["a"])));
        finish(responsibility);
    });
    main.define(outer.boxed()).unwrap();
    session.lookup_symbol(&order(&main), &session.intern("outer")).unwrap();
    assert!(ran.try_recv().is_err());
    session.lookup_symbol(&order(&main), &session.intern("a")).unwrap();
    ran.try_recv().unwrap();
}

#[test]
fn a_failed_lookup_puts_back_what_it_claimed() {
    let (session, main) = session();
    define_simple(&main, "unit", &["a"]);
    let error = session.lookup(&order(&main), set(&session, &["a", "missing"])).unwrap_err();
    assert!(matches!(error, LookupError::NotFound { .. }));
    // Still overridable would be wrong, still there is right.
    session.lookup_symbol(&order(&main), &session.intern("a")).unwrap();
}

/// A responsibility that has delegated everything has no row that would tell it that its dylib is gone.
#[test]
fn a_responsibility_without_symbols_outlives_its_dylib() {
    let (session, main) = session();
    let parked = define_parked(&main, "unit", &["a"]);
    let _answer = look_up_later(&session, request(&main, &["a"]));
    let mut responsibility = parked.try_recv().unwrap().attach();
    let part = responsibility.delegate([session.intern("a")]).unwrap();
    session.remove_jit_dylib(&main).unwrap();
    let refused = responsibility.define_materializing(exported(&session, &["b"]));
    assert!(matches!(refused, Err(DefineError::TrackerDefunct { .. })), "{refused:?}");
    drop(part);
}

/// A unit of no symbols waits in no row, so that nothing would ever have let it go.
#[test]
fn a_unit_that_replaces_nothing_is_let_go() {
    let (session, main) = session();
    let parked = define_parked(&main, "unit", &["a"]);
    let _answer = look_up_later(&session, request(&main, &["a"]));
    let mut responsibility = parked.try_recv().unwrap().attach();
    let part = responsibility.delegate([session.intern("a")]).unwrap();
    let held = Arc::new(());
    let holds = held.clone();
    let empty = TestUnit::new("empty", exported(&session, &[]), move |_| drop(holds));
    responsibility.replace(empty.boxed()).unwrap();
    assert_eq!(Arc::strong_count(&held), 1, "the unit is gone");
    finish(part);
}

/// The symbols of a responsibility that a caught panic drops fail with the frame, for which a wait inside it waits.
#[test]
fn a_unit_that_catches_its_panic_may_wait_for_its_own_symbol() {
    let error = within_reason(|| {
        let (session, main) = session();
        let (told, tells) = mpsc::channel();
        let dylib = main.clone();
        let unit = TestUnit::new("unit", exported(&session, &["a"]), move |responsibility| {
            let session = responsibility.session().clone();
            let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                let _dropped = responsibility;
                panic!("on purpose");
            }));
            assert!(caught.is_err());
            told.send(session.lookup_symbol(&order(&dylib), &session.intern("a"))).unwrap();
        });
        main.define(unit.boxed()).unwrap();
        assert!(session.lookup_symbol(&order(&main), &session.intern("a")).is_err());
        tells.try_recv().unwrap().unwrap_err()
    });
    assert!(matches!(error, LookupError::Failed(_)), "{error}");
}
