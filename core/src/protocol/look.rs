//! Look: when the wait-for graph is searched for a cycle, and who is told of one.
//!
//! Edges appear when a wait begins, when a blocked lookup moves on from a generator, when the lookup of an alias comes to a
//! generator or is lodged, when what a generator asks on behalf of either moves, when an emission hangs in the forest, and when
//! `replace` leaves a needed row to a unit that waits for its turn in a serial queue. A blocked lookup looks for a cycle through
//! itself, the others for any that lies beyond them (`knots.rs`).
//! `delegate`, and `replace` otherwise, add none: their thread runs, so nobody holds what they made and is blocked. The lookup
//! whose edge closes the cycle gets the error; where no lookup's edge does, the newest of those in the cycle.
//!
//! While a removal or a failure spreads, some of what is needed is about to end, and a cycle through it with it. The look
//! is postponed to the slice in which everything has fallen that will fall.

use crate::LookupError;
use crate::serial_queue::SerialQueueId;
use crate::sync::weakened;

use super::effects::Effects;
use super::ids::{QueryId, RowId, WaitId};
use super::query::Phase;
use super::waits_for::{Blocked, Node, WaitsFor};
use super::{Payload, SessionState};

/// Edges that have appeared, to be looked at later.
#[derive(Clone, Debug)]
pub(super) enum Look {
    /// See [`SessionState::look_from`].
    Moved(QueryId),
    /// See [`SessionState::wait_hung`]. Some of the rows may be gone by then: the others hang as before.
    Hung(Box<[RowId]>),
    /// See [`SessionState::wait_queued`].
    Queued(SerialQueueId),
}

impl<P: Payload> SessionState<P> {
    /// A query has been lodged, or has come to a generator. Looks for a cycle through it, and through every lookup that a generator
    /// has made it for, directly or not: what each of them waits for has moved with it.
    pub(super) fn wait_moved(&mut self, query: QueryId, effects: &mut Effects<P>) {
        if self.waits_for.is_empty() {
            return;
        }
        let mut moved = Some(query);
        while let Some(query) = moved {
            moved = self.asker_of(query);
            self.look_from(query, effects);
        }
    }

    /// Looks for a cycle if a thread is blocked in the lookup, or if it is that of an alias somebody blocked needs.
    fn look_from(&mut self, query: QueryId, effects: &mut Effects<P>) {
        if self.waits_for.of_query.contains_key(&query) {
            self.look_from_blocked(query, effects);
            return;
        }
        let starts: Vec<_> = self.starts_at_alias(query).into_iter().collect();
        if !starts.is_empty() && !self.postpones(|| Look::Moved(query)) {
            self.end_deadlocks_beyond(&starts, effects);
        }
    }

    fn look_from_blocked(&mut self, query: QueryId, effects: &mut Effects<P>) {
        let Some(&wait) = self.waits_for.of_query.get(&query) else { return };
        self.watch_beyond([Node::Wait(wait)]);
        if !self.postpones(|| Look::Moved(query)) {
            self.end_deadlocks_through(wait, effects);
        }
    }

    /// The alias of the lookup, if a blocked lookup needs it; watches all it needs.
    fn starts_at_alias(&mut self, query: QueryId) -> Option<Node> {
        if weakened("deadlock::overlooks_aliases") {
            return None;
        }
        // What needs it Ready needs its source so.
        let alias = self.watched_alias_of(query).map(Node::ready)?;
        self.watch_beyond([alias]);
        Some(alias)
    }

    /// The lookup that a generator has made this one for, so that it can go on.
    fn asker_of(&self, query: QueryId) -> Option<QueryId> {
        match &self.queries.get(query)?.phase {
            Phase::Suspended(suspended) => suspended.search.on_behalf_of,
            Phase::Lodged(_) => None,
        }
    }

    /// Rows have been emitted and hang in the forest. Looks for a cycle if somebody blocked needs some of them.
    pub(super) fn wait_hung(&mut self, rows: impl Iterator<Item = RowId>, effects: &mut Effects<P>) {
        if self.waits_for.is_empty() || weakened("deadlock::overlooks_emissions") {
            return;
        }
        let watched: Vec<_> = rows.filter(|row| self.waits_for.watched.contains_key(row)).collect();
        let starts = self.starts_at_emitted(&watched);
        if !starts.is_empty() && !self.postpones(|| Look::Hung(watched.into())) {
            self.end_deadlocks_beyond(&starts, effects);
        }
    }

    /// What the rows wait for together, as far as they do; watches all they need.
    fn starts_at_emitted(&mut self, rows: &[RowId]) -> Vec<Node> {
        self.watch_beyond(rows.iter().copied().map(Node::ready));
        rows.iter().filter_map(|&row| self.component_of(row)).map(Node::Together).collect()
    }

