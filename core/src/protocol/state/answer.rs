//! Answers: what a query has found, on its way out.

use crate::{ExecutorSymbolDef, SymbolFlags, SymbolName};

use crate::protocol::state::lookups::query::{Entries, Entry, Progress};
use crate::protocol::storage::RowId;

/// What a query has found, as it leaves the state: no step of it is taken under the lock.
#[derive(Debug)]
pub(crate) struct Answer {
    entries: Entries,
    /// Nobody has asked where the symbols are.
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
    /// What was found, if that is part of the answer. Symbols without an address are not.
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
