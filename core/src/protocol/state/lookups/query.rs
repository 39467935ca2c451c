//! Queries: lookups that have not ended.
//!
//! A query is suspended at a generator, or lodged: each symbol that is not far enough yet holds a place
//! in the list of its row. The lists run through the queries' own entries, so lodging allocates nothing
//! beyond the entries and ending a query costs one step a symbol.
//!
//! **Invariant:** a query ends exactly once, by being taken out of the slab.

use smallvec::SmallVec;

use crate::protocol::state::rising::RisingPriority;
use crate::protocol::storage::{ClaimId, NONE, RowId};
use crate::{ExecutorSymbolDef, RequiredState, SymbolName, TaskPriority};

use super::generator::Suspended;

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
