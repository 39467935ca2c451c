//! Check: what holds between any two transactions.
//!
//! Costs as much as the state is large, so in debug builds it runs after every transaction on a small
//! state and after every so many on a large one: checking stays within a constant factor of the work.

use rustc_hash::{FxHashMap, FxHashSet};

use crate::SymbolFlags;
use crate::record::SEVERAL_AGAIN;

use super::generate::Generator;
use super::ids::{ClaimId, FailureId, Id, RowId, UnitId};
use super::query::{Lodging, Phase, Progress, Query};
use super::row::RowState;
use super::slab::NONE;
use super::waiting_on::NodeState;
use super::{Payload, SessionState};

/// How many entities a state may hold for each transaction between two checks.
const ENTITIES_FOR_EACH_TRANSACTION: usize = 16;

impl<P: Payload> SessionState<P> {
    /// Runs [`Self::check`] if it is due.
    pub(crate) fn check_now_and_then(&mut self) {
        self.unchecked += 1;
        let entities = self.rows.len() + self.queries.len() + self.trackers.len();
        if self.unchecked * ENTITIES_FOR_EACH_TRANSACTION >= entities && !self.has_work() {
            self.unchecked = 0;
            self.check();
        }
    }

    /// Panics where the state is not what its parts promise. The forest has nothing left to do.
    pub(crate) fn check(&self) {
        self.check_tables();
        self.check_units();
        self.check_claims();
        self.check_trackers();
        self.check_queries();
        self.check_waiting();
        self.check_failures();
        self.check_generators();
        self.check_waits();
        self.check_records();
        self.check_urgency();
    }

