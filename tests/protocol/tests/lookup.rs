//! Lookups: matching, waiting, the three faces.

use protocol_tests::*;
use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll};
use uruk_core::{
    JitDylibLookupFlags, LookupError, LookupSet, SymbolFlags, SymbolLookupFlags, absolute_symbols,
};

#[test]
fn a_lookup_runs_the_unit_and_answers_with_its_address() {
    let (session, main) = session();
    define_simple(&main, "unit", &["a"]);
    let found = session.lookup_symbol(&order(&main), &session.intern("a")).unwrap();
    assert_eq!(found, at(0x1000));
}

#[test]
fn absolute_symbols_are_found() {
    let (session, main) = session();
    let a = session.intern("a");
    main.define(absolute_symbols([(a.clone(), at(7))].into_iter().collect())).unwrap();
    assert_eq!(session.lookup_symbol(&order(&main), &a).unwrap(), at(7));
    assert_eq!(session.lookup_symbol(&order(&main), &a).unwrap(), at(7));
}

#[test]
fn missing_symbols_are_named_with_the_dylibs_searched() {
    let (session, main) = session();
    define_simple(&main, "unit", &["a"]);
    let error = session.lookup(&order(&main), set(&session, &["a", "b", "c"])).unwrap_err();
    assert_eq!(error.to_string(), "symbols not found: `b`, `c` (searched dylibs: `main`)");
}

#[test]
fn an_empty_lookup_succeeds() {
    let (session, main) = session();
    assert!(session.lookup(&order(&main), LookupSet::new()).unwrap().is_empty());
}

#[test]
fn weakly_referenced_symbols_may_be_missing() {
    let (session, main) = session();
    define_simple(&main, "unit", &["a"]);
    let mut symbols = set(&session, &["a"]);
    symbols.add(session.intern("absent"), SymbolLookupFlags::WeaklyReferencedSymbol);
    let found = session.lookup(&order(&main), symbols).unwrap();
    assert_eq!(found.len(), 1);
}

#[test]
fn hidden_symbols_are_seen_by_lookups_of_all_symbols_only() {
    let (session, main) = session();
    let a = session.intern("a");
    let hidden = [(a.clone(), SymbolFlags::empty())].into_iter().collect();
    main.define(TestUnit::new("unit", hidden, finish).boxed()).unwrap();
    let exported_only = [(main.clone(), JitDylibLookupFlags::MatchExportedSymbolsOnly)].into();
    assert!(matches!(session.lookup_symbol(&exported_only, &a), Err(LookupError::NotFound { .. })));
    session.lookup_symbol(&order(&main), &a).unwrap();
}

#[test]
fn the_first_dylib_of_the_order_wins() {
    let (session, main) = session();
    let other = session.create_jit_dylib("other").unwrap();
    let a = session.intern("a");
    for (dylib, address) in [(&main, 1), (&other, 2)] {
        dylib.define(absolute_symbols([(a.clone(), at(address))].into_iter().collect())).unwrap();
    }
    let all = JitDylibLookupFlags::MatchAllSymbols;
    let both = [(other.clone(), all), (main.clone(), all)].into();
    assert_eq!(session.lookup_symbol(&both, &a).unwrap(), at(2));
}

#[test]
fn a_linker_is_answered_when_addresses_are_known() {
    let (session, main) = session();
    let parked = define_parked(&main, "unit", &["a"]);
    let resolved = look_up_later(&session, request(&main, &["a"]).until_resolved());
    let ready = look_up_later(&session, request(&main, &["a"]));
    let responsibility = parked.try_recv().unwrap().attach();
    let definitions = addresses(responsibility.symbols());
    let responsibility = responsibility.notify_resolved(&definitions).unwrap();
    let answer = resolved.try_recv().unwrap().unwrap();
    assert_eq!(answer.get(&session.intern("a")), Some(at(0x1000)));
    assert!(ready.try_recv().is_err());
    responsibility.notify_emitted(Vec::new()).unwrap();
    assert!(ready.try_recv().unwrap().is_ok());
}

#[test]
fn ten_thousand_symbols_of_one_unit_and_of_as_many() {
    let (session, main) = session();
    let names: Vec<String> = (0..10_000).map(|index| format!("one_{index}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    define_simple(&main, "large", &names);
    assert_eq!(session.lookup(&order(&main), set(&session, &names)).unwrap().len(), names.len());
    let many: Vec<String> = (0..10_000).map(|index| format!("many_{index}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    for name in &many {
        define_simple(&main, name, &[name]);
    }
    assert_eq!(session.lookup(&order(&main), set(&session, &many)).unwrap().len(), many.len());
}

#[test]
fn a_future_answers_and_wakes() {
    let (session, main) = session();
    let parked = define_parked(&main, "unit", &["a"]);
    let mut future = pin!(session.lookup_future(request(&main, &["a"])));
    let waker = waker();
    let mut context = Context::from_waker(&waker);
    assert!(future.as_mut().poll(&mut context).is_pending());
    finish(parked.recv().unwrap().attach());
    let Poll::Ready(Ok(answer)) = future.as_mut().poll(&mut context) else { panic!("the unit has finished") };
    assert_eq!(answer.len(), 1);
}

#[test]
fn a_lookup_inside_a_unit_is_served_on_the_same_thread() {
    let (session, main) = session();
    define_simple(&main, "inner", &["inner"]);
    let (looking, dylib) = (session.clone(), main.clone());
    let outer = TestUnit::new("outer", exported(&session, &["outer"]), move |responsibility| {
        looking.lookup_symbol(&order(&dylib), &looking.intern("inner")).unwrap();
        finish(responsibility);
    });
    main.define(outer.boxed()).unwrap();
    session.lookup_symbol(&order(&main), &session.intern("outer")).unwrap();
}
