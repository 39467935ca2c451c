//! What a blocked task holds delays no start: what it waits for may be in the background, and it gives nothing back before that
//! has run.
#![cfg(not(any(uruk_loom, uruk_shuttle)))]

#[path = "support/patience.rs"]
pub mod patience;

use patience::within_reason;
use uruk_core::sync::{Arc, Latch};
use uruk_core::{Limit, SerialQueue, Task, TaskDispatcher, TaskPriority};
use uruk_dispatch::WorkStealingTaskDispatcher;

use TaskPriority::{Demanded, Idle, Lazy, Speculative};

type Pool = Arc<WorkStealingTaskDispatcher>;

const CAP: usize = 1 << 10;

fn pool(workers: usize) -> Pool {
    let builder = WorkStealingTaskDispatcher::builder().workers(workers).stack_size_bytes(256 << 10);
    Arc::new(builder.memory_bytes_max(CAP).build().unwrap())
}

fn latch() -> Arc<Latch> {
    Arc::new(Latch::new())
}

/// A task that says that it has begun, and is at work until the second latch opens.
fn at_work(priority: TaskPriority, holding_bytes: usize) -> ([Arc<Latch>; 2], Task) {
    let [begun, end] = [latch(), latch()];
    let task = Task::new("at work", priority, {
        let [begun, end] = [begun.clone(), end.clone()];
        move || {
            begun.open();
            end.wait();
        }
    });
    ([begun, end], task.holding_bytes(holding_bytes))
}

fn occupy(pool: &Pool, priority: TaskPriority, holding_bytes: usize) -> Arc<Latch> {
    let ([begun, end], task) = at_work(priority, holding_bytes);
    pool.dispatch(task).unwrap();
    begun.wait();
    end
}

/// A task that holds all memory, has another one queued, and waits for it.
fn waits_for(pool: &Pool, priority: TaskPriority, made: &Arc<Latch>, needed: Task) -> Task {
    let (pool, made) = (pool.clone(), made.clone());
    let task = Task::new("waits", priority, move || {
        pool.dispatch(needed).unwrap();
        pool.blocking(|| made.wait()).unwrap();
    });
    task.holding_bytes(CAP)
}

fn makes(made: &Arc<Latch>, priority: TaskPriority) -> Task {
    let made = made.clone();
    Task::new("makes", priority, move || made.open()).holding_bytes(CAP)
}

/// ```text
///  worker 1: at work for somebody, until the end
///  worker 2: A holds all memory ─ queues B ─ waits for it
///  worker 3: asleep; B may start, although A holds what it does
/// ```
#[test]
fn what_a_blocked_task_waits_for_starts_beside_demanded_work() {
    within_reason(|| {
        for (waiting, needed) in
            [(Speculative, Speculative), (Speculative, Idle), (Lazy, Lazy), (Demanded, Idle)]
        {
            let pool = pool(3);
            let end = occupy(&pool, Demanded, 0);
            let made = latch();
            pool.dispatch(waits_for(&pool, waiting, &made, makes(&made, needed))).unwrap();
            made.wait();
            end.open();
            pool.shutdown();
            assert_eq!(pool.metrics().finished, 3);
        }
    });
}

/// Each of the chain holds all memory and waits for the next.
#[test]
fn a_chain_of_tasks_that_hold_all_memory_ends_beside_demanded_work() {
    fn link(pool: &Pool, length: usize, done: Arc<Latch>) -> Task {
        let inner = pool.clone();
        let run = move || {
            if length > 1 {
                let next = latch();
                inner.dispatch(link(&inner, length - 1, next.clone())).unwrap();
                inner.blocking(|| next.wait()).unwrap();
            }
            done.open();
        };
        Task::new("link", Speculative, run).holding_bytes(CAP)
    }
    within_reason(|| {
        let pool = pool(2);
        let end = occupy(&pool, Demanded, 0);
        let done = latch();
        pool.dispatch(link(&pool, 50, done.clone())).unwrap();
        done.wait();
        end.open();
        pool.shutdown();
        assert_eq!(pool.metrics().finished, 51);
    });
}

/// What is demanded waits behind the blocked turn, and so for what that waits for; its memory must not hold that back.
#[test]
fn what_waits_behind_a_blocked_turn_holds_back_nothing_that_the_turn_waits_for() {
    within_reason(|| {
        let pool = pool(3);
        let (queue, shared): (_, Arc<dyn TaskDispatcher>) = (SerialQueue::new(), pool.clone());
        let end = occupy(&pool, Demanded, 0);
        let [begun, queued, made] = [latch(), latch(), latch()];
        let turn = Task::new("turn", Speculative, {
            let (pool, begun, queued, made) = (pool.clone(), begun.clone(), queued.clone(), made.clone());
            move || {
                begun.open();
                queued.wait();
                pool.dispatch(makes(&made, Speculative)).unwrap();
                pool.blocking(|| made.wait()).unwrap();
            }
        });
        queue.dispatch(&shared, turn).unwrap();
        begun.wait();
        queue.dispatch(&shared, Task::new("behind", Demanded, || ()).holding_bytes(CAP)).unwrap();
        queued.open();
        made.wait();
        end.open();
        pool.shutdown();
        assert_eq!(pool.metrics().panicked, 0);
    });
}

/// Even where no memory at all may be held.
#[test]
fn what_is_in_the_background_starts_one_after_another_under_a_cap_of_nothing() {
    within_reason(|| {
        let builder = WorkStealingTaskDispatcher::builder().workers(2).stack_size_bytes(256 << 10);
        let pool = Arc::new(builder.memory_bytes_max(0).build().unwrap());
        let end = occupy(&pool, Lazy, CAP);
        let [first, second] = [Speculative, Idle].map(|priority| {
            let made = latch();
            pool.dispatch(makes(&made, priority)).unwrap();
            made
        });
        // Whoever has run this has looked for them before.
        occupy(&pool, Demanded, 0).open();
        assert!(!first.is_open() && !second.is_open());
        end.open();
        first.wait();
        second.wait();
        pool.shutdown();
    });
}

/// Back-pressure on producers goes by all that is held, by blocked tasks too; and it ends when the queue is empty, whatever they hold.
#[test]
fn what_a_blocked_task_holds_is_in_flight_for_producers() {
    within_reason(|| {
        let pool = pool(2);
        let [blocked, made] = [latch(), latch()];
        let blocks = Task::new("blocks", Lazy, {
            let (pool, blocked, made) = (pool.clone(), blocked.clone(), made.clone());
            move || {
                let wait = || {
                    blocked.open();
                    made.wait();
                };
                pool.blocking(wait).unwrap();
            }
        });
        pool.dispatch(blocks.holding_bytes(CAP)).unwrap();
        blocked.wait();
        // It has the only place in the background.
        let end = occupy(&pool, Speculative, 0);
        pool.dispatch(Task::new("queued", Speculative, || ())).unwrap();
        let reached = pool.admits(Speculative, 1).unwrap_err();
        assert_eq!((reached.limit, reached.level, reached.bound), (Limit::Memory, CAP, CAP));
        let producer = std::thread::spawn({
            let pool = pool.clone();
            move || pool.wait_for_room(Speculative, 1).unwrap()
        });
        end.open();
        producer.join().unwrap();
        made.open();
        pool.shutdown();
        assert_eq!(pool.metrics().finished, 3);
    });
}
