//! A pool while there is a program to link, no threads of ours once it runs.
//!
//! A program that runs as if the process were its own must not find other threads in it: the process ends
//! with the program's last thread (`pthread_exit` in `main`), and the child of a `fork` has all the threads
//! that its code expects. Code that is linked later, such as an archive's member that `dlsym` asks for, is
//! compiled on the thread that asks.

use std::any::Any;

use uruk::core::sync::{Arc, Latch, Mutex};
use uruk::core::{InPlaceTaskDispatcher, Task, TaskDispatcher, WaitError, Waiting};
use uruk::dispatch::{BuildError, WorkStealingTaskDispatcher};

/// A work-stealing pool that can be given up for in-place dispatch.
#[derive(Debug)]
pub(crate) struct RetiringDispatcher {
    /// Locked to read or take the pool; never while a task runs or a thread waits.
    pool: Mutex<Option<Arc<WorkStealingTaskDispatcher>>>,
    in_place: InPlaceTaskDispatcher,
}

impl RetiringDispatcher {
    /// A pool of `workers` threads for now.
    pub(crate) fn new(workers: usize) -> Result<Self, BuildError> {
        let pool = WorkStealingTaskDispatcher::builder().workers(workers).build()?;
        Ok(Self { pool: Mutex::new(Some(Arc::new(pool))), in_place: InPlaceTaskDispatcher::default() })
    }

    /// Ends the pool's threads, once they have done what they were given.
    pub(crate) fn retire(&self) {
        let pool = self.pool.lock().take();
        if let Some(pool) = pool {
            pool.shutdown();
        }
    }

    fn pool(&self) -> Option<Arc<WorkStealingTaskDispatcher>> {
        self.pool.lock().clone()
    }
}

impl TaskDispatcher for RetiringDispatcher {
    fn dispatch(&self, task: Task) -> Result<(), Task> {
        match self.pool() {
            // A pool that has begun to retire gives the task back.
            Some(pool) => pool.dispatch(task).or_else(|task| self.in_place.dispatch(task)),
            None => self.in_place.dispatch(task),
        }
    }

    fn runs_here(&self) -> Result<(), WaitError> {
        self.pool().map_or(Ok(()), |pool| pool.runs_here())
    }

    fn run_ready(&self) {
        if let Some(pool) = self.pool() {
            pool.run_ready();
        }
        self.in_place.run_ready();
    }

    fn wait(&self, latch: &Latch) -> Result<(), WaitError> {
        match self.pool() {
            Some(pool) => pool.wait(latch),
            None => self.in_place.wait(latch),
        }
    }

    fn blocking(&self, block: &mut dyn FnMut()) -> Result<(), WaitError> {
        match self.pool() {
            Some(pool) => pool.blocking(block),
            None => self.in_place.blocking(block),
        }
    }

    fn begins_to_wait(&self, task: Waiting) {
        if let Some(pool) = self.pool() {
            pool.begins_to_wait(task);
        }
    }

    fn waits_no_more(&self, task: Waiting) {
        if let Some(pool) = self.pool() {
            pool.waits_no_more(task);
        }
    }

    fn now_us(&self) -> Option<u32> {
        self.pool()?.now_us()
    }

    fn inspect(&self, reader: &mut dyn FnMut(&dyn Any)) {
        if let Some(pool) = self.pool() {
            pool.inspect(reader);
        }
    }

    fn shutdown(&self) {
        self.retire();
        self.in_place.shutdown();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uruk::core::TaskPriority;
    use uruk::core::sync::thread;

    fn thread_of_a_task(dispatcher: &RetiringDispatcher) -> thread::ThreadId {
        let (latch, ran_on) = (Arc::new(Latch::new()), Arc::new(Mutex::new(None)));
        let task = {
            let (latch, ran_on) = (latch.clone(), ran_on.clone());
            Task::new("test", TaskPriority::Demanded, move || {
                *ran_on.lock() = Some(thread::current().id());
                latch.open();
            })
        };
        dispatcher.dispatch(task).expect("the dispatcher takes work");
        dispatcher.run_ready();
        dispatcher.wait(&latch).expect("one wait is not too deep");
        ran_on.lock().expect("the task ran")
    }

    #[test]
    fn tasks_run_on_the_pool_before_and_in_place_after() {
        let dispatcher = RetiringDispatcher::new(1).expect("a pool of one can be built");
        assert_ne!(thread_of_a_task(&dispatcher), thread::current().id());
        dispatcher.retire();
        assert_eq!(thread_of_a_task(&dispatcher), thread::current().id());
        dispatcher.shutdown();
    }
}
