//! Definitions: rows, and all that must agree with them.
//!
//! ```text
//!   name  ─▶ row ◀─▶ row of another dylib        names.rs    publish.rs (records of what is Ready)
//!   dylib ─▶ tracker ─▶ rows, resources          dylib.rs    tracker.rs    product.rs
//!   unit  ◀─ its rows, until it is claimed       claim.rs    initializers.rs
//!   claim ◀─ its rows, until they are emitted    claim.rs
//! ```
//!
//! Everybody may read. A row, a dylib and a tracker are never given out to be changed: all functions that change them are here, and
//! each keeps the drawing above true.
//!
//! | what | is changed by |
//! |---|---|
//! | dylibs, their names, link orders and generators | `create_dylib`, `delete_dylib`; `set_link_order`, `add_to_link_order`, `begin_link_order`, `replace_in_link_order`, `remove_from_link_order`; `add_generator`, `remove_generator`, `take_generators` |
//! | trackers and their resources | `create_tracker`, `transfer`, `take_from_dylib`, `discard_tracker`; `add_resource`, `add_claim_resource`, `take_orphans` |
//! | spares | `keep_spare`, `take_spare`, `end_spare` |
//! | trackers being removed | `begin_removing`, `begin_removing_all`, `discard_removing`, `take_cleared` |
//! | rows that come and go | `define`, `define_address`, `define_claimed`; `delete_row` |
//! | units and claims | `claim`, `give_back`, `rename_unit`, `delegate`, `end_claim` |
//! | how far a row is | `claim`, `give_back`, `resolve`, `emit`, `make_ready`, `fail` |
//!
//! The waiters of a row (`waiting_mut`) and the priority of a claim (`claim_mut`) belong to lookups, the forest and `urgency/`.
//!
//! **Invariant:** `check.rs`.

#[cfg(any(test, debug_assertions))]
mod check;
pub(crate) mod claim;
pub(crate) mod dylib;
mod initializers;
mod names;
#[cfg(all(test, not(uruk_loom)))]
mod parts;
pub(crate) mod product;
mod publish;
pub(crate) mod removing;
pub(in crate::protocol) mod row;
mod rows;
pub(crate) mod spare;
pub(crate) mod tracker;

use std::collections::HashMap;
use std::fmt;
use std::ops::Index;

use crate::SymbolName;
use crate::protocol::state::{payload::Payload, pending::PendingUnit};
use crate::protocol::storage::{ClaimId, DylibId, RowId, Slab, TrackerId, UnitId};
use crate::ready_index::{ReadyIndex, ReadyIndexWriter};
use crate::sync::Arc;

use claim::Claim;
use dylib::Dylib;
use initializers::Initializers;
use names::NameIndex;
use product::Products;
use removing::RemovingTrackers;
use row::{Row, RowSlab};
use spare::Spares;
use tracker::Tracker;

pub(crate) use names::FirstNamed;
pub(crate) use rows::{RemovedRow, RowNotice};

/// The definitions: symbols, their dylibs, and the units that provide them.
pub(crate) struct Definitions<P: Payload> {
    rows: RowSlab,
    names: NameIndex,
    /// The records that lookups of Ready symbols read without the lock.
    ready_index: ReadyIndexWriter,
    initializers: Initializers,
    dylibs: Slab<DylibId, Dylib>,
    dylib_names: HashMap<Arc<str>, DylibId>,
    /// How many dylibs have been created.
    dylibs_created: u64,
    trackers: Slab<TrackerId, Tracker<P::Resource>>,
    removing: RemovingTrackers<P::Resource>,
    /// Those that wait in their rows.
    units: Slab<UnitId, Box<PendingUnit<P::Unit>>>,
    claims: Slab<ClaimId, Claim>,
    products: Products,
    spares: Spares<P::Unit>,
    /// Resources whose last row was removed by name, with its dylib; only while an operation removes.
    orphans: Vec<(DylibId, P::Resource)>,
    /// There are observers: rows are counted by dylib, and the removal of each is reported.
    is_observed: bool,
}

impl<P: Payload> Definitions<P> {
    pub(super) fn new(is_observed: bool) -> Self {
        Self {
            rows: Slab::new(),
            names: NameIndex::new(),
            ready_index: ReadyIndexWriter::new(),
            initializers: Initializers::default(),
            dylibs: Slab::new(),
            dylib_names: HashMap::default(),
            dylibs_created: 0,
            trackers: Slab::new(),
            removing: RemovingTrackers::default(),
            units: Slab::new(),
            claims: Slab::of_passing(),
            products: Slab::new(),
            spares: Spares::default(),
            orphans: Vec::new(),
            is_observed,
        }
    }

