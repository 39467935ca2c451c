//! End: a query is answered, fails, or is withdrawn. It ends once.

use crate::{EventKind, ExecutorSymbolDef, LookupError, RequiredState};

use crate::protocol::state::{
    Answer, Answered, Effects, Leftover, Lodging, Payload, Query, SessionState, TakenOut,
};
use crate::protocol::storage::{QueryId, RowId};

impl<P: Payload> SessionState<P> {
    /// Ends a query without an answer, because nobody wants one any more. Says whether it had not ended before.
    ///
    /// # Cost
    /// One step for each of its symbols, in slices if there are many.
    pub(crate) fn withdraw(&mut self, query: QueryId, effects: &mut Effects<P>) -> bool {
        let Some((handler, symbols)) = self.take_out(query, effects) else { return false };
        effects.leave(Leftover::Handler(handler));
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

    /// The same, by whoever has at hand what there is to tell.
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
