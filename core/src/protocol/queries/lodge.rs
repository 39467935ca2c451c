//! Lodge: a query takes its places in the lists of its rows, is told there, and leaves them when it ends.
//!
//! The lists run through the queries' own entries, so lodging allocates nothing beyond the entries and ending a query costs
//! one step a symbol.
//!
//! **Invariant:** a query ends exactly once, by being taken out of the slab.

use smallvec::SmallVec;

use crate::sync::weakened;
use crate::{EventKind, ExecutorSymbolDef, LookupError, RequiredState};

use crate::protocol::slices::agenda::SLICE_STEPS;
use crate::protocol::state::SessionState;
use crate::protocol::state::answer::Answer;
use crate::protocol::state::effects::{Effects, Leftover};
use crate::protocol::state::payload::Payload;
use crate::protocol::state::query::{Lodged, Lodging, Phase, Progress, Query};
use crate::protocol::storage::ids::{Id, QueryId, RowId};
use crate::protocol::storage::memory::Takes;
use crate::protocol::storage::slab::Slab;

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
        let asker = self.queries.get(query).and_then(Query::asker);
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
        let mut cursor = first;
        let mut satisfied: SmallVec<[u32; 4]> = SmallVec::new();
        while !cursor.is_none() {
            let here = cursor;
            let mut lodged = lodged_at(&mut self.queries, here);
            let mut entry = &mut lodged.entries[here.entry as usize];
            cursor = entry.next();
            if lodged.required_state > reached && !weakened("lodge::addresses_answer_everybody") {
                continue;
            }
            // A row that is Ready has left the states that hold a list: all of it goes, and nothing in it is repaired.
            if reached < RequiredState::Ready {
                self.unlink(here);
                lodged = lodged_at(&mut self.queries, here);
                entry = &mut lodged.entries[here.entry as usize];
            }
            entry.progress = Progress::Found(found);
            lodged.outstanding -= 1;
            let has_all = lodged.outstanding == 0 || weakened("lodge::ends_with_its_first_symbol");
            if has_all && !lodged.ended {
                // The usual row has one query.
                if cursor.is_none() && satisfied.is_empty() {
                    if let Some(query) = self.queries.id_at(here.query) {
                        self.complete(query, effects);
                    }
                    return;
                }
                satisfied.push(here.query);
            }
        }
        // Mostly more is outstanding.
        if satisfied.is_empty() {
            return;
        }
        for index in satisfied {
            if let Some(query) = self.queries.id_at(index) {
                self.complete(query, effects);
            }
        }
    }

    /// Fails every query in the list that begins at `first`, whose row has left the states that hold one.
    pub(crate) fn fail_lodged(&mut self, first: Lodging, error: &LookupError, effects: &mut Effects<P>) {
        let mut cursor = first;
        while !cursor.is_none() {
            let query = self.queries.id_at(cursor.query);
            // A query may be in the list twice, and leaves with all its entries: go on behind them.
            let mut next = cursor;
            while !next.is_none() && next.query == cursor.query {
                next = lodged_at(&mut self.queries, next).next_of(next);
            }
            if let Some(query) = query {
                self.fail_query(query, error.clone(), effects);
            }
            cursor = next;
        }
    }

    /// Puts each entry of `query` that waits into the list of its row, which must be in a state to wait in.
    pub(crate) fn lodge(&mut self, query: QueryId) {
        let Some(Query { phase: Phase::Lodged(lodged), .. }) = self.queries.get_mut(query) else { return };
        let required_state = lodged.required_state;
        // Out of the slab for the length of the loop, in which other queries are reached.
        let mut entries = std::mem::take(&mut lodged.entries);
        u32::try_from(entries.len()).expect("a lookup asks for fewer than four billion symbols");
        for place in 0..entries.len() {
            let entry = &mut entries[place];
            if !entry.waits() {
                continue;
            }
            let Some(waiting) = self.definitions.waiting_for(entry.row, required_state) else { continue };
            let here = Lodging { query: query.index(), entry: place as u32 };
            let next = std::mem::replace(&mut waiting.queries, here);
            entry.progress = Progress::Waiting { previous: Lodging::NONE, next };
            if next.is_none() {
                continue;
            }
            // A symbol may be asked for twice.
            match next.query == here.query {
                true => entries[next.entry as usize].set_previous(here),
                false => set_previous(&mut self.queries, next, here),
            }
        }
        lodged_at(&mut self.queries, Lodging { query: query.index(), entry: 0 }).entries = entries;
    }

    /// Ends a query with its answer.
    pub(crate) fn complete(&mut self, query: QueryId, effects: &mut Effects<P>) {
        let asker = self.queries.get(query).and_then(Query::asker);
        let Some(Query { handler: Some(handler), phase: Phase::Lodged(lodged), .. }) =
            self.queries.remove(query, effects)
        else {
            return;
        };
        self.aliases.forget(lodged.alias);
        let symbols = lodged.entries.len();
        effects.complete_for(asker, handler, Ok(Answer::of(lodged.entries)));
        self.observe(effects, || EventKind::Completed { symbols });
    }

    /// Ends a query and gives back its handler. A lodged one is taken out of the lists of its rows and then out of the
    /// slab, at once or, if it is large, in slices.
    pub(crate) fn take_out(&mut self, id: QueryId, effects: &mut Effects<P>) -> Option<(P::Handler, usize)> {
        let query = self.queries.get_mut(id)?;
        let handler = query.handler.take()?;
        self.losses.note();
        let symbols = match &mut query.phase {
            Phase::Suspended(suspended) => {
                let symbols = suspended.search.symbols.len();
                self.aliases.seek_no_more(suspended.search.alias);
                self.queries.discard(id, effects);
                return Some((handler, symbols));
            }
            Phase::Lodged(lodged) => {
                lodged.ended = true;
                self.aliases.forget(lodged.alias);
                lodged.entries.len()
            }
        };
        if symbols > (self.agenda.slice_steps / 4).max(1) {
            self.agenda.ended.push_back(id);
            self.agenda.added = true;
        } else {
            let mut unlimited = usize::MAX;
            self.unlodge(id, &mut unlimited, effects);
        }
        Some((handler, symbols))
    }

    /// Goes on with taking the query that ended first out of its rows' lists.
    pub(in crate::protocol) fn bury_query(
        &mut self,
        query: QueryId,
        budget: &mut usize,
        effects: &mut Effects<P>,
    ) {
        if self.unlodge(query, budget, effects) {
            self.agenda.ended.pop_front(effects);
        }
    }

    /// Takes entries of an ended query out of the lists of their rows, and at last the query out of the slab, which it
    /// then says.
    fn unlodge(&mut self, id: QueryId, budget: &mut usize, effects: &mut Effects<P>) -> bool {
        while let Some(Query { phase: Phase::Lodged(lodged), .. }) = self.queries.get_mut(id)
            && let Some(last) = lodged.entries.len().checked_sub(1)
        {
            if *budget == 0 {
                return false;
            }
            *budget -= 1;
            // Fits: `lodge` has checked it.
            if !weakened("fail::leaves_ended_lookups_lodged") {
                self.unlink(Lodging { query: id.index(), entry: last as u32 });
            }
            if let Some(Query { phase: Phase::Lodged(lodged), .. }) = self.queries.get_mut(id) {
                lodged.entries.pop();
            }
        }
        if let Some(Query { phase: Phase::Lodged(lodged), .. }) = self.queries.remove(id, effects)
            && lodged.entries.capacity() > SLICE_STEPS
        {
            effects.take_memory(Box::new(lodged.entries));
        }
        // Its last entries may have kept units wanted.
        self.losses.note();
        true
    }

    /// Takes an entry out of its row's list, if it is in one.
    fn unlink(&mut self, here: Lodging) {
        let entry = &lodged_at(&mut self.queries, here).entries[here.entry as usize];
        let Progress::Waiting { previous, next } = entry.progress else { return };
        let row = entry.row;
        if !next.is_none() {
            set_previous(&mut self.queries, next, previous);
        }
        if previous.is_none() {
            // The row of an ended query may be gone before its entry.
            if let Some(waiting) = self.definitions.waiting_mut(row)
                && waiting.queries == here
            {
                waiting.queries = if weakened("withdraw::takes_others_along") { Lodging::NONE } else { next };
            }
        } else {
            set_next(&mut self.queries, previous, next);
        }
    }
}

fn lodged_at<H>(queries: &mut Slab<QueryId, Query<H>>, at: Lodging) -> &mut Lodged {
    match &mut queries.at_mut(at.query).phase {
        Phase::Lodged(lodged) => lodged,
        Phase::Suspended(_) => panic!("a suspended query is in no row's list"),
    }
}

fn set_previous<H>(queries: &mut Slab<QueryId, Query<H>>, at: Lodging, new: Lodging) {
    lodged_at(queries, at).entries[at.entry as usize].set_previous(new);
}

fn set_next<H>(queries: &mut Slab<QueryId, Query<H>>, at: Lodging, new: Lodging) {
    if let Progress::Waiting { next, .. } = &mut lodged_at(queries, at).entries[at.entry as usize].progress {
        *next = new;
    }
}
