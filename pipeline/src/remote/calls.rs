//! [`CallQueue`]: first calls of an executor, which threads of the host answer.
//!
//! The thread that takes messages adds a call and never waits. Each call has a thread for itself, unless there are very many: it may wait for what
//! another one has compiled. Threads that have no call wait for the next one. Generic, so that a model runs this file.

use std::collections::VecDeque;

use uruk_core::sync::{Condvar, Mutex, weakened};

/// So many calls are answered at a time. More of them wait.
const THREADS_MAX: usize = 256;

/// Calls that no thread has taken yet, and the threads.
#[derive(Debug)]
pub(super) struct CallQueue<C> {
    state: Mutex<QueueState<C>>,
    changed: Condvar,
}

#[derive(Debug)]
struct QueueState<C> {
    waiting: VecDeque<C>,
    /// Threads, and those of them that answer no call.
    threads: usize,
    idle: usize,
    is_closed: bool,
}

impl<C> CallQueue<C> {
    pub(super) fn new() -> Self {
        let state = QueueState { waiting: VecDeque::new(), threads: 0, idle: 0, is_closed: false };
        Self { state: Mutex::new(state), changed: Condvar::new() }
    }

    /// Adds a call. Says whether it needs a thread that does not exist yet: the caller starts one, which [`take`](Self::take)s.
    #[must_use = "there may be no thread for it"]
    pub(super) fn add(&self, call: C) -> bool {
        let mut state = self.state.lock();
        if state.is_closed {
            return false;
        }
        state.waiting.push_back(call);
        // A thread that was woken for an earlier call counts as idle until it has taken that.
        let has_thread = if weakened("remote::counts_on_a_busy_thread") {
            state.idle > 0
        } else {
            state.idle >= state.waiting.len()
        };
        if has_thread || state.threads == THREADS_MAX {
            drop(state);
            self.changed.notify_all();
            return false;
        }
        state.threads += 1;
        true
    }

    /// There is no thread for the last call, although one was needed: the system refused it. Says whether there is any.
    pub(super) fn refused(&self) -> bool {
        let mut state = self.state.lock();
        state.threads -= 1;
        state.threads > 0
    }

    /// The next call, for a thread that has none. `None` at the end.
    pub(super) fn take(&self) -> Option<C> {
        let mut state = self.state.lock();
        state.idle += 1;
        loop {
            if state.is_closed {
                state.idle -= 1;
                state.threads -= 1;
                drop(state);
                self.changed.notify_all();
                return None;
            }
            if let Some(call) = state.waiting.pop_front() {
                state.idle -= 1;
                return Some(call);
            }
            state = self.changed.wait(state);
        }
    }

    /// Has the threads end that have no call. Calls that were not taken are dropped.
    pub(super) fn close(&self) {
        let mut state = self.state.lock();
        state.is_closed = true;
        state.waiting.clear();
        drop(state);
        if !weakened("remote::closes_in_silence") {
            self.changed.notify_all();
        }
    }

    /// Waits, once it is closed, until no thread answers a call.
    pub(super) fn wait_for_rest(&self) {
        let mut state = self.state.lock();
        while state.threads > 0 {
            state = self.changed.wait(state);
        }
    }
}
