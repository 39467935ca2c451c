//! Sessions on a pool of two: the same protocol with units, handlers and lookups on several threads.

use std::sync::atomic::{AtomicUsize, Ordering};

use protocol_tests::*;
use uruk_core::{JitDylib, LookupError, shared_error};

/// Defines `s<index>` whose unit looks `sources` up as a linker does and depends on them.
fn define_linked(main: &JitDylib, index: usize, sources: Vec<usize>) {
    let unit =
        TestUnit::new("unit", exported(main.session(), &[&format!("s{index}")]), move |responsibility| {
            let names: Vec<String> = sources.iter().map(|source| format!("s{source}")).collect();
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            let needs = request(responsibility.dylib(), &names);
            emit_depending_on(resolve(responsibility), needs);
        });
    main.define(unit.boxed()).unwrap();
}

#[test]
fn a_graph_with_cycles_becomes_ready() {
    let (session, main) = session_of(2);
    const SYMBOLS: usize = 500;
    for index in 0..SYMBOLS {
        define_linked(&main, index, vec![(index * 7 + 1) % SYMBOLS, (index * 13 + 5) % SYMBOLS]);
    }
    std::thread::scope(|scope| {
        for start in [0, 100, 200] {
            let (session, main) = (&session, &main);
            scope.spawn(move || {
                session.lookup_symbol(&order(main), &session.intern(&format!("s{start}"))).unwrap();
            });
        }
    });
    session.close().unwrap();
}

#[test]
fn one_failure_reaches_every_waiter() {
    let (session, main) = session_of(2);
    for index in 0..200 {
        define_linked(&main, index, vec![index + 1]);
    }
    let bad = TestUnit::new("bad", exported(&session, &["s200"]), |responsibility| {
        responsibility.fail(shared_error("no"));
    });
    main.define(bad.boxed()).unwrap();
    std::thread::scope(|scope| {
        for index in 0..4 {
            let (session, main) = (&session, &main);
            scope.spawn(move || {
                let error =
                    session.lookup_symbol(&order(main), &session.intern(&format!("s{index}"))).unwrap_err();
                assert!(matches!(error, LookupError::Failed(_)), "{error}");
            });
        }
    });
}

#[test]
fn blocking_lookups_inside_units_do_not_starve_the_pool() {
    let (session, main) = session_of(2);
    for index in 0..50 {
        let unit =
            TestUnit::new("unit", exported(&session, &[&format!("s{index}")]), move |responsibility| {
                let (session, main) = (responsibility.session().clone(), responsibility.dylib().clone());
                session.lookup_symbol(&order(&main), &session.intern(&format!("s{}", index + 1))).unwrap();
                finish(responsibility);
            });
        main.define(unit.boxed()).unwrap();
    }
    define_simple(&main, "last", &["s50"]);
    session.lookup_symbol(&order(&main), &session.intern("s0")).unwrap();
}

#[test]
fn definitions_lookups_and_removals_race_without_losing_anybody() {
    let (session, main) = session_of(2);
    let answered = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for thread in 0..3 {
            let (session, main, answered) = (&session, &main, &answered);
            scope.spawn(move || {
                for round in 0..100 {
                    let name = format!("t{thread}_{round}");
                    let tracker = main.create_tracker();
                    let unit = TestUnit::new(&name, exported(session, &[&name]), finish);
                    main.define_with_tracker(unit.boxed(), &tracker).unwrap();
                    let answer = look_up_later(session, request(main, &[&name]));
                    if round % 2 == 0 {
                        tracker.remove().unwrap();
                    }
                    // Answered or failed, and never forgotten.
                    let _ = answer.recv().unwrap();
                    // Read after all threads have been joined.
                    answered.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    assert_eq!(answered.into_inner(), 300);
    session.close().unwrap();
}

#[test]
fn a_session_closed_under_load_ends_every_query() {
    for _ in 0..10 {
        let (session, main) = session_of(2);
        for index in 0..100 {
            define_linked(&main, index, vec![(index + 1) % 100]);
        }
        let answers: Vec<_> =
            (0..20).map(|index| look_up_later(&session, request(&main, &[&format!("s{index}")]))).collect();
        session.close().unwrap();
        for answer in answers {
            // Ready or closed, but ended.
            let _ = answer.recv().unwrap();
        }
    }
}
