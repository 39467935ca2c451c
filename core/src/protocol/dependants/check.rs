//! The invariants between any two calls.

use rustc_hash::FxHashMap;

use crate::protocol::storage::{Id, NONE, RowId};

use super::Dependants;

impl Dependants {
    /// I15: what is kept is of rows that are there, and each edge is in the lists that it belongs to.
    pub(in crate::protocol) fn check(&self, is_there: impl Fn(RowId) -> bool) {
        let (known, rows) = self.rows.entries();
        let (mut emitted, mut listed) = (FxHashMap::<u32, u32>::default(), 0);
        let mut entries = 0;
        for (row, entry) in rows {
            entries += 1;
            assert!(is_there(row), "{row:?} is gone, and its dependants are kept");
            if entry.emission != NONE {
                *emitted.entry(entry.emission).or_default() += 1;
            }
            let (mut cursor, mut previous) = (entry.first, NONE);
            while cursor != NONE {
                let edge = self.needs.at(cursor);
                assert_eq!((edge.needed, edge.previous), (row, previous), "a row lists the edges to it");
                (previous, cursor) = (cursor, edge.next);
                listed += 1;
            }
        }
        assert_eq!(entries, known, "known rows are counted");
        let mut edges = 0;
        for (id, emission) in self.emissions.iter() {
            let own = |&&row: &&RowId| self.rows.get(row).is_some_and(|known| known.emission == id.index());
            assert_eq!(
                emission.rows.iter().filter(own).count(),
                emission.left as usize,
                "an emission has its rows"
            );
            assert_eq!(emitted.get(&id.index()), Some(&emission.left), "an emission counts its rows");
            assert!(emission.first != NONE, "an emission that needs nothing is not kept");
            let mut cursor = emission.first;
            while cursor != NONE {
                let edge = self.needs.at(cursor);
                assert_eq!(edge.emission, id.index(), "an emission lists its edges");
                listed += usize::from(!self.rows.knows(edge.needed));
                cursor = edge.next_of_emission;
                edges += 1;
            }
        }
        assert_eq!(emitted.len(), self.emissions.len(), "rows know emissions that are there");
        assert_eq!(edges, self.needs.len(), "each edge is in the list of its emission");
        assert_eq!(listed, edges, "each edge is in the list of a row, or leads to what is gone");
    }
}
