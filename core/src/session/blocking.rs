//! Blocking: waits that the session cannot see, declared.

use crate::sync::Latch;
use crate::{TaskDispatcher, TaskPriority, WaitError};

use super::{ExecutionSession, frame, holding};

impl ExecutionSession {
    /// Runs `block`, which may wait for something that the session cannot see: a join, a channel, a foreign pool.
    /// A pool lets another thread do this one's work meanwhile.
    ///
    /// The session does not know the end of that wait, so a deadlock through it is not reported: it hangs.
    ///
    /// # Concurrency
    /// In place the tasks that are queued on this thread run first: no other thread could run them.
    ///
    /// # Errors
    /// When the dispatcher or [`refuse_waits_while`](crate::ExecutionSessionBuilder::refuse_waits_while) refuses a wait, or the
    /// thread runs a [leaf](crate::Task::leaf); `block` has not been run then.
    pub fn blocking<R>(&self, block: impl FnOnce() -> R) -> Result<R, WaitError> {
        if let Some(refusal) = self.refuses_waits() {
            return Err(refusal);
        }
        frame::fail_dropped();
        crate::task::in_place::run_until(&Latch::new())?;
        let (mut block, mut result) = (Some(block), None);
        let dispatcher: &dyn TaskDispatcher = &*self.0.dispatcher;
        dispatcher.blocking(&mut || {
            if let Some(block) = block.take() {
                result = Some(block());
            }
        })?;
        match (result, block) {
            (Some(result), _) => Ok(result),
            // A dispatcher that has not run it has replaced no worker either.
            (None, Some(block)) => Ok(block()),
            (None, None) => {
                unreachable!("a block that was run has a result, or a panic that went through here")
            }
        }
    }

    /// Blocks until the dispatcher has room for the work of `priority` that a lookup of `symbols` symbols may bring about: for a
    /// producer of work in the background whose lookup was refused with [`LookupError::Overloaded`](crate::LookupError::Overloaded),
    /// or shall not be. Demanded and lazy work never waits. More symbols than may be queued have room when nothing is queued.
    ///
    /// Room that was found is not reserved: another producer may be faster, and then the lookup is refused once more.
    ///
    /// A thread on which others may wait does not wait, room or not: one that holds a responsibility or a generator's request, runs a
    /// task of a serial queue, or answers on behalf of a unit. Otherwise demanded work would wait for the start of background work. Its
    /// lookups on behalf of that unit are not refused either. A thread of the embedder's that works on a detached responsibility is not
    /// recognised, and should not call this.
    ///
    /// # Concurrency
    /// As [`blocking`](Self::blocking): a pool lets another thread do this one's work, and in place the tasks that are queued on this thread
    /// run first.
    ///
    /// # Errors
    /// As [`blocking`](Self::blocking).
    pub fn wait_for_room(&self, priority: TaskPriority, symbols: usize) -> Result<(), WaitError> {
        if self.0.dispatcher.admits(priority, symbols).is_ok() {
            return Ok(());
        }
        if let Some(refusal) = self.refuses_waits() {
            return Err(refusal);
        }
        if holding::is_waited_for(self.tag()) {
            return Ok(());
        }
        frame::fail_dropped();
        crate::task::in_place::run_until(&Latch::new())?;
        self.0.dispatcher.wait_for_room(priority, symbols)
    }

    /// Why this thread may not wait now, if so: it holds what others may need, or runs a leaf.
    pub(super) fn refuses_waits(&self) -> Option<WaitError> {
        if let Err(forked) = self.0.dispatcher.runs_here() {
            return Some(forked);
        }
        match self.0.held.and_then(|held| held()) {
            Some(held) => Some(WaitError::Holding { held }),
            None => crate::refuse_wait_in_leaf().err(),
        }
    }
}
