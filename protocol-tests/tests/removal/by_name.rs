//! Removal by name, of all that a dylib has, and of dylibs.

use std::sync::mpsc;

use protocol_tests::tracked::{Log, noted, parked_under_a_tracker, sticking};
use protocol_tests::*;
use uruk_core::{DefineError, DependenceGroup, EmitError, LookupError, LookupRequest, RemoveError};

#[test]
fn removal_by_name_is_all_or_nothing() {
    let (session, main) = session();
    define_simple(&main, "unit", &["a", "b"]);
    let names = ["a", "b", "c"].map(|name| session.intern(name));
    let error = main.remove(&names).unwrap_err();
    assert_eq!(error.in_full(), "cannot remove symbols that dylib `main` does not define: `c`");
    session.lookup_symbol(&order(&main), &names[0]).unwrap();
    main.remove(&names[..2]).unwrap();
    assert!(session.lookup_symbol(&order(&main), &names[0]).is_err());
    define_simple(&main, "again", &["a", "b"]);
    session.lookup(LookupRequest::new(order(&main), set(&session, &["a", "b"]))).unwrap();
}

#[test]
fn a_materializing_symbol_cannot_be_removed_by_name() {
    let (session, main) = session();
    let parked = define_parked(&main, "unit", &["a"]);
    let answer = look_up_later(&session, request(&main, &["a"]));
    let error = main.remove(&[session.intern("a")]).unwrap_err();
    assert!(matches!(error, RemoveError::InUse { .. }));
    finish(parked.recv().unwrap().attach());
    assert!(answer.recv().unwrap().is_ok());
    main.remove(&[session.intern("a")]).unwrap();
}

#[test]
fn removing_an_emitted_symbol_fails_its_dependants() {
    let (session, main) = session();
    let tracker = main.create_tracker();
    let (send, parked) = mpsc::channel();
    let keep = send.clone();
    let a = TestUnit::new("unit of a", exported(&session, &["a"]), move |responsibility| {
        send.send(responsibility.detach()).unwrap();
    });
    let b = TestUnit::new("unit of b", exported(&session, &["b"]), move |responsibility| {
        keep.send(responsibility.detach()).unwrap();
    });
    main.define(a.boxed()).unwrap();
    main.define_with_tracker(b.boxed(), &tracker).unwrap();
    let answer = look_up_later(&session, request(&main, &["a"]));
    let _b = look_up_later(&session, request(&main, &["b"]));
    let a = parked.recv().unwrap().attach();
    let b = parked.recv().unwrap().attach();
    let dependency = b.dependency(&session.intern("b")).unwrap();
    let symbols = vec![session.intern("a")];
    finish_with(a, vec![DependenceGroup { symbols, dependencies: vec![dependency] }]);
    tracker.remove().unwrap();
    let error = answer.recv().unwrap().unwrap_err();
    assert!(error.in_full().starts_with("`a` waits on `b` ("), "{error}");
}

#[test]
fn a_dependency_that_was_removed_refuses_the_emission() {
    let (session, main) = session();
    define_simple(&main, "unit of b", &["b"]);
    let parked = define_parked(&main, "unit of a", &["a"]);
    let answer = look_up_later(&session, request(&main, &["b"])).recv().unwrap().unwrap();
    let dependency = answer.dependency(&session.intern("b")).unwrap();
    let _a = look_up_later(&session, request(&main, &["a"]));
    main.remove(&[session.intern("b")]).unwrap();
    define_simple(&main, "another b", &["b"]);
    let responsibility = parked.recv().unwrap().attach();
    let definitions = addresses(responsibility.symbols());
    let resolved = responsibility.notify_resolved(&definitions).unwrap();
    let group = DependenceGroup { symbols: vec![session.intern("a")], dependencies: vec![dependency] };
    let refused = resolved.notify_emitted(vec![group]).unwrap_err();
    assert!(
        matches!(refused.error, EmitError::DependencyRemoved { .. }),
        "a token is a definition, not a name"
    );
    refused.responsibility.notify_emitted(Vec::new()).unwrap();
}

#[test]
fn clearing_a_dylib_leaves_it_usable() {
    let (session, main) = session();
    let log = Log::default();
    main.default_tracker().add_resource(noted("default", &log)).unwrap();
    let tracker = main.create_tracker();
    tracker.add_resource(noted("newest", &log)).unwrap();
    define_simple(&main, "unit", &["a"]);
    main.clear().unwrap();
    assert_eq!(*log.lock(), ["newest", "default"]);
    assert!(tracker.is_defunct());
    define_simple(&main, "unit", &["a"]);
    session.lookup_symbol(&order(&main), &session.intern("a")).unwrap();
}

#[test]
fn a_removed_dylib_is_gone_from_link_orders_and_refused_in_search_orders() {
    let (session, main) = session();
    let other = session.create_jit_dylib("other").unwrap();
    main.add_to_link_order(&other, Default::default()).unwrap();
    assert_eq!(main.link_order().len(), 2);
    session.remove_jit_dylib(&other).unwrap();
    assert_eq!(main.link_order().len(), 1);
    let error = session.lookup_symbol(&order(&other), &session.intern("a")).unwrap_err();
    assert!(matches!(error, LookupError::DylibRemoved { .. }));
    session.create_jit_dylib("other").unwrap();
}

