//! The work-stealing pool: nothing queued is forgotten, a blocked worker is replaced, shutdown ends.
//!
//! ```text
//!  producer            worker
//!  push                searching: looks, finds nothing
//!  fence               counts itself as sleeping (or vacant)
//!  load the counts     fence
//!   └ nobody to wake?  looks again, sleeps (or ends)
//! ```
//!
//! Proven: in every order, within the preemption bound, that loom distinguishes, every task is run, every wait ends and
//! every thread is joined; a lost wake-up shows as loom's deadlock report.
//!
//! **Fails if** one of these steps is left out:
//!
//! | weakening | in | caught by |
//! |---|---|---|
//! | `pool::notifies_without_fence` | `dispatch/src/sleep.rs` | `a_push_and_a_second_look_cannot_miss_each_other` |
//! | `pool::sleeps_without_a_second_look` | `dispatch/src/sleep.rs` | `an_idle_pool_wakes_up_for_the_next_task` |
//! | `pool::last_searcher_leaves_without_a_look` | `dispatch/src/sleep.rs` | `the_last_searcher_calls_for_another` |
//! | `pool::vacates_without_a_look` | `dispatch/src/sleep.rs` | `a_blocked_worker_is_replaced` |
//! | `pool::stops_without_a_look` | `dispatch/src/sleep.rs` | `shutdown_runs_what_was_admitted` |
#![cfg(uruk_loom)]

use loom::sync::atomic::{AtomicUsize, Ordering};
use uruk_core::sync::{Arc, Latch};
use uruk_core::{Task, TaskDispatcher, TaskPriority};
use uruk_dispatch::WorkStealingTaskDispatcher;
use uruk_dispatch::sleep::{Sleep, Wake};

/// Explores every order with at most two preemptions; the protocols of a pool have more branches than loom's default allows.
fn model(scenario: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound.get_or_insert(2);
    builder.max_branches = 10_000;
    builder.check(scenario);
}

fn pool(workers: usize) -> Arc<WorkStealingTaskDispatcher> {
    Arc::new(WorkStealingTaskDispatcher::builder().workers(workers).build().expect("a small pool"))
}

fn dispatch(pool: &WorkStealingTaskDispatcher, run: impl FnOnce() + Send + 'static) {
    pool.dispatch(Task::new("modelled", TaskPriority::Demanded, run)).expect("the pool is open");
}

/// The protocol alone, with an unordered flag for a queue: locked queues would order what the fences must order.
///
/// ```text
///  producer: flag = 1; notify        worker: searching; flag? ─ sleep(look at flag) ─ flag must be 1
/// ```
#[test]
fn a_push_and_a_second_look_cannot_miss_each_other() {
    model(|| {
        let sleep = Arc::new(Sleep::new(1));
        let flag = Arc::new(AtomicUsize::new(0));
        assert_eq!(sleep.notify(), Wake::Start);
        let worker = loom::thread::spawn({
            let (sleep, flag) = (sleep.clone(), flag.clone());
            move || {
                // Relaxed here and below: the protocol's own fences are what is checked.
                while flag.load(Ordering::Relaxed) == 0 {
                    sleep.sleep(|| flag.load(Ordering::Relaxed) != 0);
                }
            }
        });
        flag.store(1, Ordering::Relaxed);
        assert_ne!(sleep.notify(), Wake::Start, "the only slot is taken");
        worker.join().expect("the worker ends");
    });
}

#[test]
fn an_idle_pool_wakes_up_for_the_next_task() {
    model(|| {
        let pool = pool(1);
        for _ in 0..2 {
            let done = Arc::new(Latch::new());
            dispatch(&pool, {
                let done = done.clone();
                move || done.open()
            });
            done.wait();
        }
        pool.shutdown();
    });
}

/// The first task waits for the second in a way that the pool cannot see.
///
/// ```text
///  producer: push 1 ─ push 2 (sees a searcher, wakes nobody)
///  worker:            searching ─ takes 1, and was the last searcher: must call for another ─ runs 1 ...
///  other:                                                                     takes 2 ─ ends 1's wait
/// ```
#[test]
fn the_last_searcher_calls_for_another() {
    model(|| {
        let pool = pool(2);
        let second_ran = Arc::new(Latch::new());
        dispatch(&pool, {
            let second_ran = second_ran.clone();
            move || second_ran.wait()
        });
        dispatch(&pool, move || second_ran.open());
        pool.shutdown();
    });
}

#[test]
fn a_blocked_worker_is_replaced() {
    model(|| {
        let pool = pool(1);
        let done = Arc::new(Latch::new());
        dispatch(&pool, {
            let (pool, done) = (pool.clone(), done.clone());
            move || {
                let other = done.clone();
                dispatch(&pool, move || other.open());
                pool.wait(&done).expect("a thread can be had");
            }
        });
        done.wait();
        pool.shutdown();
    });
}

#[test]
fn shutdown_runs_what_was_admitted() {
    model(|| {
        let pool = pool(2);
        let ran = Arc::new(AtomicUsize::new(0));
        for _ in 0..2 {
            let ran = ran.clone();
            dispatch(&pool, move || {
                ran.fetch_add(1, Ordering::Relaxed);
            });
        }
        pool.shutdown();
        assert_eq!(ran.load(Ordering::Relaxed), 2);
    });
}

/// ```text
///  closer: shutdown      producer: dispatch ─ admitted, and then run; or given back
/// ```
#[test]
fn a_task_dispatched_during_shutdown_is_run_or_given_back() {
    model(|| {
        let pool = pool(1);
        let ran = Arc::new(AtomicUsize::new(0));
        let closer = loom::thread::spawn({
            let pool = pool.clone();
            move || pool.shutdown()
        });
        let task = Task::new("late", TaskPriority::Lazy, {
            let ran = ran.clone();
            move || {
                ran.fetch_add(1, Ordering::Relaxed);
            }
        });
        let given_back = pool.dispatch(task).is_err();
        closer.join().expect("the closer ends");
        pool.shutdown();
        assert_eq!(ran.load(Ordering::Relaxed), usize::from(!given_back));
    });
}

#[test]
fn a_task_may_shut_its_pool_down() {
    model(|| {
        let pool = pool(1);
        dispatch(&pool, {
            let pool = pool.clone();
            move || pool.shutdown()
        });
        pool.shutdown();
    });
}

loom_tests::catches_its_weakenings!();
