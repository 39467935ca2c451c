//! Urgency: priority follows demand.
//!
//! A *need* is what keeps a unit claimed: a query lodged on one of its rows, or an emitted row that depends on one. A claim
//! is as urgent as the most urgent of its needs.
//!
//! | need | is as urgent as |
//! |---|---|
//! | query that says how urgent it is, a blocked thread's included | it says |
//! | query on behalf of a unit, aliases included | that unit's claim |
//! | query on nobody's behalf that says nothing | the needed unit says itself |
//! | emitted row | the most urgent of its own needs, and of those of all rows that can only become Ready together with it |
//!
//! # Raise
//!
//! A need that appears or grows raises what it leads to: row → claim → queries on the claim's behalf → their rows, claim →
//! the claim it was delegated from, emitted row → all unexplored edges of its component → rows. The walk stops where things
//! are as urgent already, so each node is raised three times at most between two losses.
//!
//! # Lower
//!
//! When a query ends without an answer, what it was lodged on is *doubted*: computed again from the needs that are left. If
//! that is less, so is what its priority was passed on to, and that is doubted in turn. An answer lowers nothing: what was
//! wanted for its address is about to be depended on. What nobody needs any more passes on as little as possible.
//!
//! Priorities err towards urgency, never the other way. Too urgent may stay:
//!
//! - what needs itself, through units or symbols that wait for each other;
//! - a claim that has delegated symbols: what it asked for, it may have asked for on behalf of these;
//! - what more than `NEEDS_MAX` needs would have to be looked at for, so that a loss costs no more than that;
//! - what is needed by something that failed or was removed, or no longer by something that was emitted.
//!
//! # Cost
//!
//! Everything is Demanded until the first priority below appears in the session; up to then none of this is done, and what
//! was asked before is not followed. Walks are work of the state, sliced as such (`settle.rs`); one node with all that it
//! leads to is one piece.

use crate::hints::Hints;
use crate::sync::weakened;
use crate::task::ticket::Ticketed;
use crate::{EventKind, SerialQueue, SymbolName, TaskPriority};

use super::claim::Claim;
use super::effects::Effects;
use super::ids::{ClaimId, QueryId, RowId};
use super::lookup::Search;
use super::memory::Takes;
use super::pieces::Pieces;
use super::query::{Phase, Query};
use super::row::RowState;
use super::{Payload, SessionState};
use crate::sync::Arc;

/// On whose behalf a thread asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Asker {
    /// The unit's claim. May have ended since.
    pub(crate) claim: ClaimId,
    /// How urgent it was when the thread began to work for it: what counts once the claim has ended.
    pub(crate) priority: TaskPriority,
}

/// What a claim's priority is passed on to.
#[derive(Debug, Default)]
pub(crate) struct Followers {
    /// Where its unit lies while it is queued, if that may be in several queues.
    pub(super) ticketed: Option<Arc<Ticketed>>,
    /// Queries on its behalf. Some may have ended.
    pub(super) asked: Vec<QueryId>,
    /// The claim it was delegated from.
    pub(super) origin: Option<ClaimId>,
    /// Symbols of it were delegated.
    pub(super) has_delegated: bool,
}

/// What is left to do for priorities.
#[derive(Debug, Default)]
pub(crate) struct Urgency {
    /// There was a priority below the highest.
    pub(super) is_tracked: bool,
    raising: Pieces<(Needed, TaskPriority)>,
    doubted: Pieces<RowId>,
}

#[derive(Clone, Copy, Debug)]
enum Needed {
    Row(RowId),
    Claim(ClaimId),
    /// On behalf of that claim.
    Query(QueryId, ClaimId),
}

impl Urgency {
    pub(super) fn has_work(&self) -> bool {
        self.is_tracked && !(self.raising.is_empty() && self.doubted.is_empty())
    }

    /// Forgets what a claim has passed on to queries that has not come there: it is less urgent now. Gives the steps it took.
    pub(super) fn take_back(&mut self, claim: ClaimId, memory: &mut impl Takes) -> usize {
        self.raising.retain(|(needed, _)| !matches!(needed, Needed::Query(_, of) if *of == claim), memory)
    }

    fn raise(&mut self, needed: Needed, priority: TaskPriority) {
        self.raising.push_back((needed, priority));
    }

    pub(super) fn doubt(&mut self, row: RowId) {
        self.doubted.push_back(row);
    }

    pub(super) fn note(&mut self, priority: TaskPriority) {
        self.is_tracked |= priority < TaskPriority::Demanded;
    }
}

