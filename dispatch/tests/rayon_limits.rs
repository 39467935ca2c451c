//! Inside a rayon pool of the host: work in the background has the limits that it has in a pool of our own.
//!
//! Whether a ticket or a spare takes a task is up to the machine, so what shall lie in the queue is held back by a limit.
#![cfg(all(feature = "rayon", not(any(uruk_loom, uruk_shuttle))))]

use uruk_core::sync::atomic::{AtomicUsize, Ordering};
use uruk_core::sync::{Arc, Latch, thread};
use uruk_core::{SerialQueue, Task, TaskDispatcher, TaskPriority, WaitError};
use uruk_dispatch::{RayonTaskDispatcher, RayonTaskDispatcherBuilder};

use TaskPriority::{Demanded, Idle, Lazy, Speculative};

type Dispatcher = Arc<RayonTaskDispatcher>;

/// A dispatcher in a pool of so many threads.
fn inside(
    threads: usize,
    limit: impl FnOnce(RayonTaskDispatcherBuilder) -> RayonTaskDispatcherBuilder,
) -> (Arc<rayon_core::ThreadPool>, Dispatcher) {
    let pool = Arc::new(rayon_core::ThreadPoolBuilder::new().num_threads(threads).build().unwrap());
    let builder = RayonTaskDispatcher::in_pool(pool.clone()).stack_size_bytes(256 << 10);
    (pool, Arc::new(limit(builder).build().unwrap()))
}

fn latch() -> Arc<Latch> {
    Arc::new(Latch::new())
}

fn dispatch(dispatcher: &Dispatcher, priority: TaskPriority, run: impl FnOnce() + Send + 'static) {
    dispatcher.dispatch(Task::new("test", priority, run)).unwrap();
}

/// Dispatches a task that runs, in a way that the dispatcher takes for work, until the second latch opens; the first says that
/// it has begun.
fn occupy(dispatcher: &Dispatcher, priority: TaskPriority) -> [Arc<Latch>; 2] {
    let [begun, end] = [latch(), latch()];
    let task = Task::new("test", priority, {
        let [begun, end] = [begun.clone(), end.clone()];
        move || {
            begun.open();
            end.wait();
        }
    });
    dispatcher.dispatch(task).unwrap();
    [begun, end]
}

/// Runs a task to its end.
fn run_one(dispatcher: &Dispatcher, priority: TaskPriority) {
    let done = latch();
    let opens = done.clone();
    dispatch(dispatcher, priority, move || opens.open());
    done.wait();
}

#[test]
fn demanded_work_finds_a_thread_free_of_the_background() {
    let (_pool, dispatcher) = inside(2, |builder| builder);
    let [[first, end_first], [second, end_second]] =
        [Speculative, Idle].map(|priority| occupy(&dispatcher, priority));
    first.wait();
    for priority in [Demanded, Lazy, Demanded] {
        run_one(&dispatcher, priority);
    }
    assert!(!second.is_open(), "one place in a pool of two");
    let metrics = dispatcher.metrics();
    assert_eq!((metrics.running[Speculative], metrics.queued[Idle], metrics.started[Demanded]), (1, 1, 2));
    end_first.open();
    second.wait();
    end_second.open();
    dispatcher.shutdown();
    let metrics = dispatcher.metrics();
    assert_eq!((metrics.finished, metrics.running.total(), metrics.queued.total()), (5, 0, 0));
}

/// Each waits for the next, all in the background, with a place for one.
#[test]
fn a_blocked_task_takes_no_place_of_the_background() {
    fn chain(dispatcher: &Dispatcher, length: usize, done: Arc<Latch>) {
        let inner = dispatcher.clone();
        dispatch(dispatcher, if length.is_multiple_of(2) { Idle } else { Speculative }, move || {
            if length > 1 {
                let next = latch();
                chain(&inner, length - 1, next.clone());
                inner.wait(&next).unwrap();
            }
            done.open();
        });
    }
    for threads in [1, 2, 3] {
        let (_pool, dispatcher) = inside(threads, |builder| builder.background_workers_max(1));
        let done = latch();
        chain(&dispatcher, 100, done.clone());
        done.wait();
        dispatcher.shutdown();
        assert_eq!(dispatcher.metrics().finished, 100);
    }
}

