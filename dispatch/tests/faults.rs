//! Faults around a pool: tasks that panic, threads that cannot be had, shutdown at awkward moments.
#![cfg(not(uruk_loom))]

use uruk_core::sync::atomic::{AtomicUsize, Ordering};
use uruk_core::sync::{Arc, Latch, thread};
use uruk_core::{Task, TaskDispatcher, TaskPriority};
use uruk_dispatch::{BuildError, WorkStealingTaskDispatcher};

fn pool(workers: usize) -> Arc<WorkStealingTaskDispatcher> {
    Arc::new(WorkStealingTaskDispatcher::builder().workers(workers).build().unwrap())
}

fn demanded(run: impl FnOnce() + Send + 'static) -> Task {
    Task::new("test", TaskPriority::Demanded, run)
}

/// Counts how often it is dropped.
struct Owned(Arc<AtomicUsize>);

impl Drop for Owned {
    fn drop(&mut self) {
        // Relaxed: read after a shutdown, or on the same thread.
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

fn count(counter: &AtomicUsize) -> usize {
    // Relaxed: read after a shutdown, or on the same thread.
    counter.load(Ordering::Relaxed)
}

#[test]
fn a_pool_of_no_workers_or_of_nameless_threads_is_refused() {
    let refused = WorkStealingTaskDispatcher::builder().workers(0).build();
    assert!(matches!(refused, Err(BuildError::WorkerCount { workers: 0, .. })), "{refused:?}");
    let refused = WorkStealingTaskDispatcher::builder().thread_name_prefix("nul\0").build();
    assert!(matches!(refused, Err(BuildError::ThreadName { .. })), "{refused:?}");
    assert!(WorkStealingTaskDispatcher::builder().workers(usize::MAX).build().is_err());
}

#[test]
fn a_pool_that_has_nothing_to_do_starts_no_thread() {
    let pool = pool(4);
    assert_eq!(pool.metrics().started_threads, 0);
    pool.shutdown();
    assert_eq!(pool.metrics().started_threads, 0);
}

#[test]
fn panics_are_counted_and_the_same_thread_goes_on() {
    let pool = pool(1);
    for _ in 0..100 {
        pool.dispatch(demanded(|| panic!("a task's own affair"))).unwrap();
    }
    let done = Arc::new(Latch::new());
    pool.dispatch(demanded({
        let done = done.clone();
        move || done.open()
    }))
    .unwrap();
    done.wait();
    pool.shutdown();
    let metrics = pool.metrics();
    assert_eq!((metrics.finished, metrics.panicked, metrics.started_threads), (101, 100, 1));
}

/// A payload whose drop panics with another of its kind would unwind for ever if each were dropped.
#[test]
fn a_panic_payload_that_panics_when_dropped_does_no_harm() {
    struct Nasty;
    impl Drop for Nasty {
        fn drop(&mut self) {
            std::panic::panic_any(Nasty);
        }
    }
    let pool = pool(1);
    pool.dispatch(demanded(|| std::panic::panic_any(Nasty))).unwrap();
    pool.dispatch(demanded(|| ())).unwrap();
    pool.shutdown();
    assert_eq!(pool.metrics().finished, 2);
    assert_eq!(pool.metrics().panicked, 1);
}

#[test]
fn a_thread_that_cannot_be_started_is_an_error_and_the_task_comes_back() {
    // More address space than there is.
    let pool = WorkStealingTaskDispatcher::builder().workers(2).stack_size_bytes(1 << 50).build().unwrap();
    let drops = Arc::new(AtomicUsize::new(0));
    let owned = Owned(drops.clone());
    let refused = pool.dispatch(Task::new("refused", TaskPriority::Lazy, move || drop(owned)));
    let task = refused.expect_err("there is no thread to run it");
    assert_eq!(task.label(), "refused");
    drop(task);
    assert_eq!(count(&drops), 1);
    let metrics = pool.metrics();
    assert_eq!((metrics.threads, metrics.started_threads), (0, 0));
    assert_eq!(metrics.refused_threads, 1);
    assert_eq!(metrics.queued.total(), 0);
    pool.shutdown();
}

#[test]
fn a_batch_is_run_as_a_whole_or_comes_back_as_a_whole() {
    let batch = |ran: &Arc<AtomicUsize>| -> Vec<Task> {
        let kinds = [TaskPriority::Idle, TaskPriority::Demanded, TaskPriority::Demanded, TaskPriority::Lazy];
        kinds
            .map(|priority| {
                let owned = Owned(ran.clone());
                Task::new("one of many", priority, move || drop(owned))
            })
            .into()
    };
    let pool = pool(2);
    let ran = Arc::new(AtomicUsize::new(0));
    let mut tasks = batch(&ran);
    pool.dispatch_all(&mut tasks);
    assert!(tasks.is_empty());
    // From inside a task, whose worker keeps demanded tasks.
    pool.dispatch(demanded({
        let (pool, mut tasks) = (pool.clone(), batch(&ran));
        move || {
            pool.dispatch_all(&mut tasks);
            assert!(tasks.is_empty());
            pool.shutdown();
        }
    }))
    .unwrap();
    while pool.dispatch(demanded(|| ())).is_ok() {
        thread::yield_now();
    }
    pool.shutdown();
    assert_eq!((count(&ran), pool.metrics().panicked), (8, 0));
    let mut tasks = batch(&ran);
    pool.dispatch_all(&mut tasks);
    assert_eq!((tasks.len(), pool.metrics().queued.total()), (4, 0));

    let threadless =
        WorkStealingTaskDispatcher::builder().workers(2).stack_size_bytes(1 << 50).build().unwrap();
    threadless.dispatch_all(&mut tasks);
    assert_eq!((tasks.len(), threadless.metrics().queued.total()), (4, 0));
    drop(tasks);
    assert_eq!(count(&ran), 12);
    threadless.shutdown();
}

#[test]
fn shutdown_runs_what_is_queued_and_gives_back_what_comes_later() {
    let pool = pool(2);
    let (begun, go_on) = (Arc::new(Latch::new()), Arc::new(Latch::new()));
    let ran = Arc::new(AtomicUsize::new(0));
    for _ in 0..2 {
        let (begun, go_on) = (begun.clone(), go_on.clone());
        pool.dispatch(demanded(move || {
            begun.open();
            go_on.wait();
        }))
        .unwrap();
    }
    for priority in
        [TaskPriority::Idle, TaskPriority::Speculative, TaskPriority::Lazy, TaskPriority::Demanded]
    {
        let owned = Owned(ran.clone());
        pool.dispatch(Task::new("queued", priority, move || drop(owned))).unwrap();
    }
    begun.wait();
    let closer = thread::spawn({
        let pool = pool.clone();
        move || pool.shutdown()
    });
    // The closing happens before the wait for the two tasks ends, so sooner or later tasks come back.
    while pool.dispatch(demanded(|| ())).is_ok() {
        thread::yield_now();
    }
    go_on.open();
    closer.join().unwrap();
    assert_eq!(count(&ran), 4);
    pool.shutdown();
    let metrics = pool.metrics();
    assert_eq!((metrics.threads, metrics.running.total(), metrics.queued.total()), (0, 0, 0));
}

#[test]
fn shutdown_from_its_only_worker_runs_the_others_first() {
    let pool = pool(1);
    let (queued, done) = (Arc::new(Latch::new()), Arc::new(Latch::new()));
    let ran = Arc::new(AtomicUsize::new(0));
    pool.dispatch(demanded({
        let (pool, queued, done, ran) = (pool.clone(), queued.clone(), done.clone(), ran.clone());
        move || {
            queued.wait();
            pool.shutdown();
            pool.shutdown();
            assert_eq!(count(&ran), 10);
            assert!(pool.dispatch(demanded(|| ())).is_err());
            done.open();
        }
    }))
    .unwrap();
    for _ in 0..10 {
        let owned = Owned(ran.clone());
        pool.dispatch(demanded(move || drop(owned))).unwrap();
    }
    queued.open();
    done.wait();
    pool.shutdown();
    assert_eq!(pool.metrics().panicked, 0);
    assert_eq!(pool.metrics().finished, 11);
}

#[test]
fn all_tasks_may_shut_down_at_once() {
    let pool = pool(2);
    for _ in 0..8 {
        let task = demanded({
            let pool = pool.clone();
            move || pool.shutdown()
        });
        // The first that runs closes the pool for the others.
        drop(pool.dispatch(task));
    }
    pool.shutdown();
    assert_eq!(pool.metrics().running.total(), 0);
}

#[test]
fn a_dispatcher_dropped_with_tasks_queued_runs_them() {
    let ran = Arc::new(AtomicUsize::new(0));
    let pool = WorkStealingTaskDispatcher::builder().workers(1).build().unwrap();
    let go_on = Arc::new(Latch::new());
    pool.dispatch(demanded({
        let go_on = go_on.clone();
        move || go_on.wait()
    }))
    .unwrap();
    for _ in 0..10 {
        let owned = Owned(ran.clone());
        pool.dispatch(Task::new("queued", TaskPriority::Idle, move || drop(owned))).unwrap();
    }
    go_on.open();
    drop(pool);
    assert_eq!(count(&ran), 10);
}

#[test]
fn a_task_may_drop_the_last_handle_of_its_pool() {
    let pool = pool(1);
    let (handed_over, ended) = (Arc::new(Latch::new()), Arc::new(Latch::new()));
    let ran = Arc::new(AtomicUsize::new(0));
    pool.dispatch(demanded({
        let (handle, handed_over) = (pool.clone(), handed_over.clone());
        move || {
            handed_over.wait();
            drop(handle);
        }
    }))
    .unwrap();
    pool.dispatch(demanded({
        let (owned, ended) = (Owned(ran.clone()), ended.clone());
        move || {
            drop(owned);
            ended.open();
        }
    }))
    .unwrap();
    drop(pool);
    handed_over.open();
    ended.wait();
    assert_eq!(count(&ran), 1);
}
