#![doc = include_str!("README.md")]

mod describe;
mod look;
mod needs;
pub(crate) mod threads;

use crate::protocol::deadlock::threads::{Blocked, BlockedThreads, Held, Holdings};
use crate::protocol::state::{Effects, Payload, Query, SessionState};
use crate::protocol::storage::{QueryId, WaitId};

#[cfg(all(test, not(uruk_loom)))]
pub(crate) use look::FIRST_BUDGET;
pub(crate) use look::FIRST_PAUSE;

impl<P: Payload> SessionState<P> {
    /// A thread that holds something is about to block in `query`. It looks for a cycle for the first time.
    ///
    /// None if the query has ended already.
    pub(crate) fn begin_wait(
        &mut self,
        query: QueryId,
        holdings: Holdings,
        effects: &mut Effects<P>,
    ) -> Option<WaitId> {
        if !self.lookups.query(query).is_some_and(Query::is_live) {
            return None;
        }
        let BlockedThreads { waits, of_query, holders } = &mut self.waits;
        let (below, pause) = (holdings.below, FIRST_PAUSE);
        let wait = waits.insert(Blocked { query, holdings, above: None, budget: look::FIRST_BUDGET, pause });
        of_query.insert(query, wait);
        holders.extend(waits[wait].holdings.held.iter().map(|&held| (held, wait)));
        if let Some(below) = below.and_then(|below| waits.get_mut(below)) {
            below.above = Some(wait);
        }
        self.look(wait, effects);
        Some(wait)
    }

    /// The thread goes on.
    pub(crate) fn end_wait(&mut self, wait: WaitId, effects: &mut Effects<P>) {
        let waits = &mut self.waits;
        let Some(Blocked { query, holdings, .. }) = waits.waits.remove(wait, effects) else { return };
        waits.of_query.remove(&query);
        for held in holdings.held {
            waits.forget(held, wait);
        }
        if let Some(below) = holdings.below.and_then(|below| waits.waits.get_mut(below)) {
            below.above = None;
        }
    }

    /// The thread has passed on, beneath the lookup in which it is blocked, what only it could finish. Nothing if this wait has not told
    /// of it.
    pub(crate) fn lose(&mut self, wait: WaitId, what: Held) {
        if let Some(Blocked { holdings, .. }) = self.waits.waits.get_mut(wait) {
            holdings.held.retain(|&held| held != what);
            self.waits.forget(what, wait);
        }
    }
}