    /// The row, if it has not been removed. It may be on its way out.
    #[inline]
    pub(crate) fn row(&self, row: RowId) -> Option<&Row> {
        self.rows.get(row)
    }

    /// All rows, those being removed too.
    pub(crate) fn rows(&self) -> impl Iterator<Item = (RowId, &Row)> {
        self.rows.iter()
    }

    /// Those of the rows that lie among the first `count` places.
    pub(in crate::protocol) fn first_rows(&self, count: u32) -> impl Iterator<Item = (RowId, &Row)> {
        (0..self.rows.end().min(count)).filter_map(|index| self.rows.entry_at(index))
    }

    /// How many definitions have come and gone.
    pub(in crate::protocol) fn name_changes(&self) -> u64 {
        self.names.changes()
    }

    /// See [`crate::ExecutionSession::definition_changes`].
    pub(crate) fn definition_changes(&self) -> u64 {
        // A definition that is being removed is found no more, and goes later.
        self.name_changes() + self.removals_begun()
    }

    /// The row of `name` in `dylib`.
    pub(crate) fn find(&self, dylib: DylibId, name: &SymbolName) -> Option<RowId> {
        let lives = |row: &Row| !self.row_is_removing(row);
        self.rows.id_at(self.names.find(dylib, name, &self.rows, lives)?)
    }

    /// Some definition of a name in some dylib, to be given to [`Self::named_in`]. None if no dylib has one.
    #[inline]
    pub(in crate::protocol) fn first_named(&self, name: &SymbolName) -> Option<FirstNamed> {
        self.names.first(name, &self.rows)
    }

    /// The same as [`Self::find`], for who asks several dylibs for one name.
    #[inline]
    pub(in crate::protocol) fn named_in(
        &self,
        first: FirstNamed,
        dylib: DylibId,
        name: &SymbolName,
    ) -> Option<(RowId, &Row)> {
        let lives = |row: &Row| !self.row_is_removing(row);
        self.rows.entry_at(self.names.find_among(first, dylib, name, &self.rows, lives)?)
    }

    pub(crate) fn dylib(&self, dylib: DylibId) -> Option<&Dylib> {
        self.dylibs.get(dylib)
    }

    pub(crate) fn has_dylib(&self, dylib: DylibId) -> bool {
        self.dylibs.contains(dylib)
    }

    pub(crate) fn dylibs(&self) -> impl Iterator<Item = (DylibId, &Dylib)> {
        self.dylibs.iter()
    }

    /// A unit that waits in its rows.
    pub(crate) fn unit(&self, unit: UnitId) -> Option<&PendingUnit<P::Unit>> {
        self.units.get(unit).map(|unit| &**unit)
    }

    /// The records that lookups of Ready symbols read without the lock.
    pub(crate) fn ready_index(&self) -> Arc<ReadyIndex> {
        self.ready_index.clone()
    }

    /// Readers see what has changed.
    #[inline]
    pub(in crate::protocol) fn end_change(&self) {
        self.ready_index.end_change();
    }

    /// So many names are about to have a record.
    pub(in crate::protocol) fn expect_ready(&mut self, names: usize) {
        self.ready_index.expect(names);
    }

    /// Nothing is found without the lock any more.
    pub(in crate::protocol) fn close_ready_index(&self) {
        self.ready_index.close();
    }
}

/// Finds by ids that must be live: a stale one is a bug in the protocol.
macro_rules! found_by {
    ($($id:ty => $field:ident: $entity:ty;)*) => {$(
        impl<P: Payload> Index<$id> for Definitions<P> {
            type Output = $entity;

            #[inline]
            fn index(&self, id: $id) -> &$entity {
                &self.$field[id]
            }
        }
    )*};
}

found_by! {
    RowId => rows: Row;
    DylibId => dylibs: Dylib;
    TrackerId => trackers: Tracker<P::Resource>;
    ClaimId => claims: Claim;
}

impl<P: Payload> fmt::Debug for Definitions<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Definitions")
            .field("dylibs", &self.dylibs)
            .field("rows", &self.rows)
            .finish_non_exhaustive()
    }
}
