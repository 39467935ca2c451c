//! A worker that blocks is replaced, so nothing that waits for a task can keep that task from running.
//!
//! ```text
//!  one worker:   thread 0  ─ task 0 ─ dispatch 1, wait ......................... go on ─ retire
//!                thread 1             └─ task 1 ─ dispatch 2, wait ...... go on ─ retire
//!                thread 2                         └─ task 2 ─ ... ─ open
//! ```
//!
//! There are no threads to schedule in a model build.
#![cfg(not(uruk_loom))]

#[path = "support/patience.rs"]
pub mod patience;

use patience::within_reason;
use uruk_core::sync::{Arc, Latch, Mutex};
use uruk_core::{Task, TaskDispatcher, TaskPriority, WaitError};
use uruk_dispatch::{WorkStealingTaskDispatcher, current_worker};

type Pool = Arc<WorkStealingTaskDispatcher>;

fn pool(workers: usize) -> Pool {
    // A chain of a thousand blocked tasks has a thousand stacks; small ones keep the test light.
    Arc::new(
        WorkStealingTaskDispatcher::builder().workers(workers).stack_size_bytes(256 << 10).build().unwrap(),
    )
}

fn demanded(run: impl FnOnce() + Send + 'static) -> Task {
    Task::new("test", TaskPriority::Demanded, run)
}

/// Dispatches a task that waits for the next of the chain before it opens `done`.
fn dispatch_chain(pool: &Pool, length: usize, done: Arc<Latch>) {
    let task = {
        let pool = pool.clone();
        demanded(move || {
            if length > 1 {
                let next_done = Arc::new(Latch::new());
                dispatch_chain(&pool, length - 1, next_done.clone());
                pool.wait(&next_done).unwrap();
            }
            done.open();
        })
    };
    pool.dispatch(task).unwrap();
}

#[test]
fn one_worker_completes_a_chain_of_a_thousand_blocking_tasks() {
    let pool = pool(1);
    let done = Arc::new(Latch::new());
    dispatch_chain(&pool, 1000, done.clone());
    done.wait();
    pool.shutdown();
    let metrics = pool.metrics();
    assert_eq!(metrics.finished, 1000);
    assert_eq!((metrics.replaced.total(), metrics.replaced[TaskPriority::Demanded]), (999, 999));
    assert_eq!((metrics.blocked, metrics.threads), (0, 0));
}

#[test]
fn a_wait_for_something_open_replaces_nobody() {
    let pool = pool(1);
    let done = Arc::new(Latch::new());
    pool.dispatch({
        let (pool, done) = (pool.clone(), done.clone());
        demanded(move || {
            let open = Latch::new();
            open.open();
            pool.wait(&open).unwrap();
            done.open();
        })
    })
    .unwrap();
    done.wait();
    pool.shutdown();
    assert_eq!(pool.metrics().replaced.total(), 0);
    assert_eq!(pool.metrics().started_threads, 1);
}

#[test]
fn threads_never_outnumber_workers_and_blocked_tasks() {
    const BLOCKED: usize = 20;
    let pool = pool(2);
    let gate = Arc::new(Latch::new());
    let arrived: Vec<_> = (0..BLOCKED).map(|_| Arc::new(Latch::new())).collect();
    for latch in &arrived {
        let (pool, gate, latch) = (pool.clone(), gate.clone(), latch.clone());
        let task = {
            let pool = pool.clone();
            demanded(move || {
                latch.open();
                pool.wait(&gate).unwrap();
            })
        };
        pool.dispatch(task).unwrap();
    }
    for latch in &arrived {
        latch.wait();
    }
    // All have begun, so at most two of them have not yet reached their wait.
    assert!(pool.metrics().threads <= 2 + BLOCKED);
    assert!(pool.metrics().started_threads as usize <= 2 + BLOCKED);
    gate.open();
    pool.shutdown();
    assert_eq!(pool.metrics().threads, 0);
    assert_eq!(pool.metrics().finished as usize, BLOCKED);
}

