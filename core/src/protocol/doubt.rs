//! Doubt: a need is gone, and what it led to may be less urgent than it was.
//!
//! What was needed is computed again from the needs that are left (`urgency.rs`). Only a loss that may have mattered is
//! followed: of a need as urgent as what it led to.

use crate::TaskPriority;

use super::effects::Effects;
use super::ids::{ClaimId, QueryId, RowId};
use super::query::{Phase, Query};
use super::row::RowState;
use super::urgency::{Followers, Urgency};
use super::{Payload, SessionState};

/// So many needs are looked at before a priority stays as it is.
const NEEDS_MAX: usize = 256;

impl<P: Payload> SessionState<P> {
    /// A query that has ended is about to leave the list of a row.
    pub(super) fn doubt_entry(&mut self, query: QueryId, entry: usize) {
        if !self.urgency.is_tracked {
            return;
        }
        if let Some(Query { phase: Phase::Lodged(lodged), priority, .. }) = self.queries.get(query)
            && let entry = &lodged.entries[entry]
            && entry.waits()
            && let Some(row) = self.rows.get(entry.row)
            && priority.unwrap_or(row.own_priority) >= self.priority_of(entry.row)
        {
            self.urgency.doubt(entry.row);
        }
    }

    /// Computes the priority of what was needed more urgently again.
    pub(super) fn reconsider(&mut self, row: RowId, effects: &mut Effects<P>) -> usize {
        let now = self.priority_of(row);
        if now == TaskPriority::Idle {
            return 1;
        }
        match self.rows.get(row).map(|row| &row.state) {
            Some(&(RowState::Materializing { claim, .. } | RowState::Resolved { claim, .. })) => {
                if self.claims[claim].followers().is_some_and(|followers| followers.has_delegated) {
                    return 1;
                }
                let rows = self.rows_of_claim(claim);
                let (needed, steps) = self.most_urgent_need(&rows, None, now);
                rows.len() + steps + self.lower_claim(claim, needed, effects)
            }
            Some(RowState::Emitted { .. }) => {
                let Some(component) = self.component_of(row) else { return 1 };
                let rows: Vec<_> = self.forest.members_of_component(component).take(NEEDS_MAX + 1).collect();
                let (needed, steps) = self.most_urgent_need(&rows, Some(component), now);
                let needed = needed.unwrap_or(TaskPriority::Idle);
                let pass_on = |urgency: &mut Urgency, dependency| urgency.doubt(dependency);
                let passed_on = if needed < now { self.set_component(row, needed, pass_on) } else { 0 };
                1 + rows.len() + steps + passed_on
            }
            _ => 1,
        }
    }

    /// Nothing needs the claim more than `needed`; nothing at all without.
    pub(super) fn lower_claim(
        &mut self,
        claim: ClaimId,
        needed: Option<TaskPriority>,
        effects: &mut Effects<P>,
    ) -> usize {
        let priority = needed.unwrap_or(TaskPriority::Idle);
        let Some(row) = self.claims.get_mut(claim).filter(|claim| claim.priority > priority) else {
            return 0;
        };
        row.priority = priority;
        let mut steps = 1;
        if let Some(Followers { ticketed, asked, .. }) = row.followers() {
            // A unit that nobody needs goes back to its rows when its turn comes, and that may as well be soon.
            if let (Some(ticketed), Some(_)) = (ticketed, needed) {
                ticketed.set_priority(priority);
            }
            steps += asked.len();
            if !asked.is_empty() {
                // Its turn to be lowered may have come before that of what it was raised for.
                steps += self.urgency.take_back(claim, effects);
            }
            for &query in asked {
                let Some(query) = self.queries.get_mut(query).filter(|query| query.is_live()) else {
                    continue;
                };
                query.priority = Some(priority);
                if let Phase::Lodged(lodged) = &query.phase {
                    steps += lodged.entries.len();
                    let waits = lodged.entries.iter().filter(|entry| entry.waits());
                    waits.for_each(|entry| self.urgency.doubt(entry.row));
                }
            }
        }
        self.observe_priority(claim, effects);
        steps
    }

    /// The most urgent need for any of `rows`, from outside of `component`; `enough` if there are too many to look at.
    /// Looks no further than the first that is as urgent as that. Says how many it has looked at, too.
    pub(super) fn most_urgent_need(
        &self,
        rows: &[RowId],
        component: Option<u32>,
        enough: TaskPriority,
    ) -> (Option<TaskPriority>, usize) {
        let (mut needed, mut steps) = (None, rows.len());
        for &row in rows {
            for need in self.needs(row, component) {
                steps += 1;
                if need >= Some(enough) || steps > NEEDS_MAX {
                    return (Some(enough), steps);
                }
                needed = needed.max(need);
            }
        }
        (needed, steps)
    }

    /// What needs `row` and how urgently, from outside of `component`; none for each thing that turns out to need nothing
    /// any more.
    fn needs(&self, row: RowId, component: Option<u32>) -> impl Iterator<Item = Option<TaskPriority>> {
        let row = self.rows.get(row);
        let own = row.map_or(TaskPriority::Idle, |row| row.own_priority);
        let waiting = row.and_then(|row| row.waiting());
        let queries = self.lodged_on(waiting);
        let queries = queries.map(move |query| query.is_live().then(|| query.priority.unwrap_or(own)));
        let node = waiting.and_then(|waiting| waiting.node);
        let dependants = node.into_iter().flat_map(|node| self.forest.dependant_components(node));
        let outside = dependants.filter(move |&dependant| Some(dependant) != component);
        queries.chain(outside.map(|dependant| self.priority_of_component(dependant)))
    }

    /// How urgent the emitted rows of a component are; none if all have fallen.
    fn priority_of_component(&self, component: u32) -> Option<TaskPriority> {
        let mut members = self.forest.members_of_component(component);
        let standing = members.by_ref().take(NEEDS_MAX).find_map(|row| {
            let row = self.rows.get(row)?;
            matches!(row.state, RowState::Emitted { .. }).then_some(row.priority)
        });
        // One that is not met so soon may stand.
        standing.or_else(|| members.next().map(|_| TaskPriority::Demanded))
    }

    /// No need is more urgent than what it leads to.
    #[cfg(any(test, debug_assertions))]
    pub(super) fn check_urgency(&self) {
        if !self.urgency.is_tracked {
            return;
        }
        for (id, row) in self.rows.iter() {
            let component =
                matches!(row.state, RowState::Emitted { .. }).then(|| self.component_of(id)).flatten();
            let needed = self.needs(id, component).max().flatten();
            assert!(
                needed <= Some(self.priority_of(id)),
                "`{}` is {:?} and needed as {needed:?}",
                row.name,
                self.priority_of(id)
            );
        }
        for (_, claim) in self.claims.iter() {
            let Some(Followers { asked, origin, .. }) = claim.followers() else { continue };
            for query in asked.iter().filter_map(|&query| self.queries.get(query)) {
                let follows = !query.is_live() || query.priority >= Some(claim.priority);
                assert!(follows, "what a unit asks for is as urgent as the unit");
            }
            if let Some(origin) = origin.and_then(|origin| self.claims.get(origin)) {
                assert!(origin.priority >= claim.priority, "a delegate raises what it came from");
            }
        }
    }
}
