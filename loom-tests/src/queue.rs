//! Queue: a dispatcher whose tasks run where the model says, so that a unit can be claimed and not started yet.

use std::collections::VecDeque;

use uruk_core::sync::{Condvar, Mutex};
use uruk_core::{Task, TaskDispatcher};

/// Tasks in the order in which they came, for whichever thread of the model takes them.
#[derive(Debug, Default)]
pub struct Queue {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    tasks: VecDeque<Task>,
    closed: bool,
}

impl Queue {
    /// The next task; waits for one, and gives none once the queue is closed and empty.
    pub fn next(&self) -> Option<Task> {
        let mut state = self.state.lock();
        loop {
            if let Some(task) = state.tasks.pop_front() {
                return Some(task);
            }
            if state.closed {
                return None;
            }
            state = self.changed.wait(state);
        }
    }

    /// Runs tasks until the queue is closed and empty.
    pub fn work(&self) {
        while let Some(task) = self.next() {
            task.run();
        }
    }
}

impl TaskDispatcher for Queue {
    fn dispatch(&self, task: Task) -> Result<(), Task> {
        let mut state = self.state.lock();
        if state.closed {
            return Err(task);
        }
        state.tasks.push_back(task);
        self.changed.notify_all();
        Ok(())
    }

    /// Takes no more tasks. The model joins the worker threads, which run the queued tasks.
    fn shutdown(&self) {
        self.state.lock().closed = true;
        self.changed.notify_all();
    }
}
