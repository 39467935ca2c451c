//! Faults in units and handlers, on every dispatcher: the same faults in place, on work-stealing pools and inside rayon's.

use std::sync::{Arc, mpsc};

use protocol_tests::on::{On, failure_of};
use protocol_tests::*;
use uruk_core::sync::Latch;
use uruk_core::sync::atomic::{AtomicUsize, Ordering};
use uruk_core::{FailureCause, JitDylib, LookupError, Task, TaskPriority, WaitError};

on_every_dispatcher! {
    a_unit_that_panics_fails_its_symbols_with_its_message,
    a_unit_that_panics_over_and_over_costs_no_thread,
    a_payload_that_panics_when_it_is_dropped_does_no_harm,
    a_leaf_that_would_block_is_refused,
    handlers_that_panic_are_reported_and_the_rest_are_told,
    a_handler_that_looks_up_defines_and_removes,
    handlers_that_block_in_lookups,
    handlers_that_block_declared,
}

fn define_panicking(main: &JitDylib, name: &str, message: &'static str) {
    let symbols = exported(main.session(), &[name]);
    let unit = TestUnit::new(name, symbols, move |_responsibility| panic!("{message}"));
    main.define(unit.boxed()).unwrap();
}

fn a_unit_that_panics_fails_its_symbols_with_its_message(on: On) {
    let (session, main) = on.session();
    let symbols = exported(&session, &["a", "b"]);
    let unit = TestUnit::new("unit", symbols, |_responsibility| panic!("what the unit said"));
    main.define(unit.boxed()).unwrap();
    for name in ["a", "b"] {
        let cause = failure_of(session.lookup_symbol(&order(&main), &session.intern(name)));
        assert!(matches!(&cause, FailureCause::Panicked(said) if &**said == "what the unit said"), "{cause}");
    }
    session.close().unwrap();
}

fn a_unit_that_panics_over_and_over_costs_no_thread(on: On) {
    let (session, main) = on.session();
    for round in 0..200 {
        let name = format!("bad{round}");
        define_panicking(&main, &name, "again");
        failure_of(session.lookup_symbol(&order(&main), &session.intern(&name)));
    }
    define_simple(&main, "good", &["good"]);
    session.lookup_symbol(&order(&main), &session.intern("good")).unwrap();
    session.close().unwrap();
}

fn a_payload_that_panics_when_it_is_dropped_does_no_harm(on: On) {
    struct Nasty;
    impl Drop for Nasty {
        fn drop(&mut self) {
            std::panic::panic_any(Nasty);
        }
    }
    let (session, main) = on.session();
    let unit = TestUnit::new("unit", exported(&session, &["a"]), |_| std::panic::panic_any(Nasty));
    main.define(unit.boxed()).unwrap();
    failure_of(session.lookup_symbol(&order(&main), &session.intern("a")));
    session.lookup_async(request(&main, &["a"]), |_| std::panic::panic_any(Nasty));
    session.dispatch(Task::new("nasty", TaskPriority::Demanded, || std::panic::panic_any(Nasty)));
    define_simple(&main, "good", &["good"]);
    session.lookup_symbol(&order(&main), &session.intern("good")).unwrap();
    session.close().unwrap();
}

/// It has declared never to block, so its worker need not be replaced.
fn a_leaf_that_would_block_is_refused(on: On) {
    let (session, main) = on.session();
    define_simple(&main, "other", &["other"]);
    let (send, told) = mpsc::channel();
    let unit = TestUnit::new("leaf", exported(&session, &["leaf"]), move |responsibility| {
        let (session, main) = (responsibility.session().clone(), responsibility.dylib().clone());
        let looked_up = session.lookup_symbol(&order(&main), &session.intern("other")).map(drop);
        let declared = session.blocking(|| ());
        send.send((looked_up, declared)).unwrap();
        finish(responsibility);
    });
    main.define(unit.leaf().boxed()).unwrap();
    session.lookup_symbol(&order(&main), &session.intern("leaf")).unwrap();
    let (looked_up, declared) = told.recv().unwrap();
    assert!(matches!(looked_up, Err(LookupError::Wait(WaitError::Leaf { .. }))), "{looked_up:?}");
    assert!(matches!(declared, Err(WaitError::Leaf { .. })), "{declared:?}");
    session.lookup_symbol(&order(&main), &session.intern("other")).unwrap();
    session.close().unwrap();
}

