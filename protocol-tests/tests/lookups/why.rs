//! Why a symbol is not ready: the answer in each of its states, certain and uncertain.

use std::sync::mpsc;

use protocol_tests::sends::sends;
use protocol_tests::*;
use uruk_core::{
    DependenceGroup, JitDylib, LookupError, LookupRequest, SerialQueue, SymbolStage, Task, TaskPriority,
    WaitedFor, Why, WhyState, shared_error,
};

fn why(main: &JitDylib, name: &str) -> Why {
    main.session().why(main, &main.session().intern(name))
}

fn listed(symbols: &WaitedFor) -> Vec<(String, SymbolStage)> {
    symbols.symbols.iter().map(|waited| (waited.symbol.to_string(), waited.stage)).collect()
}

#[test]
fn what_is_not_defined_names_who_could_define_it() {
    let (session, main) = session();
    let WhyState::Undefined { generators } = why(&main, "a").state else { panic!("nothing defines it") };
    assert!(generators.is_empty());
    let (generator, requests) = sends();
    main.add_generator(generator);
    let _answers =
        [look_up_later(&session, request(&main, &["a"])), look_up_later(&session, request(&main, &["b"]))];
    let answer = why(&main, "a");
    let WhyState::Undefined { generators } = &answer.state else { panic!("{answer}") };
    assert_eq!((&*generators[0].name, generators[0].is_busy, generators[0].queued), ("sends", true, 1));
    assert!(answer.to_string().contains("generator `sends` of dylib `main` could define it"), "{answer}");
    drop(requests);
}

#[test]
fn what_nobody_has_looked_for_names_its_unit() {
    let (_session, main) = session();
    define_simple(&main, "unit", &["a"]);
    let WhyState::NeverSearched { unit } = why(&main, "a").state else { panic!("nobody has") };
    assert_eq!(unit.as_str(), "unit");
}

#[test]
fn what_is_queued_and_what_was_returned() {
    let (session, main) = session();
    let unit = TestUnit::new("unit", exported(&session, &["a"]), finish).in_queue(&SerialQueue::new());
    main.define(unit.boxed()).unwrap();
    let (send, seen) = mpsc::channel();
    let inner = main.clone();
    // Inside a task nothing that is dispatched runs before its end.
    session.dispatch(Task::new("holds the thread", TaskPriority::Demanded, move || {
        let future = inner.session().lookup_future(request(&inner, &["a"]));
        send.send(why(&inner, "a")).unwrap();
        drop(future);
    }));
    let queued = seen.recv().unwrap();
    assert!(matches!(&queued.state, WhyState::Queued { unit } if unit.as_str() == "unit"), "{queued}");
    assert_eq!(queued.demand.lookups, 1);
    let returned = why(&main, "a");
    assert!(matches!(returned.state, WhyState::Returned { .. }), "{returned}");
}

#[test]
fn what_materializes_says_where_and_what_it_has_asked_for() {
    let (session, main) = session();
    let b = define_parked(&main, "B", &["b"]);
    let (send, parked) = mpsc::channel();
    let unit = TestUnit::new("A", exported(&session, &["a"]), move |responsibility| {
        let main = responsibility.dylib().clone();
        send.send((look_up_later(main.session(), request(&main, &["b"])), responsibility.detach())).unwrap();
    });
    main.define(unit.boxed()).unwrap();
    let wanted = look_up_later(&session, request(&main, &["a"]));
    let answer = why(&main, "a");
    let WhyState::Materializing(work) = &answer.state else { panic!("{answer}") };
    assert_eq!(work.unit.as_str(), "A");
    assert!(work.blocked_in.is_none());
    assert_eq!(listed(&work.asked_for), [("b".to_owned(), SymbolStage::Materializing)]);
    // Asked, not blocked: who waits for b is said all the same.
    assert_eq!(listed(&why(&main, "b").demand.symbols), [("a".to_owned(), SymbolStage::Materializing)]);
    let text = answer.to_string();
    assert!(
        text.contains("another thread may finish it") && text.contains("it has asked for 1 symbol"),
        "{text}"
    );
    drop((b, parked));
    assert!(wanted.recv().unwrap().is_err());
}

