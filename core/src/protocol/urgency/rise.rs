//! Rise: a need appears or rises, and with it what it leads to.

use uruk_recorder::Kind;

use crate::EventKind;
use crate::sync::weakened;

use super::followers::{Followers, PrioritySource};
use crate::protocol::state::{Effects, Payload, Phase, Query, RisingPriority, Row, SessionState};
use crate::protocol::storage::{ClaimId, QueryId, RowId};

impl<P: Payload> SessionState<P> {
    /// Something needs `row` as much as that.
    #[inline]
    pub(crate) fn raise(&mut self, row: RowId, to: RisingPriority) {
        if self.urgency.is_followed && self.priority_of(row).is_some_and(|priority| priority < to) {
            self.urgency.rises.push_back((PrioritySource::Row(row), to));
        }
    }

    /// A query has begun, which rises with the claim on whose behalf it was made, or was lodged.
    pub(crate) fn begins_to_need(&mut self, query: QueryId, rises_with: Option<ClaimId>) {
        if !self.urgency.is_followed {
            return;
        }
        if let Some(claim) = rises_with.and_then(|claim| self.definitions.claim_mut(claim)) {
            let asked = &mut claim.followers_mut().asked;
            // Ended queries make room before the list grows; if most still wait, it grows all the same.
            if asked.len() == asked.capacity() {
                asked.retain(|&query| self.lookups.query(query).is_some());
                asked.reserve(asked.len() + 1);
            }
            asked.push(query);
        }
        self.raise_what_it_waits_for(query);
    }

    fn raise_what_it_waits_for(&mut self, query: QueryId) {
        let Some(Query { phase: Phase::Lodged(lodged), priority, .. }) = self.lookups.query(query) else {
            return;
        };
        for entry in lodged.entries.iter().filter(|entry| entry.waits()) {
            let Some(row) = self.definitions.row(entry.row) else { continue };
            let needed = priority.unwrap_or(RisingPriority::at(row.own_priority));
            if self.priority_of(entry.row).is_some_and(|priority| priority < needed) {
                self.urgency.rises.push_back((PrioritySource::Row(entry.row), needed));
            }
            let claim = row.claim().filter(|_| priority.is_none());
            if let Some(claim) = claim.and_then(|claim| self.definitions.claim_mut(claim)) {
                claim.is_wanted_as_it_says = true;
            }
        }
    }

    /// Whether anything is still to rise.
    #[inline]
    pub(crate) fn has_rises(&self) -> bool {
        !self.urgency.rises.is_empty()
    }

    /// Has things rise, as many as `budget` allows.
    pub(crate) fn rise(&mut self, budget: &mut usize, effects: &mut Effects<P>) {
        while *budget > 0
            && let Some((node, to)) = self.urgency.rises.pop_back(effects)
        {
            let steps = match node {
                PrioritySource::Row(row) => self.raise_row(row, to, effects),
                PrioritySource::Claim(claim) => self.raise_claim(claim, to, effects),
                PrioritySource::Query(query) => self.raise_query(query, to),
            };
            // The giver of the budget counts the steps taken from it.
            self.agenda.count_steps(steps.saturating_sub(*budget));
            *budget = budget.saturating_sub(steps);
        }
    }

    fn raise_row(&mut self, row: RowId, to: RisingPriority, effects: &mut Effects<P>) -> usize {
        if let Some(priority) = self.definitions.priority_mut(row) {
            return match priority.rise(to) {
                true => self.raise_component(row, to),
                false => 1,
            };
        }
        match self.definitions.row(row).and_then(Row::claim) {
            Some(claim) => self.raise_claim(claim, to, effects),
            None => 1,
        }
    }

    fn raise_claim(&mut self, id: ClaimId, to: RisingPriority, effects: &mut Effects<P>) -> usize {
        let Some(claim) = self.definitions.claim_mut(id).filter(|claim| claim.priority < to) else {
            return 1;
        };
        claim.priority.rise(to);
        let mut steps = 1;
        if let Some(Followers { ticketed, asked, origin }) = claim.followers() {
            if let Some(ticketed) = ticketed {
                ticketed.raise(to.get());
                effects.more().raised.push(ticketed.clone());
            }
            steps += asked.len();
            let followers = asked
                .iter()
                .map(|&query| PrioritySource::Query(query))
                .chain(origin.map(PrioritySource::Claim));
            followers.for_each(|node| self.urgency.rises.push_back((node, to)));
        }
        self.observe_rise(id, effects);
        steps
    }

    fn raise_query(&mut self, query: QueryId, to: RisingPriority) -> usize {
        if !self.lookups.rise(query, to) {
            return 1;
        }
        // A suspended one raises what it needs when it has found it.
        let Some(Query { phase: Phase::Lodged(lodged), .. }) = self.lookups.query(query) else { return 1 };
        let waits = lodged.entries.iter().filter(|entry| entry.waits());
        waits.for_each(|entry| self.urgency.rises.push_back((PrioritySource::Row(entry.row), to)));
        1 + lodged.entries.len()
    }

    /// An emitted row has risen, and all that can only become Ready together with it rises too.
    fn raise_component(&mut self, row: RowId, to: RisingPriority) -> usize {
        let Some(component) = self.component_of(row) else { return 1 };
        if weakened("urgency::stops_at_what_is_emitted") {
            return 1;
        }
        let mut steps = 1;
        for member in self.forest.members_of_component(component) {
            steps += 1;
            if let Some(priority) = self.definitions.priority_mut(member) {
                priority.rise(to);
            }
        }
        for dependency in self.forest.dependencies_of_component(component) {
            steps += 1;
            self.urgency.rises.push_back((PrioritySource::Row(dependency), to));
        }
        steps
    }

    fn observe_rise(&mut self, claim: ClaimId, effects: &mut Effects<P>) {
        self.noted.with(Kind::Prioritized, claim, || self.definitions[claim].priority.get() as u64, None);
        if self.events.is_observed() {
            let claim = &self.definitions[claim];
            let priority = claim.priority.get();
            if let Some(row) = claim.rows().iter().find_map(|&row| self.definitions.row(row)) {
                let (dylib, unit) = (self.definitions.dylib_name_of(row), row.unit_name.clone());
                self.observe(effects, || EventKind::Prioritized { dylib, unit, priority });
            }
        }
    }
}
