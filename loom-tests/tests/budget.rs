//! Budget: a worker sleeps no longer than until its share of time is there, and is called at the same moment.
//!
//! ```text
//!  sleeper: counts itself as sleeping ─ looks ─ its time is over ─ takes itself off the count ─ or is off already: takes the token
//!  producer:                     pushes ─ notify: takes a sleeper off the count, issues a token
//! ```
//!
//! Models have no clock: time is over as soon as it is asked for, and the order of steps is explored.
//!
//! Proven, in every order within the preemption bound: the count says of each sleeper once that it sleeps, every sleeper wakes that
//! is called, and no token is left over; for what time holds back somebody is called unless somebody watches; who sleeps for
//! longer than it would by now is called.
//!
//! **Fails if** one of these steps is left out:
//!
//! | weakening | in | caught by |
//! |---|---|---|
//! | `budget::leaves_while_it_counts_as_asleep`: who was not called in time goes on and stays on the count | `dispatch/src/sleep.rs` | `time_is_over_while_somebody_calls` |
//! | `budget::leaves_while_it_counts_as_asleep`: the same beside another that sleeps | `dispatch/src/sleep.rs` | `one_whose_time_is_over_leaves_the_others_asleep` |
//! | `budget::leaves_its_token_to_another`: who was called too late does not take the token that was issued for it | `dispatch/src/sleep.rs` | `time_is_over_while_somebody_calls` |
//! | `budget::watches_while_it_is_awake`: who has watched counts as watching when it goes on | `dispatch/src/sleep.rs` | `who_watches_is_relied_on_only_while_it_does` |
//! | `budget::leaves_it_to_a_searcher`: who has lifted a limit calls nobody beside a searcher | `dispatch/src/sleep.rs` | `who_has_lifted_a_limit_calls_a_sleeper_beside_a_searcher` |
#![cfg(uruk_loom)]

use std::time::Duration;

use loom_tests::stage::model_within;
use uruk_core::sync::atomic::{AtomicBool, Ordering};
use uruk_core::sync::{Arc, thread};
use uruk_dispatch::sleep::{Counts, Sleep, Waits, Wake};

loom_tests::catches_its_weakenings!();

/// ```text
///  sleeper: sleeps for a time ─ and again                caller: calls somebody
/// ```
#[test]
fn time_is_over_while_somebody_calls() {
    model_within(3, || {
        let searches = Counts { searching: 1, ..Counts::default() };
        let sleep = Arc::new(Sleep::new(1));
        assert!(sleep.occupy());
        sleep.start_searching();
        let caller = thread::spawn({
            let sleep = sleep.clone();
            move || assert_ne!(sleep.notify(), Wake::Start, "no slot is vacant")
        });
        // The first thread runs first, so that loom has the later looks of the other to go back from.
        sleep.sleep_within(|| false, || Some(Duration::ZERO));
        assert_eq!(sleep.counts(), searches);
        caller.join().expect("no panic");
        // A token that was left over would be taken here, by one that nobody has called.
        sleep.sleep_within(|| false, || Some(Duration::ZERO));
        assert_eq!(sleep.counts(), searches);
    });
}

/// The one that is not called in time must not take the other off the count, nor its token.
///
/// ```text
///  impatient: sleeps for a time        patient: sleeps until it is called        caller: calls one, later the other
/// ```
#[test]
fn one_whose_time_is_over_leaves_the_others_asleep() {
    model_within(3, || {
        let sleep = Arc::new(Sleep::new(2));
        // Both are searching, as threads are that were started.
        for _ in 0..2 {
            assert!(sleep.occupy());
            sleep.start_searching();
        }
        let closed = Arc::new(AtomicBool::new(false));
        let patient = thread::spawn({
            let (sleep, closed) = (sleep.clone(), closed.clone());
            move || {
                // Relaxed, here and below: the protocol's own fences are what is checked.
                sleep.sleep(|| closed.load(Ordering::Relaxed));
            }
        });
        let caller = thread::spawn({
            let sleep = sleep.clone();
            move || assert_ne!(sleep.notify(), Wake::Start, "no slot is vacant")
        });
        sleep.sleep_within(|| false, || Some(Duration::ZERO));
        caller.join().expect("no panic");
        // As a pool does that closes.
        closed.store(true, Ordering::Relaxed);
        sleep.wake_all();
        patient.join().expect("no panic");
        assert_eq!(sleep.counts(), Counts { searching: 2, ..Counts::default() });
    });
}

/// What is pushed must wait for time. The watcher takes something else when it wakes.
///
/// ```text
///  watcher:   watches ─ wakes, searches ─ takes what is at hand: calls another, if it sees what was pushed
///  producer:  pushes ─ calls somebody, unless somebody watches
/// ```
#[test]
fn who_watches_is_relied_on_only_while_it_does() {
    model_within(3, || {
        let sleep = Arc::new(Sleep::new(2));
        assert!(sleep.occupy());
        sleep.start_searching();
        let pushed = Arc::new(AtomicBool::new(false));
        let producer = thread::spawn({
            let (sleep, pushed) = (sleep.clone(), pushed.clone());
            move || {
                // Relaxed, here and below: the protocol's own fences are what is checked.
                pushed.store(true, Ordering::Relaxed);
                sleep.notify_if(|| Waits::ForTime)
            }
        });
        sleep.sleep_within(|| false, || Some(Duration::ZERO));
        let look = || if pushed.load(Ordering::Relaxed) { Waits::ForTime } else { Waits::Nothing };
        let by_watcher = sleep.found(look);
        let by_producer = producer.join().expect("no panic");
        assert!([by_watcher, by_producer].contains(&Wake::Start), "{by_watcher:?}, {by_producer:?}");
    });
}

/// A patience that is out of date is without end here; one that is not is over at once. Two search, and one of them goes on to do so.
///
/// ```text
///  sleeper: counts itself as sleeping ─ asks how long it may wait ─ waits
///  lifter:  lifts ─ takes what is at hand ─ calls a sleeper, if there is one
/// ```
#[test]
fn who_has_lifted_a_limit_calls_a_sleeper_beside_a_searcher() {
    model_within(3, || {
        let sleep = Arc::new(Sleep::new(3));
        for _ in 0..3 {
            assert!(sleep.occupy());
            sleep.start_searching();
        }
        let lifted = Arc::new(AtomicBool::new(false));
        let lifter = thread::spawn({
            let (sleep, lifted) = (sleep.clone(), lifted.clone());
            move || {
                // Relaxed, here and below: the protocol's own fences are what is checked.
                lifted.store(true, Ordering::Relaxed);
                assert_eq!(sleep.found(|| Waits::ForTime), Wake::Nobody, "another searches");
                sleep.lifted(|| true)
            }
        });
        sleep.sleep_within(|| false, || lifted.load(Ordering::Relaxed).then_some(Duration::ZERO));
        assert_ne!(lifter.join().expect("no panic"), Wake::Start, "no slot is vacant");
        assert_eq!(sleep.counts(), Counts { searching: 2, ..Counts::default() });
    });
}
