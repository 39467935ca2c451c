//! Slices: what a transaction could not finish is worked off in others, between which the lock is free.
//!
//! One thread attends to the work, the one whose transaction found it unattended; all others go on with their own. Under
//! sustained load others take over in turn, so that it returns (`protocol/settle.rs`). What a slice brings is handed on before the next begins, but for what would run on this thread: code of the embedder must
//! not find a thread above it that has promised to come back.
//!
//! A thread that needs the end of a removal, because it is about to free what the symbols were made of, takes slices as
//! well until it is there.

use crate::protocol::SessionState;
use crate::protocol::effects::Effects;
use crate::protocol::settle::Attendance;
use crate::sync::weakened;

use super::{ExecutionSession, Live, Locked};

impl ExecutionSession {
    /// Attends to the work that is left until there is none or somebody takes over, beginning with the effects of the
    /// transaction that left it.
    #[inline(never)]
    pub(super) fn attend(&self, attendance: Attendance, effects: Effects<Live>) {
        if weakened("emit::leaves_its_slices") {
            return self.hand_on(effects);
        }
        let attends = Attends(self, attendance);
        self.pass_on(effects);
        loop {
            let mut effects = Effects::default();
            let more = self.locked(|locked| locked.state.slice(attendance, &mut effects));
            self.pass_on(effects);
            if !more {
                break;
            }
        }
        attends.resign();
        self.run_ready();
    }

    /// Runs an operation that removes trackers, and returns when their last row is gone.
    pub(crate) fn transact_removal<R>(
        &self,
        operation: impl FnOnce(&mut SessionState<Live>, &mut Effects<Live>) -> R,
    ) -> R {
        let (result, condemnations) =
            self.transact(|state, effects| (operation(state, effects), state.condemnations()));
        let mut helped = false;
        // Only if another thread attends to the work; it may be the slower one.
        loop {
            let mut effects = Effects::default();
            let removed = self.locked(|Locked { state, .. }| {
                let removed = state.is_removed(condemnations);
                if !removed {
                    state.help(&mut effects);
                }
                removed
            });
            if removed {
                break;
            }
            helped = true;
            self.pass_on(effects);
        }
        if helped {
            self.run_ready();
        }
        result
    }
}

/// A thread that has promised to come back. If it cannot, because the dispatcher panicked, others take over.
struct Attends<'a>(&'a ExecutionSession, Attendance);

impl Attends<'_> {
    #[expect(clippy::mem_forget, reason = "nothing but the promise is forgotten, which was kept")]
    fn resign(self) {
        std::mem::forget(self);
    }
}

impl Drop for Attends<'_> {
    fn drop(&mut self) {
        self.0.locked(|locked| locked.state.abandon_slices(self.1));
    }
}
