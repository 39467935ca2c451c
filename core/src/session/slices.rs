//! Slices: what a transaction could not finish is worked off in others, between which the lock is free.
//!
//! One thread attends to the work, the one whose transaction found it unattended; all others go on with their own. Under
//! sustained load others take over in turn, so that it returns (`protocol/slices/settle.rs`). What a slice brings is handed on
//! before the next begins, but for what would run on this thread: code of the embedder must not find a thread above it
//! that has promised to come back.

use crate::protocol::slices::agenda::Attendance;
use crate::protocol::state::effects::Effects;
use crate::sync::weakened;

use super::ExecutionSession;
use super::drain::Coming;
use super::hand_on::Handed;

impl ExecutionSession {
    /// Attends to the work that is left until there is none or somebody takes over, beginning with the effects of the
    /// transaction that left it.
    #[inline(never)]
    pub(super) fn attend(&self, attendance: Attendance, attends: Coming<'_>, first: Option<Handed<'_>>) {
        if weakened("emit::leaves_its_slices") {
            return first.into_iter().for_each(|effects| self.hand_on(effects));
        }
        // Not even a task that the dispatcher drops or refuses runs before the last slice: it may wait for one. `pass_on` runs
        // nothing, and between two of them there is no code that could.
        first.into_iter().for_each(|effects| self.pass_on(effects));
        loop {
            let (more, effects) = self.locked(|locked| {
                let mut effects = Effects::default();
                let more = locked.state.slice(attendance, &mut effects);
                (more, self.counting(&mut effects))
            });
            self.pass_on(effects);
            if !more {
                break;
            }
        }
        drop(attends);
        self.run_ready();
    }
}
