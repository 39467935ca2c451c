//! Tasks run on the threads of the host, the most urgent first, until the dispatcher is shut down.

use std::sync::mpsc;

use uruk_core::sync::atomic::{AtomicUsize, Ordering};
use uruk_core::sync::{Arc, Latch, Mutex};
use uruk_core::{Task, TaskDispatcher, TaskPriority};
use uruk_dispatch::RayonTaskDispatcher;

use super::{Dispatcher, count_one, demanded, host, inside};
use crate::patience::within_reason;

#[test]
fn tasks_run_on_the_hosts_threads() {
    let (pool, (send, ran)) = (host(2), mpsc::channel());
    let dispatcher = inside(&pool);
    for _ in 0..100 {
        let (send, pool) = (send.clone(), pool.clone());
        let (done, opens) = (Arc::new(Latch::new()), Arc::new(Latch::new()));
        let told = done.clone();
        let task = demanded(move || {
            opens.open();
            send.send(pool.current_thread_index().is_some()).unwrap();
            told.open();
        });
        dispatcher.dispatch(task).unwrap();
        // Not in the dispatcher's own wait, which would lend this thread's place to a spare.
        done.wait();
    }
    drop(send);
    // A machine under load may keep the pool from coming for longer than patience lasts.
    let here = ran.iter().filter(|ran_in_pool| *ran_in_pool).count();
    let metrics = dispatcher.metrics();
    assert_eq!(here as u64 + metrics.started_by_spares, 100);
    assert!(here > 0);
}

#[test]
fn a_chain_of_a_thousand_tasks_that_wait_for_the_next_ends_in_a_pool_of_one() {
    within_reason(|| {
        fn dispatch_chain(dispatcher: &Dispatcher, length: usize, done: Arc<Latch>) {
            let inner = dispatcher.clone();
            let task = demanded(move || {
                if length > 1 {
                    let next = Arc::new(Latch::new());
                    dispatch_chain(&inner, length - 1, next.clone());
                    inner.wait(&next).unwrap();
                }
                done.open();
            });
            dispatcher.dispatch(task).unwrap();
        }
        let dispatcher = inside(&host(1));
        let done = Arc::new(Latch::new());
        dispatch_chain(&dispatcher, 1000, done.clone());
        done.wait();
        dispatcher.shutdown();
        let metrics = dispatcher.metrics();
        assert_eq!((metrics.finished, metrics.blocked, metrics.queued.total()), (1000, 0, 0));
        // The spares have been joined. Each wait was one for which a spare stepped in, besides the one that looks at the clock.
        assert_eq!(metrics.spares, 0);
        assert!(metrics.started_threads <= 1001, "{metrics:?}");
    });
}

#[test]
fn the_most_urgent_task_is_taken_first() {
    let pool = host(1);
    let dispatcher = inside(&pool);
    // Two undeclared waits: one holds the host's thread, the other the spare that steps in for it.
    let held = [(); 2].map(|()| (Arc::new(Latch::new()), Arc::new(Latch::new())));
    for (begun, go_on) in held.clone() {
        let task = demanded(move || {
            begun.open();
            go_on.wait();
        });
        dispatcher.dispatch(task).unwrap();
    }
    held.iter().for_each(|(begun, _)| begun.wait());
    let log = Arc::new(Mutex::new(Vec::new()));
    use TaskPriority::{Demanded, Idle, Lazy, Speculative};
    for priority in [Idle, Lazy, Demanded, Speculative, Lazy, Demanded, Idle] {
        let log = log.clone();
        let task = Task::new("ordered", priority, move || log.lock().push(priority));
        dispatcher.dispatch(task).unwrap();
    }
    let last = Arc::new(Latch::new());
    let opens = last.clone();
    dispatcher.dispatch(Task::new("last", Idle, move || opens.open())).unwrap();
    // One of the two goes on, and takes them all.
    held[0].1.open();
    last.wait();
    held[1].1.open();
    dispatcher.shutdown();
    assert_eq!(*log.lock(), [Demanded, Demanded, Lazy, Lazy, Speculative, Idle, Idle]);
}

#[test]
fn a_shutdown_on_the_only_thread_of_the_host_runs_what_is_queued() {
    within_reason(|| {
        let pool = host(1);
        let dispatcher = inside(&pool);
        let inner = dispatcher.clone();
        let count = Arc::new(AtomicUsize::new(0));
        let counts = count.clone();
        pool.install(move || {
            for _ in 0..10 {
                let counts = counts.clone();
                inner.dispatch(demanded(move || count_one(&counts))).unwrap();
            }
            inner.shutdown();
            // Relaxed: the shutdown has waited for all of them.
            assert_eq!(counts.load(Ordering::Relaxed), 10);
            assert!(inner.dispatch(demanded(|| ())).is_err());
        });
        // Relaxed: as above.
        assert_eq!(count.load(Ordering::Relaxed), 10);
    });
}

/// A pool that is made of the thread which asks, and has no other.
#[test]
fn a_host_without_threads_of_its_own_is_one_whose_threads_never_come() {
    within_reason(|| {
        let host = rayon_core::ThreadPoolBuilder::new().num_threads(1).use_current_thread();
        let dispatcher = inside(&Arc::new(host.build().unwrap()));
        let count = Arc::new(AtomicUsize::new(0));
        for _ in 0..10 {
            let counts = count.clone();
            dispatcher.dispatch(demanded(move || count_one(&counts))).unwrap();
        }
        dispatcher.shutdown();
        // Relaxed: the shutdown has waited for all of them.
        assert_eq!(count.load(Ordering::Relaxed), 10);
    });
}

#[test]
fn a_dispatcher_inside_the_global_pool_works() {
    let dispatcher = RayonTaskDispatcher::in_global_pool().build().unwrap();
    let done = Arc::new(Latch::new());
    let opens = done.clone();
    dispatcher.dispatch(demanded(move || opens.open())).unwrap();
    dispatcher.wait(&done).unwrap();
    drop(dispatcher);
}
