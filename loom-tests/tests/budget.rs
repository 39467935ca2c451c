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
//! is called, and no token is left over.
//!
//! **Fails if** one of these steps is left out:
//!
//! | weakening | in | caught by |
//! |---|---|---|
//! | `budget::leaves_while_it_counts_as_asleep`: who was not called in time goes on and stays on the count | `dispatch/src/sleep.rs` | `time_is_over_while_somebody_calls` |
#![cfg(uruk_loom)]

use std::time::Duration;

use loom_tests::stage::model_within;
use uruk_core::sync::{Arc, thread};
use uruk_dispatch::sleep::{Counts, Sleep, Wake};

loom_tests::catches_its_weakenings!();

/// ```text
///  impatient: sleeps for a time        patient: sleeps until it is called        main: calls one, then all
/// ```
#[test]
fn time_is_over_while_somebody_calls() {
    model_within(3, || {
        let sleep = Arc::new(Sleep::new(2));
        // Both are searching, as threads are that were started.
        for _ in 0..2 {
            assert!(sleep.occupy());
            sleep.start_searching();
        }
        let impatient = thread::spawn({
            let sleep = sleep.clone();
            move || {
                sleep.sleep_within(|| false, || Some(Duration::ZERO));
                assert_eq!(sleep.found(|| false), Wake::Nobody);
            }
        });
        let patient = thread::spawn({
            let sleep = sleep.clone();
            move || {
                sleep.sleep(|| false);
                assert_eq!(sleep.found(|| false), Wake::Nobody);
            }
        });
        let called = sleep.notify();
        assert_ne!(called, Wake::Start, "no slot is vacant");
        impatient.join().expect("no panic");
        // The patient one may have been called, and gone; or not.
        while sleep.counts() != Counts::default() {
            sleep.wake_all();
            thread::yield_now();
        }
        patient.join().expect("no panic");
        assert_eq!(sleep.counts(), Counts::default());
    });
}
