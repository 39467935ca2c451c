//! Queries: lookups that have not ended; what they look for, and who waits for a row.
//!
//! A query is suspended at a generator, or lodged: each symbol that is not far enough yet holds a place
//! in the list of its row. The lists run through the queries' own entries, so lodging allocates nothing
//! beyond the entries and ending a query costs one step a symbol.
//!
//! **Invariant:** a query ends exactly once, by being taken out of the slab.

use smallvec::SmallVec;

use crate::protocol::slices::agenda::SLICE_STEPS;
use crate::protocol::state::rising::RisingPriority;
use crate::protocol::state::{definitions::Definitions, payload::Payload};
use crate::protocol::storage::{ClaimId, DylibId, Id, NONE, QueryId, RowId, Slab, Takes};
use crate::sync::weakened;
use crate::{
    ExecutorSymbolDef, JitDylibLookupFlags, LookupKind, LookupSet, RequiredState, SymbolName, TaskPriority,
    WaitError,
};

use super::{Lookups, generator::Suspended};

/// On whose behalf a thread asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Asker {
    /// The unit's claim. May have ended since.
    pub(crate) claim: ClaimId,
    /// How urgent it was when the thread began to work for it: what counts once the claim has ended.
    pub(crate) priority: TaskPriority,
}

/// A lookup that has not ended.
#[derive(Debug)]
pub(crate) struct Query<H> {
    /// None once the query has ended and only its entries are still to leave their lists.
    pub(crate) handler: Option<H>,
    pub(crate) phase: Phase,
    /// The unit that asked. May have ended since.
    pub(crate) asked_by: Option<ClaimId>,
    /// How urgent it is; none leaves each unit at its own priority.
    pub(crate) priority: Option<RisingPriority>,
}

impl<H> Query<H> {
    /// Whether it has not ended.
    pub(crate) fn is_live(&self) -> bool {
        self.handler.is_some()
    }

    /// On whose behalf its answer is given.
    pub(crate) fn asker(&self) -> Option<Asker> {
        let claim = self.asked_by?;
        Some(Asker { claim, priority: self.priority.map_or(TaskPriority::Demanded, RisingPriority::get) })
    }
}

/// Where a query stands.
#[derive(Debug)]
pub(crate) enum Phase {
    /// A generator was asked, or is busy with another lookup.
    Suspended(Box<Suspended>),
    /// Every symbol has its row; `outstanding` of them are not far enough.
    Lodged(Lodged),
}

/// A query whose symbols have their rows.
#[derive(Debug)]
pub(crate) struct Lodged {
    pub(crate) required_state: RequiredState,
    pub(crate) outstanding: usize,
    pub(crate) entries: Entries,
    /// The alias that waits for the row of this query, to be forgotten when it ends.
    pub(crate) alias: Option<RowId>,
    /// The query has ended, and its entries are still leaving their lists.
    pub(crate) ended: bool,
}

/// The symbols of a query; one needs no allocation.
pub(crate) type Entries = SmallVec<[Entry; 1]>;

/// One symbol of a query.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) name: SymbolName,
    pub(crate) row: RowId,
    pub(crate) progress: Progress,
}

/// Whether an entry is still in its row's list.
#[derive(Clone, Debug)]
pub(crate) enum Progress {
    /// In the list, between these neighbours.
    Waiting { previous: Lodging, next: Lodging },
    /// Far enough.
    Found(ExecutorSymbolDef),
}

/// An entry's place: which query, which of its entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lodging {
    pub(crate) query: u32,
    pub(crate) entry: u32,
}

impl Lodging {
    /// The end of a list.
    pub(crate) const NONE: Self = Self { query: NONE, entry: NONE };

    pub(crate) fn is_none(self) -> bool {
        self.query == NONE
    }
}

impl Lodged {
    /// The entry after `here` in its row's list.
    pub(crate) fn next_of(&self, here: Lodging) -> Lodging {
        self.entries[here.entry as usize].next()
    }
}

impl Entry {
    /// The entry after it in its row's list.
    pub(super) fn next(&self) -> Lodging {
        match self.progress {
            Progress::Waiting { next, .. } => next,
            Progress::Found(_) => Lodging::NONE,
        }
    }

    pub(super) fn set_previous(&mut self, new: Lodging) {
        if let Progress::Waiting { previous, .. } = &mut self.progress {
            *previous = new;
        }
    }

    /// Whether its row is not far enough yet.
    pub(crate) fn waits(&self) -> bool {
        matches!(self.progress, Progress::Waiting { .. })
    }
}

