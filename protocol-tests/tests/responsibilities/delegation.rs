//! Part of a responsibility delegated, and all of it given to another unit.

use std::sync::Arc;

use protocol_tests::units::telling_unit;
use protocol_tests::*;
use uruk_core::{DefineError, DelegateError, JitDylibLookupFlags, LookupError, SymbolFlags, SymbolFlagsMap};

#[test]
fn what_is_replaced_is_materialized_when_somebody_asks() {
    let (session, main) = session();
    let parked = define_parked(&main, "unit", &["a", "b"]);
    let a = look_up_later(&session, request(&main, &["a"]));
    let mut responsibility = parked.recv().unwrap().attach();
    let rest = responsibility.delegate([session.intern("b")]).unwrap();
    let (replacement, ran) = telling_unit(&session, "rest", &["b"]);
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
    let error = refused.error.in_full();
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
    // A symbol taken over as weak it may promise as strong, and the other way round.
    let weak = hidden.into_iter().map(|(name, flags)| (name, flags | SymbolFlags::WEAK)).collect();
    refused.responsibility.replace(replacement(weak)).unwrap();
    assert_eq!(waits.recv().unwrap().unwrap()[&a].flags, SymbolFlags::CALLABLE | SymbolFlags::WEAK);
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

#[test]
fn only_part_is_resolved_by_delegating_the_rest() {
    let (session, main) = session();
    let parked = define_parked(&main, "unit", &["a", "b", "c"]);
    let resolved = |name: &str| look_up_later(&session, request(&main, &[name]).until_resolved());
    let [a, b, c] = ["a", "b", "c"].map(resolved);
    let mut all = parked.recv().unwrap().attach();
    let part = all.delegate([session.intern("b")]).unwrap();
    assert_eq!(part.symbols(), &exported(&session, &["b"]));
    assert_eq!(all.symbols(), &exported(&session, &["a", "c"]));
    let definitions = addresses(part.symbols());
    let part = part.notify_resolved(&definitions).unwrap();
    assert!(b.try_recv().unwrap().is_ok());
    assert!(a.try_recv().is_err() && c.try_recv().is_err(), "the rest is not");
    let b_ready = look_up_later(&session, request(&main, &["b"]));
    part.notify_emitted(Vec::new()).unwrap();
    assert!(b_ready.try_recv().unwrap().is_ok(), "and need not be");
    finish(all);
    assert!(a.try_recv().unwrap().is_ok() && c.try_recv().unwrap().is_ok());
}

#[test]
fn dropping_a_part_fails_exactly_its_symbols() {
    let (session, main) = session();
    let parked = define_parked(&main, "unit", &["a", "b"]);
    let [a, b] = ["a", "b"].map(|name| look_up_later(&session, request(&main, &[name])));
    let mut rest = parked.recv().unwrap().attach();
    drop(rest.delegate([session.intern("b")]).unwrap());
    assert!(matches!(b.try_recv().unwrap(), Err(LookupError::Failed(_))));
    assert!(a.try_recv().is_err(), "not this one");
    finish(rest);
    assert!(a.try_recv().unwrap().is_ok());
}

#[test]
fn delegated_parts_may_be_finished_by_threads_of_their_own() {
    let (session, main) = session();
    let names: Vec<String> = (0..8).map(|index| format!("s{index}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let parked = define_parked(&main, "unit", &names);
    let answer = look_up_later(&session, request(&main, &names));
    let mut responsibility = parked.recv().unwrap().attach();
    let parts: Vec<_> =
        names.iter().map(|name| responsibility.delegate([session.intern(name)]).unwrap().detach()).collect();
    assert!(responsibility.symbols().is_empty());
    let threads: Vec<_> =
        parts.into_iter().map(|part| std::thread::spawn(move || finish(part.attach()))).collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    assert_eq!(answer.recv().unwrap().unwrap().len(), 8);
    finish(responsibility);
}
