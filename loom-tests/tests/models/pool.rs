//! The work-stealing pool: nothing queued is forgotten, a blocked worker is replaced, shutdown ends. How its threads sleep and are woken
//! is in `sleep.rs`, alone.
//!
//! Proven, in every order with at most three preemptions (in large scenarios two): every task is run, every wait ends and every
//! thread is joined; a lost wake-up shows as loom's deadlock report.
//!
//! **Fails if** one of these steps is left out:
//!
//! | weakening | in | caught by |
//! |---|---|---|
//! | `pool::overlooks_deques`: the looks forget what lies in the deques of slots | `dispatch/src/queues.rs` | `the_last_searcher_calls_for_another` |
//! | `pool::counts_tasks_without_acquire` | `dispatch/src/gate.rs` | `a_task_that_shuts_down_sees_what_others_did` |
//! | `pool::sleeps_without_a_second_look` | `dispatch/src/sleep.rs` | `an_idle_pool_wakes_up_for_the_next_task` |
//! | `pool::sleeps_without_a_second_look`: the same, where the pool is closed and its last task ends | `dispatch/src/sleep.rs` | `a_worker_dispatches_during_shutdown` |
//! | `pool::last_searcher_leaves_without_a_look` | `dispatch/src/sleep.rs` | `the_last_searcher_calls_for_another` |
//! | `pool::vacates_without_a_look` | `dispatch/src/sleep.rs` | `a_blocked_worker_is_replaced` |
//! | `pool::stops_without_a_look` | `dispatch/src/sleep.rs` | `shutdown_runs_what_was_admitted` |
//! | `pool::counts_a_slot_before_it_lies_there` | `dispatch/src/pool.rs` | `a_task_comes_while_a_worker_blocks` |
//! | `pool::closes_without_waking` | `dispatch/src/pool.rs` | `shutdown_ends_a_sleeping_worker` |
//! | `pool::admits_by_an_earlier_look` | `dispatch/src/gate.rs` | `a_task_dispatched_during_shutdown_is_run_or_given_back` |
//! | `pool::admits_by_an_earlier_look`: the same, of a turn | `dispatch/src/gate.rs` | `a_turn_that_is_handed_over_during_shutdown_is_run_once` |
//! | `pool::lifts_without_a_look` | `dispatch/src/sleep.rs` | `a_thread_that_retires_calls_for_what_its_task_held_back` |
//! | `pool::producer_looks_before_it_watches` | `dispatch/src/limits/room.rs` | `a_producer_that_waits_for_room_gets_it` |
//! | `pool::room_tells_nobody` | `dispatch/src/limits/room.rs` | `a_producer_that_waits_for_room_gets_it` |
//! | `pool::blocked_tasks_keep_their_place`: a blocked task still counts among those of the background | `dispatch/src/pool/blocked.rs` | `a_task_starts_in_the_place_of_the_blocked_one_that_waits_for_it` |
//! | `pool::keeps_places_while_it_searches`: a worker that finds nothing at hand still counts for tasks that have ended | `dispatch/src/worker.rs` | `shutdown_ends_a_sleeping_worker` |
//! | `pool::keeps_places_while_it_searches`: the same, where one of its tasks has closed the pool | `dispatch/src/worker.rs` | `a_task_may_shut_its_pool_down` |
//! | `pool::keeps_places_while_it_blocks`: the same of one that blocks | `dispatch/src/pool/blocked.rs` | `a_task_that_follows_another_may_shut_its_pool_down` |
//! | `pool::overlooks_turns`: the looks forget the lane | `dispatch/src/queues.rs` | `a_turn_that_is_handed_over_wakes_a_worker` |
#![cfg(uruk_loom)]

use loom::sync::atomic::{AtomicUsize, Ordering};
use uruk_core::sync::{Arc, Latch};
use uruk_core::{InPlaceTaskDispatcher, SerialQueue, Task, TaskDispatcher, TaskPriority};
use uruk_dispatch::WorkStealingTaskDispatcher;