    /// A unit has taken over rows that somebody may need, and waits for its turn. Looks for a cycle if a thread is blocked in that
    /// turn. (Units that are claimed need no look: whoever needs their rows comes after that.)
    pub(super) fn wait_queued(&mut self, queue: SerialQueueId, effects: &mut Effects<P>) {
        let is_blocked = self.waits_for.is_blocked_in_turn(queue);
        let overlooks = weakened("deadlock::overlooks_turns");
        if is_blocked && !overlooks && !self.postpones(|| Look::Queued(queue)) {
            self.end_deadlocks_beyond(&[Node::Turn(queue)], effects);
        }
    }

    /// Whether some of what is needed is about to end, and it is not known what.
    pub(super) fn is_falling(&self) -> bool {
        self.forest.is_failing() || !self.agenda.condemned.is_empty()
    }

    /// Looks for what was postponed, once everything has fallen that will fall.
    pub(super) fn look_again(&mut self, effects: &mut Effects<P>) {
        if self.waits_for.postponed.is_empty() || self.is_falling() {
            return;
        }
        // Each may lead to a blocked thread by the edges of the others, which nobody has looked at so far.
        self.waits_for.barren.clear();
        let mut starts = Vec::new();
        for look in std::mem::take(&mut self.waits_for.postponed) {
            match look {
                Look::Moved(query) if self.waits_for.of_query.contains_key(&query) => {
                    self.look_from_blocked(query, effects);
                }
                Look::Moved(query) => starts.extend(self.starts_at_alias(query)),
                Look::Hung(rows) => starts.extend(self.starts_at_emitted(&rows)),
                Look::Queued(queue) => starts.push(Node::Turn(queue)),
            }
        }
        self.end_deadlocks_beyond(&starts, effects);
    }

    /// Whether the look must come later; notes it then.
    fn postpones(&mut self, look: impl FnOnce() -> Look) -> bool {
        if !self.is_falling() {
            return false;
        }
        let (queries, rows) = (&self.queries, &self.rows);
        let WaitsFor { postponed, sections, .. } = &mut self.waits_for;
        // What has ended makes room before the list grows; where most still waits it grows all the same.
        if postponed.len() == postponed.capacity() {
            postponed.retain(|look| match look {
                Look::Moved(query) => queries.contains(*query),
                Look::Hung(hung) => hung.iter().any(|row| rows.contains(*row)),
                Look::Queued(queue) => sections.contains_key(queue),
            });
            postponed.reserve(postponed.len() + 1);
        }
        postponed.push(look());
        true
    }

    /// The alias of the query, if a blocked lookup needs it.
    fn watched_alias_of(&self, query: QueryId) -> Option<RowId> {
        let alias = match &self.queries.get(query)?.phase {
            Phase::Lodged(lodged) => lodged.alias,
            Phase::Suspended(suspended) => suspended.search.alias,
        };
        alias.filter(|alias| self.waits_for.watched.contains_key(alias))
    }

    /// Fails one lookup of each cycle through the blocked lookup: that one, whose edge has closed it, if the cycle leaves it by what it
    /// looks up.
    fn end_deadlocks_through(&mut self, wait: WaitId, effects: &mut Effects<P>) {
        while let Some(cycle) = self.cycle_of(wait) {
            let closes = self.left_by(&cycle).find(|(left, _)| *left == wait);
            let told = closes.or_else(|| self.newest_left_by(&cycle)).map(|(_, blocked)| blocked.query);
            let Some(query) = told else { return };
            self.tell_of_deadlock(query, &cycle, effects);
        }
    }

    /// Fails one lookup of each cycle beyond `starts`, which nobody's own lookup has closed: the newest in it.
    fn end_deadlocks_beyond(&mut self, starts: &[Node], effects: &mut Effects<P>) {
        while let Some(wait) = self.knot_beyond(starts)
            && let Some(cycle) = self.cycle_of(wait)
        {
            let told = self.newest_left_by(&cycle).map(|(_, blocked)| blocked.query);
            let Some(query) = told else { return };
            self.tell_of_deadlock(query, &cycle, effects);
        }
    }

    fn tell_of_deadlock(&mut self, query: QueryId, cycle: &[Node], effects: &mut Effects<P>) {
        let path = self.describe_deadlock(cycle);
        self.fail_query(query, LookupError::WouldDeadlock { path }, effects);
    }

    fn newest_left_by<'a>(&'a self, cycle: &'a [Node]) -> Option<(WaitId, &'a Blocked)> {
        self.left_by(cycle).max_by_key(|(_, blocked)| blocked.began)
    }

    /// The lookups that the cycle leaves by what they look up, in its order.
    fn left_by<'a>(&'a self, cycle: &'a [Node]) -> impl Iterator<Item = (WaitId, &'a Blocked)> {
        let after = cycle.iter().cycle().skip(1);
        cycle.iter().zip(after).filter_map(|(node, next)| match (node, next) {
            (Node::Wait(_), Node::Wait(_)) => None,
            (&Node::Wait(wait), _) => Some((wait, self.waits_for.waits.get(wait)?)),
            _ => None,
        })
    }
}
