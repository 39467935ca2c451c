//! Urgency: priority follows demand upwards.
//!
//! A *need* keeps a unit claimed: a query lodged on one of its rows, or an emitted row that depends on one.
//!
//! | need | is as urgent as |
//! |---|---|
//! | query that says how urgent it is, a blocked thread's included | it says |
//! | query on behalf of a unit, aliases included | that unit's claim |
//! | query on no unit's behalf that says nothing | the needed unit says itself |
//! | emitted row | the most urgent need that it has had |
//!
//! A claim is as urgent as the most urgent need that it has had. So a [`RisingPriority`] rises and never sinks. A unit that loses its
//! demand before it begins goes back to its rows (`demand.rs`); the next claim of it is a new one, with a new priority.
//!
//! # Rise
//!
//! Four things raise a row: a query is lodged on it, a row that depends on it is emitted, its unit is replaced by one that says
//! more, or something that needs it rises. From the row a rise goes on (`rise.rs`):
//!
//! ```text
//!   row ─ not emitted ─▶ claim ─▶ each query on the claim's behalf ─▶ the rows that the query waits for
//!    │                     └────▶ the claim it was delegated from
//!    └─── emitted ─────▶ its component in the forest ─▶ the rows that the component waits for
//! ```
//!
//! # Cost
//!
//! One step for each entry of a lodged query, and for each dependence of an emission. There are four levels, so each claim, query
//! and emitted row rises at most three times, and each rise goes along each of its edges once. Rises are work of the state,
//! done in slices (`settle.rs`), for one rise may reach a million units. A node with all its edges is never divided.
//!
//! Everything is Demanded until a unit is claimed with less. Up to then nothing can rise, and nothing is noted.
//!
//! # Too urgent
//!
//! - A rise that is still to come reaches the claim that has the row then, which may have no need so urgent.
//! - A unit that replaces another is as urgent as it says once a lookup has left that to the unit. The lookup may have ended.
//!
//! **Architecture Invariant:** no need is more urgent than what it leads to, once no rise is left to do (`check.rs`).

#[cfg(any(test, debug_assertions))]
mod check;
pub(in crate::protocol) mod followers;
mod rise;

use crate::TaskPriority;
use crate::sync::Arc;
use crate::task::ticket::Ticketed;

use crate::protocol::state::{Payload, PendingUnit, RisingPriority, RowState, Search, SessionState};
use crate::protocol::storage::{ClaimId, RowId};

impl<P: Payload> SessionState<P> {
    /// How urgent a row is, or its unit; none if no work on it is under way.
    pub(crate) fn priority_of(&self, row: RowId) -> Option<RisingPriority> {
        match self.definitions.row(row)?.state {
            RowState::Materializing { claim, .. } | RowState::Resolved { claim, .. } => {
                self.definitions.get_claim(claim).map(|claim| claim.priority)
            }
            RowState::Emitted { priority, .. } => Some(priority),
            _ => None,
        }
    }

    /// How urgent a lookup is that begins, and the claim with which it rises.
    pub(crate) fn priority_to_ask_at(&self, search: &Search) -> (Option<RisingPriority>, Option<ClaimId>) {
        if let Some(priority) = search.priority {
            return (Some(RisingPriority::at(priority)), None);
        }
        // An alias may be in a part that was delegated, and its lookup is its alone.
        let alias = search.alias.and_then(|alias| self.definitions.row(alias)?.claim());
        let claim = alias.or(search.asked_by.map(|asker| asker.claim));
        match claim.and_then(|claim| self.definitions.get_claim(claim)) {
            Some(asks) => (Some(asks.priority), claim),
            None => (search.asked_by.map(|asker| RisingPriority::at(asker.priority)), None),
        }
    }

    /// Where a claimed unit will lie while it is queued, if it may rise: beside the queues, where tickets for it are queued.
    pub(crate) fn ticketed(&mut self, claim: ClaimId, unit: &PendingUnit<P::Unit>) -> Option<Arc<Ticketed>> {
        let claim = self.definitions.claim_mut(claim)?;
        let priority = claim.priority.get();
        if priority == TaskPriority::Demanded {
            return None;
        }
        self.urgency.is_followed = true;
        let ticketed = Ticketed::new(unit.name.clone(), priority, unit.serial_queue().cloned(), unit.hints);
        claim.followers_mut().ticketed = Some(ticketed.clone());
        Some(ticketed)
    }
}