/// Explores every order with at most three preemptions: one more than the rows of its scenarios need.
fn model(scenario: impl Fn() + Sync + Send + 'static) {
    model_within(3, scenario);
}

/// The same with two, where a third takes minutes.
fn large_model(scenario: impl Fn() + Sync + Send + 'static) {
    model_within(2, scenario);
}

/// The protocols of a pool have more branches than loom's default allows.
fn model_within(preemptions: usize, scenario: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound.get_or_insert(preemptions);
    builder.max_branches = 10_000;
    builder.check(scenario);
}

fn pool(workers: usize) -> Arc<WorkStealingTaskDispatcher> {
    Arc::new(WorkStealingTaskDispatcher::builder().workers(workers).build().expect("a small pool"))
}

fn dispatch(pool: &WorkStealingTaskDispatcher, run: impl FnOnce() + Send + 'static) {
    dispatch_as(pool, TaskPriority::Demanded, run);
}

fn dispatch_as(
    pool: &WorkStealingTaskDispatcher,
    priority: TaskPriority,
    run: impl FnOnce() + Send + 'static,
) {
    pool.dispatch(Task::new("modelled", priority, run)).expect("the pool is open");
}

#[test]
fn an_idle_pool_wakes_up_for_the_next_task() {
    model(|| {
        let pool = pool(1);
        for _ in 0..2 {
            let done = Arc::new(Latch::new());
            dispatch(&pool, {
                let done = done.clone();
                move || done.open()
            });
            done.wait();
        }
        pool.shutdown();
    });
}

/// ```text
///  worker 1: A writes ─ counts itself out
///  worker 2: B shuts down: A is counted no more ─ B reads what A wrote
/// ```
#[test]
fn a_task_that_shuts_down_sees_what_others_did() {
    large_model(|| {
        let pool = pool(2);
        let written = Arc::new(AtomicUsize::new(0));
        dispatch(&pool, {
            let written = written.clone();
            // Relaxed: the gate makes it visible.
            move || written.store(1, Ordering::Relaxed)
        });
        dispatch(&pool, {
            let pool = pool.clone();
            move || {
                pool.shutdown();
                assert_eq!(written.load(Ordering::Relaxed), 1);
            }
        });
        pool.shutdown();
    });
}

/// The first task waits for the second in a way that the pool cannot see.
///
/// ```text
///  producer: push 1 ─ push 2 (sees a searcher, wakes none)
///  worker:            searching ─ takes 1, and was the last searcher: must call for another ─ runs 1 ...
///  other:                                                                     takes 2 ─ ends 1's wait
/// ```
#[test]
fn the_last_searcher_calls_for_another() {
    large_model(|| {
        let pool = pool(2);
        let second_ran = Arc::new(Latch::new());
        dispatch(&pool, {
            let second_ran = second_ran.clone();
            move || second_ran.wait()
        });
        dispatch(&pool, move || second_ran.open());
        pool.shutdown();
    });
}

#[test]
fn a_blocked_worker_is_replaced() {
    large_model(|| {
        let pool = pool(1);
        let done = Arc::new(Latch::new());
        dispatch(&pool, {
            let (pool, done) = (pool.clone(), done.clone());
            move || {
                let other = done.clone();
                dispatch(&pool, move || other.open());
                pool.wait(&done).expect("a thread can be had");
            }
        });
        done.wait();
        pool.shutdown();
    });
}

/// The task that ends the wait comes from elsewhere, at any moment of it.
///
/// ```text
///  worker:   its slot goes to the list ─ counts it as vacant ─ looks ─ waits
///  producer: push ─ notify: everybody at work, or a vacant slot to start a thread in
/// ```
#[test]
fn a_task_comes_while_a_worker_blocks() {
    large_model(|| {
        let pool = pool(1);
        let done = Arc::new(Latch::new());
        dispatch(&pool, {
            let (pool, done) = (pool.clone(), done.clone());
            move || pool.wait(&done).expect("a thread can be had")
        });
        dispatch(&pool, move || done.open());
        pool.shutdown();
    });
}

