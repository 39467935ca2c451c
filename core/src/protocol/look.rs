//! Look: when the wait-for graph is searched for a cycle, and who is told of one.
//!
//! Edges appear when a wait begins, when a blocked lookup moves on from a generator, when a lookup of aliases comes to a
//! generator or is lodged, when what a generator asks on behalf of either moves, when an emission hangs in the forest, and when
//! `replace` leaves a needed row to a unit that waits for its turn in a serial queue; each looks for a cycle through itself.
//! `delegate`, and `replace` otherwise, add none: their thread runs, so nobody holds what they made and is blocked. The lookup
//! whose edge closes the cycle gets the error; where no lookup's edge does, the newest of those in the cycle.
//!
//! While a removal or a failure spreads, some of what is needed is about to end, and a cycle through it with it. The look
//! is postponed to the slice in which everything has fallen that will fall.

use crate::serial_queue::SerialQueueId;
use crate::sync::weakened;
use crate::{LookupError, RequiredState};

use super::effects::Effects;
use super::generate::Suspended;
use super::ids::{QueryId, RowId};
use super::query::{Lodged, Phase};
use super::waits_for::{Node, WaitsFor};
use super::{Payload, SessionState};

/// An edge that has appeared, to be looked at later.
#[derive(Clone, Copy, Debug)]
pub(super) enum Look {
    /// See [`SessionState::look_from`].
    Moved(QueryId),
    /// See [`SessionState::wait_hung`].
    Hung(RowId),
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

    /// Looks for a cycle if a thread is blocked in the lookup, or if it is that of aliases somebody blocked needs.
    fn look_from(&mut self, query: QueryId, effects: &mut Effects<P>) {
        if let Some(&wait) = self.waits_for.of_query.get(&query) {
            self.watch_beyond(Node::Wait(wait));
            if !self.postpones(Look::Moved(query)) {
                self.end_deadlocks_through(Node::Wait(wait), effects);
            }
            return;
        }
        if weakened("deadlock::overlooks_aliases") {
            return;
        }
        let aliases = self.watched_aliases_of(query);
        for &alias in &aliases {
            self.watch_beyond(Node::Row(alias, RequiredState::Ready));
        }
        if aliases.is_empty() || self.postpones(Look::Moved(query)) {
            return;
        }
        // What needs one of them Ready needs the source so; all of them need the lookup.
        self.end_deadlocks_through(Node::Sought(query), effects);
        let ready = |alias| Node::Row(alias, RequiredState::Ready);
        aliases.into_iter().for_each(|alias| self.end_deadlocks_through(ready(alias), effects));
    }

    /// The lookup that a generator has made this one for, so that it can go on.
    fn asker_of(&self, query: QueryId) -> Option<QueryId> {
        match &self.queries.get(query)?.phase {
            Phase::Suspended(suspended) => suspended.search.on_behalf_of,
            Phase::Lodged(_) => None,
        }
    }

    /// Rows of one group have been emitted and hang in the forest. Looks for a cycle if somebody blocked needs them.
    pub(super) fn wait_hung(&mut self, rows: &[RowId], effects: &mut Effects<P>) {
        if self.waits_for.is_empty() || weakened("deadlock::overlooks_emissions") {
            return;
        }
        let watched = |row: &&RowId| self.waits_for.watched.contains_key(*row);
        let Some(&row) = rows.iter().find(watched) else { return };
        self.watch_beyond(Node::Row(row, RequiredState::Ready));
        if let Some(together) = self.component_of(row)
            && !self.postpones(Look::Hung(row))
        {
            self.end_deadlocks_through(Node::Together(together), effects);
        }
    }

    /// A unit has taken over rows that somebody may need, and waits for its turn. Looks for a cycle if a thread is blocked in that
    /// turn. (Units that are claimed need no look: whoever needs their rows comes after that.)
    pub(super) fn wait_queued(&mut self, queue: SerialQueueId, effects: &mut Effects<P>) {
        let is_blocked = self.waits_for.is_blocked_in_turn(queue);
        let overlooks = weakened("deadlock::overlooks_turns");
        if is_blocked && !overlooks && !self.postpones(Look::Queued(queue)) {
            self.end_deadlocks_through(Node::Turn(queue), effects);
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
        for look in std::mem::take(&mut self.waits_for.postponed) {
            match look {
                Look::Moved(query) => self.look_from(query, effects),
                Look::Hung(row) => self.wait_hung(&[row], effects),
                Look::Queued(queue) => self.wait_queued(queue, effects),
            }
        }
    }

    /// Whether the look must come later; notes it then.
    fn postpones(&mut self, look: Look) -> bool {
        if !self.is_falling() {
            return false;
        }
        let (queries, rows) = (&self.queries, &self.rows);
        let WaitsFor { postponed, sections, .. } = &mut self.waits_for;
        // What has ended makes room before the list grows; where most still waits it grows all the same.
        if postponed.len() == postponed.capacity() {
            postponed.retain(|look| match *look {
                Look::Moved(query) => queries.contains(query),
                Look::Hung(row) => rows.contains(row),
                Look::Queued(queue) => sections.contains_key(&queue),
            });
            postponed.reserve(postponed.len() + 1);
        }
        postponed.push(look);
        true
    }

    /// The aliases of the query that a blocked lookup needs.
    fn watched_aliases_of(&self, query: QueryId) -> Vec<RowId> {
        let watched = |alias: &RowId| self.waits_for.watched.contains_key(alias);
        match self.queries.get(query).map(|query| &query.phase) {
            Some(Phase::Lodged(Lodged { aliases, .. })) => aliases.iter().copied().filter(watched).collect(),
            Some(Phase::Suspended(suspended)) => {
                let Suspended { search, .. } = &**suspended;
                search.aliases.iter().map(|edge| edge.alias).filter(watched).collect()
            }
            None => Vec::new(),
        }
    }

    /// Fails one lookup of each cycle through `node`, until there is none.
    fn end_deadlocks_through(&mut self, node: Node, effects: &mut Effects<P>) {
        // The stack of a thread is asked last: a path from symbol to symbol says more.
        while let Some(cycle) =
            self.deadlock_through(node, false).or_else(|| self.deadlock_through(node, true))
        {
            let path = self.describe_deadlock(&cycle);
            let Some(query) = self.to_be_told(&cycle) else { return };
            self.fail_query(query, LookupError::WouldDeadlock { path }, effects);
        }
    }

    /// The lookup that gets the error: the one that closed the cycle, which is the first, or else the newest that the
    /// cycle leaves by what it looks up.
    fn to_be_told(&self, cycle: &[Node]) -> Option<QueryId> {
        let after = cycle.iter().cycle().skip(1);
        let mut lookups = cycle.iter().zip(after).map(|(node, next)| match (node, next) {
            (Node::Wait(_), Node::Wait(_)) => None,
            (&Node::Wait(wait), _) => self.waits_for.waits.get(wait),
            _ => None,
        });
        let told = match lookups.next() {
            Some(Some(closes)) => Some(closes),
            _ => lookups.flatten().max_by_key(|wait| wait.began),
        };
        told.map(|wait| wait.query)
    }
}
