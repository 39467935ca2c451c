//! Checks of definitions, of the units, claims and trackers that have them, and of the records that lookups without the lock read.

use rustc_hash::FxHashMap;

use crate::protocol::state::payload::Payload;
use crate::protocol::storage::{ClaimId, DylibId, NONE, UnitId};
use crate::ready_index::SEVERAL_AGAIN;
use crate::{JitDylibLookupFlags, SymbolFlags};

use super::{Definitions, dylib::Dylib, row::RowState};

impl<P: Payload> Definitions<P> {
    /// How many entities there are that a check looks at.
    pub(in crate::protocol) fn entities(&self) -> usize {
        self.rows.len() + self.trackers.len()
    }

    /// Panics where definitions are not what this folder promises. Nothing is being removed.
    pub(in crate::protocol) fn check(&self, is_open: bool) {
        self.check_tables();
        self.check_units();
        self.check_claims();
        self.check_products();
        self.check_spares();
        self.check_trackers();
        self.check_initializers();
        self.check_records();
        self.check_gate(is_open);
    }

    /// I15: each row is found by its dylib and its name, and the tables hold nothing else.
    fn check_tables(&self) {
        for (id, row) in self.rows.iter() {
            assert_eq!(self.find(row.dylib, &row.name), Some(id), "a row is found by its name");
        }
        assert_eq!(self.names.len(), self.rows.len(), "tables hold live rows only");
        for (id, dylib) in self.dylibs.iter() {
            assert_eq!(self.dylib_names.get(&dylib.name), Some(&id), "a dylib is found by its name");
            let lives = |(linked, _): &(DylibId, JitDylibLookupFlags)| self.dylibs.contains(*linked);
            assert!(dylib.link_order.iter().all(lives), "`{}` links against what was removed", dylib.name);
        }
        assert_eq!(self.dylib_names.len(), self.dylibs.len(), "names of dylibs are those of dylibs");
    }

    /// I1: a unit's symbols are exactly the rows that hold it.
    fn check_units(&self) {
        let mut held: FxHashMap<UnitId, usize> = FxHashMap::default();
        for (_, row) in self.rows.iter() {
            if let Some(unit) = row.unit() {
                assert!(
                    self.units[unit].symbols.contains_key(&row.name),
                    "a unit knows the rows that hold it"
                );
                *held.entry(unit).or_default() += 1;
            }
        }
        assert_eq!(held.len(), self.units.len(), "a unit waits in at least one row");
        for (id, unit) in self.units.iter() {
            assert_eq!(held.get(&id), Some(&unit.symbols.len()), "rows hold the unit they are listed in");
        }
    }

    /// I1, I12: what is claimed has a claim, which knows it.
    fn check_claims(&self) {
        let mut carried: FxHashMap<ClaimId, usize> = FxHashMap::default();
        for (_, row) in self.rows.iter() {
            if let Some(claim) = row.claim() {
                *carried.entry(claim).or_default() += 1;
                let claim =
                    self.claims.get(claim).unwrap_or_else(|| panic!("`{}` has lost its claim", row.name));
                assert_eq!(self.dylib_of_claim(claim), Some(row.dylib), "a claim is where its rows are");
                assert_eq!(claim.tracker, row.tracker, "a claim is where its rows are");
            }
        }
        for (id, claim) in self.claims.iter() {
            assert_eq!(
                carried.get(&id).copied().unwrap_or(0),
                claim.carried() as usize,
                "a claim counts its rows"
            );
            assert_eq!(
                self.rows_of_claim(id).len(),
                claim.carried() as usize,
                "a claim knows the rows that carry it"
            );
            assert!(
                claim.carried() == 0 || self.trackers.contains(claim.tracker),
                "{id:?} has lost its tracker"
            );
        }
    }

