//! Locked queues with the names of `crossbeam-deque`, for model builds.
//!
//! They have none of the deque's races, on purpose: a model that uses them checks what is built around the
//! queues. They never answer [`Steal::Retry`].

use std::collections::VecDeque;

use crossbeam_deque::Steal;
use uruk_core::sync::{Arc, Mutex};

/// A queue that anyone may push to and take from.
#[derive(Debug)]
pub(super) struct Injector<T>(Mutex<VecDeque<T>>);

impl<T> Injector<T> {
    pub(super) fn new() -> Self {
        Self(Mutex::new(VecDeque::new()))
    }

    pub(super) fn push(&self, item: T) {
        self.0.lock().push_back(item);
    }

    pub(super) fn steal(&self) -> Steal<T> {
        found(self.0.lock().pop_front())
    }

    /// Moves everything else over item by item, so that a model sees the moment in which it is nowhere.
    pub(super) fn steal_batch_and_pop(&self, local: &Worker<T>) -> Steal<T> {
        let mut batch = std::mem::take(&mut *self.0.lock());
        let first = batch.pop_front();
        for item in batch {
            local.push(item);
        }
        found(first)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.lock().is_empty()
    }
}

/// The owner's end of a queue.
#[derive(Debug)]
pub(super) struct Worker<T>(Arc<Mutex<VecDeque<T>>>);

impl<T> Worker<T> {
    pub(super) fn new_fifo() -> Self {
        Self(Arc::new(Mutex::new(VecDeque::new())))
    }

    pub(super) fn stealer(&self) -> Stealer<T> {
        Stealer(self.0.clone())
    }

    pub(super) fn push(&self, item: T) {
        self.0.lock().push_back(item);
    }

    pub(super) fn pop(&self) -> Option<T> {
        self.0.lock().pop_front()
    }
}

/// Everybody else's end of a [`Worker`].
#[derive(Debug)]
pub(super) struct Stealer<T>(Arc<Mutex<VecDeque<T>>>);

impl<T> Stealer<T> {
    pub(super) fn steal(&self) -> Steal<T> {
        found(self.0.lock().pop_front())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.lock().is_empty()
    }
}

fn found<T>(item: Option<T>) -> Steal<T> {
    item.map_or(Steal::Empty, Steal::Success)
}