impl Followers {
    pub(super) fn of_delegate(origin: ClaimId) -> Self {
        Self { origin: Some(origin), ..Self::default() }
    }
}

impl Claim {
    /// Where the claim's unit is to lie while it is queued: a new place.
    pub(super) fn ticketed(
        &mut self,
        unit: &SymbolName,
        queue: Option<&SerialQueue>,
        hints: Hints,
    ) -> Arc<Ticketed> {
        let ticketed = Ticketed::new(unit.clone(), self.priority, queue.cloned(), hints);
        self.followers_mut().ticketed = Some(ticketed.clone());
        ticketed
    }
}

impl<P: Payload> SessionState<P> {
    /// How urgent a lookup is that begins, and the claim whose priority it follows.
    pub(super) fn urgency_of(&mut self, search: &Search) -> (Option<TaskPriority>, Option<ClaimId>) {
        if let Some(priority) = search.priority {
            self.urgency.note(priority);
            return (Some(priority), None);
        }
        // An alias may be in a part that was delegated, and its lookup is its alone.
        let alias = search.alias.and_then(|alias| self.rows.get(alias)?.claim());
        let claim = alias.or(search.asked_by.map(|asker| asker.claim));
        match claim.and_then(|claim| self.claims.get(claim)) {
            Some(&Claim { priority, .. }) => (Some(priority), claim),
            None => (search.asked_by.map(|asker| asker.priority), None),
        }
    }

    /// A query has begun that follows the priority of `claim`.
    pub(super) fn note_asked(&mut self, claim: Option<ClaimId>, query: QueryId) {
        if !self.urgency.is_tracked {
            return;
        }
        let Some(claim) = claim.and_then(|claim| self.claims.get_mut(claim)) else { return };
        let asked = &mut claim.followers_mut().asked;
        // What has ended makes room before the list grows; where most still waits it grows all the same.
        if asked.len() == asked.capacity() {
            asked.retain(|&query| self.queries.contains(query));
            asked.reserve(asked.len() + 1);
        }
        asked.push(query);
    }

    /// Notes what the unit that was claimed says of itself.
    pub(super) fn note_own_priority(&mut self, claim: ClaimId, own: TaskPriority) {
        self.urgency.note(own);
        if self.urgency.is_tracked {
            for &row in self.claims[claim].rows() {
                if let Some(row) = self.rows.get_mut(row) {
                    row.own_priority = own;
                }
            }
        }
    }

    /// Another unit, which says `own` of itself, takes over a claim that somebody waits for.
    pub(super) fn take_over_at(&mut self, claim: ClaimId, own: TaskPriority, effects: &mut Effects<P>) {
        self.note_own_priority(claim, own);
        if self.urgency.is_tracked {
            let rows = self.rows_of_claim(claim);
            let (needed, _) = self.most_urgent_need(&rows, None, TaskPriority::Demanded);
            self.lower_claim(claim, needed, effects);
            self.raise_claim(claim, needed.unwrap_or(own), effects);
        }
    }

    /// What `row` is needed for is as urgent as `priority`.
    pub(super) fn raise(&mut self, row: RowId, priority: TaskPriority) {
        if self.urgency.is_tracked {
            self.urgency.raise(Needed::Row(row), priority);
        }
    }

    /// A query has been lodged.
    pub(super) fn raise_entries(&mut self, query: QueryId) {
        if !self.urgency.is_tracked {
            return;
        }
        if let Some(Query { phase: Phase::Lodged(lodged), priority, .. }) = self.queries.get(query) {
            for entry in lodged.entries.iter().filter(|entry| entry.waits()) {
                let Some(row) = self.rows.get(entry.row) else { continue };
                let priority = priority.unwrap_or(row.own_priority);
                self.urgency.raise(Needed::Row(entry.row), priority);
            }
        }
    }

    /// How urgent a row is.
    pub(super) fn priority_of(&self, row: RowId) -> TaskPriority {
        let Some(row) = self.rows.get(row) else { return TaskPriority::Idle };
        let claim = row.claim().and_then(|claim| self.claims.get(claim));
        claim.map_or(row.priority, |claim| claim.priority)
    }

    /// The first slice of what a transaction has brought about. Says whether more is left.
    #[cold]
    pub(super) fn begin_to_follow_demand(&mut self, effects: &mut Effects<P>) -> bool {
        let mut budget = self.agenda.slice_steps;
        self.follow_demand(&mut budget, effects);
        self.count_steps(self.agenda.slice_steps - budget);
        self.urgency.has_work()
    }

