//! In place: the dispatcher without threads is shut down while another thread dispatches.
//!
//! ```text
//!  dispatching thread                       closing thread
//!  count a task in: closed? give it back    closed: the lowest bit of each count
//!  run it                                   tasks left? wait
//!  count it out: closed, and the last? ──▶  go on
//!    open the latch
//! ```
//!
//! Proven, in every order with at most four preemptions: a task is given back, or it has ended before the shutdown has, which
//! sees its effects.
//!
//! **Fails if** one of these steps is changed:
//!
//! | weakening | in | caught by |
//! |---|---|---|
//! | `in_place::counts_without_acquire`: `in-place-drained` is Relaxed at its reading end | `core/src/task/in_place/tasks.rs` | `a_task_beside_a_shutdown_is_given_back_or_over` |
//! | `in_place::closes_one_word`: threads that count in another word are not told of the shutdown | `core/src/task/in_place/tasks.rs` | `a_task_beside_a_shutdown_is_given_back_or_over` |
//! | `in_place::last_task_tells_nobody`: the last task ends without a look at the thread that waits for that | `core/src/task/in_place/tasks.rs` | `a_task_beside_a_shutdown_is_given_back_or_over` |
#![cfg(uruk_loom)]

use loom_tests::stage::model;
use uruk_core::sync::atomic::{AtomicUsize, Ordering};
use uruk_core::sync::{Arc, thread};
use uruk_core::{InPlaceTaskDispatcher, Task, TaskDispatcher, TaskPriority};

#[test]
fn a_task_beside_a_shutdown_is_given_back_or_over() {
    model(|| {
        let dispatcher = Arc::new(InPlaceTaskDispatcher::default());
        let mark = Arc::new(AtomicUsize::new(0));
        let other = thread::spawn({
            let (dispatcher, mark) = (dispatcher.clone(), mark.clone());
            move || {
                // Relaxed, at both ends: the count of tasks orders them.
                let marks =
                    Task::new("marks", TaskPriority::Demanded, move || mark.store(1, Ordering::Relaxed));
                let given_back = dispatcher.dispatch(marks).is_err();
                dispatcher.run_ready();
                given_back
            }
        });
        dispatcher.shutdown();
        let marked = mark.load(Ordering::Relaxed) == 1;
        let given_back = other.join().expect("no panic");
        assert_ne!(marked, given_back);
    });
}

loom_tests::catches_its_weakenings!();