    /// I13: exactly the names that are Ready somewhere have a record, which lists all their definitions; a name with
    /// many of them may keep it longer.
    fn check_records(&self) {
        let (mut recorded, mut listed) = (0, 0);
        for first in self.names.iter() {
            let (mut rows, mut cursor) = (Vec::new(), first);
            while cursor != NONE {
                rows.push(self.rows.at(cursor));
                cursor = self.rows.at(cursor).namesakes.next;
            }
            listed += rows.len();
            let is_ready = rows.iter().any(|row| matches!(row.state, RowState::Ready { .. }));
            let Some(mut told) = self.records.recorded(&rows[0].name) else {
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
        assert!(recorded <= self.records.len());
    }

    /// Each row is found by its dylib and its name, and the tables hold nothing else.
    fn check_tables(&self) {
        for (id, row) in self.rows.iter() {
            assert_eq!(self.find(row.dylib, &row.name), Some(id), "a row is found by its name");
        }
        assert_eq!(self.names.len(), self.rows.len(), "tables hold live rows only");
        for (id, dylib) in self.dylibs.iter() {
            assert_eq!(self.dylib_names.get(&dylib.name), Some(&id));
            assert!(dylib.link_order.iter().all(|(linked, _)| self.dylibs.contains(*linked)));
        }
        assert_eq!(self.dylib_names.len(), self.dylibs.len());
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
            assert_eq!(held.get(&id), Some(&unit.symbols.len()));
        }
    }

    fn check_claims(&self) {
        let mut carried: FxHashMap<ClaimId, usize> = FxHashMap::default();
        for (_, row) in self.rows.iter() {
            if let Some(claim) = row.claim() {
                *carried.entry(claim).or_default() += 1;
                assert_eq!(self.claims[claim].dylib, row.dylib);
                assert_eq!(self.claims[claim].tracker, row.tracker, "a claim is where its rows are");
            }
        }
        for (id, claim) in self.claims.iter() {
            assert_eq!(carried.get(&id).copied().unwrap_or(0), claim.carried);
            assert_eq!(self.rows_of_claim(id).len(), claim.carried, "a claim knows the rows that carry it");
        }
        assert!(carried.keys().all(|claim| self.claims.contains(*claim)));
    }

    fn check_trackers(&self) {
        let mut listed = 0;
        for (id, tracker) in self.trackers.iter() {
            let (mut cursor, mut previous) = (tracker.first_row, NONE);
            let listed_before = listed;
            while cursor != NONE {
                let row = self.rows.at(cursor);
                assert_eq!((row.tracker, row.links.previous), (id, previous));
                assert_eq!(row.dylib, tracker.dylib);
                (previous, cursor) = (cursor, row.links.next);
                listed += 1;
            }
            assert_eq!(tracker.rows, (listed - listed_before) as u64);
        }
        assert_eq!(listed, self.rows.len(), "each row is in the list of one tracker");
        let linked: usize = self.dylibs.iter().map(|(id, _)| self.trackers_of(id).len()).sum();
        assert_eq!(linked, self.trackers.len());
        let default_lives = |dylib: &super::Dylib| self.trackers.contains(dylib.default_tracker);
        assert!(self.dylibs.iter().all(|(_, dylib)| default_lives(dylib)));
    }

    /// I2: a lodged query waits for something, in the lists of exactly the rows that are not far enough.
    fn check_queries(&self) {
        let (mut aliases, mut sought) = (0, 0);
        for (id, query) in self.queries.iter() {
            let lodged = match &query.phase {
                Phase::Lodged(lodged) => lodged,
                Phase::Suspended(suspended) => {
                    sought += suspended.search.aliases.len();
                    continue;
                }
            };
            let waiting =
                lodged.entries.iter().filter(|entry| matches!(entry.progress, Progress::Waiting { .. }));
            assert_eq!(waiting.count(), lodged.outstanding);
            assert!(lodged.outstanding > 0, "{id:?} has everything and has not ended");
            aliases += lodged.aliases.len();
        }
        assert_eq!(self.aliases.len(), (aliases, sought));
        let mut listed = 0;
        for (id, row) in self.rows.iter() {
            listed += row.waiting().map_or(0, |waiting| self.check_list(id, waiting.queries));
        }
        let outstanding = |query: &Query<P::Handler>| match &query.phase {
            Phase::Lodged(lodged) => lodged.outstanding,
            Phase::Suspended(_) => 0,
        };
        assert_eq!(listed, self.queries.iter().map(|(_, query)| outstanding(query)).sum());
    }

    fn check_list(&self, row: RowId, first: Lodging) -> usize {
        let (mut cursor, mut before, mut length) = (first, Lodging::NONE, 0);
        while !cursor.is_none() {
            let Phase::Lodged(lodged) = &self.queries.at(cursor.query).phase else {
                panic!("a suspended query is in a row's list");
            };
            let entry = &lodged.entries[cursor.entry as usize];
            assert_eq!(entry.row, row);
            let Progress::Waiting { previous, next } = entry.progress else {
                panic!("a found entry is in a list")
            };
            assert_eq!(previous, before);
            (before, cursor) = (cursor, next);
            length += 1;
        }
        length
    }

    /// I4: a row and the forest agree on how far the row is.
    fn check_waiting(&self) {
        let (mut nodes, mut waits) = (0, false);
        for (id, row) in self.rows.iter() {
            waits |= matches!(row.state, RowState::Emitted { .. });
            let node = row.waiting().and_then(|waiting| waiting.node);
            nodes += usize::from(node.is_some());
            match (&row.state, node) {
                (RowState::Emitted { .. }, Some(node)) => {
                    assert_eq!(self.forest.state(node), NodeState::Waiting)
                }
                (RowState::Emitted { .. }, None) => panic!("{id:?} is emitted and waits for nothing"),
                (_, Some(node)) => assert_eq!(self.forest.state(node), NodeState::Unemitted),
                (_, None) => {}
            }
        }
        // A node that fell stays while others of its component stand.
        assert!(nodes <= self.forest.len(), "each row has a node of its own");
        assert!(waits || nodes == self.forest.len(), "the forest holds the nodes of rows only");
    }

    fn check_failures(&self) {
        let mut referred: FxHashMap<FailureId, usize> = FxHashMap::default();
        for (_, row) in self.rows.iter() {
            if let RowState::Failed { failure, .. } = row.state {
                *referred.entry(failure).or_default() += 1;
            }
        }
        assert!(self.fallen.is_empty(), "all that waited on removed rows has failed");
        for (id, failure) in self.failures.iter() {
            assert_eq!(referred.get(&id), Some(&failure.rows));
        }
        assert_eq!(referred.len(), self.failures.len());
    }

    /// A generator that is free has an empty queue, but for lookups that have ended.
    fn check_generators(&self) {
        let mut of_dylibs = FxHashSet::default();
        for (_, dylib) in self.dylibs.iter() {
            of_dylibs.extend(dylib.generators.iter().map(|id| id.index()));
        }
        assert_eq!(of_dylibs.len(), self.generators.len());
        for (_, Generator { occupant, queue, .. }) in self.generators.iter() {
            let waits = queue.iter().any(|query| self.queries.contains(*query));
            assert!(occupant.is_some() || !waits, "a lookup waits for a generator that is free");
        }
    }
}
