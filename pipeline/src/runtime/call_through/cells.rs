//! The cells of each unit of stubs, by an id: linked data names them by it.

use std::ops::Deref;

use uruk_core::sync::Arc;

use super::Destination;
use super::id_table::{FoundValue, IdTable, TableChanges, TableId};
use crate::runtime::forks::{LockOrder, RuntimeLock};

/// The cells of the stubs of one unit, by their numbers.
pub(crate) type Cells = Arc<[Box<dyn Destination>]>;

/// First calls and counted calls look here, perhaps in the handler of a signal.
static CELLS: IdTable<Cells> = IdTable::new();

/// Held while a unit's cells come or go, and over a whole fork. Never while cells are dropped, nor by a call.
static CHANGES: RuntimeLock<TableChanges> = RuntimeLock::new(LockOrder::StubCells, TableChanges::new());

/// Cells that stubs can name. Dropping it takes their id back; calls that are under way keep the cells.
pub(crate) struct NamedCells {
    cells: Cells,
    id: TableId,
}

impl NamedCells {
    /// Gives the cells an id.
    pub(crate) fn new(cells: Cells) -> Self {
        let (id, gone) = {
            let mut changes = CHANGES.lock();
            (CELLS.insert(&mut changes, cells.clone()), CELLS.collect(&mut changes))
        };
        drop(gone); // without the lock: code may go with them
        Self { cells, id }
    }

    /// The id, for linked data.
    pub(crate) fn id(&self) -> TableId {
        self.id
    }
}

impl Deref for NamedCells {
    type Target = Cells;

    fn deref(&self) -> &Cells {
        &self.cells
    }
}

impl Drop for NamedCells {
    fn drop(&mut self) {
        let gone = {
            let mut changes = CHANGES.lock();
            CELLS.remove(&mut changes, self.id);
            CELLS.collect(&mut changes)
        };
        drop(gone); // as above
    }
}

/// The cells of a unit whose stubs are there.
pub(super) fn find(id: u64) -> Option<FoundValue<'static, Cells>> {
    CELLS.find(TableId::of(id))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_found_until_their_unit_goes() {
        let named = NamedCells::new(Arc::new([]));
        let id = named.id().number();
        let found = find(id).expect("the unit is there");
        assert!(Arc::ptr_eq(&found, &named));
        drop(named);
        assert!(find(id).is_none());
        drop(found);
    }
}
