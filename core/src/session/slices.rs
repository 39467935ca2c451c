//! Slices: what a transaction could not finish is worked off in others, between which the lock is free.
//!
//! One thread attends to the work, the one whose transaction found it unattended; all others go on with their own. Under
//! sustained load others take over in turn, so that it returns (`protocol/settle.rs`). What a slice brings is handed on
//! before the next begins, but for what would run on this thread: code of the embedder must not find a thread above it
//! that has promised to come back.
//!
//! A thread that needs the end of a removal, because it is about to free what the symbols were made of, takes slices as
//! well until it is there.

use crate::protocol::SessionState;
use crate::protocol::effects::Effects;
use crate::protocol::settle::Attendance;
use crate::sync::weakened;

use super::drain::Coming;
use super::hand_on::Handed;
use super::{ExecutionSession, Live, Locked};

impl ExecutionSession {
    /// Attends to the work that is left until there is none or somebody takes over, beginning with the effects of the
    /// transaction that left it.
    #[inline(never)]
    pub(super) fn attend(&self, attendance: Attendance, attends: Coming<'_>, first: Option<Handed<'_>>) {
        if weakened("emit::leaves_its_slices") {
            return first.into_iter().for_each(|effects| self.hand_on(effects));
        }
        // Not even a task that the dispatcher drops runs before the last slice: it may wait for one.
        let held_back = crate::in_place::hold_back();
        first.into_iter().for_each(|effects| self.pass_on(effects));
        loop {
            let (more, effects) = self.locked(|locked| {
                let mut effects = Effects::default();
                let more = locked.state.slice(attendance, &mut effects);
                (more, self.counting(effects))
            });
            self.pass_on(effects);
            if !more {
                break;
            }
        }
        drop((attends, held_back));
        self.run_ready();
    }

    /// Runs an operation that removes trackers, and returns when their last row is gone.
    pub(crate) fn transact_removal<R>(
        &self,
        operation: impl FnOnce(&mut SessionState<Live>, &mut Effects<Live>) -> R,
    ) -> R {
        let (result, left) = self.transact(|state, effects| {
            let result = operation(state, effects);
            let condemnations = state.condemnations();
            (result, (!state.is_removed(condemnations)).then_some(condemnations))
        });
        if let Some(condemnations) = left {
            self.await_removals(condemnations);
        }
        result
    }

    /// Takes part in the work until the first `condemnations` removals are over.
    #[inline(never)]
    fn await_removals(&self, condemnations: u64) {
        let mut helped = false;
        // Only if another thread attends to the work; it may be the slower one.
        loop {
            let brought = self.locked(|Locked { state, .. }| {
                if state.is_removed(condemnations) {
                    return None;
                }
                let mut effects = Effects::default();
                state.help(&mut effects);
                Some(self.counting(effects))
            });
            let Some(effects) = brought else { break };
            helped = true;
            self.pass_on(effects);
        }
        if helped {
            self.run_ready();
        }
    }
}
