//! The event thread of a pool: news is told while the workers are busy, and while an observer waits.
//!
//! ```text
//!  dispatch             event thread
//!  lock, push, unlock   lock, queue empty and open? sleep (the lock goes with it)
//!  notify               wake, take
//! ```
//!
//! Proven, in every order within the preemption bound: each task is run once, shutdown ends the thread, and an observer may
//! wait for an effect of the next event, also behind a wait inside that wait.
//!
//! **Fails if** one of these steps is left out:
//!
//! | weakening | in | caught by |
//! |---|---|---|
//! | `event_thread::sleeps_on_an_earlier_look`: the lock is let go between the look and the sleep | `dispatch/src/pool/event_thread.rs` | `news_is_told_while_the_worker_is_busy` |
//! | `event_thread::closes_without_waking` | `dispatch/src/pool/event_thread.rs` | `news_is_told_while_the_worker_is_busy` |
//! | `event_thread::keeps_its_queue_while_it_waits` | `dispatch/src/pool/event_thread.rs` | `an_observer_may_wait_for_the_next_news` |
//! | `event_thread::ends_the_outer_wait_with_the_inner` | `dispatch/src/pool/event_thread.rs` | `an_observer_may_wait_inside_a_wait` |
#![cfg(uruk_loom)]

use loom_tests::stage::model_within;
use uruk_core::sync::{Arc, Latch};
use uruk_core::{Task, TaskDispatcher, TaskPriority};
use uruk_dispatch::WorkStealingTaskDispatcher;

loom_tests::catches_its_weakenings!();

fn pool_of_one() -> Arc<WorkStealingTaskDispatcher> {
    Arc::new(WorkStealingTaskDispatcher::builder().workers(1).build().expect("a small pool"))
}

fn task(run: impl FnOnce() + Send + 'static) -> Task {
    Task::new("modelled", TaskPriority::Demanded, run)
}

/// ```text
///  worker:  busy until it is told ......................... ends
///  events:             first news ─ sleeps ─ second news: told
/// ```
#[test]
fn news_is_told_while_the_worker_is_busy() {
    model_within(2, || {
        let pool = pool_of_one();
        let told = Arc::new(Latch::new());
        pool.dispatch(task({
            let told = told.clone();
            move || told.wait()
        }))
        .expect("the pool is open");
        pool.dispatch(task(|| ()).delivering_events()).expect("the pool is open");
        pool.dispatch(task(move || told.open()).delivering_events()).expect("the pool is open");
        pool.shutdown();
    });
}

/// ```text
///  events:  first news: waits for the second ........................ goes on
///  worker:                                    second news: ends it
/// ```
#[test]
fn an_observer_may_wait_for_the_next_news() {
    model_within(2, || {
        let pool = pool_of_one();
        let second = Arc::new(Latch::new());
        let first = task({
            let (pool, second) = (pool.clone(), second.clone());
            move || pool.wait(&second).expect("a wait that the pool sees is allowed")
        });
        pool.dispatch(first.delivering_events()).expect("the pool is open");
        pool.dispatch(task(move || second.open()).delivering_events()).expect("the pool is open");
        pool.shutdown();
    });
}

/// ```text
///  events:  first news: declares a wait ─ looks something up ─ goes on in the declared wait ....... goes on
///  worker:                                                     second news: ends it
/// ```
#[test]
fn an_observer_may_wait_inside_a_wait() {
    model_within(2, || {
        let pool = pool_of_one();
        let second = Arc::new(Latch::new());
        let first = task({
            let (pool, second) = (pool.clone(), second.clone());
            move || {
                let declared = pool.blocking(|| {
                    pool.blocking(|| ())?;
                    second.wait();
                    Ok(())
                });
                declared.and_then(|inner| inner).expect("waits that the pool sees are allowed");
            }
        });
        pool.dispatch(first.delivering_events()).expect("the pool is open");
        pool.dispatch(task(move || second.open()).delivering_events()).expect("the pool is open");
        pool.shutdown();
    });
}
