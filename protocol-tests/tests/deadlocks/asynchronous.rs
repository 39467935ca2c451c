//! No lookup is told of a cycle of asynchronous lookups: a detached responsibility may be on any thread, which may finish it.
//! The cycle can be seen, waits with a deadline end, and a thread that finishes one of the units opens the cycle.
//!
//! ```text
//!  unit A:  [detach a] ─ lookup b, until Ready ─▶        unit B:  [detach b] ─ lookup a, until Ready ─▶
//!  handler: finish a                                     handler: finish b
//! ```

use std::sync::{Arc, mpsc};
use std::time::Duration;

use protocol_tests::deadlock::finish_or_fail;
use protocol_tests::on::On;
use protocol_tests::*;
use uruk_core::sync::Mutex;
use uruk_core::{
    Deadline, Detached, ExecutionSession, JitDylib, LookupError, LookupRequest, LookupResult,
    MaterializationResponsibility, Why, WhyState,
};

on_every_dispatcher!(
    a_circle_that_nobody_is_told_of_can_be_seen_and_ends_with_deadlines_and_the_session,
    whoever_finishes_one_of_them_opens_the_circle,
    lookups_of_addresses_close_no_circle,
);

/// A unit's responsibility, for the first to take it.
type Parked = Arc<Mutex<Option<Detached<MaterializationResponsibility>>>>;

/// Defines a unit of `symbol` that finishes once `needs` is Ready, unless its responsibility has been taken away.
fn define_waiting(main: &JitDylib, symbol: &str, needs: &'static str) -> Parked {
    let parked = Parked::default();
    let park = parked.clone();
    let unit = TestUnit::new(symbol, exported(main.session(), &[symbol]), move |responsibility| {
        let main = responsibility.dylib().clone();
        *park.lock() = Some(responsibility.detach());
        main.session().lookup_async(request(&main, &[needs]), move |found| {
            let parked = park.lock().take();
            parked.into_iter().for_each(|parked| finish_or_fail(parked.attach(), found.clone().map(drop)));
        });
    });
    main.define(unit.boxed()).expect("nothing of the name is defined");
    parked
}

/// Whether the session knows that a unit has asked for `needs` to finish the symbol.
fn has_asked_for(why: &Why, needs: &str) -> bool {
    let WhyState::Materializing(work) = &why.state else { return false };
    assert!(work.blocked_in.is_none(), "{why}");
    work.asked_for.symbols.iter().any(|waited| waited.symbol.as_str() == needs)
}

/// Two answers that the test waits for.
type Answers = [mpsc::Receiver<Result<LookupResult, LookupError>>; 2];

/// Has both units ask for each other's symbol.
fn close_the_circle(session: &ExecutionSession, main: &JitDylib) -> Answers {
    let answers = ["a", "b"].map(|name| look_up_later(session, request(main, &[name])));
    for (symbol, needs) in [("a", "b"), ("b", "a")] {
        while !has_asked_for(&session.why(main, &session.intern(symbol)), needs) {
            std::thread::yield_now();
        }
    }
    answers
}

fn a_circle_that_nobody_is_told_of_can_be_seen_and_ends_with_deadlines_and_the_session(on: On) {
    let (session, main) = on.session();
    let (_a, _b) = (define_waiting(&main, "a", "b"), define_waiting(&main, "b", "a"));
    let answers = close_the_circle(&session, &main);
    let soon = Deadline::after(Duration::from_millis(1));
    let error =
        session.lookup(LookupRequest::new(order(&main), set(&session, &["a"])).until(soon)).unwrap_err();
    let LookupError::DeadlineExceeded { waiting } = &error else { panic!("{error}") };
    assert!(matches!(&waiting[0].state, WhyState::Materializing(_)), "{error}");
    // Lookups without a deadline wait on.
    assert!(answers.iter().all(|answer| answer.try_recv().is_err()));
    session.close().unwrap();
    assert!(answers.iter().all(|answer| answer.recv().unwrap().is_err()));
}

fn whoever_finishes_one_of_them_opens_the_circle(on: On) {
    let (session, main) = on.session();
    let (a, _b) = (define_waiting(&main, "a", "b"), define_waiting(&main, "b", "a"));
    let answers = close_the_circle(&session, &main);
    let a = a.lock().take().expect("nobody else could have finished it");
    finish(a.attach());
    assert!(answers.iter().all(|answer| answer.recv().unwrap().is_ok()));
    session.close().unwrap();
}

/// Linkers make such lookups.
fn lookups_of_addresses_close_no_circle(on: On) {
    let (session, main) = on.session();
    for (symbol, needs) in [("a", "b"), ("b", "a")] {
        let unit = TestUnit::new(symbol, exported(&session, &[symbol]), move |responsibility| {
            let needs = request(responsibility.dylib(), &[needs]);
            emit_depending_on(resolve(responsibility), needs);
        });
        main.define(unit.boxed()).unwrap();
    }
    session.lookup(LookupRequest::new(order(&main), set(&session, &["a", "b"]))).unwrap();
    session.close().unwrap();
}
