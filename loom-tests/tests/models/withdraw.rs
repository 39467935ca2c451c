//! Withdraw against claim: a lookup is given up while its unit is about to start.
//!
//! ```text
//!  asker                                   worker
//!  lookup: claim the unit, queue its task
//!  drop the future: take the query off     no loss counted since the claim? start it
//!  its rows' lists, count a loss           begin: does anybody want it?
//!                                            yes ─ start it
//!                                            no ─ back into its rows, to be claimed again
//! ```
//!
//! The question and the giving back are one transaction: a lookup comes before it, and is wanted, or after it, and claims.
//!
//! Proven, in every order with at most three preemptions: the unit is started once, as long as a lookup still wants it, even if
//! others give up; it is not started for a lookup that its worker can know to have been given up; it can be claimed again
//! afterwards.
//!
//! **Fails if** one of these steps is left out:
//!
//! | weakening | in | caught by |
//! |---|---|---|
//! | `withdraw::starts_what_nobody_wants`: a unit begins without asking whether a lookup wants it | `core/src/protocol/symbols/claim.rs` | `what_was_given_up_before_it_began_is_put_back` |
//! | `withdraw::counts_no_losses`: a query that is given up does not make the unit ask | `core/src/protocol/state/demand.rs` | `what_was_given_up_before_it_began_is_put_back` |
//! | `withdraw::decides_before_it_gives_back`: the lock is free between the question and the giving back | `core/src/session/queued_unit.rs` | `a_lookup_that_comes_while_another_is_given_up_is_answered` |
//! | `withdraw::takes_others_along`: a query that leaves a row's list takes those that were lodged before off it too | `core/src/protocol/state/lookups/query.rs` | `a_unit_that_others_want_is_started` |
#![cfg(uruk_loom)]

use loom_tests::queue::Queue;
use loom_tests::stage::{Stage, definition, model_within};
use uruk_core::sync::atomic::{AtomicUsize, Ordering};
use uruk_core::sync::{Arc, thread};
use uruk_core::{LookupRequest, LookupSet, TaskDispatcher};

/// More add nothing but time: a worker that sleeps on the queue takes many steps.
const PREEMPTIONS_MAX: usize = 3;

/// ```text
///  asker: drop(future)                     worker: takes the task ─ begins ─ starts it or not
/// ```
#[test]
fn what_was_given_up_before_it_began_is_put_back() {
    model_within(PREEMPTIONS_MAX, || {
        let (stage, queue, name, started) = Stage::queued::<Queue>();
        let given_up = Arc::new(AtomicUsize::new(0));
        let future = stage.session.lookup_future(stage.request(&name));
        let worker = thread::spawn({
            let (queue, started, given_up) = (queue.clone(), started.clone(), given_up.clone());
            move || {
                while let Some(task) = queue.next() {
                    // Acquire, and Release below: what the worker knows to be over, it must take into account.
                    let was_given_up = given_up.load(Ordering::Acquire) == 1;
                    // Relaxed: this thread alone starts units until it is joined.
                    let before = started.load(Ordering::Relaxed);
                    task.run();
                    let started_it = started.load(Ordering::Relaxed) > before;
                    assert!(!(was_given_up && started_it), "nobody wanted it");
                }
            }
        });
        drop(future);
        given_up.store(1, Ordering::Release);
        queue.shutdown();
        worker.join().expect("no panic");
        // Ready, or back in its row.
        assert!(started.load(Ordering::Relaxed) <= 1);
        assert_eq!(stage.dylib.flags([name]).len(), 1);
    });
}

/// ```text
///  asker: drop(future) ─ lookup            worker: takes the task ─ begins ─ starts it or puts it back
/// ```
#[test]
fn a_lookup_that_comes_while_another_is_given_up_is_answered() {
    model_within(PREEMPTIONS_MAX, || {
        let (stage, queue, name, started) = Stage::queued::<Queue>();
        let future = stage.session.lookup_future(stage.request(&name));
        let worker = thread::spawn({
            let queue = queue.clone();
            move || queue.work()
        });
        drop(future);
        assert_eq!(stage.lookup(&name).expect("found"), definition());
        queue.shutdown();
        worker.join().expect("no panic");
        assert_eq!(started.load(Ordering::Relaxed), 1);
    });
}

/// A unit is wanted for any of its symbols, by anybody.
///
/// ```text
///  asker: drops a lookup of the first, and one more        another: lookup of both        worker
/// ```
#[test]
fn a_unit_that_others_want_is_started() {
    model_within(PREEMPTIONS_MAX, || {
        let queue = Arc::new(Queue::default());
        let stage = Stage::on(queue.clone());
        let (first, second) = (stage.session.intern("first"), stage.session.intern("second"));
        let started = stage.define_counted(&[&first, &second]);
        let future = stage.session.lookup_future(stage.request(&first));
        let worker = thread::spawn({
            let queue = queue.clone();
            move || queue.work()
        });
        let other = thread::spawn({
            let (stage, both) = (stage.clone(), LookupSet::required([first.clone(), second]));
            move || stage.session.lookup(LookupRequest::new(stage.order(), both))
        });
        drop(future);
        drop(stage.session.lookup_future(stage.request(&first)));
        assert_eq!(other.join().expect("no panic").expect("found").len(), 2);
        queue.shutdown();
        worker.join().expect("no panic");
        assert_eq!(started.load(Ordering::Relaxed), 1);
    });
}

loom_tests::catches_its_weakenings!();