#[test]
fn what_is_blocked_says_for_what() {
    let (session, main) = session();
    let x = define_parked(&main, "X", &["x"]);
    let (send, seen) = mpsc::channel();
    let unit = TestUnit::new("A", exported(&session, &["a"]), move |responsibility| {
        let main = responsibility.dylib().clone();
        let inner = main.clone();
        main.session().dispatch(Task::new("looks on", TaskPriority::Demanded, move || {
            send.send((why(&inner, "a"), why(&inner, "x"))).unwrap();
            finish(x.recv().unwrap().attach());
        }));
        main.session().lookup(LookupRequest::new(order(&main), set(main.session(), &["x"]))).unwrap();
        finish(responsibility);
    });
    main.define(unit.boxed()).unwrap();
    let asked_first = look_up_later(&session, request(&main, &["x"]));
    session.lookup(LookupRequest::new(order(&main), set(&session, &["a"]))).unwrap();
    let (a, x) = seen.recv().unwrap();
    let WhyState::Materializing(work) = &a.state else { panic!("{a}") };
    let blocked_in = work.blocked_in.as_ref().expect("its thread is blocked");
    assert_eq!(listed(blocked_in), [("x".to_owned(), SymbolStage::Materializing)]);
    assert_eq!(
        (x.demand.lookups, listed(&x.demand.symbols)),
        (2, vec![("a".into(), SymbolStage::Materializing)])
    );
    assert!(a.to_string().contains("its thread is blocked in a lookup of 1 symbol:\n    `x`"), "{a}");
    assert!(asked_first.recv().unwrap().is_ok());
}

#[test]
fn resolved_emitted_ready_and_failed() {
    let (session, main) = session();
    let (a, b) = (define_parked(&main, "A", &["a"]), define_parked(&main, "B", &["b"]));
    let wanted = look_up_later(&session, request(&main, &["a", "b"]));
    let (a, b) = (a.recv().unwrap().attach(), b.recv().unwrap().attach());
    let on_b = b.dependency(&session.intern("b")).unwrap();
    let definitions = addresses(a.symbols());
    let resolved = a.notify_resolved(&definitions).unwrap();
    let answer = why(&main, "a");
    assert!(
        matches!(&answer.state, WhyState::Resolved { work, .. } if work.unit.as_str() == "A"),
        "{answer}"
    );
    let symbols = vec![session.intern("a")];
    resolved.notify_emitted(vec![DependenceGroup { symbols, dependencies: vec![on_b] }]).unwrap();
    let answer = why(&main, "a");
    let WhyState::Emitted { waits_for, .. } = &answer.state else { panic!("{answer}") };
    assert_eq!(listed(waits_for), [("b".to_owned(), SymbolStage::Materializing)]);
    assert_eq!(listed(&why(&main, "b").demand.symbols), [("a".to_owned(), SymbolStage::Emitted)]);
    b.fail(shared_error("the disk is full"));
    let answer = why(&main, "a");
    assert!(matches!(answer.state, WhyState::Failed(_)));
    assert!(
        answer.to_string().contains("`a` waits on `b`") && answer.to_string().contains("the disk is full")
    );
    assert!(wanted.recv().unwrap().is_err());
    define_simple(&main, "C", &["c"]);
    let address = session.lookup_symbol(&order(&main), &session.intern("c")).unwrap().address;
    let answer = why(&main, "c");
    assert!(matches!(answer.state, WhyState::Ready { address: found } if found == address), "{answer}");
}

