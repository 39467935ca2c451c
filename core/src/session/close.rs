//! Closing a session: drain, then everything that is left fails.

use crate::resource::remove_resources;
use crate::sync::atomic::{AtomicUsize, Ordering};
use crate::sync::{Arc, Latch, Mutex, weakened};
use crate::{CloseError, RemoveError};

use super::{ExecutionSession, frame};

impl ExecutionSession {
    /// Closes the session: lets the work in progress finish, then fails what is left and removes all
    /// resources, newest dylib and newest tracker first.
    ///
    /// From the first moment lookups and definitions are refused, except those that the work in progress
    /// itself makes. When no task is left, queries that still wait (for a responsibility that somebody
    /// parked, say) end with [`LookupError::Closed`](crate::LookupError::Closed). Closing a closed session
    /// does nothing.
    ///
    /// # Concurrency
    /// Callable from any thread and from any task; from a task it waits for the other tasks only. A second
    /// call waits for the first, unless it comes from a task, which the first waits for.
    ///
    /// # Errors
    /// [`CloseError::Resources`] joins what the resources said. The session is closed all the same.
    ///
    /// Source: ORC `ExecutionSession::endSession`.
    pub fn close(&self) -> Result<(), CloseError> {
        let inside = frame::depth_of(self);
        let drain = &self.0.drain;
        if !self.transact(|state, _| state.start_closing()) {
            if inside == 0 && !weakened("close::second_call_does_not_wait") {
                // Failing to wait only means returning before the other call does.
                let _ = self.wait(&drain.closed);
            }
            return Ok(());
        }
        let drained = drain.start(inside);
        self.0.dispatcher.run_ready();
        crate::in_place::run_ready();
        // A wait refused for its depth leaves the rest to fail below.
        let _ = self.wait(&drained);
        let resources = self.transact(|state, effects| state.close(effects));
        let mut sources = Vec::new();
        for (dylib, resources) in resources {
            // In a frame: a resource that closes the session must not wait for this very call.
            let removed = frame::run(self, || remove_resources(dylib, resources));
            if let Ok(Err(RemoveError::Resources { sources: more, .. })) = removed {
                sources.extend(more);
            }
        }
        self.0.dispatcher.shutdown();
        drain.closed.open();
        if sources.is_empty() { Ok(()) } else { Err(CloseError::Resources { sources }) }
    }

    /// Whether this thread runs a task of the session, whose lookups and definitions are served while the
    /// session drains.
    pub(super) fn in_task(&self) -> bool {
        frame::depth_of(self) > 0
    }

    /// Counts a task in, until the guard is dropped.
    pub(super) fn outstanding(&self) -> Outstanding {
        // Relaxed: nothing is read on the strength of the count but the count itself. A task that counts
        // itself in while another closes comes from a task that is counted already.
        self.0.drain.word.fetch_add(ONE_TASK, Ordering::Relaxed);
        Outstanding(self.clone())
    }
}

/// Counts the tasks of a session that have not ended, in one word:
///
/// | word | meaning | who moves it |
/// |---|---|---|
/// | `2n` | n tasks, nobody waits for their end | every task: `+2` when made, `-2` when over |
/// | `2n + 1` | n tasks, the closing thread waits | `start` sets the lowest bit, once |
///
/// A task whose end leaves the bit set looks at the latch under the lock. Because one word holds count and
/// bit, either `start` sees the task gone or the task sees the bit.
#[derive(Debug, Default)]
pub(super) struct Drain {
    word: AtomicUsize,
    waiting: Mutex<Option<(usize, Arc<Latch>)>>,
    closed: Latch,
}

const ONE_TASK: usize = 2;
const WAITED_FOR: usize = 1;

impl Drain {
    /// A latch that opens when no more than `allowed` tasks are left.
    fn start(&self, allowed: usize) -> Arc<Latch> {
        let latch = Arc::new(Latch::new());
        let mut waiting = self.waiting.lock();
        *waiting = Some((allowed, latch.clone()));
        // Relaxed: the two sides agree on the order of this word's changes, and that is all they need.
        self.word.fetch_or(WAITED_FOR, Ordering::Relaxed);
        if !weakened("close::waits_without_looking") {
            self.open_if_drained(&waiting);
        }
        latch
    }

    fn open_if_drained(&self, waiting: &Option<(usize, Arc<Latch>)>) {
        // ordering[session-drained]: Acquire. Pairs with the Release in `Outstanding::drop`; whoever sees that the
        // tasks have ended, and opens the latch, sees what they did. Model: loom-tests/tests/close.rs.
        let acquire =
            if weakened("close::counts_without_acquire") { Ordering::Relaxed } else { Ordering::Acquire };
        if let Some((allowed, latch)) = waiting
            && self.word.load(acquire) / ONE_TASK <= *allowed
        {
            latch.open();
        }
    }
}

/// A task that has not ended.
pub(super) struct Outstanding(ExecutionSession);

impl Outstanding {
    pub(super) fn session(&self) -> &ExecutionSession {
        &self.0
    }
}

impl Drop for Outstanding {
    fn drop(&mut self) {
        let drain = &self.0.0.drain;
        // ordering[session-drained]: Release. Pairs with the Acquire in `Drain::open_if_drained`; what the task did
        // comes before the end of the close that waits for it.
        if drain.word.fetch_sub(ONE_TASK, Ordering::Release) & WAITED_FOR != 0
            && !weakened("close::last_task_tells_nobody")
        {
            drain.open_if_drained(&drain.waiting.lock());
        }
    }
}
