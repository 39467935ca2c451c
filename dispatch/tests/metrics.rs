//! The metrics of a pool, by priority.
#![cfg(not(uruk_loom))]

use uruk_core::sync::{Arc, Latch};
use uruk_core::{Task, TaskDispatcher, TaskPriority};
use uruk_dispatch::WorkStealingTaskDispatcher;

use TaskPriority::{Demanded, Idle, Lazy, Speculative};

#[test]
fn tasks_are_queued_running_and_replaced_by_priority_and_so_are_their_waits() {
    let pool = Arc::new(WorkStealingTaskDispatcher::builder().workers(1).measure_waits().build().unwrap());
    let [begun, go_on, queued, end] = [(); 4].map(|()| Arc::new(Latch::new()));
    pool.dispatch(Task::new("blocks", Lazy, {
        let (inner, begun, go_on) = (pool.clone(), begun.clone(), go_on.clone());
        move || {
            begun.open();
            inner.wait(&go_on).unwrap();
        }
    }))
    .unwrap();
    begun.wait();
    pool.dispatch(Task::new("runs", Demanded, {
        let (queued, end) = (queued.clone(), end.clone());
        move || {
            queued.open();
            end.wait();
        }
    }))
    .unwrap();
    queued.wait();
    for priority in [Idle, Idle, Speculative, Demanded] {
        pool.dispatch(Task::new("waits", priority, || ())).unwrap();
    }
    let metrics = pool.metrics();
    assert_eq!([Demanded, Lazy, Speculative, Idle].map(|priority| metrics.queued[priority]), [1, 0, 1, 2]);
    assert_eq!([Demanded, Lazy, Speculative, Idle].map(|priority| metrics.running[priority]), [1, 1, 0, 0]);
    assert_eq!([Demanded, Lazy].map(|priority| metrics.replaced[priority]), [0, 1]);
    assert_eq!((metrics.threads, metrics.blocked, metrics.surplus), (2, 1, 0));
    assert_eq!([Demanded, Lazy, Idle].map(|priority| metrics.waits[priority].count()), [1, 1, 0]);
    go_on.open();
    end.open();
    pool.shutdown();
    let metrics = pool.metrics();
    let waits = [Demanded, Lazy, Speculative, Idle].map(|priority| metrics.waits[priority].count());
    assert_eq!(waits, [2, 1, 1, 2]);
    assert_eq!((metrics.finished, metrics.running.total(), metrics.queued.total()), (6, 0, 0));
}

#[test]
fn waits_are_not_measured_unless_somebody_asks() {
    let pool = WorkStealingTaskDispatcher::builder().workers(1).build().unwrap();
    pool.dispatch(Task::new("test", Demanded, || ())).unwrap();
    pool.shutdown();
    assert_eq!(pool.metrics().waits[Demanded].count(), 0);
}

/// The yields of one worker that runs a task of priority `first` while tasks of the `queued` priorities are added one after
/// another.
fn yields(first: TaskPriority, queued: &[TaskPriority]) -> u64 {
    let pool = WorkStealingTaskDispatcher::builder().workers(1).build().unwrap();
    let [begun, go_on] = [(); 2].map(|()| Arc::new(Latch::new()));
    let (begins, waits) = (begun.clone(), go_on.clone());
    let task = Task::new("first", first, move || {
        begins.open();
        waits.wait();
    });
    pool.dispatch(task).unwrap();
    begun.wait();
    for &priority in queued {
        pool.dispatch(Task::new("queued", priority, || ())).unwrap();
    }
    go_on.open();
    pool.shutdown();
    pool.metrics().yielded
}

/// The thread that waits for a demanded task may be waiting for the worker's processor too.
#[test]
fn a_worker_yields_when_it_turns_from_what_is_demanded_to_what_nobody_waits_for() {
    for background in [Idle, Speculative] {
        assert_eq!(yields(Demanded, &[background]), 1);
        assert_eq!(yields(Demanded, &[background, background]), 1, "the second comes after the first");
        assert_eq!(yields(Demanded, &[background, Demanded, Demanded]), 1, "when nothing demanded is left");
        assert_eq!(yields(background, &[Demanded, background]), 1);
        assert_eq!(yields(Demanded, &[Lazy, background]), 0, "a first call waits for the next");
        assert_eq!(yields(background, &[background]), 0);
    }
    assert_eq!(yields(Demanded, &[Demanded, Lazy]), 0);
}