    /// Works off raises, then doubts.
    pub(super) fn follow_demand(&mut self, budget: &mut usize, effects: &mut Effects<P>) {
        while *budget > 0 {
            let steps = if let Some((needed, priority)) = self.urgency.raising.pop_back(effects) {
                match needed {
                    Needed::Row(row) => self.raise_row(row, priority, effects),
                    Needed::Claim(claim) => self.raise_claim(claim, priority, effects),
                    Needed::Query(query, _) => self.raise_query(query, priority),
                }
            } else if let Some(row) = self.urgency.doubted.pop_back(effects) {
                self.reconsider(row, effects)
            } else {
                return;
            };
            // Whoever gave the budget counts what is taken from it.
            self.count_steps(steps.saturating_sub(*budget));
            *budget = budget.saturating_sub(steps);
        }
    }

    fn raise_row(&mut self, row: RowId, priority: TaskPriority, effects: &mut Effects<P>) -> usize {
        match self.rows.get(row).map(|row| &row.state) {
            Some(&(RowState::Materializing { claim, .. } | RowState::Resolved { claim, .. })) => {
                self.raise_claim(claim, priority, effects)
            }
            Some(RowState::Emitted { .. }) if self.rows[row].priority < priority => {
                if weakened("urgency::stops_at_what_is_emitted") {
                    return 1;
                }
                self.set_component(row, priority, |urgency, dependency| {
                    urgency.raise(Needed::Row(dependency), priority);
                })
            }
            _ => 1,
        }
    }

    fn raise_claim(&mut self, claim: ClaimId, priority: TaskPriority, effects: &mut Effects<P>) -> usize {
        let Some(row) = self.claims.get_mut(claim) else { return 1 };
        if row.priority >= priority {
            // Nobody may have needed it for a while: then it was not told how little urgent it is.
            if let Some(ticketed) = row.followers().and_then(|followers| followers.ticketed.as_ref()) {
                ticketed.set_priority(row.priority);
            }
            return 1;
        }
        row.priority = priority;
        let mut steps = 1;
        if let Some(Followers { ticketed, asked, origin, .. }) = row.followers() {
            if let Some(ticketed) = ticketed {
                ticketed.set_priority(priority);
                effects.more().raised.push(ticketed.clone());
            }
            steps += asked.len();
            let followers = asked.iter().map(|&query| Needed::Query(query, claim));
            let followers = followers.chain(origin.map(Needed::Claim));
            followers.for_each(|needed| self.urgency.raise(needed, priority));
        }
        self.observe_priority(claim, effects);
        steps
    }

    fn raise_query(&mut self, query: QueryId, priority: TaskPriority) -> usize {
        let Some(query) = self.queries.get_mut(query).filter(|query| query.is_live()) else { return 1 };
        if query.priority >= Some(priority) {
            return 1;
        }
        query.priority = Some(priority);
        // A suspended one raises what it needs when it has found it.
        let Phase::Lodged(lodged) = &query.phase else { return 1 };
        let waits = lodged.entries.iter().filter(|entry| entry.waits());
        waits.for_each(|entry| self.urgency.raise(Needed::Row(entry.row), priority));
        1 + lodged.entries.len()
    }

    /// Gives all emitted rows of a component their priority, and says what they need.
    pub(super) fn set_component(
        &mut self,
        row: RowId,
        priority: TaskPriority,
        mut pass_on: impl FnMut(&mut Urgency, RowId),
    ) -> usize {
        self.rows[row].priority = priority;
        let Some(component) = self.component_of(row) else { return 1 };
        let mut steps = 1;
        for member in self.forest.members_of_component(component) {
            steps += 1;
            if let Some(member) = self.rows.get_mut(member) {
                member.priority = priority;
            }
        }
        for dependency in self.forest.dependencies_of_component(component) {
            steps += 1;
            pass_on(&mut self.urgency, dependency);
        }
        steps
    }

    pub(super) fn observe_priority(&mut self, claim: ClaimId, effects: &mut Effects<P>) {
        if self.observed {
            let claim = &self.claims[claim];
            let priority = claim.priority;
            if let Some(row) = claim.rows().iter().find_map(|&row| self.rows.get(row)) {
                let (dylib, unit) = (self.dylib_name_of(row), row.unit_name.clone());
                self.observe(effects, || EventKind::Prioritized { dylib, unit, priority });
            }
        }
    }
}
