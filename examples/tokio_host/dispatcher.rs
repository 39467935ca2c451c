//! Tasks of a session on the blocking threads of a tokio runtime.
//!
//! The pattern for any executor: tasks wait in the dispatcher's own queue, and the executor gets a *ticket*, which takes the
//! most urgent task once it is run. A ticket that the executor drops, because it ends, drops a task, which fails what it owned.

use std::cell::Cell;
use std::collections::VecDeque;

use tokio::runtime::Handle;
use uruk_core::sync::{Arc, Condvar, Mutex};
use uruk_core::{Task, TaskDispatcher};

/// Runs tasks with `spawn_blocking`. The threads of the reactor run none, and wait for none as long as they await
/// `lookup_future` and leave `lookup` to blocking threads.
///
/// A unit that blocks in a lookup costs a blocking thread for as long as it does. Of these the runtime has 512 unless
/// `max_blocking_threads` says otherwise: units that may nest deeper look up asynchronously.
#[derive(Debug)]
pub(crate) struct TokioTaskDispatcher {
    runtime: Handle,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    /// A task has ended, or waits in a shutdown, after the closing.
    progressed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// By priority, the least urgent first.
    queues: [VecDeque<Task>; 4],
    /// Tasks queued or running.
    pending: usize,
    /// Tasks that have called `shutdown`: none of them waits for another.
    closing: usize,
    closed: bool,
}

thread_local! {
    static RUNS_TASK: Cell<bool> = const { Cell::new(false) };
}

impl TokioTaskDispatcher {
    /// Runs tasks on the blocking threads of `runtime`.
    pub(crate) fn new(runtime: Handle) -> Self {
        Self { runtime, shared: Arc::default() }
    }
}

impl TaskDispatcher for TokioTaskDispatcher {
    fn dispatch(&self, task: Task) -> Result<(), Task> {
        {
            let mut state = self.shared.state.lock();
            if state.closed {
                return Err(task);
            }
            state.pending += 1;
            state.queues[task.priority() as usize].push_back(task);
        }
        let ticket = Ticket { shared: Some(self.shared.clone()) };
        // A runtime that has ended drops the ticket. Its result is of no interest to anybody.
        drop(self.runtime.spawn_blocking(move || ticket.honour()));
        Ok(())
    }

    fn shutdown(&self) {
        let inside = RUNS_TASK.get();
        let mut state = self.shared.state.lock();
        state.closed = true;
        state.closing += usize::from(inside);
        self.shared.progressed.notify_all();
        while state.pending > if inside { state.closing } else { 0 } {
            state = self.shared.progressed.wait(state);
        }
    }
}

/// Permission to take one task; one that the runtime drops takes it all the same, and drops it.
struct Ticket {
    /// None once it is honoured.
    shared: Option<Arc<Shared>>,
}

impl Ticket {
    fn honour(mut self) {
        let Some((task, _running)) = self.shared.take().and_then(Shared::take) else { return };
        let _inside = Inside::enter();
        // A panic is caught by the runtime; the guards are dropped on the way.
        task.run();
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        drop(self.shared.take().and_then(Shared::take));
    }
}

impl Shared {
    /// The most urgent task, and the guard that counts its end; to be dropped after the task.
    fn take(self: Arc<Self>) -> Option<(Task, Running)> {
        let task = self.state.lock().queues.iter_mut().rev().find_map(VecDeque::pop_front)?;
        Some((task, Running { shared: self }))
    }
}

/// A task that has not ended.
struct Running {
    shared: Arc<Shared>,
}

impl Drop for Running {
    fn drop(&mut self) {
        let mut state = self.shared.state.lock();
        state.pending -= 1;
        if state.closed {
            self.shared.progressed.notify_all();
        }
    }
}

/// This thread runs a task: a shutdown that it calls does not wait for that.
struct Inside;

impl Inside {
    fn enter() -> Self {
        RUNS_TASK.set(true);
        Self
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        RUNS_TASK.set(false);
    }
}
