//! Threads of ours that step in where those of the host are blocked.

use std::sync::mpsc;

use uruk_core::sync::{Arc, Latch, Mutex, thread};
use uruk_core::{Task, TaskDispatcher, TaskPriority, WaitError};
use uruk_dispatch::{BuildError, RayonTaskDispatcher};

use super::{demanded, host, inside, is_spare, occupy};
use crate::patience::within_reason;

#[test]
fn a_wait_on_a_host_thread_is_served_by_a_spare() {
    let pool = host(1);
    let dispatcher = inside(&pool);
    let (by_spare, inner) = (Arc::new(Mutex::new(None)), dispatcher.clone());
    let told = by_spare.clone();
    pool.install(move || {
        let done = Arc::new(Latch::new());
        let opens = done.clone();
        let task = demanded(move || {
            *told.lock() = Some(is_spare());
            opens.open();
        });
        inner.dispatch(task).unwrap();
        inner.wait(&done).unwrap();
    });
    assert_eq!(*by_spare.lock(), Some(true), "the only thread of the host waits");
    dispatcher.shutdown();
}

/// The undeclared wait of a host thread.
#[test]
fn a_host_whose_threads_all_block_undeclared_stops_nothing() {
    within_reason(|| {
        let pool = host(2);
        let dispatcher = inside(&pool);
        let occupied = [occupy(&pool), occupy(&pool)];
        let (send, ran) = mpsc::channel();
        for index in 0..10 {
            let send = send.clone();
            dispatcher.dispatch(demanded(move || send.send((index, is_spare())).unwrap())).unwrap();
        }
        drop(send);
        assert_eq!(ran.iter().collect::<Vec<_>>(), (0..10).map(|index| (index, true)).collect::<Vec<_>>());
        occupied.iter().for_each(|latch| latch.open());
        dispatcher.shutdown();
        assert_eq!(dispatcher.metrics().started_by_spares, 10);
    });
}

#[test]
fn spares_retire_when_there_is_nothing_to_do() {
    let pool = host(1);
    let dispatcher = inside(&pool);
    let gate = Arc::new(Latch::new());
    for _ in 0..50 {
        let (inner, gate) = (dispatcher.clone(), gate.clone());
        dispatcher.dispatch(demanded(move || inner.wait(&gate).unwrap())).unwrap();
    }
    while dispatcher.metrics().blocked < 50 {
        thread::yield_now();
    }
    assert!(dispatcher.metrics().spares <= 51, "{:?}", dispatcher.metrics());
    gate.open();
    while dispatcher.metrics().spares > 0 {
        thread::yield_now();
    }
    // And come back.
    let done = Arc::new(Latch::new());
    let opens = done.clone();
    dispatcher.dispatch(demanded(move || opens.open())).unwrap();
    done.wait();
    dispatcher.shutdown();
}

#[test]
fn spares_that_cannot_be_started_are_errors_only_where_nobody_is_left() {
    let pool = host(1);
    // More address space than there is.
    let dispatcher =
        Arc::new(RayonTaskDispatcher::in_pool(pool.clone()).stack_size_bytes(1 << 50).build().unwrap());
    // The host's thread is there to run it.
    let ran = Arc::new(Latch::new());
    let opens = ran.clone();
    dispatcher.dispatch(demanded(move || opens.open())).unwrap();
    dispatcher.wait(&ran).unwrap();
    // It is about to wait for a task that no other thread would run.
    let done = Arc::new(Latch::new());
    let (inner, opens, waits) = (dispatcher.clone(), done.clone(), done.clone());
    let refused = pool.install(move || {
        inner.dispatch(demanded(move || opens.open())).unwrap();
        inner.wait(&waits)
    });
    assert_eq!(refused, Err(WaitError::NoThread { queued: 1 }));
    // It waits no longer, so it runs the task.
    done.wait();
    // Nothing is queued when it begins to wait, and no more is taken until it ends.
    let (begun, go_on) = (Arc::new(Latch::new()), Arc::new(Latch::new()));
    let (inner, begins, waits) = (dispatcher.clone(), begun.clone(), go_on.clone());
    pool.spawn(move || {
        let wait = &mut || {
            begins.open();
            waits.wait();
        };
        inner.blocking(wait).unwrap();
    });
    begun.wait();
    let gave_back = dispatcher.dispatch(Task::new("refused", TaskPriority::Lazy, || ()));
    assert_eq!(gave_back.unwrap_err().label(), "refused");
    go_on.open();
    dispatcher.shutdown();
    let metrics = dispatcher.metrics();
    assert_eq!((metrics.finished, metrics.started_threads, metrics.queued.total()), (2, 0, 0));
    assert!(metrics.refused_threads > 0);
}

#[test]
fn spares_that_nobody_could_name_are_refused() {
    let refused = RayonTaskDispatcher::in_pool(host(1)).thread_name_prefix("a\0b").build();
    assert!(matches!(refused, Err(BuildError::ThreadName { .. })), "{refused:?}");
}
