//! Only tickets are spawned into the host's pool. A ticket takes nothing while a task or a wait that could need it lies beneath
//! it.
//!
//! ```text
//!  the helping hang:
//!
//!    host thread   ─ task A ─ join ─┬─ (dispatches B) ─ ticket of B, above A ─ turned away
//!                                   └────────────────────────────────────────────────────── A ends ─ opens
//!    spare                                              └─ B waits for A ................................. goes on
//! ```

use std::sync::mpsc;

use uruk_core::sync::atomic::{AtomicUsize, Ordering};
use uruk_core::sync::{Arc, Latch, Mutex};
use uruk_core::{Task, TaskDispatcher, TaskPriority};

use super::{Dispatcher, count_one, demanded, host, inside, is_spare, occupy};
use crate::patience::within_reason;

/// A task that says when it begins, and ends when `waits_for` is open.
fn waiting_task(
    dispatcher: &Dispatcher,
    waits_for: &Arc<Latch>,
) -> (Task, mpsc::Receiver<bool>, Arc<Latch>, Arc<Latch>) {
    let (send, by_spare) = mpsc::channel();
    let (begun, done) = (Arc::new(Latch::new()), Arc::new(Latch::new()));
    let task = {
        let (dispatcher, waits_for) = (dispatcher.clone(), waits_for.clone());
        let (begins, ends) = (begun.clone(), done.clone());
        demanded(move || {
            send.send(is_spare()).unwrap();
            begins.open();
            dispatcher.wait(&waits_for).unwrap();
            ends.open();
        })
    };
    (task, by_spare, begun, done)
}

/// Waits in rayon, where no other thread steals, until the task has begun: the ticket lands above the other half in the thread's own
/// queue, so `join` comes to it first.
fn join_until_it_begins(dispatcher: &Dispatcher, task: Task, begun: &Latch) {
    rayon_core::join(|| dispatcher.dispatch(task).unwrap(), || begun.wait());
}

/// See the drawing above. If the ticket ran B on A's stack, B would wait there for A for ever.
#[test]
fn a_ticket_above_a_task_is_turned_away() {
    // On a machine that is slow beside a spare's patience a spare takes A, and there is no ticket above it.
    let staged = (0..100).any(|_| within_reason(a_ticket_comes_above_a_task));
    assert!(staged, "the host's own thread, which is free, has never taken the task");
}

/// Says whether it did.
fn a_ticket_comes_above_a_task() -> bool {
    // One of the two threads is busy, so that it does not steal the ticket.
    let pool = host(2);
    let occupied = occupy(&pool);
    let dispatcher = inside(&pool);
    let a_done = Arc::new(Latch::new());
    let (task_b, by_spare, b_begun, b_done) = waiting_task(&dispatcher, &a_done);
    let (inner, in_pool) = (dispatcher.clone(), Arc::new(Mutex::new(false)));
    let saw = in_pool.clone();
    let task_a = demanded(move || {
        *saw.lock() = rayon_core::current_thread_index().is_some();
        join_until_it_begins(&inner, task_b, &b_begun);
        a_done.open();
    });
    dispatcher.dispatch(task_a).unwrap();
    // Not in the dispatcher's own wait: then a spare might take A, above which no ticket lands.
    b_done.wait();
    dispatcher.shutdown();
    occupied.open();
    let in_pool = *in_pool.lock();
    if in_pool {
        assert!(by_spare.recv().unwrap());
        assert_eq!(dispatcher.metrics().turned_away, 1);
    }
    in_pool
}

/// The same hang with a job of the host beneath, which has said that it waits.
#[test]
fn a_ticket_above_a_declared_wait_is_turned_away() {
    within_reason(|| {
        let pool = host(1);
        let dispatcher = inside(&pool);
        let host_done = Arc::new(Latch::new());
        let (task_b, by_spare, b_begun, b_done) = waiting_task(&dispatcher, &host_done);
        let inner = dispatcher.clone();
        pool.install(move || {
            let mut task_b = Some(task_b);
            inner.blocking(&mut || join_until_it_begins(&inner, task_b.take().unwrap(), &b_begun)).unwrap();
            host_done.open();
        });
        b_done.wait();
        dispatcher.shutdown();
        assert!(by_spare.recv().unwrap());
        assert_eq!(dispatcher.metrics().turned_away, 1);
    });
}

#[test]
fn turned_away_tickets_do_not_leave_tasks_behind() {
    within_reason(|| {
        let pool = host(1);
        let dispatcher = inside(&pool);
        let count = Arc::new(AtomicUsize::new(0));
        let (inner, counts) = (dispatcher.clone(), count.clone());
        let task = demanded(move || {
            let spawns = || {
                for _ in 0..100 {
                    let counts = counts.clone();
                    inner.dispatch(demanded(move || count_one(&counts))).unwrap();
                }
            };
            rayon_core::join(spawns, || ());
        });
        dispatcher.dispatch(task).unwrap();
        let until = Arc::new(Latch::new());
        let opens = until.clone();
        dispatcher.dispatch(Task::new("last", TaskPriority::Idle, move || opens.open())).unwrap();
        until.wait();
        dispatcher.shutdown();
        // Relaxed: the shutdown has waited for all of them.
        assert_eq!(count.load(Ordering::Relaxed), 100);
    });
}

#[test]
fn a_thousand_waits_from_scopes_and_parallel_iterators_end() {
    within_reason(|| {
        use rayon::prelude::*;
        let pool = host(2);
        let dispatcher = inside(&pool);
        let wait_for_one = |dispatcher: &Dispatcher| {
            let done = Arc::new(Latch::new());
            let opens = done.clone();
            dispatcher.dispatch(demanded(move || opens.open())).unwrap();
            dispatcher.wait(&done).unwrap();
        };
        pool.install(|| (0..1000).into_par_iter().for_each(|_| wait_for_one(&dispatcher)));
        pool.scope(|scope| {
            for _ in 0..1000 {
                scope.spawn(|_| wait_for_one(&dispatcher));
            }
        });
        dispatcher.shutdown();
        assert_eq!(dispatcher.metrics().finished, 2000);
        assert_eq!(dispatcher.metrics().spares, 0);
    });
}
