//! Definitions: duplicates, weak and common symbols, initialisers, all or nothing.

use std::sync::{Arc, mpsc};

use protocol_tests::*;
use uruk_core::{
    DefineError, EventKind, ExecutionSession, LookupError, LookupRequest, LookupSet, SymbolFlags,
    SymbolFlagsMap, SymbolLookupFlags, SymbolName, absolute_symbols,
};

fn weak(session: &ExecutionSession, names: &[&str]) -> SymbolFlagsMap {
    names.iter().map(|name| (session.intern(name), EXPORTED | SymbolFlags::WEAK)).collect()
}

#[test]
fn a_duplicate_names_both_units() {
    let (session, main) = session();
    define_simple(&main, "first", &["a"]);
    let second = TestUnit::new("second", exported(&session, &["a"]), finish);
    let error = main.define(second.boxed()).unwrap_err();
    assert_eq!(error.in_full(), "`a` of unit `second` is already defined in dylib `main` by unit `first`");
}

#[test]
fn a_duplicate_of_a_ready_symbol_names_both_units_too() {
    let (session, main) = session();
    define_simple(&main, "first", &["a"]);
    session.lookup_symbol(&order(&main), &session.intern("a")).unwrap();
    let second = TestUnit::new("second", exported(&session, &["a"]), finish);
    let Err(DefineError::Duplicate { existing_unit, .. }) = main.define(second.boxed()) else {
        panic!("defined twice")
    };
    assert_eq!(existing_unit.as_str(), "first");
}

/// A failed definition stayed so as long as its tracker: it could not even be defined again when what it missed had come.
#[test]
fn what_has_failed_can_be_defined_again() {
    let (session, main) = session();
    let name = session.intern("a");
    let fails = |flags: SymbolFlagsMap| TestUnit::new("fails", flags, drop).boxed();
    let look_up = || session.lookup_symbol(&order(&main), &name);
    let failed = || matches!(look_up(), Err(LookupError::Failed(_)));
    main.define(fails(exported(&session, &["a", "b"]))).unwrap();
    assert!(failed() && failed());
    main.define(fails(weak(&session, &["a"]))).unwrap();
    assert!(failed(), "the other one");
    let unit = fails(exported(&session, &["a"]));
    session.transaction().define(&main, unit).commit().unwrap();
    assert!(failed());
    let known = absolute_symbols([(name.clone(), at(1))].into_iter().collect());
    main.define(known).unwrap();
    assert_eq!(look_up().unwrap(), at(1));
    let again = main.define(fails(exported(&session, &["a"]))).unwrap_err();
    assert!(matches!(again, DefineError::Duplicate { .. }), "{again}");
    main.define(TestUnit::new("other", exported(&session, &["b"]), finish).boxed()).unwrap();
    assert!(session.lookup_symbol(&order(&main), &session.intern("b")).is_ok());
}

#[test]
fn a_refused_definition_defines_nothing() {
    let (session, main) = session();
    define_simple(&main, "first", &["b"]);
    let second = TestUnit::new("second", exported(&session, &["a", "b", "c"]), finish);
    assert!(main.define(second.boxed()).is_err());
    let error = session.lookup_symbol(&order(&main), &session.intern("a")).unwrap_err();
    assert!(matches!(error, LookupError::NotFound { .. }));
}

#[test]
fn a_strong_definition_overrides_a_weak_one_that_nobody_searched() {
    let (session, main) = session();
    let (send, discarded) = mpsc::channel();
    let first = TestUnit::new("weak", weak(&session, &["a", "b"]), finish)
        .on_discard(move |symbol: &SymbolName| send.send(symbol.clone()).unwrap());
    main.define(first.boxed()).unwrap();
    let a = session.intern("a");
    main.define(absolute_symbols([(a.clone(), at(7))].into_iter().collect())).unwrap();
    assert_eq!(session.lookup_symbol(&order(&main), &a).unwrap(), at(7));
    session.lookup_symbol(&order(&main), &session.intern("b")).unwrap();
    assert_eq!(discarded.try_recv().unwrap(), a, "discard comes before materialize");
}

