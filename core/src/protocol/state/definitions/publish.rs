//! Publish: the entries by which Ready symbols are found without the lock.
//!
//! All definitions of a name, over all dylibs, are in one list. A name has an entry while one of them is Ready; the
//! entry changes in the transaction that changes the list. Defining a name that is Ready nowhere costs no entry.
//! Where a name has many definitions, its entry stays until most of them are gone, so that the cost of all of them
//! is not paid twice.

use crate::protocol::state::payload::Payload;
use crate::protocol::storage::{Id, NONE, RowId, Takes};
use crate::ready_index::IndexedDefinition;
use crate::sync::weakened;
use crate::{ExecutorAddr, SymbolFlags};

use super::Definitions;
use super::row::{Row, RowState};

impl<P: Payload> Definitions<P> {
    /// A row has become Ready: its name's entry says so.
    pub(super) fn publish(&mut self, row: RowId) {
        let here = &self.rows[row];
        let (Row { name, namesakes, .. }, definition) = (here, indexed(row, here));
        match namesakes.is_alone() {
            true => self.ready_index.publish_alone(name, definition),
            false => {
                if !self.ready_index.publish(name, definition) {
                    let (name, all) = (name.clone(), self.namesakes(row));
                    self.ready_index.publish_first(&name, all);
                }
            }
        }
    }

    /// The source of an alias is gone: no lookup finds the alias from now on. Says whether anything has changed by that.
    pub(in crate::protocol) fn strand(&mut self, id: RowId) -> bool {
        let Some(row) = self.rows.get_mut(id) else { return false };
        let is_ready = matches!(row.state, RowState::Ready { .. });
        // One that is Ready, and does not know it yet, is to be Ready in this way. One that has yet to come so far fails.
        if row.is_stranded() || !(is_ready || matches!(row.state, RowState::Emitted { .. })) {
            return false;
        }
        row.flags |= SymbolFlags::STRANDED;
        let row = &self.rows[id];
        // The entry of a row being removed may be that of its successor.
        if is_ready && !self.row_is_removing(row) && !weakened("hold::alias_keeps_its_record") {
            self.ready_index.appear(&row.name, indexed(id, row));
        }
        true
    }

    /// Puts a new row into the list of its name. If the name has an entry, it lists the row from now on.
    pub(super) fn link_to_namesakes(&mut self, row: RowId, memory: &mut impl Takes) {
        self.names.insert(row, &mut self.rows, memory);
        if !self.rows[row].namesakes.is_alone() {
            self.ready_index.appear(&self.rows[row].name, indexed(row, &self.rows[row]));
        }
    }

    /// Takes a row out of the list of its name, and out of its entry.
    pub(super) fn unlink_from_namesakes(&mut self, row: RowId, memory: &mut impl Takes) {
        let neighbour = self.names.remove(row, &mut self.rows, memory);
        let here = &self.rows[row];
        let Row { name, dylib, state, .. } = here;
        // A definition that follows one being removed in its dylib has taken its place in the entry.
        if self.row_is_removing(here) && self.find(*dylib, name).is_some() {
            return;
        }
        match (neighbour, state) {
            (Some(_), _) => self.ready_index.disappear(name, *dylib),
            (None, RowState::Ready { .. }) => self.ready_index.disappear_alone(name),
            // The name has no entry.
            (None, _) => {}
        }
    }

    /// All definitions of a row's name, its own included, but for those that are being removed.
    fn namesakes(&self, row: RowId) -> Vec<IndexedDefinition> {
        let linked = |index: u32| Some(index).filter(|&index| index != NONE);
        let before = std::iter::successors(linked(self.rows[row].namesakes.previous), |&index| {
            linked(self.rows.at(index).namesakes.previous)
        });
        let from_it =
            std::iter::successors(Some(row.index()), |&index| linked(self.rows.at(index).namesakes.next));
        let lives = |index: &u32| !self.row_is_removing(self.rows.at(*index));
        let listed = |index: u32| Some(indexed(self.rows.id_at(index)?, self.rows.at(index)));
        before.chain(from_it).filter(lives).filter_map(listed).collect()
    }
}

/// A row as the ready index has it.
fn indexed(id: RowId, row: &Row) -> IndexedDefinition {
    let (address, is_ready) = match row.state {
        RowState::Ready { address } => (address, true),
        _ => (ExecutorAddr::NULL, false),
    };
    IndexedDefinition { dylib: row.dylib, row: id, address, flags: row.flags, is_ready }
}
