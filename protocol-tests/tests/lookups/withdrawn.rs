//! Work that everybody has withdrawn from before it starts does not start, and is counted; it can be had again.

use std::sync::mpsc;

use protocol_tests::halt::occupy_a_worker;
use protocol_tests::units::define_telling;
use protocol_tests::*;
use uruk_core::{LookupError, LookupRequest, TaskDispatcher};

#[test]
fn units_withdrawn_while_they_are_queued_are_given_back_and_counted() {
    let pool = pool(1);
    let (session, main) = session_on(pool.clone());
    let occupied = occupy_a_worker(&session);
    for name in ["a", "b", "c"] {
        define_simple(&main, name, &[name]);
    }
    let wanted = session.lookup_future(request(&main, &["c"]));
    drop(session.lookup_future(request(&main, &["a", "b", "c"])));
    assert_eq!(session.metrics().withdrawn_units, 0, "nothing has had its turn");
    occupied.let_go();
    // The occupying task, three units, and the answer about `c`.
    while pool.metrics().finished < 5 {
        std::thread::yield_now();
    }
    assert_eq!(session.metrics().withdrawn_units, 2);
    drop(wanted);
    // Units that were given back can be claimed again.
    session.lookup(LookupRequest::new(order(&main), set(&session, &["a", "b", "c"]))).unwrap();
    pool.run_ready();
    session.close().unwrap();
    assert_eq!(session.metrics().withdrawn_units, 2);
}

#[test]
fn work_that_nobody_wants_any_more_is_put_back() {
    let (session, main) = session();
    // The unit's task waits behind a running one, so that the query can be withdrawn before it starts.
    let (inner_session, inner_main) = (session.clone(), main.clone());
    let ran = define_telling(&main, "wanted", &["a"]);
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
    let error =
        session.lookup(LookupRequest::new(order(&main), set(&session, &["a", "missing"]))).unwrap_err();
    assert!(matches!(error, LookupError::NotFound { .. }));
    // Still overridable would be wrong, still there is right.
    session.lookup_symbol(&order(&main), &session.intern("a")).unwrap();
}

/// ```text
///  worker:  occupied        ───────────────────────────▶ │ what is queued
///  main:    future of `unwanted`, of `wanted`; drop one  │ let it go
/// ```
#[test]
fn a_dropped_future_withdraws_work_that_nobody_else_wants_and_that_has_not_started() {
    let (session, main) = session_of(1);
    let occupied = occupy_a_worker(&session);
    let (send, ran) = mpsc::channel();
    for name in ["unwanted", "wanted"] {
        let send = send.clone();
        let unit = TestUnit::new(name, exported(&session, &[name]), move |responsibility| {
            send.send(name).unwrap();
            finish(responsibility);
        });
        main.define(unit.boxed()).unwrap();
    }
    let unwanted = session.lookup_future(request(&main, &["unwanted"]));
    let both = session.lookup_future(request(&main, &["wanted"]));
    let also = look_up_later(&session, request(&main, &["wanted"]));
    drop(unwanted);
    drop(both);
    occupied.let_go();
    assert!(also.recv().unwrap().is_ok(), "somebody else wanted it");
    assert_eq!(ran.try_iter().collect::<Vec<_>>(), ["wanted"]);
    // The withdrawn unit is there for a later lookup.
    session.lookup_symbol(&order(&main), &session.intern("unwanted")).unwrap();
    assert_eq!(ran.try_iter().collect::<Vec<_>>(), ["unwanted"]);
    session.close().unwrap();
}