#[test]
fn an_emitted_symbol_lists_thirty_two_and_counts_the_rest() {
    let (session, main) = session();
    let names: Vec<String> = (0..40).map(|index| format!("d{index}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let (a, many) = (define_parked(&main, "A", &["a"]), define_parked(&main, "many", &names));
    let _wanted = look_up_later(&session, request(&main, &["a", "d0"]));
    let (a, many) = (a.recv().unwrap().attach(), many.recv().unwrap().attach());
    let dependencies = many.symbols().keys().map(|name| many.dependency(name).unwrap()).collect();
    let definitions = addresses(a.symbols());
    let group = DependenceGroup { symbols: vec![session.intern("a")], dependencies };
    a.notify_resolved(&definitions).unwrap().notify_emitted(vec![group]).unwrap();
    let answer = why(&main, "a");
    let WhyState::Emitted { waits_for, .. } = &answer.state else { panic!("{answer}") };
    assert_eq!((waits_for.symbols.len(), waits_for.omitted, waits_for.len()), (32, 8, 40));
    assert!(answer.to_string().contains("and 8 more"), "{answer}");
}

#[test]
fn along_an_order_it_is_the_definition_that_a_lookup_would_find() {
    let (session, main) = session();
    let other = session.create_jit_dylib("other").unwrap();
    define_simple(&other, "unit", &["a"]);
    let both = [order(&main), order(&other)].iter().flat_map(|order| order.as_slice().to_vec()).collect();
    let name = session.intern("a");
    assert_eq!(&*session.why_along(&both, &name).dylib, "other");
    session.remove_jit_dylib(&other).unwrap();
    assert!(matches!(session.why(&other, &name).state, WhyState::DylibRemoved));
    assert!(matches!(session.lookup_symbol(&both, &name), Err(LookupError::DylibRemoved { .. })));
}

#[test]
fn lookups_that_wait_are_told_until_they_end() {
    let (session, main) = session();
    assert!(session.waiting_lookups().is_empty());
    let (a, b) = (define_parked(&main, "A", &["a"]), define_parked(&main, "B", &["b"]));
    let wanted = look_up_later(&session, request(&main, &["a"]));
    let a = a.recv().unwrap().attach();
    let waiting = session.waiting_lookups();
    let [lookup] = &*waiting else { panic!("{waiting:?}") };
    let [why] = &*lookup.waiting else { panic!("{lookup:?}") };
    assert_eq!(why.symbol.as_str(), "a");
    assert!(matches!(&why.state, WhyState::Materializing(work) if work.unit.as_str() == "A"), "{why}");
    let later = look_up_later(&session, request(&main, &["b"]));
    let again = session.waiting_lookups();
    assert_eq!(again.len(), 2);
    assert_eq!(again.iter().filter(|again| again.id == lookup.id).count(), 1, "{again:?}");
    let id = lookup.id;
    finish(a);
    wanted.recv().unwrap().unwrap();
    let left = session.waiting_lookups();
    assert!(left.len() == 1 && left[0].id != id, "{left:?}");
    finish(b.recv().unwrap().attach());
    later.recv().unwrap().unwrap();
    assert!(session.waiting_lookups().is_empty());
}

/// A lookup that a unit has made is named by the lookup that waits for the unit.
#[test]
fn lookups_of_units_are_not_told_by_themselves() {
    let (session, main) = session();
    let b = define_parked(&main, "B", &["b"]);
    let (send, parked) = mpsc::channel();
    let unit = TestUnit::new("A", exported(&session, &["a"]), move |responsibility| {
        let main = responsibility.dylib().clone();
        send.send((look_up_later(main.session(), request(&main, &["b"])), responsibility.detach())).unwrap();
    });
    main.define(unit.boxed()).unwrap();
    let wanted = look_up_later(&session, request(&main, &["a"]));
    let (asked, a) = parked.recv().unwrap();
    let waiting = session.waiting_lookups();
    assert!(waiting.len() == 1 && waiting[0].waiting[0].symbol.as_str() == "a", "{waiting:?}");
    finish(b.recv().unwrap().attach());
    asked.recv().unwrap().unwrap();
    finish(a.attach());
    wanted.recv().unwrap().unwrap();
}
