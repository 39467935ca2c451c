//! Blocked lookups: the thread waits for what is not there yet.

use std::fmt;

use crate::protocol::ids::QueryId;
use crate::protocol::lookup::Search;
use crate::protocol::query::Answer;
use crate::query::{BlockedLookup, Completion};
use crate::sync::{Arc, weakened};
use crate::{
    Deadline, LookupError, LookupKind, LookupSet, RequiredState, SearchOrder, TaskPriority, WaitError,
};

use super::{ExecutionSession, holding};

impl ExecutionSession {
    /// Looks `symbols` up under the lock, and waits for what is not there yet.
    pub(super) fn lookup_locked(
        &self,
        order: &SearchOrder,
        symbols: LookupSet,
        deadline: Option<Deadline>,
    ) -> Result<Answer, LookupError> {
        let span = tracing::debug_span!("session.lookup", symbols = symbols.len());
        let _entered = span.enter();
        let search = self.search(LookupKind::Static, order, symbols, RequiredState::Ready)?;
        self.wait_for_answer(order, search, deadline)
    }

    /// Lodges a search and waits for its answer.
    pub(crate) fn wait_for_answer(
        &self,
        order: &SearchOrder,
        mut search: Search,
        deadline: Option<Deadline>,
    ) -> Result<Answer, LookupError> {
        // Whoever asks: what a thread blocks for is what it needs to go on.
        search.priority = Some(TaskPriority::Demanded);
        let refusal = self.refuses_waits();
        let blocked = Arc::new(BlockedLookup::default());
        let lodge_span = tracing::debug_span!("lookup.lodge", symbols = search.symbols.len());
        let wait_span = tracing::debug_span!("lookup.wait", of = %Few(&search));
        let (blocking, holdings) = holding::about_to_block(self).unzip();
        let expired = deadline.is_some_and(|deadline| self.left_until(deadline).is_zero());
        // In place nothing runs before the wait, which looks at the clock.
        let held_back = deadline.map(|_| crate::in_place::hold_back());
        // What is refused is dropped without the lock.
        let mut search = Some(search);
        let lodged: Result<Option<QueryId>, WaitError> = lodge_span.in_scope(|| {
            self.transact(|state, effects| {
                if let (Some(refusal), Some(search)) = (&refusal, &mut search)
                    && !state.ends_at_once(search)
                {
                    return Err(refusal.clone());
                }
                let Some(search) = search.take() else { return Ok(None) };
                let name = |position: usize| order[position].0.shared_name();
                let completion = Completion::Blocked(blocked.clone());
                let query = match expired {
                    true => state.lookup_too_late(search, completion, name, effects),
                    false => state.lookup(search, completion, name, effects),
                };
                let Some(query) = query else { return Ok(None) };
                if let Some(mut holdings) = holdings {
                    holdings.ends_by_itself = deadline.is_some();
                    holding::known_as(state.begin_wait(query, holdings, effects));
                }
                Ok(Some(query))
            })
        });
        drop(held_back);
        let waiting = wait_span.enter();
        let (query, waited) = match (lodged, deadline) {
            (Err(refused), _) => (None, Err(refused)),
            (Ok(query), None) => (query, self.wait(&blocked.latch).map(|()| true)),
            (Ok(query), Some(deadline)) => (query, self.wait_until(&blocked.latch, deadline)),
        };
        drop(waiting);
        drop(blocking);
        if let (Ok(false), Some(query)) = (&waited, query) {
            // The answer may have come meanwhile, and is as good.
            self.transact(|state, effects| state.expire(query, effects));
            // Whoever ended the query may still be on its way with the answer, and does not block before it is there.
            if !weakened("deadline::takes_what_is_not_there_yet") {
                blocked.latch.wait();
            }
        }
        if deadline.is_some() {
            // What was held back and has not run lies in this thread's queue still.
            crate::in_place::run_ready();
        }
        if let Err(error) = waited {
            if let Some(query) = query {
                self.transact(|state, effects| state.withdraw(query, effects));
            }
            // The answer may have come between the refusal and the withdrawal; either is true then.
            return Err(error.into());
        }
        blocked.take().unwrap_or(Err(LookupError::Closed))
    }
}

/// The first symbols of a search, for those who watch.
struct Few<'a>(&'a Search);

impl fmt::Display for Few<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const FEW: usize = 3;
        for (index, (name, _)) in self.0.symbols.iter().take(FEW).enumerate() {
            f.write_str(if index == 0 { "" } else { ", " })?;
            f.write_str(name.as_str())?;
        }
        match self.0.symbols.len().saturating_sub(FEW) {
            0 => Ok(()),
            more => write!(f, " and {more} more"),
        }
    }
}
