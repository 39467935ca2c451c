//! A dispatcher without threads that runs the most urgent task first, one at a time, when the test says so.

use std::collections::VecDeque;
use std::fmt;

use uruk_core::sync::{Latch, Mutex};
use uruk_core::{Task, TaskDispatcher, TaskPriority, WaitError};

/// Tasks by priority, until the test runs or drops them; a thread that waits runs them too.
#[derive(Default)]
pub struct ByPriority {
    queues: Mutex<Queues>,
}

#[derive(Default)]
struct Queues {
    tasks: [VecDeque<Task>; 4],
    closed: bool,
    refuses: bool,
}

impl ByPriority {
    /// Runs the oldest of the most urgent tasks, if there is any, and says how urgent it was.
    pub fn run_next(&self) -> Option<TaskPriority> {
        let task = self.queues.lock().tasks.iter_mut().rev().find_map(VecDeque::pop_front)?;
        let priority = task.priority();
        task.run();
        Some(priority)
    }

    /// Runs tasks until none is left.
    pub fn run_all(&self) {
        while self.run_next().is_some() {}
    }

    /// Runs tasks of that priority or a higher one until none is left.
    pub fn run_down_to(&self, priority: TaskPriority) {
        while self.most_urgent().is_some_and(|most_urgent| most_urgent >= priority) {
            self.run_next();
        }
    }

    /// How urgent the next task is.
    pub fn most_urgent(&self) -> Option<TaskPriority> {
        let queues = self.queues.lock();
        let tasks = queues.tasks.iter().rev().find_map(VecDeque::front)?;
        Some(tasks.priority())
    }

    /// How many tasks of one priority are queued.
    pub fn queued(&self, priority: TaskPriority) -> usize {
        self.queues.lock().tasks[priority as usize].len()
    }

    /// Drops the queued tasks of one priority unrun.
    pub fn drop_queued(&self, priority: TaskPriority) {
        let dropped = std::mem::take(&mut self.queues.lock().tasks[priority as usize]);
        drop(dropped);
    }

    /// Takes no tasks from now on, or does again, and keeps those it has.
    pub fn refuse(&self, refuses: bool) {
        self.queues.lock().refuses = refuses;
    }
}

impl fmt::Debug for ByPriority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ByPriority").finish_non_exhaustive()
    }
}

impl TaskDispatcher for ByPriority {
    fn dispatch(&self, task: Task) -> Result<(), Task> {
        let mut queues = self.queues.lock();
        if queues.closed || queues.refuses {
            return Err(task);
        }
        queues.tasks[task.priority() as usize].push_back(task);
        Ok(())
    }

    fn wait(&self, latch: &Latch) -> Result<(), WaitError> {
        while !latch.is_open() && self.run_next().is_some() {}
        latch.wait();
        Ok(())
    }

    fn shutdown(&self) {
        self.run_all();
        self.queues.lock().closed = true;
    }
}
