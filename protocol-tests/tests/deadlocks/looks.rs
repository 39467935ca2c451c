//! Looks: the first does not hold the lock for long, and a thread that is asked to look finds a cycle closed since.
//! `late_threads.rs` tests that threads look by themselves.

use std::sync::mpsc;

use protocol_tests::deadlock::{define_blocking, look_up, until_blocked_for, while_blocked};
use protocol_tests::on::On;
use protocol_tests::*;
use uruk_core::{DependenceGroup, LookupError, LookupRequest};

/// A thread that begins to wait was held up by all that it needs: with a million symbols, the lock was held for more than a second.
///
/// In place a task that is left behind runs after the first look, and before the thread sleeps.
#[test]
fn a_lookup_that_blocks_for_many_symbols_holds_the_lock_for_a_thousand_steps() {
    const MANY: usize = if cfg!(debug_assertions) { 50_000 } else { 1_000_000 };
    within_reason(|| {
        let (session, main) = session();
        let names: Vec<_> = (0..MANY).map(|index| format!("s{index}")).collect();
        let names: Vec<_> = names.iter().map(String::as_str).collect();
        let parked = define_parked(&main, "many", &names);
        let wanted = look_up_later(&session, request(&main, &names[..1]));
        let (send, steps) = mpsc::channel();
        let symbols = set(&session, &names);
        let unit = TestUnit::new("A", exported(&session, &["a"]), move |responsibility| {
            let (session, main) = (responsibility.session().clone(), responsibility.dylib().clone());
            let before = session.metrics().hold_steps_max;
            while_blocked(&session.clone(), move || {
                send.send((before, session.metrics().hold_steps_max)).unwrap();
                finish(parked.recv().unwrap().attach());
            });
            main.session().lookup(LookupRequest::new(order(&main), symbols)).unwrap();
            finish(responsibility);
        });
        main.define(unit.boxed()).unwrap();
        look_up(&main, &["a"]).unwrap();
        let (before, steps) = steps.recv().unwrap();
        assert!(steps <= before.max(1_000), "{steps} steps in one hold of the lock, {before} before");
        assert!(wanted.recv().unwrap().is_ok());
    });
}

on_every_dispatcher!(the_cycle_that_a_running_thread_closes_is_found_when_somebody_looks,);
on_every_dispatcher!(
    on per_task,
    protocol_tests::on::On::PerTask,
    the_cycle_that_a_running_thread_closes_is_found_when_somebody_looks,
);

/// The first thread that looks is told, and the failure answers the other: here the test looks for all of them.
fn the_cycle_that_a_running_thread_closes_is_found_when_somebody_looks(on: On) {
    let (session, main) = on.session();
    let (teller, told) = mpsc::channel();
    let parked = define_parked(&main, "X", &["x"]);
    let wanted = look_up_later(&session, request(&main, &["x"]));
    let b = define_parked(&main, "B", &["b"]);
    let b_wanted = look_up_later(&session, request(&main, &["b"]));
    define_blocking(&main, "a", &["x"], &teller);
    let x = resolve(parked.recv().unwrap().attach());
    let b = b.recv().unwrap().attach();
    let on_b = b.dependency(&session.intern("b")).unwrap();
    let b = b.detach();
    std::thread::scope(|scope| {
        let client = scope.spawn(|| look_up(&main, &["a"]));
        until_blocked_for(&main, "a", "x");
        let holds_b = scope.spawn(|| {
            let b = b.attach();
            let outcome = look_up(&main, &["a"]);
            b.fail(std::sync::Arc::new(outcome.clone().unwrap_err()));
            outcome
        });
        until_blocked_for(&main, "b", "a");
        session.look_for_deadlocks();
        assert!(!client.is_finished() && !holds_b.is_finished(), "there is no cycle");
        let group = DependenceGroup { symbols: vec![session.intern("x")], dependencies: vec![on_b] };
        x.notify_emitted(vec![group]).unwrap();
        session.look_for_deadlocks();
        client.join().unwrap().unwrap_err();
        let outcome = holds_b.join().unwrap();
        let told_b = matches!(outcome, Err(LookupError::WouldDeadlock { .. }));
        let told_a = told.try_iter().filter(|(_, error)| matches!(error, LookupError::WouldDeadlock { .. }));
        assert_eq!(usize::from(told_b) + told_a.count(), 1, "{outcome:?}");
    });
    assert!(wanted.recv().unwrap().is_err() && b_wanted.recv().unwrap().is_err());
    session.close().unwrap();
}
