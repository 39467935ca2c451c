//! Removals: rows go under the lock, resources after it, and a close waits for both.
//!
//! A thread that needs the end of a removal, because it is about to free what the symbols were made of, takes slices of the
//! work that is left until it is there.

use crate::protocol::state::SessionState;
use crate::protocol::state::definitions::removing::Clearing;
use crate::protocol::state::effects::Effects;
use crate::session::resource::{PreparedResources, Registered, Removed};
use crate::sync::Arc;
use crate::{RemovalNumber, RemoveError, Resource};

use super::drain::Outstanding;
use super::{ExecutionSession, Live, Locked, frame};

/// Resources that a transaction has taken out: until they are removed a close waits for it. One of the session's tasks, whose
/// lookups are served and which may close the session itself.
#[must_use = "a close waits for it"]
pub(crate) struct RemovalTask(Outstanding);

impl RemovalTask {
    /// Removes `resources`, which are in the order of their registration, newest first and past errors.
    pub(crate) fn remove(self, dylib: Arc<str>, resources: Vec<Registered>) -> Result<(), RemoveError> {
        self.remove_by(dylib, resources, Resource::remove)
    }

    /// The same, each as `remove` does it.
    pub(crate) fn remove_by(
        self,
        dylib: Arc<str>,
        resources: Vec<Registered>,
        remove: impl FnMut(Box<dyn Resource>) -> Removed,
    ) -> Result<(), RemoveError> {
        self.run(|| PreparedResources::new(resources, RemovalNumber::next()).remove_by(dylib, remove))
    }

    /// Runs `removal`, and then, when it is counted no more, what was left to this thread meanwhile.
    pub(crate) fn run<R>(self, removal: impl FnOnce() -> R) -> R {
        let mut result = None;
        let ended = frame::run(self.0.session(), || result = Some(removal()));
        drop(self);
        crate::task::in_place::run_ready();
        match (result, ended) {
            (Some(result), _) => result,
            (None, Err(message)) => std::panic::resume_unwind(Box::new(message)),
            (None, Ok(())) => unreachable!("what has run has a result"),
        }
    }
}

/// The resources of a dylib that was cleared, in the order of their registration, tracker by tracker.
#[must_use = "a close waits for it"]
pub(crate) struct ClearedDylib {
    resources: Vec<Registered>,
    removal: RemovalTask,
}

/// The resources of a dylib that goes with its session, which know that.
#[must_use = "a close waits for it"]
pub(crate) struct PreparedDylib {
    resources: PreparedResources,
    removal: RemovalTask,
}

impl PreparedDylib {
    /// Removes the resources, newest first and past errors.
    pub(crate) fn remove(self, dylib: Arc<str>) -> Result<(), RemoveError> {
        self.removal.run(|| self.resources.remove_by(dylib, Resource::remove))
    }
}

impl ClearedDylib {
    /// Tells the resources that they are about to be removed, with those of other dylibs.
    pub(crate) fn prepare(self, number: RemovalNumber) -> PreparedDylib {
        PreparedDylib { resources: PreparedResources::new(self.resources, number), removal: self.removal }
    }

    /// Removes the resources, newest first and past errors.
    pub(crate) fn remove(self, dylib: Arc<str>) -> Result<(), RemoveError> {
        self.remove_by(dylib, Resource::remove)
    }

    /// The same, each as `remove` does it.
    pub(crate) fn remove_by(
        self,
        dylib: Arc<str>,
        remove: impl FnMut(Box<dyn Resource>) -> Removed,
    ) -> Result<(), RemoveError> {
        self.removal.remove_by(dylib, self.resources, remove)
    }
}

impl ExecutionSession {
    /// Runs an operation that removes trackers, and gives what it returns when their last row is gone; if that `holds`
    /// resources, with the task of their removal.
    pub(crate) fn transact_removal<R>(
        &self,
        operation: impl FnOnce(&mut SessionState<Live>, &mut Effects<Live>) -> R,
        holds: impl FnOnce(&R) -> bool,
    ) -> (R, Option<RemovalTask>) {
        let remove = |state: &mut SessionState<Live>, effects: &mut Effects<Live>| {
            let result = operation(state, effects);
            let removals_begun = state.definitions.removals_begun();
            (result, (!state.definitions.is_removed(removals_begun)).then_some(removals_begun))
        };
        let last_row = |(_, left): &(R, Option<u64>)| {
            if let Some(removals_begun) = *left {
                self.await_removals(removals_begun);
            }
        };
        let ((result, _), removal) = self.transact_taking(remove, |(result, _)| holds(result), last_row);
        (result, removal)
    }

    /// Runs an operation that takes resources out, and what has to come `before` they are removed. Gives what the operation
    /// returns; if that `holds` resources, with the task of their removal.
    pub(crate) fn transact_taking<R>(
        &self,
        operation: impl FnOnce(&mut SessionState<Live>, &mut Effects<Live>) -> R,
        holds: impl FnOnce(&R) -> bool,
        before: impl FnOnce(&R),
    ) -> (R, Option<RemovalTask>) {
        // A handler that runs here may close the session: not between the count and the frame of the removal.
        let held_back = crate::task::in_place::hold_back_all();
        let (result, removal) = self.transact(|state, effects| {
            let result = operation(state, effects);
            // Under the lock: a close that finds the resources gone sees the task that has them.
            let removal = holds(&result).then(|| RemovalTask(self.outstanding()));
            (result, removal)
        });
        before(&result);
        drop(held_back);
        if removal.is_none() {
            // A delivery is owed to the dispatcher; mostly there was none.
            crate::task::in_place::run_ready();
        }
        (result, removal)
    }

    /// Runs an operation that clears a dylib, if that is there, and gives what it leaves when its last row is gone: only then is it
    /// known which resources there are.
    pub(crate) fn transact_clearing(
        &self,
        operation: impl FnOnce(&mut SessionState<Live>, &mut Effects<Live>) -> Option<Clearing>,
    ) -> Option<ClearedDylib> {
        let clear = |state: &mut SessionState<Live>, effects: &mut Effects<Live>| {
            let clearing = operation(state, effects)?;
            // Mostly that was all.
            Some((clearing, state.definitions.take_cleared(clearing)))
        };
        let (begun, removal) = self.transact_removal(clear, Option::is_some);
        let ((clearing, cleared), removal) = begun.zip(removal)?;
        // Not by a transaction, whose handlers might close the session, which waits for the removal.
        let cleared =
            cleared.or_else(|| self.locked(|Locked { state, .. }| state.definitions.take_cleared(clearing)));
        let resources = cleared.expect("what was removed is gone").into_resources();
        Some(ClearedDylib { resources, removal })
    }

    /// Takes part in the work until the first `removals_begun` removals are over.
    #[inline(never)]
    fn await_removals(&self, removals_begun: u64) {
        // Only if another thread attends to the work; it may be the slower one.
        loop {
            let brought = self.locked(|Locked { state, .. }| {
                if state.definitions.is_removed(removals_begun) {
                    return None;
                }
                let mut effects = Effects::default();
                state.help(&mut effects);
                Some(self.take_effects(&mut effects))
            });
            let Some(effects) = brought else { break };
            self.deliver(effects);
        }
        self.run_ready();
    }
}
