//! Threads never outnumber workers and tasks that block or have just ceased to, and spares retire.
#![cfg(not(uruk_loom))]

use uruk_core::sync::atomic::{AtomicBool, Ordering};
use uruk_core::sync::{Arc, Latch, thread};
use uruk_core::{Task, TaskDispatcher, TaskPriority};
use uruk_dispatch::WorkStealingTaskDispatcher;

type Pool = Arc<WorkStealingTaskDispatcher>;

fn pool(workers: usize) -> Pool {
    let builder = WorkStealingTaskDispatcher::builder().workers(workers).stack_size_bytes(256 << 10);
    Arc::new(builder.build().unwrap())
}

/// Watches a pool until told to stop; gives the most threads seen.
fn watch(pool: &Pool, stop: &Arc<AtomicBool>) -> thread::JoinHandle<usize> {
    let (pool, stop) = (pool.clone(), stop.clone());
    thread::spawn(move || {
        let mut most = 0;
        // Relaxed: only when it stops depends on it.
        while !stop.load(Ordering::Relaxed) {
            let metrics = pool.metrics();
            assert!(metrics.threads <= metrics.workers + metrics.blocked + metrics.surplus, "{metrics:?}");
            most = most.max(metrics.threads);
            thread::yield_now();
        }
        most
    })
}

/// Dispatches a task that does what the bits of `dice` say: waits for others, in nested blocks too, or breeds.
fn dispatch(pool: &Pool, dice: u64, depth: u32, done: Arc<Latch>) {
    let priority =
        [TaskPriority::Idle, TaskPriority::Speculative, TaskPriority::Lazy, TaskPriority::Demanded]
            [(dice >> 4) as usize % 4];
    let task = Task::new("test", priority, {
        let pool = pool.clone();
        move || {
            let inner = Arc::new(Latch::new());
            // A step of a generator of random numbers, good enough to make trees of many shapes.
            let next =
                dice.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f).rotate_left(29);
            if depth > 0 {
                dispatch(&pool, next, depth - 1, inner.clone());
                match dice % 4 {
                    0 => {}
                    1 => pool.wait(&inner).unwrap(),
                    2 => pool.blocking(|| pool.wait(&inner).unwrap()).unwrap(),
                    _ => {
                        let other = Arc::new(Latch::new());
                        dispatch(&pool, next ^ dice, depth - 1, other.clone());
                        pool.wait(&inner).unwrap();
                        pool.wait(&other).unwrap();
                    }
                }
            }
            done.open();
        }
    });
    pool.dispatch(task).unwrap();
}

#[test]
fn no_snapshot_of_a_random_run_shows_more_threads_than_the_bound() {
    for workers in 1..=3 {
        let pool = pool(workers);
        let stop = Arc::new(AtomicBool::new(false));
        let watcher = watch(&pool, &stop);
        for round in 0..60 {
            let trees: Vec<_> = (0..4).map(|_| Arc::new(Latch::new())).collect();
            for (tree, done) in trees.iter().enumerate() {
                dispatch(&pool, round * 31 + tree as u64, 7, done.clone());
            }
            trees.iter().for_each(|done| done.wait());
        }
        // A tree may be done before all of it is: a closed pool would refuse what is left to breed.
        while {
            let metrics = pool.metrics();
            metrics.running.total() + metrics.queued.total() > 0
        } {
            thread::yield_now();
        }
        // Relaxed: as above.
        stop.store(true, Ordering::Relaxed);
        assert!(watcher.join().unwrap() > workers, "nothing blocked while somebody looked");
        pool.shutdown();
        assert_eq!(pool.metrics().panicked, 0);
    }
}

#[test]
fn spares_retire_when_nothing_is_blocked_any_more() {
    const BLOCKED: usize = 200;
    let pool = pool(2);
    let gate = Arc::new(Latch::new());
    for _ in 0..BLOCKED {
        let (inner, gate) = (pool.clone(), gate.clone());
        pool.dispatch(Task::new("test", TaskPriority::Demanded, move || inner.wait(&gate).unwrap())).unwrap();
    }
    while pool.metrics().blocked < BLOCKED {
        thread::yield_now();
    }
    assert!(pool.metrics().threads >= BLOCKED);
    gate.open();
    while pool.metrics().threads > 2 {
        thread::yield_now();
    }
    let metrics = pool.metrics();
    assert_eq!((metrics.blocked, metrics.surplus), (0, 0));
    // Those that are left work on.
    let done = Arc::new(Latch::new());
    dispatch(&pool, 1, 3, done.clone());
    done.wait();
    pool.shutdown();
    assert_eq!(pool.metrics().threads, 0);
}
