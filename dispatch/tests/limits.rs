//! Work in the background has limits, and they delay nothing that anybody waits for.
#![cfg(not(uruk_loom))]

use uruk_core::sync::atomic::{AtomicUsize, Ordering};
use uruk_core::sync::{Arc, Latch, Mutex, thread};
use uruk_core::{Task, TaskDispatcher, TaskPriority, WaitError};
use uruk_dispatch::{WorkStealingTaskDispatcher, WorkStealingTaskDispatcherBuilder};

use TaskPriority::{Demanded, Idle, Lazy, Speculative};

type Pool = Arc<WorkStealingTaskDispatcher>;

fn pool(
    workers: usize,
    limit: impl FnOnce(WorkStealingTaskDispatcherBuilder) -> WorkStealingTaskDispatcherBuilder,
) -> Pool {
    let builder = WorkStealingTaskDispatcher::builder().workers(workers).stack_size_bytes(256 << 10);
    Arc::new(limit(builder).build().unwrap())
}

fn latch() -> Arc<Latch> {
    Arc::new(Latch::new())
}

fn dispatch(pool: &Pool, priority: TaskPriority, run: impl FnOnce() + Send + 'static) {
    pool.dispatch(Task::new("test", priority, run)).unwrap();
}

/// Dispatches a task that runs, in a way that the pool takes for work, until the second latch opens; the first says that
/// it has begun.
fn occupy(pool: &Pool, priority: TaskPriority) -> [Arc<Latch>; 2] {
    let [begun, end] = [latch(), latch()];
    let task = Task::new("test", priority, {
        let [begun, end] = [begun.clone(), end.clone()];
        move || {
            begun.open();
            end.wait();
        }
    });
    pool.dispatch(task).unwrap();
    [begun, end]
}

/// Runs a task to its end, so that every task that could start before it has started.
fn run_one(pool: &Pool, priority: TaskPriority) {
    let done = latch();
    dispatch(pool, priority, {
        let done = done.clone();
        move || done.open()
    });
    done.wait();
}

#[test]
fn demanded_work_finds_a_worker_free_of_the_background() {
    let pool = pool(2, |builder| builder);
    let [[first, end_first], [second, end_second]] =
        [Speculative, Idle].map(|priority| occupy(&pool, priority));
    first.wait();
    for priority in [Demanded, Lazy, Demanded] {
        run_one(&pool, priority);
    }
    assert!(!second.is_open(), "one worker is left for what is demanded");
    end_first.open();
    second.wait();
    end_second.open();
    pool.shutdown();
    assert_eq!(pool.metrics().finished, 5);
}

#[test]
fn more_workers_may_run_the_background_if_they_shall() {
    let pool = pool(2, |builder| builder.background_workers_max(2));
    let tasks = [Speculative, Idle].map(|priority| occupy(&pool, priority));
    tasks.iter().for_each(|[begun, _]| begun.wait());
    tasks.iter().for_each(|[_, end]| end.open());
}

#[test]
fn one_worker_takes_what_is_demanded_next() {
    let pool = pool(1, |builder| builder.background_workers_max(0));
    let ran = Arc::new(Mutex::new(Vec::new()));
    let [begun, end] = occupy(&pool, Speculative);
    begun.wait();
    let note = |priority| {
        let ran = ran.clone();
        dispatch(&pool, priority, move || ran.lock().push(priority));
    };
    [Idle, Speculative, Speculative, Demanded].into_iter().for_each(note);
    end.open();
    pool.shutdown();
    assert_eq!(*ran.lock(), [Demanded, Speculative, Speculative, Idle]);
}

/// Each waits for the next, all in the background, with a place for one.
#[test]
fn a_blocked_task_takes_no_place_of_the_background() {
    fn chain(pool: &Pool, length: usize, done: Arc<Latch>) {
        dispatch(pool, if length.is_multiple_of(2) { Idle } else { Speculative }, {
            let pool = pool.clone();
            move || {
                if length > 1 {
                    let next = latch();
                    chain(&pool, length - 1, next.clone());
                    pool.wait(&next).unwrap();
                }
                done.open();
            }
        });
    }
    for workers in [1, 2, 3] {
        let pool = pool(workers, |builder| builder.background_workers_max(1));
        let done = latch();
        chain(&pool, 100, done.clone());
        done.wait();
        pool.shutdown();
        assert_eq!(pool.metrics().finished, 100);
    }
}

