//! A dispatcher that keeps its tasks until the test runs or drops them, and tasks that note when they run.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use uruk_core::sync::Mutex;
use uruk_core::{Resource, Task, TaskDispatcher, TaskPriority};

/// A demanded task.
pub fn task(run: impl FnOnce() + Send + 'static) -> Task {
    urgent(TaskPriority::Demanded, run)
}

/// A task as urgent as that.
pub fn urgent(priority: TaskPriority, run: impl FnOnce() + Send + 'static) -> Task {
    Task::new("test", priority, run)
}

/// Keeps what it is given until the test runs or drops it.
#[derive(Debug, Default)]
pub struct Kept {
    tasks: Mutex<VecDeque<Task>>,
    closed: AtomicBool,
}

impl Kept {
    /// The task that came first.
    pub fn next(&self) -> Option<Task> {
        self.tasks.lock().pop_front()
    }

    /// Runs tasks until none is left.
    pub fn run_all(&self) {
        while let Some(task) = self.next() {
            task.run();
        }
    }
}

impl TaskDispatcher for Kept {
    fn dispatch(&self, task: Task) -> Result<(), Task> {
        if self.closed.load(Ordering::Relaxed) {
            return Err(task);
        }
        self.tasks.lock().push_back(task);
        Ok(())
    }

    fn shutdown(&self) {
        self.closed.store(true, Ordering::Relaxed);
    }
}

/// A dispatcher that keeps its tasks, and the same as sessions and queues take it.
pub fn kept() -> (Arc<Kept>, Arc<dyn TaskDispatcher>) {
    let kept = Arc::new(Kept::default());
    (kept.clone(), kept)
}

/// Notes, in the order of the calls.
#[derive(Clone, Debug, Default)]
pub struct Log(Arc<Mutex<Vec<&'static str>>>);

impl Log {
    /// A closure that notes `what` when it is called.
    pub fn note(&self, what: &'static str) -> impl FnOnce() + Send + 'static {
        let log = self.0.clone();
        move || log.lock().push(what)
    }

    /// The notes since the last time.
    pub fn taken(&self) -> Vec<&'static str> {
        std::mem::take(&mut self.0.lock())
    }
}

/// Counts when it is dropped.
#[derive(Debug)]
pub struct Drops(pub Arc<AtomicUsize>);

impl Drop for Drops {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

impl Resource for Drops {
    fn remove(self: Box<Self>) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        Ok(())
    }
}
