//! Overload: producers wait for room while tasks wait in serial queues, and tickets become void; each task is counted out once.
//!
//! ```text
//!  producer                                 a turn of the serial queue
//!  watches: queued, in serial queues, turns begins ─ blocks: no turn is at work ─ watched? calls
//!  is there room? not while a turn is at work
//!  sleeps
//! ```
//!
//! Proven, in every order within the preemption bound: a producer goes on that waits for tasks behind a turn which blocks until the
//! producer has gone on; and a dispatcher that counts what is queued counts each ticket of a unit out once, whether it takes the
//! ticket from its queue or is told that another has taken the unit.
//!
//! **Fails if** one of these steps is left out:
//!
//! | weakening | in | caught by |
//! |---|---|---|
//! | `overload::producer_does_not_watch_turns`: who waits for room hears of queues alone | `dispatch/src/limits/room.rs` | `a_turn_that_blocks_lets_a_producer_go_on` |
//! | `overload::void_tickets_leave_twice`: a void ticket is not marked as counted out | `core/src/task/ticket.rs` | `each_ticket_is_counted_out_once` |
#![cfg(uruk_loom)]

use std::collections::VecDeque;

use loom_tests::stage::{Stage, model_within, resolve_and_emit};
use uruk_core::sync::{Arc, Latch, Mutex, thread};
use uruk_core::{SerialQueue, Task, TaskDispatcher, TaskPriority, Waiting};
use uruk_dispatch::WorkStealingTaskDispatcher;

loom_tests::catches_its_weakenings!();

/// ```text
///  turn:      begins ─ blocks until the latch is open .................. goes on, ends
///  producer:  waits for room, which is behind the turn ─ opens the latch
/// ```
#[test]
fn a_turn_that_blocks_lets_a_producer_go_on() {
    model_within(3, || {
        let builder = WorkStealingTaskDispatcher::builder().workers(1).speculative_queue_max(1);
        let pool = Arc::new(builder.build().expect("a small pool"));
        let dispatcher: Arc<dyn TaskDispatcher> = pool.clone();
        let (queue, produced) = (SerialQueue::new(), Arc::new(Latch::new()));
        let blocks = Task::new("blocks", TaskPriority::Demanded, {
            let (pool, produced) = (pool.clone(), produced.clone());
            move || pool.wait(&produced).expect("a thread can be had")
        });
        queue.dispatch(&dispatcher, blocks).expect("the pool is open");
        let waits = Task::new("waits", TaskPriority::Speculative, || ());
        queue.dispatch(&dispatcher, waits).expect("the pool is open");
        pool.wait_for_room(TaskPriority::Speculative, 1).expect("no worker");
        produced.open();
        pool.shutdown();
    });
}

/// Tasks for any thread, and how many of them are counted as queued.
#[derive(Debug, Default)]
struct Counts(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    idle: VecDeque<Task>,
    demanded: VecDeque<Task>,
    /// Of the idle ones.
    counted: isize,
}

impl Counts {
    /// Says whether there was one.
    fn run_one(&self, idle: bool) -> bool {
        let task = {
            let mut state = self.0.lock();
            if idle { state.idle.pop_front() } else { state.demanded.pop_front() }
        };
        let Some(task) = task else { return false };
        if idle && task.leaves_queue() {
            self.0.lock().counted -= 1;
        }
        task.run();
        true
    }
}

impl TaskDispatcher for Counts {
    fn dispatch(&self, task: Task) -> Result<(), Task> {
        let mut state = self.0.lock();
        match task.priority() {
            TaskPriority::Demanded => state.demanded.push_back(task),
            _ => {
                state.counted += 1;
                state.idle.push_back(task);
            }
        }
        Ok(())
    }

    fn waits_no_more(&self, task: Waiting) {
        assert_eq!((task.priority, task.in_serial_queue), (TaskPriority::Idle, false));
        self.0.lock().counted -= 1;
    }

    fn shutdown(&self) {}
}

/// ```text
///  one:  takes the idle ticket, counts it out ─ runs it        another: runs the demanded ticket, which voids the other
/// ```
#[test]
fn each_ticket_is_counted_out_once() {
    model_within(3, || {
        let counts = Arc::new(Counts::default());
        let stage = Stage::on(counts.clone());
        let name = stage.session.intern("name");
        stage.define(&[&name], resolve_and_emit);
        let wanted = [TaskPriority::Idle, TaskPriority::Demanded]
            .map(|priority| stage.session.lookup_future(stage.request(&name).at(priority)));
        assert_eq!(counts.0.lock().counted, 1);
        let one = thread::spawn({
            let counts = counts.clone();
            move || counts.run_one(true)
        });
        counts.run_one(false);
        one.join().expect("no panic");
        assert_eq!(counts.0.lock().counted, 0);
        // The task that answers the futures holds the session, which holds the dispatcher.
        while counts.run_one(false) || counts.run_one(true) {}
        drop(wanted);
    });
}
