//! A responsibility that was detached is in no certain deadlock, though the thread that had it is blocked in the very circle.
//!
//! ```text
//!  unit A: [detach a] ─ lookup b ──────▶ blocked        unit B: lookup a ──────▶ blocked
//!  test:   waits until both are blocked ─ attach a ─ finish it
//! ```

use std::sync::mpsc;

use protocol_tests::deadlock::{
    define_blocking, finish_or_fail, is_blocked_for, look_up, look_up_as, the_cycle,
};
use protocol_tests::on::On;
use protocol_tests::*;
use uruk_core::{Detached, MaterializationResponsibility, ResolvedResponsibility};

on_every_dispatcher!(
    what_was_detached_and_is_finished_when_all_are_blocked_is_waited_for,
    what_was_detached_resolved_is_waited_for_too,
    what_was_kept_is_told,
    what_was_detached_and_taken_up_again_is_told,
);
on_every_dispatcher!(
    on per_task,
    protocol_tests::on::On::PerTask,
    what_was_detached_and_is_finished_when_all_are_blocked_is_waited_for,
    what_was_detached_resolved_is_waited_for_too,
    what_was_kept_is_told,
    what_was_detached_and_taken_up_again_is_told,
);

/// Waits until B is blocked for `a`, and a second lookup besides the test's own waits for `b`.
fn until_all_are_blocked(main: &uruk_core::JitDylib) {
    let [a, b] = ["a", "b"].map(|name| main.session().intern(name));
    while !is_blocked_for(main, &b, &a) || main.session().why(main, &b).demand.lookups < 2 {
        std::thread::yield_now();
    }
}

/// Unit A gives away what `detach` makes of its responsibility, and blocks; the test has it back when all are blocked, and does
/// with it what `finish` says.
fn is_waited_for<D: Send + 'static>(on: On, detach: fn(MaterializationResponsibility) -> D, finish: fn(D)) {
    let (session, main) = on.session();
    let (teller, told) = mpsc::channel();
    let (send, parked) = mpsc::channel();
    let (tell_a, a_told) = mpsc::channel();
    let unit = TestUnit::new("A", exported(&session, &["a"]), move |responsibility| {
        let main = responsibility.dylib().clone();
        send.send(detach(responsibility)).unwrap();
        tell_a.send(look_up(&main, &["b"])).unwrap();
    });
    main.define(unit.boxed()).unwrap();
    define_blocking(&main, "b", &["a"], &teller);
    std::thread::scope(|scope| {
        let client = scope.spawn(|| look_up(&main, &["a", "b"]));
        let parked = parked.recv().unwrap();
        until_all_are_blocked(&main);
        assert!(a_told.try_recv().is_err() && told.try_recv().is_err());
        finish(parked);
        client.join().unwrap().unwrap();
    });
    a_told.recv().unwrap().unwrap();
    assert!(told.try_recv().is_err(), "nobody was told");
    session.close().unwrap();
}

fn what_was_detached_and_is_finished_when_all_are_blocked_is_waited_for(on: On) {
    let finish = |parked: Detached<MaterializationResponsibility>| finish(parked.attach());
    is_waited_for(on, MaterializationResponsibility::detach, finish);
}

fn what_was_detached_resolved_is_waited_for_too(on: On) {
    let detach = |responsibility| resolve(responsibility).detach();
    let emit = |parked: Detached<ResolvedResponsibility>| parked.attach().notify_emitted(Vec::new()).unwrap();
    is_waited_for(on, detach, emit);
}

/// The same circle without the detaching.
fn what_was_kept_is_told(on: On) {
    let (session, main) = on.session();
    let (teller, told) = mpsc::channel();
    define_blocking(&main, "a", &["b"], &teller);
    define_blocking(&main, "b", &["a"], &teller);
    look_up(&main, &["a", "b"]).unwrap_err();
    assert_eq!(the_cycle(&told).1, ["a", "b"]);
    session.close().unwrap();
}

/// It is whose responsibility is attached where the thread blocks, and not what happened to it before.
fn what_was_detached_and_taken_up_again_is_told(on: On) {
    let (session, main) = on.session();
    let (teller, told) = mpsc::channel();
    let errors = teller.clone();
    let unit = TestUnit::new("A", exported(&session, &["a"]), move |responsibility| {
        let responsibility = responsibility.detach().attach();
        let outcome = look_up_as("A", responsibility.dylib(), &["b"], &errors);
        finish_or_fail(responsibility, outcome);
    });
    main.define(unit.boxed()).unwrap();
    define_blocking(&main, "b", &["a"], &teller);
    look_up(&main, &["a", "b"]).unwrap_err();
    assert_eq!(the_cycle(&told).1, ["a", "b"]);
    session.close().unwrap();
}