/// Ids of two sessions may coincide, and then the wrong dylib went.
#[test]
fn a_dylib_of_another_session_removes_nothing_here() {
    let (ours, main) = session();
    let (_theirs, foreign) = session();
    define_simple(&main, "unit", &["a"]);
    main.remove_from_link_order(&foreign);
    assert_eq!(main.link_order().len(), 1);
    assert!(ours.remove_jit_dylib(&foreign).is_err());
    assert!(ours.lookup_symbol(&order(&main), &ours.intern("a")).is_ok());
}

#[test]
fn symbols_are_removed_by_name_in_every_state_but_materializing() {
    let (session, main) = session();
    let names = ["never searched", "ready", "failed", "address"];
    define_simple(&main, "one", &names[..1]);
    define_simple(&main, "two", &names[1..2]);
    main.define(TestUnit::new("three", exported(&session, &names[2..3]), drop).boxed()).unwrap();
    main.define(absolute(&main, "address", 1)).unwrap();
    session.lookup_symbol(&order(&main), &session.intern("ready")).unwrap();
    assert!(session.lookup_symbol(&order(&main), &session.intern("failed")).is_err());
    main.remove(&names.map(|name| session.intern(name))).unwrap();
    for name in names {
        let gone = session.lookup_symbol(&order(&main), &session.intern(name));
        assert!(matches!(gone, Err(LookupError::NotFound { .. })));
        main.define(absolute(&main, name, 2)).unwrap();
    }
    assert_eq!(session.lookup(LookupRequest::new(order(&main), set(&session, &names))).unwrap().len(), 4);
}

#[test]
fn removing_an_emitted_symbol_by_name_fails_its_dependants() {
    let (session, main) = session();
    let [a, b, c] = ["a", "b", "c"].map(|name| define_parked(&main, name, &[name]));
    let [a_ready, b_ready, _c] = ["a", "b", "c"].map(|name| look_up_later(&session, request(&main, &[name])));
    let [a, b, c] = [a, b, c].map(|parked| parked.recv().unwrap().attach());
    let group = |name: &str, token| {
        vec![DependenceGroup { symbols: vec![session.intern(name)], dependencies: vec![token] }]
    };
    let on_b = group("a", b.dependency(&session.intern("b")).unwrap());
    let on_c = group("b", c.dependency(&session.intern("c")).unwrap());
    finish_with(a, on_b);
    finish_with(b, on_c);
    // `b` is emitted and waits for `c`; `a` waits for `b`.
    main.remove(&[session.intern("b")]).unwrap();
    for answer in [a_ready, b_ready] {
        let error = answer.try_recv().unwrap().unwrap_err();
        assert!(error.in_full().contains("failed: it was removed"), "{error}");
    }
    finish(c);
    session.lookup_symbol(&order(&main), &session.intern("c")).unwrap();
}

#[test]
fn what_depends_on_a_removed_ready_symbol_stays() {
    let (session, main) = session();
    define_simple(&main, "unit of b", &["b"]);
    let token = look_up_later(&session, request(&main, &["b"])).recv().unwrap().unwrap();
    let token = token.dependency(&session.intern("b")).unwrap();
    let unit = TestUnit::new("unit of a", exported(&session, &["a"]), move |responsibility| {
        let symbols = responsibility.symbols().keys().cloned().collect();
        finish_with(responsibility, vec![DependenceGroup { symbols, dependencies: vec![token] }]);
    });
    main.define(unit.boxed()).unwrap();
    session.lookup_symbol(&order(&main), &session.intern("a")).unwrap();
    main.remove(&[session.intern("b")]).unwrap();
    session.lookup_symbol(&order(&main), &session.intern("a")).unwrap();
}

#[test]
fn removing_a_whole_dylib_ends_everything_in_it() {
    let (session, main) = session();
    let other = session.create_jit_dylib("other").unwrap();
    let log = Log::default();
    let (tracker, parked) = parked_under_a_tracker(&main);
    tracker.add_resource(sticking("stuck", &log)).unwrap();
    main.default_tracker().add_resource(noted("oldest", &log)).unwrap();
    let waits = look_up_later(&session, request(&main, &["a"]));
    let depends = define_parked(&other, "dependant", &["d"]);
    let ready = look_up_later(&session, request(&other, &["d"]));
    let responsibility = parked.recv().unwrap().attach();
    let dependencies = vec![responsibility.dependency(&session.intern("a")).unwrap()];
    let group = DependenceGroup { symbols: vec![session.intern("d")], dependencies };
    finish_with(depends.recv().unwrap().attach(), vec![group]);
    let error = session.remove_jit_dylib(&main).unwrap_err();
    assert_eq!(error.in_full(), "resources of dylib `main` could not be removed: stuck sticks");
    assert_eq!(*log.lock(), ["stuck", "oldest"]);
    assert!(matches!(waits.try_recv().unwrap(), Err(LookupError::Failed(_))));
    assert!(matches!(ready.try_recv().unwrap(), Err(LookupError::Failed(_))), "in the other dylib");
    assert!(tracker.is_defunct());
    let defined = main.define(absolute(&main, "a", 1));
    assert!(matches!(defined, Err(DefineError::DylibRemoved { .. })));
    assert!(matches!(main.remove(&[session.intern("a")]), Err(RemoveError::DylibRemoved { .. })));
    assert!(session.jit_dylib("main").is_none());
    drop(responsibility);
    session.remove_jit_dylib(&main).unwrap();
}