#[test]
fn producers_of_background_work_are_told_and_wait_and_others_never() {
    let pool = pool(1, |builder| builder.speculative_queue_max(2).idle_queue_max(1));
    let [begun, end] = occupy(&pool, Demanded);
    begun.wait();
    assert!(
        pool.admits(Speculative, 100).is_ok(),
        "what has an empty queue to itself would never fit better"
    );
    dispatch(&pool, Speculative, || ());
    assert!(
        pool.admits(Speculative, 1).is_ok()
            && pool.admits(Speculative, 2).is_err()
            && pool.admits(Idle, 1).is_ok()
    );
    // A dispatched task is queued in any case.
    (0..2).for_each(|_| dispatch(&pool, Speculative, || ()));
    dispatch(&pool, Idle, || ());
    assert!(pool.admits(Speculative, 1).is_err() && pool.admits(Idle, 1).is_err());
    assert!(pool.admits(Demanded, usize::MAX).is_ok() && pool.admits(Lazy, usize::MAX).is_ok());
    pool.wait_for_room(Lazy, 1).unwrap();
    pool.wait_for_room(Demanded, 1).unwrap();
    let producers = [Speculative, Idle, Speculative].map(|priority| {
        let pool = pool.clone();
        thread::spawn(move || {
            pool.wait_for_room(priority, 1).unwrap();
            dispatch(&pool, priority, || ());
        })
    });
    end.open();
    producers.into_iter().for_each(|producer| producer.join().unwrap());
    pool.shutdown();
    assert_eq!(pool.metrics().finished, 1 + 3 + 1 + 3);
    assert!(pool.admits(Speculative, 1).is_ok(), "a closed pool has another reason to refuse");
    pool.wait_for_room(Speculative, 1).unwrap();
}

#[test]
fn a_shutdown_lets_producers_go() {
    let pool = pool(1, |builder| builder.speculative_queue_max(1));
    let [begun, end] = occupy(&pool, Demanded);
    begun.wait();
    dispatch(&pool, Speculative, || ());
    let producer = thread::spawn({
        let pool = pool.clone();
        move || {
            pool.wait_for_room(Speculative, 1).unwrap();
            pool.dispatch(Task::new("late", Speculative, || ())).is_err()
        }
    });
    let closer = thread::spawn({
        let pool = pool.clone();
        move || pool.shutdown()
    });
    // Nothing is taken from the queue before the producer has gone on.
    assert!(producer.join().unwrap(), "only the closing can have let it go");
    end.open();
    closer.join().unwrap();
}

/// The one worker waits for room that only it could make, and is replaced.
#[test]
fn a_task_that_waits_for_room_costs_no_worker() {
    let pool = pool(1, |builder| builder.speculative_queue_max(1));
    let done = latch();
    dispatch(&pool, Speculative, {
        let (pool, done) = (pool.clone(), done.clone());
        move || {
            for _ in 0..100 {
                pool.wait_for_room(Speculative, 1).unwrap();
                dispatch(&pool, Speculative, || ());
            }
            done.open();
        }
    });
    done.wait();
    pool.shutdown();
    let metrics = pool.metrics();
    assert_eq!((metrics.finished, metrics.panicked), (101, 0));
    assert!(metrics.replaced[Speculative] > 0);
}

#[test]
fn a_leaf_does_not_wait_for_room() {
    let pool = pool(1, |builder| builder.idle_queue_max(1));
    let (refused, done) = (Arc::new(Mutex::new(None)), latch());
    let leaf = Task::new("leaf", Demanded, {
        let (pool, refused, done) = (pool.clone(), refused.clone(), done.clone());
        move || {
            dispatch(&pool, Idle, || ());
            *refused.lock() = Some(pool.wait_for_room(Idle, 1));
            done.open();
        }
    });
    pool.dispatch(leaf.leaf()).unwrap();
    done.wait();
    pool.shutdown();
    assert_eq!(*refused.lock(), Some(Err(WaitError::Leaf { task: "leaf".into() })));
}

/// Many producers, every limit at once: each task runs, and no more of the background run at once than may.
#[test]
fn limits_lose_nothing_and_are_kept() {
    const BACKGROUND: usize = 2;
    let limit = |builder: WorkStealingTaskDispatcherBuilder| {
        builder.speculative_queue_max(8).idle_queue_max(8).background_workers_max(BACKGROUND)
    };
    let pool = pool(3, limit);
    let [running, most, ran] = [(); 3].map(|()| Arc::new(AtomicUsize::new(0)));
    let producers: Vec<_> = (0..4)
        .map(|producer| {
            let (pool, running, most, ran) = (pool.clone(), running.clone(), most.clone(), ran.clone());
            thread::spawn(move || {
                for n in 0..500 {
                    let priority = [Idle, Speculative, Lazy][(producer + n) % 3];
                    pool.wait_for_room(priority, 1).unwrap();
                    let (running, most, ran) = (running.clone(), most.clone(), ran.clone());
                    dispatch(&pool, priority, move || {
                        // Relaxed: read after the shutdown; the greatest sum seen is a sum that was.
                        let counts = usize::from(priority != Lazy);
                        let now = running.fetch_add(counts, Ordering::Relaxed) + counts;
                        most.fetch_max(now, Ordering::Relaxed);
                        thread::yield_now();
                        running.fetch_sub(counts, Ordering::Relaxed);
                        ran.fetch_add(1, Ordering::Relaxed);
                    });
                }
            })
        })
        .collect();
    producers.into_iter().for_each(|producer| producer.join().unwrap());
    pool.shutdown();
    assert_eq!(ran.load(Ordering::Relaxed), 2000);
    assert!(most.load(Ordering::Relaxed) <= BACKGROUND);
}
