//! A thread that is blocked in the turn of a serial queue, and loses that turn beneath the lookup it is blocked in: a task that it runs
//! meanwhile closes a session, which leaves all turns of its thread.

use std::sync::mpsc;

use protocol_tests::deadlock::{finish_or_fail, look_up, look_up_as, while_blocked};
use protocol_tests::*;
use uruk_core::{ExecutionSession, JitDylib, LookupError, SerialQueue};

/// Defines the unit A of `a`, in `queue`, which blocks in a lookup of `b` and meanwhile closes `other` above that.
fn define_a(main: &JitDylib, queue: &SerialQueue, other: &ExecutionSession) -> mpsc::Receiver<()> {
    let (closed, is_closed) = mpsc::channel();
    let other = other.clone();
    let unit = TestUnit::new("A", exported(main.session(), &["a"]), move |responsibility| {
        let (session, main) = (responsibility.session().clone(), responsibility.dylib().clone());
        while_blocked(&session, move || {
            other.close().unwrap();
            closed.send(()).unwrap();
        });
        let outcome = look_up(&main, &["b"]);
        finish_or_fail(responsibility, outcome);
    });
    main.define(unit.in_queue(queue).boxed()).unwrap();
    is_closed
}

#[test]
fn nobody_is_told_of_a_turn_that_was_left_by_a_close() {
    within_reason(|| {
        let (session, main) = session();
        let other = ExecutionSession::new();
        let queue = SerialQueue::new();
        let parked = define_parked(&main, "B", &["b"]);
        let _wanted = look_up_later(&session, request(&main, &["b"]));
        let b = parked.recv().unwrap();
        let is_closed = define_a(&main, &queue, &other);
        main.define(TestUnit::new("X", exported(&session, &["x"]), finish).in_queue(&queue).boxed()).unwrap();
        std::thread::scope(|scope| {
            let client = scope.spawn(|| look_up(&main, &["a"]));
            is_closed.recv().unwrap();
            // The turn is free: this thread runs X itself.
            let b = b.attach();
            let x = look_up(&main, &["x"]);
            finish(b);
            client.join().unwrap().unwrap();
            x.unwrap();
        });
    });
}

#[test]
fn every_session_that_was_told_of_a_turn_is_told_that_it_was_left() {
    within_reason(|| {
        let sessions = [session(), session()];
        let queue = SerialQueue::new();
        let begun = sessions.each_ref().map(|(session, main)| {
            let parked = define_parked(main, "B", &["b"]);
            let _wanted = look_up_later(session, request(main, &["b"]));
            main.define(TestUnit::new("X", exported(session, &["x"]), finish).in_queue(&queue).boxed())
                .unwrap();
            parked.recv().unwrap()
        });
        let other = ExecutionSession::new();
        let [(_, first), (_, second)] = &sessions;
        let inner = second.clone();
        // A is blocked in the first session, above that in the second, and above that it closes a third.
        let (closed, is_closed) = mpsc::channel();
        let unit = TestUnit::new("A", exported(first.session(), &["a"]), move |responsibility| {
            let main = responsibility.dylib().clone();
            while_blocked(main.session(), move || {
                while_blocked(inner.session(), move || {
                    other.close().unwrap();
                    closed.send(()).unwrap();
                });
                look_up(&inner, &["b"]).unwrap();
            });
            let outcome = look_up(&main, &["b"]);
            finish_or_fail(responsibility, outcome);
        });
        first.define(unit.in_queue(&queue).boxed()).unwrap();
        std::thread::scope(|scope| {
            let client = scope.spawn(|| look_up(first, &["a"]));
            is_closed.recv().unwrap();
            for (b, main) in begun.into_iter().zip([first, second]) {
                let b = b.attach();
                let x = look_up(main, &["x"]);
                finish(b);
                x.unwrap();
            }
            client.join().unwrap().unwrap();
        });
    });
}

#[test]
fn who_has_the_turn_after_it_was_left_is_waited_for_while_who_left_it_is_blocked() {
    within_reason(|| the_turn_goes_on(false));
}

#[test]
fn who_has_the_turn_after_it_was_left_is_waited_for() {
    within_reason(|| the_turn_goes_on(true));
}

fn the_turn_goes_on(a_has_ended: bool) {
    let (session, main) = session();
    let other = ExecutionSession::new();
    let (teller, told) = mpsc::channel();
    let queue = SerialQueue::new();
    let parked = ["b", "d"].map(|name| define_parked(&main, name, &[name]));
    let _wanted = look_up_later(&session, request(&main, &["b", "d"]));
    let [b, d] = parked.map(|parked| parked.recv().unwrap());
    let is_closed = define_a(&main, &queue, &other);
    let (begun, has_begun) = mpsc::channel();
    let of_c = teller.clone();
    let unit = TestUnit::new("C", exported(&session, &["c"]), move |responsibility| {
        let main = responsibility.dylib().clone();
        while_blocked(main.session(), move || begun.send(()).unwrap());
        let outcome = look_up_as("C", &main, &["d"], &of_c);
        finish_or_fail(responsibility, outcome);
    });
    main.define(unit.in_queue(&queue).boxed()).unwrap();
    main.define(TestUnit::new("X", exported(&session, &["x"]), finish).in_queue(&queue).boxed()).unwrap();
    std::thread::scope(|scope| {
        let first = scope.spawn(|| look_up(&main, &["a"]));
        is_closed.recv().unwrap();
        let second = scope.spawn(|| look_up(&main, &["c"]));
        has_begun.recv().unwrap();
        // C is blocked in the turn that A has left. A goes on, and ends.
        let mut b = Some(b);
        let mut first = Some(first);
        let mut ends = || {
            if let (Some(b), Some(first)) = (b.take(), first.take()) {
                finish(b.attach());
                first.join().unwrap().unwrap();
            }
        };
        if a_has_ended {
            ends();
        }
        // C waits for d, whose thread waits for x, which waits for C's turn.
        let d = d.attach();
        let outcome = look_up_as("D", &main, &["x"], &teller);
        finish_or_fail(d, outcome);
        ends();
        let _ = second.join().unwrap();
    });
    let (who, error) = told.try_recv().unwrap();
    assert!(matches!(error, LookupError::WouldDeadlock { .. }), "{who}: {error}");
}