/// The symbols that a lookup searches, and the order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Search {
    pub(crate) kind: LookupKind,
    pub(crate) order: Order,
    pub(crate) symbols: LookupSet,
    pub(crate) required_state: RequiredState,
    /// For the lookup of an alias's source, which is all that it asks for: the alias.
    pub(crate) alias: Option<RowId>,
    /// Search the link order of this dylib, as it is when the lookup begins, instead of `order`.
    pub(crate) along: Option<DylibId>,
    /// Flags alone are asked for: nothing is claimed.
    pub(crate) flags_only: bool,
    /// The query whose generator makes this lookup, which that generator must not keep waiting. It asks for flags only.
    pub(crate) on_behalf_of: Option<QueryId>,
    /// The work in progress of a closing session may still look up.
    pub(crate) by_task: bool,
    /// The unit that asks.
    pub(crate) asked_by: Option<Asker>,
    /// How urgent the lookup says it is.
    pub(crate) priority: Option<TaskPriority>,
    /// Its time is over: it asks for nothing that is not there.
    pub(crate) is_late: bool,
    /// Why its thread may not wait for symbols that are not there.
    pub(crate) refusal: Option<WaitError>,
    /// How often generators and link orders had changed before the first generator was asked.
    pub(crate) began_at: Option<u32>,
}

/// Dylibs to search, mostly one or two.
pub(crate) type Order = SmallVec<[(DylibId, JitDylibLookupFlags); 2]>;

impl<P: Payload> Lookups<P> {
    /// Puts each entry of `query` that waits into the list of its row, which must be in a state to wait in.
    pub(crate) fn lodge(&mut self, query: QueryId, definitions: &mut Definitions<P>) {
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
            let Some(waiting) = definitions.waiting_for(entry.row, required_state) else { continue };
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

    /// The row of the list that begins at `first` has come as far as `reached`: each entry whose query wants no more is found. Gives the
    /// queries that have everything now.
    ///
    /// The row may have left the states that hold a list already.
    #[inline]
    pub(crate) fn find(
        &mut self,
        first: Lodging,
        reached: RequiredState,
        found: ExecutorSymbolDef,
        definitions: &mut Definitions<P>,
    ) -> SmallVec<[QueryId; 4]> {
        let mut cursor = first;
        let mut satisfied = SmallVec::new();
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
                self.unlink(here, definitions);
                lodged = lodged_at(&mut self.queries, here);
                entry = &mut lodged.entries[here.entry as usize];
            }
            entry.progress = Progress::Found(found);
            lodged.outstanding -= 1;
            let has_all = lodged.outstanding == 0 || weakened("lodge::ends_with_its_first_symbol");
            if has_all && !lodged.ended {
                satisfied.extend(self.queries.id_at(here.query));
            }
        }
        satisfied
    }

    /// The query at a place in a row's list, and the first place behind it that is another query's.
    ///
    /// A query may be in the list twice, and leaves with all its entries.
    pub(crate) fn query_and_next(&self, at: Lodging) -> (Option<QueryId>, Lodging) {
        let mut next = at;
        while !next.is_none() && next.query == at.query {
            let Phase::Lodged(lodged) = &self.queries.at(next.query).phase else {
                panic!("a suspended query is in no row's list");
            };
            next = lodged.next_of(next);
        }
        (self.queries.id_at(at.query), next)
    }

    /// The query at a place in a row's list.
    pub(crate) fn lodged_at(&self, at: Lodging) -> Option<(&Query<P::Handler>, &Lodged)> {
        if at.is_none() {
            return None;
        }
        let query = self.queries.at(at.query);
        match &query.phase {
            Phase::Lodged(lodged) => Some((query, lodged)),
            Phase::Suspended(_) => None,
        }
    }

    /// Takes entries of an ended query out of the lists of their rows, and at last the query out of the slab, which it
    /// then says.
    pub(crate) fn unlodge(
        &mut self,
        id: QueryId,
        budget: &mut usize,
        definitions: &mut Definitions<P>,
        memory: &mut impl Takes,
    ) -> bool {
        while let Some(Query { phase: Phase::Lodged(lodged), .. }) = self.queries.get_mut(id)
            && let Some(last) = lodged.entries.len().checked_sub(1)
        {
            if *budget == 0 {
                return false;
            }
            *budget -= 1;
            // Fits: `lodge` has checked it.
            if !weakened("fail::leaves_ended_lookups_lodged") {
                self.unlink(Lodging { query: id.index(), entry: last as u32 }, definitions);
            }
            if let Some(Query { phase: Phase::Lodged(lodged), .. }) = self.queries.get_mut(id) {
                lodged.entries.pop();
            }
        }
        if let Some(Query { phase: Phase::Lodged(lodged), .. }) = self.queries.remove(id, memory)
            && lodged.entries.capacity() > SLICE_STEPS
        {
            memory.take_memory(Box::new(lodged.entries));
        }
        true
    }

    /// Takes an entry out of its row's list, if it is in one.
    fn unlink(&mut self, here: Lodging, definitions: &mut Definitions<P>) {
        let entry = &lodged_at(&mut self.queries, here).entries[here.entry as usize];
        let Progress::Waiting { previous, next } = entry.progress else { return };
        let row = entry.row;
        if !next.is_none() {
            set_previous(&mut self.queries, next, previous);
        }
        if previous.is_none() {
            // The row of an ended query may be gone before its entry.
            if let Some(waiting) = definitions.waiting_mut(row)
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
