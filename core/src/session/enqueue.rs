//! Enqueueing: tasks go to the dispatcher, one by one, by the batch, or in place all at once.

use smallvec::SmallVec;

use crate::protocol::state::pending::ClaimedUnit;
use crate::protocol::storage::claimed_room::ClaimedRoom;
use crate::sync::Arc;
use crate::{SessionError, Task, TaskPriority};

use super::drain::Coming;
use super::queued_unit::QueuedUnits;
use super::{ClaimedUnits, ExecutionSession, Locked, Unit};

impl ExecutionSession {
    /// Gives a task to the dispatcher. If it is refused, the thread's own loop drops it, which fails
    /// what it owns, or runs it if it only tells somebody something.
    pub(super) fn enqueue(&self, task: Task) {
        if let Err(refused) = self.offer(task) {
            crate::in_place::defer_refused(refused);
        }
    }

    /// Gives a task to the dispatcher, which may refuse it. One that panics has dropped it.
    pub(super) fn offer(&self, task: Task) -> Result<(), Task> {
        let dispatcher = &self.0.dispatcher;
        let offered = crate::panics::guard(|| match task.serial_queue().cloned() {
            Some(queue) => queue.dispatch(dispatcher, task),
            None => dispatcher.dispatch(task),
        });
        offered.unwrap_or_else(|message| {
            self.defer_report(message);
            Ok(())
        })
    }

    /// The same for claimed units, a batch at a time.
    pub(super) fn enqueue_units(&self, claimed: SmallVec<[ClaimedUnit<Unit>; 1]>, coming: &mut Coming<'_>) {
        if let [_] = claimed[..] {
            return claimed.into_iter().for_each(|unit| self.enqueue(unit.into_task(coming.next())));
        }
        let Some(claimed) = self.enqueue_lazily(claimed.into_vec(), coming) else { return };
        let mut left = claimed.len();
        let mut tasks = Vec::with_capacity(left.min(BATCH_MAX));
        for unit in claimed {
            let task = unit.into_task(coming.next());
            match task.serial_queue() {
                // Its turn may not have come.
                Some(_) => self.enqueue(task),
                None => tasks.push(task),
            }
            left -= 1;
            if left == 0 || tasks.len() == BATCH_MAX {
                match crate::panics::guard(|| self.0.dispatcher.dispatch_all(&mut tasks)) {
                    Ok(()) => tasks.drain(..).for_each(crate::in_place::defer_refused),
                    Err(message) => {
                        self.defer_report(message);
                        tasks.drain(..).for_each(|task| self.enqueue(task));
                    }
                }
            }
        }
    }

    /// The same in place, where a unit becomes a task when its turn has come. Gives back what cannot wait for that: units with
    /// tickets, by which others may call them, or in serial queues, and all if the dispatcher is closed.
    fn enqueue_lazily(&self, claimed: ClaimedUnits, coming: &mut Coming<'_>) -> Option<ClaimedUnits> {
        let Some(dispatcher) = self.0.dispatcher.in_place() else { return Some(claimed) };
        if !claimed.iter().all(|unit| unit.is_plain()) {
            return Some(claimed);
        }
        let count = claimed.len();
        let queued = QueuedUnits::new(claimed, coming.later(count));
        let refused = dispatcher.dispatch_lazily(count, queued).err()?;
        refused.for_each(crate::in_place::defer_refused);
        None
    }

    /// Keeps the memory of a list of units for the next large lookup.
    pub(super) fn keep_room(&self, spent: ClaimedUnits) {
        if ClaimedRoom::wants(&spent) {
            let rest = self.locked(|Locked { state, .. }| state.claimed.keep(spent));
            drop(rest);
        }
    }

    /// Reports a panic of the dispatcher once nothing of ours is beneath.
    fn defer_report(&self, message: Arc<str>) {
        let session = self.clone();
        crate::in_place::defer(Task::new("session.report", TaskPriority::Demanded, move || {
            session.report(SessionError::Panicked { place: "the dispatcher", message });
        }));
    }
}

/// How many units are handed over at once. Enough that what a batch costs is nothing beside its units, and so few that
/// workers start on the first of ten thousand long before the last is wrapped.
const BATCH_MAX: usize = 64;