#[test]
fn a_unit_that_lost_everything_discards_and_is_dropped() {
    let (session, main) = session();
    let (send, discarded) = mpsc::channel();
    let first = TestUnit::new("weak", weak(&session, &["a"]), finish)
        .on_discard(move |symbol: &SymbolName| send.send(symbol.clone()).unwrap());
    main.define(first.boxed()).unwrap();
    define_simple(&main, "strong", &["a"]);
    assert_eq!(discarded.iter().count(), 1, "the channel is closed because the unit is gone");
}

#[test]
fn a_searched_weak_definition_stays_bound() {
    let (session, main) = session();
    main.define(TestUnit::new("weak", weak(&session, &["a"]), finish).boxed()).unwrap();
    session.lookup_symbol(&order(&main), &session.intern("a")).unwrap();
    let strong = TestUnit::new("strong", exported(&session, &["a"]), finish);
    assert!(matches!(main.define(strong.boxed()), Err(DefineError::Duplicate { .. })));
}

#[test]
fn a_weak_definition_yields_to_any_that_exists() {
    let (session, main) = session();
    let a = session.intern("a");
    main.define(absolute_symbols([(a.clone(), at(7))].into_iter().collect())).unwrap();
    main.define(TestUnit::new("weak", weak(&session, &["a", "b"]), finish).boxed()).unwrap();
    assert_eq!(session.lookup_symbol(&order(&main), &a).unwrap(), at(7));
    session.lookup_symbol(&order(&main), &session.intern("b")).unwrap();
}

#[test]
fn symbols_for_their_side_effects_run_their_unit_and_have_no_address() {
    let (session, main) = session();
    let init = session.intern("init");
    let (send, ran) = mpsc::channel();
    let unit = TestUnit::new("unit", exported(&session, &["a"]), move |responsibility| {
        assert!(responsibility.initializer_symbol().is_some());
        send.send(()).unwrap();
        finish(responsibility);
    });
    main.define(unit.with_initializer(init.clone()).boxed()).unwrap();
    let required = session.lookup_symbol(&order(&main), &init);
    assert!(matches!(required, Err(LookupError::NotFound { .. })), "a required lookup of one fails");
    let mut symbols = LookupSet::new();
    symbols.add(init, SymbolLookupFlags::WeaklyReferencedSymbol);
    assert!(session.lookup(LookupRequest::new(order(&main), symbols)).unwrap().is_empty());
    ran.try_recv().unwrap();
}

#[test]
fn flags_are_answered_without_materializing() {
    let (session, main) = session();
    let parked = define_parked(&main, "unit", &["a"]);
    let flags = main.flags([session.intern("a"), session.intern("b")]);
    assert_eq!(flags, [(session.intern("a"), EXPORTED)]);
    assert!(parked.try_recv().is_err());
}

#[test]
fn events_tell_the_story_in_order() {
    let (send, events) = mpsc::channel();
    let observer = Arc::new(move |event: &uruk_core::SessionEvent| send.send(event.clone()).unwrap());
    let session = ExecutionSession::builder().observer(observer).build();
    let main = session.create_jit_dylib("main").unwrap();
    define_simple(&main, "unit", &["a"]);
    session.lookup_symbol(&order(&main), &session.intern("a")).unwrap();
    let mut events: Vec<_> = events.try_iter().collect();
    events.sort_by_key(|event| event.sequence);
    let kinds: Vec<_> = events
        .iter()
        .map(|event| match &event.kind {
            EventKind::Defined { .. } => "defined",
            EventKind::Claimed { .. } => "claimed",
            EventKind::Resolved { .. } => "resolved",
            EventKind::Emitted { .. } => "emitted",
            EventKind::Ready { .. } => "ready",
            EventKind::Completed { .. } => "completed",
            _ => "other",
        })
        .collect();
    assert_eq!(kinds, ["defined", "claimed", "resolved", "emitted", "completed", "ready"]);
}
