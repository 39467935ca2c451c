//! Tasks that dispatchers refuse, and those that a thread runs for a lookup of its own, under any dispatcher (`session/on_caller.rs`).

use crate::Task;

use super::queue::Queued;
use super::{defer, run, run_ready, with};

/// Lets this thread run tasks queued with [`queue_here`] and tasks that dispatchers refuse, until the guard drops. Tasks left in the
/// queue by then run as soon as no loop of the thread lies beneath.
pub(crate) fn run_here() -> RunsHere {
    with(|thread| thread.here += 1);
    RunsHere
}

/// See [`run_here`].
pub(crate) struct RunsHere;

impl Drop for RunsHere {
    fn drop(&mut self) {
        with(|thread| thread.here -= 1);
        run_ready();
    }
}

/// Whether this thread runs tasks for a lookup of its own.
#[inline]
pub(crate) fn runs_here() -> bool {
    with(|thread| thread.here > 0).unwrap_or(false)
}

/// Queues tasks on this thread, for its next wait.
pub(crate) fn queue_here(tasks: impl Iterator<Item = Task>) {
    // The iterator runs code of the session, so this thread's record is not borrowed meanwhile.
    for task in tasks {
        let mut queued = Some(Queued::new(task, None));
        with(|thread| queued.take().into_iter().for_each(|queued| thread.queue.newest().push(queued)));
        // See `enqueue_all`.
        queued.into_iter().for_each(run);
    }
}

/// Queues the end of a task that a dispatcher has refused: it runs if it delivers an answer or a report, and is dropped
/// otherwise.
///
/// A thread that runs the units of its own lookup runs this one as well. A task of a serial queue has no turn to run in.
pub(crate) fn defer_refused(refused: Task) {
    if runs_here() && refused.serial_queue().is_none() && !refused.is_turn() {
        return queue_here(std::iter::once(refused));
    }
    let (label, priority) = (refused.keep_label(), refused.priority());
    defer(match refused.runs_when_refused() {
        true => refused,
        false => Task::new(label, priority, move || drop(refused)),
    });
}
