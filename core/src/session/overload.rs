//! Overload: who would bring about work in the background is refused while the dispatcher has enough of that.
//!
//! **Architecture Invariant:** what a claim needs is never refused. It would fail symbols, and what is in flight would wait for
//! room that it has to make itself.

use crate::protocol::lookup::Search;
use crate::{LookupError, TaskPriority};

use super::{ExecutionSession, holding};

impl ExecutionSession {
    /// Why a lookup may not start now, if so: it asks for no more than speculative or idle work, on behalf of no unit, of a
    /// dispatcher that admits no more. One that would wait for nothing is let through, and whoever would not be kept waiting for
    /// room ([`Self::wait_for_room`]): it would ask in vain.
    pub(super) fn overloaded_by(&self, search: &mut Search) -> Option<LookupError> {
        if search.asked_by.is_some() || !search.aliases.is_empty() || holding::is_waited_for(self.tag()) {
            return None;
        }
        let admits = |priority| self.0.dispatcher.admits(priority, search.symbols.len());
        match search.priority {
            Some(TaskPriority::Lazy | TaskPriority::Demanded) => None,
            Some(priority) => {
                let reached = admits(priority).err()?;
                let ends_at_once = self.transact(|state, _| state.ends_at_once(search));
                (!ends_at_once).then_some(LookupError::Overloaded { priority, reached })
            }
            // It is as urgent as what it finds.
            None => {
                let (idle, speculative) = (admits(TaskPriority::Idle), admits(TaskPriority::Speculative));
                if idle.is_ok() && speculative.is_ok() {
                    return None;
                }
                let priority = self.transact(|state, _| state.urgency_of_what_it_claims(search))?;
                let reached = match priority {
                    TaskPriority::Idle => idle.err()?,
                    TaskPriority::Speculative => speculative.err()?,
                    TaskPriority::Lazy | TaskPriority::Demanded => return None,
                };
                Some(LookupError::Overloaded { priority, reached })
            }
        }
    }
}
