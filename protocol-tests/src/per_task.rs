//! A dispatcher with a thread for each task, as a host may have one: a task that blocks delays no other.

use std::thread::{self, JoinHandle};

use uruk_core::sync::Mutex;
use uruk_core::{Task, TaskDispatcher};

/// Runs each task on a thread of its own.
#[derive(Debug, Default)]
pub struct PerTask {
    threads: Mutex<Threads>,
}

#[derive(Debug, Default)]
struct Threads {
    started: Vec<JoinHandle<()>>,
    closed: bool,
}

impl TaskDispatcher for PerTask {
    fn dispatch(&self, task: Task) -> Result<(), Task> {
        let mut threads = self.threads.lock();
        if threads.closed {
            return Err(task);
        }
        threads.started.push(thread::spawn(move || task.run()));
        Ok(())
    }

    fn shutdown(&self) {
        let started = {
            let mut threads = self.threads.lock();
            threads.closed = true;
            std::mem::take(&mut threads.started)
        };
        let this = thread::current().id();
        for thread in started.into_iter().filter(|thread| thread.thread().id() != this) {
            thread.join().expect("what tasks panic with is caught in them");
        }
    }
}
