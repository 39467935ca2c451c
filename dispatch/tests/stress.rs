//! Hammers a pool with everything at once: producers, tasks that breed, block, panic, and pools that come and go.
//!
//! Minutes long on purpose: `make stress`, or with URUK_STRESS_SECONDS set, `cargo test --release -- --ignored stress`. Each round
//! prints its seed if it fails; URUK_STRESS_SEED repeats it, as far as the scheduler does.
#![cfg(not(uruk_loom))]

use std::time::Duration;

use uruk_core::sync::atomic::{AtomicUsize, Ordering};
use uruk_core::sync::{Arc, Latch, thread};
use uruk_core::{Task, TaskDispatcher, TaskPriority};
use uruk_dispatch::WorkStealingTaskDispatcher;

#[path = "support/hammer.rs"]
pub mod hammer;
#[path = "support/random.rs"]
pub mod random;

use hammer::{hammer, stress_length};
use random::Random;

type Pool = Arc<WorkStealingTaskDispatcher>;

/// The numbers of tasks that were dispatched, and that ended in any way.
#[derive(Default)]
struct Tally {
    admitted: AtomicUsize,
    ended: AtomicUsize,
}

/// Counts a task as ended when it is dropped: after it ran, in a panic, or when it comes back.
struct Ending(Arc<Tally>);

impl Drop for Ending {
    fn drop(&mut self) {
        // Relaxed: read after a shutdown.
        self.0.ended.fetch_add(1, Ordering::Relaxed);
    }
}

fn priority(random: &mut Random) -> TaskPriority {
    match random.below(8) {
        0 => TaskPriority::Idle,
        1 => TaskPriority::Speculative,
        2 => TaskPriority::Lazy,
        _ => TaskPriority::Demanded,
    }
}

/// Dispatches a task that does one of the things tasks do, at most `depth` of them nested.
fn dispatch(pool: &Pool, tally: &Arc<Tally>, mut random: Random, depth: u32, done: Option<Arc<Latch>>) {
    // Relaxed: read after a shutdown.
    tally.admitted.fetch_add(1, Ordering::Relaxed);
    let ending = Ending(tally.clone());
    let opening = OpenOnDrop(done);
    let priority = priority(&mut random);
    let (inner_pool, inner_tally) = (pool.clone(), tally.clone());
    let task = Task::new("stress", priority, move || {
        let (_ending, _opening) = (ending, opening);
        let (pool, tally) = (&inner_pool, &inner_tally);
        match random.below(16) {
            0 => std::panic::panic_any("a task's own affair"),
            1..=3 if depth > 0 => {
                for _ in 0..=random.below(3) {
                    dispatch(pool, tally, random.split(), depth - 1, None);
                }
            }
            4..=6 if depth > 0 => {
                let answer = Arc::new(Latch::new());
                dispatch(pool, tally, random.split(), depth - 1, Some(answer.clone()));
                pool.wait(&answer).expect("a thread can be had");
            }
            7 => drop(std::hint::black_box((0..1000).map(|n| n ^ random.below(9)).collect::<Vec<_>>())),
            8 => drop(pool.metrics()),
            _ => {}
        }
    });
    drop(pool.dispatch(task));
}

/// Ends a wait however the task ends: run, panicked, or given back.
struct OpenOnDrop(Option<Arc<Latch>>);

impl Drop for OpenOnDrop {
    fn drop(&mut self) {
        if let Some(latch) = &self.0 {
            latch.open();
        }
    }
}

fn round(seed: u64) {
    let mut random = Random(seed);
    let workers = 1 + random.below(4);
    let builder = WorkStealingTaskDispatcher::builder().workers(workers).stack_size_bytes(256 << 10);
    let pool: Pool = Arc::new(builder.build().expect("a small pool"));
    let tally = Arc::new(Tally::default());
    let closes_early = random.below(4) == 0;
    let producers: Vec<_> = (0..=random.below(4))
        .map(|_| {
            let (pool, tally, mut random) = (pool.clone(), tally.clone(), random.split());
            thread::spawn(move || {
                for _ in 0..random.below(400) {
                    dispatch(&pool, &tally, random.split(), 4, None);
                    if random.below(50) == 0 {
                        // Lets the pool run dry, so that it has to wake up again.
                        let idle = Arc::new(Latch::new());
                        dispatch(&pool, &tally, random.split(), 2, Some(idle.clone()));
                        pool.wait(&idle).expect("not a worker");
                    }
                }
            })
        })
        .collect();
    if closes_early {
        pool.shutdown();
    }
    for producer in producers {
        producer.join().expect("producers do not panic");
    }
    pool.shutdown();
    let metrics = pool.metrics();
    // Relaxed: after the shutdown.
    let (admitted, ended) = (tally.admitted.load(Ordering::Relaxed), tally.ended.load(Ordering::Relaxed));
    assert_eq!(ended, admitted, "tasks were lost or ran twice");
    assert_eq!(
        (metrics.threads, metrics.blocked, metrics.running.total(), metrics.queued.total()),
        (0, 0, 0, 0)
    );
}

fn hammer_quietly(limit: Duration) {
    // Panics of tasks are part of the exercise; thousands of messages are not.
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        if info.payload().downcast_ref::<&str>() != Some(&"a task's own affair") {
            report(info);
        }
    }));
    hammer(limit, round);
}

#[test]
fn a_second_of_everything_at_once() {
    hammer_quietly(Duration::from_secs(1));
}

#[test]
#[ignore = "as long as URUK_STRESS_SECONDS says; run by `make stress`"]
fn stress_everything_at_once() {
    hammer_quietly(stress_length());
}
