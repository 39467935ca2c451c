//! End: a query is answered, fails, or is withdrawn. It ends once.

use uruk_recorder::Kind;

use crate::protocol::state::{Effects, Leftover, Payload, SessionState};
use crate::protocol::storage::{QueryId, RowId};
use crate::{EventKind, ExecutorSymbolDef, LookupError, RequiredState, SymbolFlags, SymbolName};

use super::query::{Entries, Entry, Lodging, Progress, Query};
use super::{Answered, TakenOut};

impl<P: Payload> SessionState<P> {
    /// Ends a query without an answer, because none is wanted any more. Says whether it had not ended before.
    ///
    /// # Cost
    /// One step for each of its symbols, in slices if there are many.
    pub(crate) fn withdraw(&mut self, query: QueryId, effects: &mut Effects<P>) -> bool {
        let Some((handler, symbols)) = self.take_out(query, effects) else { return false };
        effects.leave(Leftover::Handler(handler));
        self.noted.act(Kind::Withdrawn, query, None);
        self.observe(effects, || EventKind::Withdrawn { symbols });
        true
    }

    /// Ends a query with an error. One that comes too late leaves through `effects`: it may hold the last
    /// reference to a value of the embedder.
    pub(crate) fn fail_query(&mut self, query: QueryId, error: LookupError, effects: &mut Effects<P>) {
        let asker = self.lookups.query(query).and_then(Query::asker);
        let Some((handler, symbols)) = self.take_out(query, effects) else {
            effects.leave(Leftover::Error(error));
            return;
        };
        effects.complete_for(asker, handler, Err(error));
        self.noted.act(Kind::QueryFailed, query, None);
        self.observe(effects, || EventKind::QueryFailed { symbols });
    }

    /// Tells the queries in the list that begins at `first` that their row has come as far as `reached`.
    ///
    /// The row may have left the states that hold a list already.
    pub(crate) fn satisfy(
        &mut self,
        row: RowId,
        first: Lodging,
        reached: RequiredState,
        effects: &mut Effects<P>,
    ) {
        if let Some(found) = self.definitions[row].found(RequiredState::Resolved) {
            self.tell_lodged(first, reached, found, effects);
        }
    }

    /// The same, for a caller that has the definition at hand.
    pub(crate) fn tell_lodged(
        &mut self,
        first: Lodging,
        reached: RequiredState,
        found: ExecutorSymbolDef,
        effects: &mut Effects<P>,
    ) {
        for query in self.lookups.find(first, reached, found, &mut self.definitions) {
            self.complete(query, effects);
        }
    }

    /// Fails every query in the list that begins at `first`, whose row has left the states that hold one.
    pub(crate) fn fail_lodged(&mut self, first: Lodging, error: &LookupError, effects: &mut Effects<P>) {
        let mut cursor = first;
        while !cursor.is_none() {
            let (query, next) = self.lookups.query_and_next(cursor);
            if let Some(query) = query {
                self.fail_query(query, error.clone(), effects);
            }
            cursor = next;
        }
    }

    /// Ends a query with its answer.
    pub(crate) fn complete(&mut self, query: QueryId, effects: &mut Effects<P>) {
        let Some(Answered { handler, asker, entries }) = self.lookups.complete(query, effects) else {
            return;
        };
        let symbols = entries.len();
        effects.complete_for(asker, handler, Ok(Answer::of(entries)));
        self.noted.act(Kind::Completed, query, None);
        self.observe(effects, || EventKind::Completed { symbols });
    }

    /// Ends a query and gives back its handler. A lodged one is taken out of the lists of its rows and then out of the
    /// slab, at once or, if it is large, in slices.
    pub(crate) fn take_out(&mut self, id: QueryId, effects: &mut Effects<P>) -> Option<(P::Handler, usize)> {
        let TakenOut { handler, symbols, is_lodged } = self.lookups.take_out(id, effects)?;
        self.losses.note();
        if is_lodged && symbols > (self.agenda.slice_steps() / 4).max(1) {
            self.agenda.end_later(id);
        } else if is_lodged {
            let mut unlimited = usize::MAX;
            self.unlodge(id, &mut unlimited, effects);
        }
        Some((handler, symbols))
    }

    /// Goes on with taking the query that ended first out of its rows' lists.
    pub(crate) fn bury_query(&mut self, query: QueryId, budget: &mut usize, effects: &mut Effects<P>) {
        if self.unlodge(query, budget, effects) {
            self.agenda.drop_ended(effects);
        }
    }

    fn unlodge(&mut self, query: QueryId, budget: &mut usize, effects: &mut Effects<P>) -> bool {
        let is_gone = self.lookups.unlodge(query, budget, &mut self.definitions, effects);
        if is_gone {
            // Its last entries may have kept units wanted.
            self.losses.note();
        }
        is_gone
    }
}

/// The finds of a query as it leaves the state: no step through them is taken under the lock.
#[derive(Debug)]
pub(crate) struct Answer {
    entries: Entries,
    /// Only flags were asked for, no addresses.
    flags_only: bool,
}

impl Answer {
    /// An answer that tells what symbols are, whether or not they have an address.
    pub(crate) fn of_flags(entries: Entries) -> Self {
        Self { entries, flags_only: true }
    }

    /// The answer of a lookup that has found all it waited for.
    pub(crate) fn of(entries: Entries) -> Self {
        Self { entries, flags_only: false }
    }

    /// The symbol of an answer about one, if it has an address.
    #[inline]
    pub(crate) fn into_one(mut self) -> Option<Found> {
        self.entries.pop()?.into_found(self.flags_only)
    }

    /// The entries of the symbols that have an address, or all if their flags were asked for.
    pub(crate) fn into_entries(mut self) -> FoundEntries {
        self.entries.retain(|entry| entry.found(self.flags_only).is_some());
        FoundEntries(self.entries)
    }

    /// The symbols that have an address, or all if their flags were asked for.
    pub(crate) fn into_found(self) -> impl Iterator<Item = Found> {
        let flags_only = self.flags_only;
        self.entries.into_iter().filter_map(move |entry| entry.into_found(flags_only))
    }
}

/// The entries of an answer, without those that found nothing. An answer of ten thousand symbols keeps the memory in which
/// they were collected.
#[derive(Clone, Debug)]
pub(crate) struct FoundEntries(Entries);

impl FoundEntries {
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn get(&self, position: usize) -> Option<(&SymbolName, RowId, &ExecutorSymbolDef)> {
        let entry = self.0.get(position)?;
        Some((&entry.name, entry.row, entry.found(true)?))
    }
}

impl IntoIterator for FoundEntries {
    type Item = Found;
    type IntoIter = std::iter::FilterMap<smallvec::IntoIter<[Entry; 1]>, fn(Entry) -> Option<Found>>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter().filter_map(|entry| entry.into_found(true))
    }
}

/// One symbol of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) name: SymbolName,
    pub(crate) row: RowId,
    pub(crate) definition: ExecutorSymbolDef,
}

impl Entry {
    /// The definition found, if it is part of the answer. Symbols without an address are not.
    fn found(&self, flags_only: bool) -> Option<&ExecutorSymbolDef> {
        let Progress::Found(definition) = &self.progress else { return None };
        let has_no_address = definition.flags.contains(SymbolFlags::MATERIALIZATION_SIDE_EFFECTS_ONLY);
        (flags_only || !has_no_address).then_some(definition)
    }

    fn into_found(self, flags_only: bool) -> Option<Found> {
        let definition = *self.found(flags_only)?;
        Some(Found { name: self.name, row: self.row, definition })
    }
}
