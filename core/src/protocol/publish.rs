//! Publish: the records by which Ready symbols are found without the lock.
//!
//! All definitions of a name, over all dylibs, are in one list. A name has a record while one of them is
//! Ready; the record is replaced in the transaction that changes the list. Defining a name that is Ready
//! nowhere costs no record.

use crate::ExecutorSymbolDef;
use crate::record::{DEFINITIONS_MAX, RecordedDefinition};

use super::ids::{Id, RowId};
use super::row::{Links, RowState};
use super::slab::NONE;
use super::{Payload, SessionState};

impl<P: Payload> SessionState<P> {
    /// A row has become Ready: its name's record says so.
    pub(crate) fn publish(&mut self, row: RowId) {
        let mut first = row.index();
        // Bounded by how many dylibs define the name; past the limit the record goes anyway.
        let mut steps = 0;
        while self.rows.at(first).namesakes.previous != NONE && steps <= DEFINITIONS_MAX {
            first = self.rows.at(first).namesakes.previous;
            steps += 1;
        }
        self.publish_list(row, first);
    }

    /// Puts a new row into the list of its name. If the name has a record, it lists the row from now on.
    pub(crate) fn link_to_namesakes(&mut self, row: RowId) {
        self.names.insert(row, &mut self.rows);
        let Links { previous, .. } = self.rows[row].namesakes;
        if previous != NONE && self.any_ready(previous) {
            self.records.start_change();
            self.publish(row);
        }
    }

    /// Takes a row out of the list of its name, and out of its record.
    pub(crate) fn unlink_from_namesakes(&mut self, row: RowId) {
        let neighbour = self.names.remove(row, &mut self.rows);
        let was_ready = matches!(self.rows[row].state, RowState::Ready { .. });
        if was_ready || neighbour.is_some_and(|neighbour| self.any_ready(neighbour)) {
            self.records.start_change();
            match neighbour.and_then(|neighbour| self.rows.id_at(neighbour)) {
                Some(neighbour) => self.publish(neighbour),
                None => self.records.replace(&self.rows[row].name, &[]),
            }
        }
    }

    /// Replaces the record of `row`'s name by the list that begins at `first`.
    fn publish_list(&mut self, row: RowId, first: u32) {
        let mut definitions = std::mem::take(&mut self.definitions);
        definitions.clear();
        let mut cursor = first;
        while cursor != NONE && definitions.len() <= DEFINITIONS_MAX {
            let row = self.rows.at(cursor);
            let ready = match row.state {
                RowState::Ready { address } => Some(ExecutorSymbolDef::new(address, row.flags)),
                _ => None,
            };
            definitions.push(RecordedDefinition { dylib: row.dylib, flags: row.flags, ready });
            cursor = row.namesakes.next;
        }
        self.records.replace(&self.rows[row].name, &definitions);
        self.definitions = definitions;
    }

    /// Whether a definition near `from` in its list is Ready: past the limit there is no record to care for.
    fn any_ready(&self, from: u32) -> bool {
        let is_ready = |index: u32| matches!(self.rows.at(index).state, RowState::Ready { .. });
        let after = |index: &u32| Some(self.rows.at(*index).namesakes.next).filter(|&next| next != NONE);
        let before = |index: &u32| Some(self.rows.at(*index).namesakes.previous).filter(|&next| next != NONE);
        let ahead = std::iter::successors(Some(from), after).take(DEFINITIONS_MAX + 1);
        let behind = std::iter::successors(Some(from), before).take(DEFINITIONS_MAX + 1);
        ahead.chain(behind).any(is_ready)
    }
}
