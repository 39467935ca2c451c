//! Overload: who would bring about work in the background is refused while the dispatcher has enough of that.
//!
//! **Architecture Invariant:** what a claim needs is never refused. It would fail symbols, and what is in flight would wait for
//! room that it has to make itself.

use crate::protocol::queries::lookup::Search;
use crate::{LookupError, TaskPriority};

use super::{ExecutionSession, holding};

impl ExecutionSession {
    /// Why a lookup may not start now, if so: it asks for no more than speculative or idle work, on behalf of no unit, of a
    /// dispatcher that admits no more. One that would wait for nothing is let through, and whoever would not be kept waiting for
    /// room ([`Self::wait_for_room`]): it would ask in vain.
    pub(super) fn overloaded_by(&self, search: &mut Search) -> Option<LookupError> {
        if search.asked_by.is_some() || search.alias.is_some() {
            return None;
        }
        let symbols = search.symbols.len();
        let admits = |priority| self.0.dispatcher.admits(priority, symbols);
        let said = search.priority;
        let priority = match said {
            Some(priority) => priority,
            // It is as urgent as what it finds, which nobody has to look for while there is room for everything.
            None if BACKGROUND.into_iter().all(|priority| admits(priority).is_ok()) => return None,
            None => self.transact(|state, _| state.priority_of_what_it_claims(search))?,
        };
        let reached = BACKGROUND.contains(&priority).then(|| admits(priority).err()).flatten()?;
        let is_let_through = holding::is_waited_for(self.tag())
            || said.is_some() && self.transact(|state, _| state.ends_at_once(search));
        (!is_let_through).then_some(LookupError::Overloaded { priority, reached })
    }
}

/// What may be refused.
const BACKGROUND: [TaskPriority; 2] = [TaskPriority::Idle, TaskPriority::Speculative];
