//! The time from demand to start can be read off a pool: a unit that was raised counts from there, and where it is demanded.

use std::sync::Arc;
use std::time::{Duration, Instant};

use protocol_tests::*;
use uruk_core::sync::{Latch, Mutex};
use uruk_core::{SerialQueue, Task, TaskPriority};
use uruk_dispatch::{WaitHistogram, WorkStealingTaskDispatcher};

use TaskPriority::{Demanded, Idle};

/// Buckets end at powers of two, in microseconds: that of times of at least so many and less than twice that.
fn bucket_from(wait_us: u64) -> usize {
    wait_us.trailing_zeros() as usize + 1
}

fn counts(waits: &WaitHistogram) -> Vec<(usize, u64)> {
    waits.buckets().iter().copied().enumerate().filter(|&(_, count)| count > 0).collect()
}

/// ```text
///  worker: at work ............................................................. ends ─ unit
///  unit:             asked for, idle ── 4096 us ──▶ demanded ── 64 us ──▶ starts
/// ```
#[test]
fn a_unit_that_is_raised_counts_from_its_demand_to_its_start() {
    within_reason(|| {
        let now = Arc::new(Mutex::new(Instant::now()));
        let clock = now.clone();
        let passes = |us| *now.lock() += Duration::from_micros(us);
        let pool = WorkStealingTaskDispatcher::builder().workers(1).measure_waits();
        let pool = Arc::new(pool.clock(Arc::new(move || *clock.lock())).build().unwrap());
        let (session, main) = session_on(pool.clone());
        let [begun, end] = [(); 2].map(|()| Arc::new(Latch::new()));
        session.dispatch(Task::new("at work", Demanded, {
            let (begun, end) = (begun.clone(), end.clone());
            move || {
                begun.open();
                end.wait();
            }
        }));
        begun.wait();
        define_simple(&main, "unit", &["a"]);
        let idle = look_up_later(&session, request(&main, &["a"]).at(Idle));
        passes(4096);
        let demanded = look_up_later(&session, request(&main, &["a"]).at(Demanded));
        passes(64);
        end.open();
        demanded.recv().unwrap().unwrap();
        idle.recv().unwrap().unwrap();
        session.close().unwrap();
        let waits = pool.metrics().waits;
        let demanded = counts(&waits[Demanded]);
        // The first task, and answers, began at once.
        assert!(matches!(demanded[..], [(0, _), (bucket, 1)] if bucket == bucket_from(64)), "{demanded:?}");
        // Its first place in the queues was reached after all that time.
        assert_eq!(counts(&waits[Idle]), [(bucket_from(4096), 1)]);
    });
}

/// ```text
///  queue's turn: at work ............................ ends ─ unit
///  unit:                   demanded ── 512 us ──────▶ starts
/// ```
#[test]
fn what_waits_for_its_turn_in_a_serial_queue_counts_from_its_demand() {
    within_reason(|| {
        let now = Arc::new(Mutex::new(Instant::now()));
        let clock = now.clone();
        let pool = WorkStealingTaskDispatcher::builder().workers(2).measure_waits();
        let pool = Arc::new(pool.clock(Arc::new(move || *clock.lock())).build().unwrap());
        let (session, main) = session_on(pool.clone());
        let queue = SerialQueue::new();
        let [begun, end] = [(); 2].map(|()| Arc::new(Latch::new()));
        let at_work = Task::new("at work", Demanded, {
            let (begun, end) = (begun.clone(), end.clone());
            move || {
                begun.open();
                end.wait();
            }
        });
        session.dispatch(at_work.in_queue(&queue));
        begun.wait();
        let unit = TestUnit::new("unit", exported(&session, &["a"]), finish);
        main.define(unit.in_queue(&queue).boxed()).unwrap();
        let demanded = look_up_later(&session, request(&main, &["a"]).at(Demanded));
        *now.lock() += Duration::from_micros(512);
        end.open();
        demanded.recv().unwrap().unwrap();
        session.close().unwrap();
        let demanded = counts(&pool.metrics().waits[Demanded]);
        assert!(matches!(demanded[..], [(0, _), (bucket, 1)] if bucket == bucket_from(512)), "{demanded:?}");
    });
}

#[test]
fn a_clock_that_panics_costs_no_task() {
    let pool = WorkStealingTaskDispatcher::builder().workers(1).measure_waits();
    let first = Mutex::new(true);
    // The first time it is asked is in `build`.
    let clock = move || if std::mem::take(&mut *first.lock()) { Instant::now() } else { panic!("no time") };
    let pool = Arc::new(pool.clock(Arc::new(clock)).build().unwrap());
    let (session, main) = session_on(pool.clone());
    define_simple(&main, "unit", &["a"]);
    session.lookup_symbol(&order(&main), &session.intern("a")).unwrap();
    session.close().unwrap();
    assert_eq!(pool.metrics().waits[Demanded].count(), 0);
}
