//! The hang that helping causes, and that ours does not have.
//!
//! A worker that runs other tasks while it waits has them on its stack. Here the helped task waits for a step that the waiter
//! takes after its own wait: no graph has a cycle, and neither can go on.
//!
//! ```text
//!  waiter:   waits for `first` ──── `first` is open, but the helped task lies above ──── would open `second`
//!              └─ helped:  `first` opens ─ waits for `second` ───────────────── has nothing to run, and sleeps for ever
//! ```
#![cfg(not(uruk_loom))]

use std::cell::Cell;
use std::collections::VecDeque;

use uruk_core::sync::{Arc, Latch, Mutex};
use uruk_core::{Task, TaskDispatcher, TaskPriority, WaitError};
use uruk_dispatch::WorkStealingTaskDispatcher;

/// The scenario; says whether both tasks ended. One worker has to run them all.
fn both_end(dispatcher: &Arc<dyn TaskDispatcher>) -> bool {
    let [first, second, queued, done] = [(); 4].map(|()| Arc::new(Latch::new()));
    let ended = Arc::new(Mutex::new(0));
    let waiter = {
        let (dispatcher, first, second) = (dispatcher.clone(), first.clone(), second.clone());
        let (queued, ended) = (queued.clone(), ended.clone());
        move || {
            queued.wait();
            if dispatcher.wait(&first).is_ok() {
                *ended.lock() += 1;
            }
            second.open();
        }
    };
    let helped = {
        let (dispatcher, done, ended) = (dispatcher.clone(), done.clone(), ended.clone());
        move || {
            first.open();
            if dispatcher.wait(&second).is_ok() {
                *ended.lock() += 1;
            }
            done.open();
        }
    };
    dispatcher.dispatch(Task::new("waiter", TaskPriority::Demanded, waiter)).unwrap();
    dispatcher.dispatch(Task::new("helped", TaskPriority::Demanded, helped)).unwrap();
    queued.open();
    dispatcher.run_ready();
    done.wait();
    dispatcher.shutdown();
    *ended.lock() == 2
}

#[test]
fn a_pool_that_replaces_its_blocked_workers_comes_to_an_end() {
    for workers in [1, 2] {
        let builder = WorkStealingTaskDispatcher::builder().workers(workers);
        assert!(both_end(&(Arc::new(builder.build().unwrap()) as Arc<dyn TaskDispatcher>)));
    }
}

#[test]
fn a_worker_that_helps_does_not() {
    let helps = Arc::new(Helps::default());
    assert!(!both_end(&(helps.clone() as Arc<dyn TaskDispatcher>)));
    assert!(*helps.hung.lock(), "the lower wait was over, and the thread could not go on with it");
}

/// One worker, the thread that calls `run_ready`, which helps with any queued task while it waits. Where it would sleep for
/// ever it refuses the wait instead.
#[derive(Debug, Default)]
struct Helps {
    queue: Mutex<VecDeque<Task>>,
    hung: Mutex<bool>,
}

thread_local! {
    /// How many waits this thread is inside of.
    static WAITS: Cell<usize> = const { Cell::new(0) };
}

impl Helps {
    fn run_one(&self) -> bool {
        let task = self.queue.lock().pop_front();
        task.map(Task::run).is_some()
    }
}

impl TaskDispatcher for Helps {
    fn dispatch(&self, task: Task) -> Result<(), Task> {
        self.queue.lock().push_back(task);
        Ok(())
    }

    fn run_ready(&self) {
        while self.run_one() {}
    }

    fn wait(&self, latch: &Latch) -> Result<(), WaitError> {
        let depth = WAITS.get() + 1;
        WAITS.set(depth);
        while !latch.is_open() && self.run_one() {}
        WAITS.set(depth - 1);
        if latch.is_open() {
            return Ok(());
        }
        // Nothing is left to run, no other thread runs tasks, and the task that would open the latch lies beneath.
        *self.hung.lock() = depth > 1;
        Err(WaitError::TooDeep { depth })
    }

    fn shutdown(&self) {}
}