#[test]
fn a_task_that_goes_on_after_a_wait_can_wait_again() {
    let pool = pool(1);
    let done = Arc::new(Latch::new());
    pool.dispatch({
        let (pool, done) = (pool.clone(), done.clone());
        demanded(move || {
            for _ in 0..100 {
                let step = Arc::new(Latch::new());
                dispatch_chain(&pool, 1, step.clone());
                pool.wait(&step).unwrap();
            }
            done.open();
        })
    })
    .unwrap();
    done.wait();
    pool.shutdown();
    assert_eq!(pool.metrics().finished, 101);
}

#[test]
fn blocking_lets_another_thread_work_and_survives_a_panic() {
    let pool = pool(1);
    let done = Arc::new(Latch::new());
    pool.dispatch({
        let (pool, done) = (pool.clone(), done.clone());
        demanded(move || {
            let other = Arc::new(Latch::new());
            dispatch_chain(&pool, 1, other.clone());
            // A wait that the pool cannot see by itself.
            let answer = pool.blocking(|| {
                other.wait();
                42
            });
            assert_eq!(answer, Ok(42));
            let lost: Result<(), WaitError> = pool.blocking(|| {
                done.open();
                panic!("inside a declared wait");
            });
            unreachable!("{lost:?}");
        })
    })
    .unwrap();
    done.wait();
    pool.shutdown();
    let metrics = pool.metrics();
    assert_eq!((metrics.finished, metrics.panicked, metrics.blocked), (2, 1, 0));
}

#[test]
fn workers_have_numbers_and_names_and_other_threads_have_none() {
    assert_eq!(current_worker(), None);
    let pool = pool(1);
    let seen = Arc::new(Mutex::new(Vec::new()));
    let done = Arc::new(Latch::new());
    let note = {
        let seen = seen.clone();
        move || {
            let name = std::thread::current().name().map(str::to_owned);
            seen.lock().push((current_worker(), name));
        }
    };
    pool.dispatch({
        let (pool, done) = (pool.clone(), done.clone());
        demanded(move || {
            note();
            let inner_done = Arc::new(Latch::new());
            let inner = {
                let inner_done = inner_done.clone();
                demanded(move || {
                    note();
                    inner_done.open();
                })
            };
            pool.dispatch(inner).unwrap();
            pool.wait(&inner_done).unwrap();
            done.open();
        })
    })
    .unwrap();
    done.wait();
    let expected = [(Some(0), Some("uruk-worker-0".to_owned())), (Some(1), Some("uruk-worker-1".to_owned()))];
    assert_eq!(*seen.lock(), expected);
}

#[test]
fn a_foreign_thread_and_a_worker_of_another_pool_just_wait() {
    let (ours, theirs) = (pool(1), pool(1));
    let done = Arc::new(Latch::new());
    theirs
        .dispatch({
            let (ours, done) = (ours.clone(), done.clone());
            demanded(move || {
                let step = Arc::new(Latch::new());
                dispatch_chain(&ours, 1, step.clone());
                ours.wait(&step).unwrap();
                done.open();
            })
        })
        .unwrap();
    ours.wait(&done).unwrap();
    assert_eq!(ours.metrics().replaced.total() + theirs.metrics().replaced.total(), 0);
}

/// A wait inside `blocking` took the vacant slot back when it ended, and the rest of the block kept it: with one worker,
/// nothing that the block then waited for could run.
#[test]
fn a_wait_inside_a_block_does_not_end_the_block() {
    within_reason(|| {
        let pool = pool(1);
        let (inside, first, between, second) = (latch(), latch(), latch(), latch());
        pool.dispatch({
            let (inner, inside, first) = (pool.clone(), inside.clone(), first.clone());
            let (between, second) = (between.clone(), second.clone());
            demanded(move || {
                inner
                    .blocking(|| {
                        inside.open();
                        inner.wait(&first).unwrap();
                        between.open();
                        second.wait();
                    })
                    .unwrap();
            })
        })
        .unwrap();
        inside.wait();
        first.open();
        between.wait();
        pool.dispatch(demanded({
            let second = second.clone();
            move || second.open()
        }))
        .unwrap();
        second.wait();
        pool.shutdown();
        assert_eq!(pool.metrics().blocked, 0);
    });
}

fn latch() -> Arc<Latch> {
    Arc::new(Latch::new())
}
