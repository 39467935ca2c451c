//! The worker of each task, the order of tasks, and a pool that has nothing to do.
#![cfg(not(uruk_loom))]

use uruk_core::sync::atomic::{AtomicUsize, Ordering};
use uruk_core::sync::{Arc, Latch, Mutex, thread};
use uruk_core::{Task, TaskDispatcher, TaskPriority};
use uruk_dispatch::WorkStealingTaskDispatcher;

fn pool(workers: usize) -> Arc<WorkStealingTaskDispatcher> {
    Arc::new(WorkStealingTaskDispatcher::builder().workers(workers).build().unwrap())
}

fn demanded(run: impl FnOnce() + Send + 'static) -> Task {
    Task::new("test", TaskPriority::Demanded, run)
}

#[test]
fn what_a_busy_worker_has_queued_is_stolen() {
    let pool = pool(2);
    let done = Arc::new(Latch::new());
    pool.dispatch(demanded({
        let (pool, done) = (pool.clone(), done.clone());
        move || {
            let stolen = Arc::new(Latch::new());
            let task = demanded({
                let stolen = stolen.clone();
                move || stolen.open()
            });
            pool.dispatch(task).unwrap();
            // Not declared to the pool: only a thief can run the task.
            stolen.wait();
            done.open();
        }
    }))
    .unwrap();
    done.wait();
    pool.shutdown();
    assert_eq!(pool.metrics().stolen, 1);
}

#[test]
fn a_free_worker_takes_the_most_urgent_task() {
    let pool = pool(1);
    let (begun, go_on) = (Arc::new(Latch::new()), Arc::new(Latch::new()));
    pool.dispatch(demanded({
        let (begun, go_on) = (begun.clone(), go_on.clone());
        move || {
            begun.open();
            go_on.wait();
        }
    }))
    .unwrap();
    begun.wait();
    let order = Arc::new(Mutex::new(Vec::new()));
    let descending =
        [TaskPriority::Demanded, TaskPriority::Lazy, TaskPriority::Speculative, TaskPriority::Idle];
    for priority in descending.into_iter().rev().chain(descending) {
        let order = order.clone();
        pool.dispatch(Task::new("note", priority, move || order.lock().push(priority))).unwrap();
    }
    assert_eq!(pool.metrics().queued.total(), 8);
    assert_eq!(pool.metrics().queued[TaskPriority::Lazy], 2);
    assert_eq!(pool.metrics().running.total(), 1);
    go_on.open();
    pool.shutdown();
    let expected: Vec<_> = descending.into_iter().flat_map(|priority| [priority, priority]).collect();
    assert_eq!(*order.lock(), expected);
}

#[test]
fn an_idle_pool_sleeps_and_wakes_up_again() {
    let pool = pool(2);
    for round in 1..=50 {
        let done = Arc::new(Latch::new());
        pool.dispatch(demanded({
            let done = done.clone();
            move || done.open()
        }))
        .unwrap();
        done.wait();
        // The worker is on its way to sleep; it gets there without being asked.
        while pool.metrics().parked < pool.metrics().threads {
            thread::yield_now();
        }
        let slept = pool.metrics().slept;
        assert!(slept <= 3 * round, "{slept} sleeps after {round} single tasks: threads wake for nothing");
    }
}

#[test]
fn many_producers_and_tasks_that_breed_lose_nothing() {
    const PRODUCERS: usize = 4;
    const TASKS: usize = 2_000;
    let pool = pool(3);
    let ran = Arc::new(AtomicUsize::new(0));
    let producers: Vec<_> = (0..PRODUCERS)
        .map(|producer| {
            let (pool, ran) = (pool.clone(), ran.clone());
            thread::spawn(move || {
                for n in 0..TASKS {
                    let priority =
                        if (producer + n) % 3 == 0 { TaskPriority::Lazy } else { TaskPriority::Demanded };
                    let task = Task::new("parent", priority, {
                        let (pool, ran) = (pool.clone(), ran.clone());
                        move || {
                            let child_ran = ran.clone();
                            // Relaxed: counted before the shutdown that the reader waits for.
                            let child = demanded(move || {
                                child_ran.fetch_add(1, Ordering::Relaxed);
                            });
                            pool.dispatch(child).unwrap();
                            ran.fetch_add(1, Ordering::Relaxed);
                        }
                    });
                    pool.dispatch(task).unwrap();
                }
            })
        })
        .collect();
    for producer in producers {
        producer.join().unwrap();
    }
    // Not shut down yet: parents may still dispatch.
    while pool.metrics().finished < 2 * (PRODUCERS * TASKS) as u64 {
        thread::yield_now();
    }
    pool.shutdown();
    // Relaxed: after the shutdown.
    assert_eq!(ran.load(Ordering::Relaxed), 2 * PRODUCERS * TASKS);
}