/// One place for background tasks, and one worker. The first loses its slot while it blocks, and takes its place again when it goes on;
/// so the second may find no place, and the worker falls asleep over it. When the first ends, its thread is one too many.
///
/// ```text
///  first:    blocks ........ goes on, the place is taken ─ ends, lifts the limit ─ no slot is vacant: looks, calls, retires
///  other:    takes the slot ─ opens the latch ─ searches: no place for the second ─ sleeps ............... takes the second
/// ```
#[test]
fn a_thread_that_retires_calls_for_what_its_task_held_back() {
    model(|| {
        let pool = pool(1);
        let (go_on, done) = (Arc::new(Latch::new()), Arc::new(Latch::new()));
        dispatch_as(&pool, TaskPriority::Speculative, {
            let (pool, go_on) = (pool.clone(), go_on.clone());
            move || pool.wait(&go_on).expect("a thread can be had")
        });
        dispatch(&pool, move || go_on.open());
        dispatch_as(&pool, TaskPriority::Speculative, {
            let done = done.clone();
            move || done.open()
        });
        done.wait();
        pool.shutdown();
    });
}

/// ```text
///  worker:    takes the task: one less is queued ─ watched? calls
///  producer:  watches ─ is there room? ─ sleeps
/// ```
#[test]
fn a_producer_that_waits_for_room_gets_it() {
    model(|| {
        let pool = WorkStealingTaskDispatcher::builder().workers(1).speculative_queue_max(1).build();
        let pool = pool.expect("a small pool");
        dispatch_as(&pool, TaskPriority::Speculative, || ());
        pool.wait_for_room(TaskPriority::Speculative, 1).expect("no worker");
        assert!(pool.admits(TaskPriority::Speculative, 1).is_ok(), "nobody else dispatches");
        pool.shutdown();
    });
}

/// ```text
///  worker:       runs a task, which has the only place in the background; that blocks ─ the place is free, its slot is vacant ─ looks
///  replacement:  takes the task that the first one waits for
/// ```
#[test]
fn a_task_starts_in_the_place_of_the_blocked_one_that_waits_for_it() {
    large_model(|| {
        let pool = pool(1);
        let made = Arc::new(Latch::new());
        dispatch_as(&pool, TaskPriority::Speculative, {
            let (pool, made) = (pool.clone(), made.clone());
            move || pool.wait(&made).expect("a thread can be had")
        });
        dispatch_as(&pool, TaskPriority::Speculative, move || made.open());
        pool.shutdown();
    });
}

/// Puts `run` behind a turn of this thread's; who calls what is returned ends that, and hands over to the pool.
fn turn_behind_this_thread(
    pool: &Arc<WorkStealingTaskDispatcher>,
    run: impl FnOnce() + Send + 'static,
) -> impl FnOnce() {
    let (queue, here) = (SerialQueue::new(), Arc::new(InPlaceTaskDispatcher::default()));
    let (first, second): (Arc<dyn TaskDispatcher>, Arc<dyn TaskDispatcher>) = (here.clone(), pool.clone());
    queue.dispatch(&first, Task::new("first", TaskPriority::Demanded, || ())).expect("it is open");
    queue.dispatch(&second, Task::new("second", TaskPriority::Demanded, run)).expect("it waits");
    move || here.run_ready()
}

/// ```text
///  worker:      looks, finds nothing ─ counts itself as sleeping ─ looks again, in the lane too
///  this thread: push to the lane ─ notify: sees a searcher, wakes none
/// ```
#[test]
fn a_turn_that_is_handed_over_wakes_a_worker() {
    model(|| {
        let pool = pool(1);
        let done = Arc::new(Latch::new());
        let hand_over = turn_behind_this_thread(&pool, {
            let done = done.clone();
            move || done.open()
        });
        dispatch(&pool, || ());
        hand_over();
        done.wait();
        pool.shutdown();
    });
}