fn handlers_that_panic_are_reported_and_the_rest_are_told(on: On) {
    const HANDLERS: usize = 100;
    let (session, main, reports) = on.reporting_session();
    let parked = define_parked(&main, "parked", &["a"]);
    let (send, told) = mpsc::channel();
    for index in 0..HANDLERS {
        let send = send.clone();
        session.lookup_async(request(&main, &["a"]), move |answer| {
            send.send(answer.is_ok()).unwrap();
            assert!(index % 2 == 0, "handler {index} has had enough");
        });
    }
    drop(send);
    finish(parked.recv().unwrap().attach());
    assert_eq!(told.iter().filter(|answered| *answered).count(), HANDLERS);
    session.close().unwrap();
    drop((session, main));
    let panics: Vec<_> = reports.try_iter().filter(|report| report.contains("has had enough")).collect();
    assert_eq!(panics.len(), HANDLERS / 2);
}

fn a_handler_that_looks_up_defines_and_removes(on: On) {
    let (session, main) = on.session();
    define_simple(&main, "first", &["first"]);
    define_simple(&main, "second", &["second"]);
    let tracker = main.create_tracker();
    let unit = TestUnit::new("removed", exported(&session, &["removed"]), finish);
    main.define_with_tracker(unit.boxed(), &tracker).unwrap();
    session.lookup_symbol(&order(&main), &session.intern("removed")).unwrap();
    let (send, told) = mpsc::channel();
    let (inner, dylib) = (session.clone(), main.clone());
    session.lookup_async(request(&main, &["first"]), move |answer| {
        answer.unwrap();
        let look_up = |name| inner.lookup_symbol(&order(&dylib), &inner.intern(name));
        look_up("second").unwrap();
        define_simple(&dylib, "third", &["third"]);
        look_up("third").unwrap();
        tracker.remove().unwrap();
        assert!(matches!(look_up("removed"), Err(LookupError::NotFound { .. })));
        let other = inner.create_jit_dylib("other").unwrap();
        define_simple(&other, "fourth", &["fourth"]);
        inner.remove_jit_dylib(&other).unwrap();
        // All of it has happened, so that nothing of it has panicked.
        send.send(()).unwrap();
    });
    told.recv().unwrap();
    session.close().unwrap();
}

/// All of them block at once, in lookups of a symbol that another thread emits when the last has begun.
fn handlers_that_block_in_lookups(on: On) {
    // In place they nest.
    let handlers = if on == On::Place { 20 } else { 300 };
    let (session, main) = on.session();
    let start = define_parked(&main, "start", &["start"]);
    let parked = define_parked(&main, "parked", &["parked"]);
    let begun = Arc::new((AtomicUsize::new(0), Latch::new()));
    let finisher = std::thread::spawn({
        let (session, main, begun) = (session.clone(), main.clone(), begun.clone());
        move || {
            let answer = look_up_later(&session, request(&main, &["parked"]));
            begun.1.wait();
            finish(parked.recv().unwrap().attach());
            answer.recv().unwrap().unwrap();
        }
    });
    let (send, told) = mpsc::channel();
    for _ in 0..handlers {
        let (inner, dylib, begun, send) = (session.clone(), main.clone(), begun.clone(), send.clone());
        session.lookup_async(request(&main, &["start"]), move |_| {
            // Relaxed: the latch orders what follows.
            if begun.0.fetch_add(1, Ordering::Relaxed) + 1 == handlers {
                begun.1.open();
            }
            send.send(inner.lookup_symbol(&order(&dylib), &inner.intern("parked")).map(drop)).unwrap();
        });
    }
    drop(send);
    finish(start.recv().unwrap().attach());
    told.iter().for_each(|answer| answer.unwrap());
    finisher.join().unwrap();
    session.close().unwrap();
}

/// Each waits for the last to begin, by means that the session cannot see, and says so.
fn handlers_that_block_declared(on: On) {
    let handlers = if on == On::Place { 20 } else { 300 };
    let (session, main) = on.session();
    let parked = define_parked(&main, "parked", &["a"]);
    let begun = Arc::new((AtomicUsize::new(0), Latch::new()));
    let (send, told) = mpsc::channel();
    for _ in 0..handlers {
        let (inner, begun, send) = (session.clone(), begun.clone(), send.clone());
        session.lookup_async(request(&main, &["a"]), move |_| {
            // Relaxed: the latch orders what follows.
            match begun.0.fetch_add(1, Ordering::Relaxed) + 1 {
                last if last == handlers => begun.1.open(),
                _ => inner.blocking(|| begun.1.wait()).unwrap(),
            }
            send.send(()).unwrap();
        });
    }
    drop(send);
    finish(parked.recv().unwrap().attach());
    assert_eq!(told.iter().count(), handlers);
    session.close().unwrap();
}