    /// I15: each row is in the list of its tracker, each tracker in that of its dylib.
    fn check_trackers(&self) {
        let mut listed = 0;
        for (id, tracker) in self.trackers.iter() {
            let lives = self.dylibs.get(tracker.dylib).is_some_and(|dylib| dylib.era == tracker.era);
            assert!(lives, "{id:?} was removed and is still there");
            let (mut cursor, mut previous) = (tracker.first_row, NONE);
            let listed_before = listed;
            while cursor != NONE {
                let row = self.rows.at(cursor);
                assert_eq!((row.tracker, row.links.previous), (id, previous), "a tracker lists its rows");
                assert_eq!(row.dylib, tracker.dylib, "a tracker is where its rows are");
                (previous, cursor) = (cursor, row.links.next);
                listed += 1;
            }
            assert_eq!(tracker.rows, (listed - listed_before) as u64, "a tracker counts its rows");
        }
        assert_eq!(listed, self.rows.len(), "each row is in the list of one tracker");
        for dylib in self.dylibs.iter().map(|(_, dylib)| dylib).filter(|_| self.is_observed) {
            let rows: u64 = self.trackers_of(dylib).map(|tracker| self.trackers[tracker].rows).sum();
            assert_eq!(dylib.rows, rows, "a dylib counts its rows");
        }
        let linked: usize = self.dylibs.iter().map(|(_, dylib)| self.trackers_of(dylib).count()).sum();
        assert_eq!(linked, self.trackers.len(), "each tracker is in the list of its dylib");
        let default_lives = |dylib: &Dylib| self.trackers.contains(dylib.default_tracker);
        assert!(self.dylibs.iter().all(|(_, dylib)| default_lives(dylib)), "a default tracker lives");
    }

    /// I15: an initializer's number goes with its row.
    fn check_initializers(&self) {
        let noted = self.initializers.noted();
        for &(row, dylib, number) in &noted {
            let row = self.rows.get(row).expect("an initializer that is noted is defined");
            assert_eq!(row.dylib, dylib, "initializer {number} is where it was defined");
        }
    }

    /// I13: exactly the names that are Ready somewhere have a record, which lists all their definitions; a name with
    /// many of them may keep it longer.
    pub(super) fn check_records(&self) {
        let (mut recorded, mut listed) = (0, 0);
        for first in self.names.iter() {
            let (mut rows, mut cursor) = (Vec::new(), first);
            while cursor != NONE {
                rows.push(self.rows.at(cursor));
                cursor = self.rows.at(cursor).namesakes.next;
            }
            listed += rows.len();
            let is_ready = rows.iter().any(|row| matches!(row.state, RowState::Ready { .. }));
            let Some(mut told) = self.ready_index.indexed(&rows[0].name) else {
                assert!(!is_ready, "`{}` is Ready and has no record", rows[0].name);
                continue;
            };
            assert!(
                is_ready || rows.len() > SEVERAL_AGAIN,
                "`{}` is not Ready and has a record",
                rows[0].name
            );
            recorded += 1;
            rows.sort_unstable_by_key(|row| row.dylib);
            told.sort_unstable_by_key(|told| told.dylib);
            assert_eq!(told.len(), rows.len());
            for (told, row) in told.iter().zip(&rows) {
                let address = match row.state {
                    RowState::Ready { address } => Some(address),
                    _ => None,
                };
                assert_eq!((told.dylib, told.is_ready.then_some(told.address)), (row.dylib, address));
                assert_eq!(self.find(row.dylib, &row.name), Some(told.row));
                let exported = |flags: SymbolFlags| flags.contains(SymbolFlags::EXPORTED);
                assert_eq!(
                    exported(told.flags),
                    exported(row.flags),
                    "`{}` changed its visibility",
                    row.name
                );
            }
        }
        assert_eq!(listed, self.rows.len(), "each row is in the list of its name");
        assert!(recorded <= self.ready_index.len());
    }

    /// I13: readers know which dylibs there are and which of them generate, and are refused when the session takes no
    /// lookups.
    pub(super) fn check_gate(&self, is_open: bool) {
        for (id, dylib) in self.dylibs.iter() {
            let generates = !dylib.generators.is_empty();
            assert_eq!(self.ready_index.generates(id), Some(generates), "whether `{}` generates", dylib.name);
        }
        let (closed, removing) = self.ready_index.refuses();
        assert_eq!(closed, !is_open, "readers know whether the session is open");
        assert!(!removing, "readers are refused though no row is left to be removed");
    }
}