#[test]
fn producers_of_background_work_are_told_and_wait_wherever_they_are() {
    let (pool, dispatcher) = inside(2, |builder| builder.speculative_queue_max(1).background_workers_max(1));
    let [begun, end] = occupy(&dispatcher, Speculative);
    begun.wait();
    dispatcher.admits(Speculative, 100).unwrap();
    dispatch(&dispatcher, Speculative, || ());
    let reached = dispatcher.admits(Speculative, 1).unwrap_err();
    assert_eq!((reached.priority, reached.waiting, reached.bound), (Speculative, 1, 1));
    dispatcher.wait_for_room(Demanded, 9).unwrap();
    let beside = thread::spawn({
        let dispatcher = dispatcher.clone();
        move || {
            dispatcher.wait_for_room(Speculative, 1).unwrap();
            dispatch(&dispatcher, Speculative, || ());
        }
    });
    // A job of the host.
    let (in_pool, inner) = (latch(), dispatcher.clone());
    let waited = in_pool.clone();
    pool.spawn(move || {
        inner.wait_for_room(Speculative, 1).unwrap();
        waited.open();
    });
    let refused = latch();
    let (inner, told) = (dispatcher.clone(), refused.clone());
    let leaf = Task::new("leaf", Demanded, move || {
        if matches!(inner.wait_for_room(Speculative, 1), Err(WaitError::Leaf { .. })) {
            told.open();
        }
    });
    dispatcher.dispatch(leaf.leaf()).unwrap();
    refused.wait();
    end.open();
    beside.join().unwrap();
    in_pool.wait();
    dispatcher.shutdown();
    assert_eq!(dispatcher.metrics().finished, 4);
    dispatcher.wait_for_room(Speculative, 1).unwrap();
}

#[test]
fn a_shutdown_lets_producers_go() {
    let (_pool, dispatcher) = inside(1, |builder| builder.idle_queue_max(1));
    let [begun, end] = occupy(&dispatcher, Idle);
    begun.wait();
    dispatch(&dispatcher, Idle, || ());
    let producer = thread::spawn({
        let dispatcher = dispatcher.clone();
        move || {
            dispatcher.wait_for_room(Idle, 1).unwrap();
            dispatcher.dispatch(Task::new("late", Idle, || ())).is_err()
        }
    });
    let closer = thread::spawn({
        let dispatcher = dispatcher.clone();
        move || dispatcher.shutdown()
    });
    assert!(producer.join().unwrap(), "only the closing can have let it go");
    end.open();
    closer.join().unwrap();
    assert_eq!(dispatcher.metrics().finished, 2);
}

/// The producer has the turn for which the tasks wait that fill the queue.
#[test]
fn what_waits_in_serial_queues_counts_here_too() {
    let (_pool, dispatcher) = inside(2, |builder| builder.speculative_queue_max(2));
    let (queue, shared): (_, Arc<dyn TaskDispatcher>) = (SerialQueue::new(), dispatcher.clone());
    let [filled, told, ran] = [latch(), latch(), latch()];
    let producer = Task::new("producer", Demanded, {
        let (inner, filled, told) = (dispatcher.clone(), filled.clone(), told.clone());
        move || {
            filled.wait();
            assert_eq!(inner.admits(Speculative, 1).unwrap_err().waiting, 3);
            // Its own turn keeps them waiting.
            inner.wait_for_room(Speculative, 1).unwrap();
            told.open();
        }
    });
    queue.dispatch(&shared, producer).unwrap();
    (0..2).for_each(|_| queue.dispatch(&shared, Task::new("waits", Speculative, || ())).unwrap());
    let opens = ran.clone();
    queue.dispatch(&shared, Task::new("waits", Speculative, move || opens.open())).unwrap();
    filled.open();
    told.wait();
    ran.wait();
    dispatcher.shutdown();
    assert_eq!(dispatcher.metrics().panicked, 0);
}

/// Many producers, every limit at once: each task runs, and no more of the background run at once than may.
#[test]
fn limits_lose_nothing_and_are_kept() {
    let (_pool, dispatcher) =
        inside(3, |builder| builder.speculative_queue_max(8).idle_queue_max(8).background_workers_max(2));
    let [running, most, ran] = [(); 3].map(|()| Arc::new(AtomicUsize::new(0)));
    let producers: Vec<_> = (0..4)
        .map(|producer| {
            let (dispatcher, running, most, ran) =
                (dispatcher.clone(), running.clone(), most.clone(), ran.clone());
            thread::spawn(move || {
                for n in 0..250 {
                    let priority = [Idle, Speculative, Lazy][(producer + n) % 3];
                    dispatcher.wait_for_room(priority, 1).unwrap();
                    let (running, most, ran) = (running.clone(), most.clone(), ran.clone());
                    dispatch(&dispatcher, priority, move || {
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
    dispatcher.shutdown();
    assert_eq!(ran.load(Ordering::Relaxed), 1000);
    assert!(most.load(Ordering::Relaxed) <= 2);
}