/// ```text
///  closer: shutdown      this thread: hands over ─ admitted, and run by the pool; or refused, and run here
/// ```
#[test]
fn a_turn_that_is_handed_over_during_shutdown_is_run_once() {
    model(|| {
        let pool = pool(1);
        let ran = Arc::new(AtomicUsize::new(0));
        let hand_over = turn_behind_this_thread(&pool, {
            let ran = ran.clone();
            move || {
                ran.fetch_add(1, Ordering::Relaxed);
            }
        });
        let closer = loom::thread::spawn({
            let pool = pool.clone();
            move || pool.shutdown()
        });
        hand_over();
        closer.join().expect("the closer ends");
        assert_eq!(ran.load(Ordering::Relaxed), 1);
    });
}

/// ```text
///  worker:  looks, finds nothing, sleeps          closer: closes, wakes all, joins
/// ```
#[test]
fn shutdown_ends_a_sleeping_worker() {
    model(|| {
        let pool = pool(1);
        let done = Arc::new(Latch::new());
        dispatch(&pool, {
            let done = done.clone();
            move || done.open()
        });
        done.wait();
        pool.shutdown();
    });
}

/// A task dispatches while the pool is shut down: the new task runs exactly if it was admitted.
#[test]
fn a_worker_dispatches_during_shutdown() {
    model(|| {
        let pool = pool(1);
        let (admitted, ran) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        dispatch(&pool, {
            let (pool, admitted, ran) = (pool.clone(), admitted.clone(), ran.clone());
            move || {
                let task = Task::new("late", TaskPriority::Demanded, move || {
                    ran.fetch_add(1, Ordering::Relaxed);
                });
                admitted.store(usize::from(pool.dispatch(task).is_ok()), Ordering::Relaxed);
            }
        });
        pool.shutdown();
        assert_eq!(ran.load(Ordering::Relaxed), admitted.load(Ordering::Relaxed));
    });
}

#[test]
fn shutdown_runs_what_was_admitted() {
    large_model(|| {
        let pool = pool(2);
        let ran = Arc::new(AtomicUsize::new(0));
        for _ in 0..2 {
            let ran = ran.clone();
            dispatch(&pool, move || {
                ran.fetch_add(1, Ordering::Relaxed);
            });
        }
        pool.shutdown();
        assert_eq!(ran.load(Ordering::Relaxed), 2);
    });
}

/// ```text
///  closer: shutdown      producer: dispatch ─ admitted, and then run; or given back
/// ```
#[test]
fn a_task_dispatched_during_shutdown_is_run_or_given_back() {
    model(|| {
        let pool = pool(1);
        let ran = Arc::new(AtomicUsize::new(0));
        let closer = loom::thread::spawn({
            let (pool, ran) = (pool.clone(), ran.clone());
            move || {
                pool.shutdown();
                ran.load(Ordering::Relaxed)
            }
        });
        let task = Task::new("late", TaskPriority::Lazy, {
            let ran = ran.clone();
            move || {
                ran.fetch_add(1, Ordering::Relaxed);
            }
        });
        let given_back = pool.dispatch(task).is_err();
        let ran_before_the_end = closer.join().expect("the closer ends");
        assert_eq!(ran_before_the_end, usize::from(!given_back));
        pool.shutdown();
        assert_eq!(ran.load(Ordering::Relaxed), ran_before_the_end);
    });
}

#[test]
fn a_task_may_shut_its_pool_down() {
    model(|| {
        let pool = pool(1);
        dispatch(&pool, {
            let pool = pool.clone();
            move || pool.shutdown()
        });
        pool.shutdown();
    });
}

/// The second is found at hand by the worker that has run the first, which has not been counted out then.
#[test]
fn a_task_that_follows_another_may_shut_its_pool_down() {
    model(|| {
        let pool = pool(1);
        let second_runs = Arc::new(Latch::new());
        dispatch(&pool, {
            let (pool, second_runs) = (pool.clone(), second_runs.clone());
            move || {
                let closes = pool.clone();
                dispatch(&pool, move || {
                    second_runs.open();
                    closes.shutdown();
                });
            }
        });
        second_runs.wait();
        pool.shutdown();
    });
}

loom_tests::catches_its_weakenings!();
