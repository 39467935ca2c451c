//! [`JobQueue`]: requests for code to run, in the order in which they came.
//!
//! The thread that reads the channel publishes code by itself, and adds the requests to run some. So code is published before a request that
//! comes after it is taken. Generic, so that a model runs this file.

use std::collections::VecDeque;

use uruk_core::sync::{Condvar, Mutex, weakened};

/// Requests that wait for the first thread.
#[derive(Debug)]
pub(super) struct JobQueue<J> {
    waiting: Mutex<VecDeque<J>>,
    added: Condvar,
}

impl<J> JobQueue<J> {
    pub(super) fn new() -> Self {
        Self { waiting: Mutex::new(VecDeque::new()), added: Condvar::new() }
    }

    /// Adds a request.
    pub(super) fn add(&self, job: J) {
        self.waiting.lock().push_back(job);
        if !weakened("remote::adds_in_silence") {
            self.added.notify_one();
        }
    }

    /// The next request. Waits until there is one.
    pub(super) fn take(&self) -> J {
        let mut waiting = self.waiting.lock();
        loop {
            match waiting.pop_front() {
                Some(job) => return job,
                None => waiting = self.added.wait(waiting),
            }
        }
    }
}
