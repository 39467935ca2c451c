//! Responsibilities: requested symbols, addresses, further symbols, dependence groups, failure, refusals.

use std::sync::mpsc;

use protocol_tests::*;
use uruk_core::{
    DefineError, DependenceGroup, EmitError, ExecutorSymbolDef, LookupError, LookupRequest,
    MaterializationResponsibility, ResolveError, SymbolFlags, SymbolMap, SymbolName, shared_error,
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
    session.lookup(LookupRequest::new(order(&main), set(&session, &["a", "more", "weak"]))).unwrap();
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
    assert!(error.in_full().ends_with("failed: unit `unit` gave no address for: `a`"), "{error}");
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
    // Searched and given back: its token is known, and no lookup wants it.
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

#[test]
fn symbols_nobody_asked_for_become_ready_with_those_somebody_did() {
    let (session, main) = session();
    let parked = define_parked(&main, "unit", &["a", "b"]);
    let a = look_up_later(&session, request(&main, &["a"]));
    finish(parked.recv().unwrap().attach());
    assert!(a.recv().unwrap().is_ok());
    let b = look_up_later(&session, request(&main, &["b"]));
    assert!(b.try_recv().unwrap().is_ok(), "at once");
    assert!(parked.try_recv().is_err(), "the unit ran once");
}

#[test]
fn failing_before_and_after_resolution_fails_the_symbols() {
    let (session, main) = session();
    for (name, resolves) in [("before", false), ("after", true)] {
        let parked = define_parked(&main, name, &[name]);
        let ready = look_up_later(&session, request(&main, &[name]));
        let resolved = look_up_later(&session, request(&main, &[name]).until_resolved());
        let responsibility = parked.recv().unwrap().attach();
        if resolves {
            let definitions = addresses(responsibility.symbols());
            responsibility.notify_resolved(&definitions).unwrap().fail(shared_error("on purpose"));
        } else {
            responsibility.fail(shared_error("on purpose"));
        }
        assert_eq!(resolved.try_recv().unwrap().is_ok(), resolves, "what was answered stays answered");
        let error = ready.try_recv().unwrap().unwrap_err();
        assert!(error.in_full().ends_with("on purpose"), "{error}");
        let later = session.lookup_symbol(&order(&main), &session.intern(name)).unwrap_err();
        assert_eq!(later.in_full(), error.in_full());
    }
}

#[test]
fn common_is_dropped_on_resolution_and_weak_stays() {
    let (session, main) = session();
    let flags = EXPORTED | SymbolFlags::WEAK | SymbolFlags::COMMON;
    let symbols = [(session.intern("a"), flags), (session.intern("b"), flags)].into_iter().collect();
    let unit = TestUnit::new("unit", symbols, |responsibility| {
        // Whether the addresses say weak or not makes no difference.
        let given = |(index, name): (usize, &SymbolName)| {
            let flags = if index == 0 { EXPORTED } else { EXPORTED | SymbolFlags::WEAK };
            (name.clone(), ExecutorSymbolDef::new(at(1).address, flags))
        };
        let definitions = responsibility.symbols().keys().enumerate().map(given).collect();
        responsibility.notify_resolved(&definitions).unwrap().notify_emitted(Vec::new()).unwrap();
    });
    main.define(unit.boxed()).unwrap();
    let found = session.lookup(LookupRequest::new(order(&main), set(&session, &["a", "b"]))).unwrap();
    assert!(
        found.iter().all(|(_, definition)| definition.flags == EXPORTED | SymbolFlags::WEAK),
        "as promised"
    );
}

/// ```text
///  unit { a, b }: a depends on x, b is in no group
/// ```
#[test]
fn symbols_in_no_group_have_no_dependencies() {
    let (session, main) = session();
    let x = define_parked(&main, "unit of x", &["x"]);
    let parked = define_parked(&main, "unit", &["a", "b"]);
    let [a, b, _x] = ["a", "b", "x"].map(|name| look_up_later(&session, request(&main, &[name])));
    let x = x.recv().unwrap().attach();
    let dependencies = vec![x.dependency(&session.intern("x")).unwrap()];
    let group = DependenceGroup { symbols: vec![session.intern("a")], dependencies };
    finish_with(parked.recv().unwrap().attach(), vec![group]);
    assert!(b.try_recv().unwrap().is_ok());
    assert!(a.try_recv().is_err());
    drop(x);
    assert!(matches!(a.try_recv().unwrap(), Err(LookupError::Failed(_))));
    session.lookup_symbol(&order(&main), &session.intern("b")).unwrap();
}

#[test]
fn groups_of_one_unit_wait_each_for_its_own() {
    let (session, main) = session();
    let [x, y] = ["x", "y"].map(|name| define_parked(&main, name, &[name]));
    let parked = define_parked(&main, "unit", &["a", "b"]);
    let [a, b, _x, _y] = ["a", "b", "x", "y"].map(|name| look_up_later(&session, request(&main, &[name])));
    let [x, y] = [x, y].map(|parked| parked.recv().unwrap().attach());
    let group = |name: &str, on: &MaterializationResponsibility, source: &str| DependenceGroup {
        symbols: vec![session.intern(name)],
        dependencies: vec![on.dependency(&session.intern(source)).unwrap()],
    };
    let groups = vec![group("a", &x, "x"), group("b", &y, "y")];
    finish_with(parked.recv().unwrap().attach(), groups);
    finish(y);
    assert!(b.try_recv().unwrap().is_ok());
    assert!(a.try_recv().is_err());
    finish(x);
    assert!(a.try_recv().unwrap().is_ok());
}

#[test]
fn a_symbol_still_resolves_after_its_dependency_failed() {
    let (session, main) = session();
    let x = define_parked(&main, "unit of x", &["x"]);
    let parked = define_parked(&main, "unit", &["a"]);
    let resolved = look_up_later(&session, request(&main, &["a"]).until_resolved());
    let ready = look_up_later(&session, request(&main, &["a"]));
    let _x = look_up_later(&session, request(&main, &["x"]));
    let x = x.recv().unwrap().attach();
    let dependencies = vec![x.dependency(&session.intern("x")).unwrap()];
    let responsibility = parked.recv().unwrap().attach();
    drop(x);
    let definitions = addresses(responsibility.symbols());
    let responsibility = responsibility.notify_resolved(&definitions).unwrap();
    assert!(resolved.try_recv().unwrap().is_ok());
    let group = DependenceGroup { symbols: vec![session.intern("a")], dependencies };
    let refused = responsibility.notify_emitted(vec![group]).unwrap_err();
    assert!(matches!(refused.error, EmitError::DependencyFailed { .. }));
    assert!(ready.try_recv().is_err());
    refused.responsibility.notify_emitted(Vec::new()).unwrap();
    assert!(ready.try_recv().unwrap().is_ok(), "the refusal has left it usable");
}

#[test]
fn a_strong_symbol_defined_while_materializing_overrides_a_weak_one_nobody_searched() {
    let (session, main) = session();
    let (send, discarded) = mpsc::channel();
    let weak = [(session.intern("w"), EXPORTED | SymbolFlags::WEAK)].into_iter().collect();
    let weak = TestUnit::new("weak", weak, finish).on_discard(move |name| send.send(name.clone()).unwrap());
    main.define(weak.boxed()).unwrap();
    let parked = define_parked(&main, "unit", &["a"]);
    let _a = look_up_later(&session, request(&main, &["a"]));
    let mut responsibility = parked.recv().unwrap().attach();
    responsibility.define_materializing(exported(&session, &["w"])).unwrap();
    assert_eq!(discarded.try_recv().unwrap(), session.intern("w"));
    finish(responsibility);
    session.lookup_symbol(&order(&main), &session.intern("w")).unwrap();
}
