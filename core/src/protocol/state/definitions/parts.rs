//! Parts: what only tests may see and do. They count what definitions are made of, and break them, to see that checks notice.

use std::collections::HashMap;

use crate::ids::{ClaimId, DylibId, TrackerId, UnitId};
use crate::protocol::state::payload::Payload;
use crate::protocol::state::pending::PendingUnit;
use crate::protocol::storage::slab::Slab;
use crate::ready_index::ReadyIndexWriter;
use crate::sync::Arc;

use super::Definitions;
use super::claim::Claim;
use super::dylib::Dylib;
use super::row::RowSlab;
use super::tracker::Tracker;

/// Much of what definitions are made of.
pub(crate) struct Parts<'d, P: Payload> {
    pub(in crate::protocol) rows: &'d mut RowSlab,
    pub(in crate::protocol) ready_index: &'d mut ReadyIndexWriter,
    pub(in crate::protocol) dylibs: &'d mut Slab<DylibId, Dylib>,
    pub(in crate::protocol) dylib_names: &'d mut HashMap<Arc<str>, DylibId>,
    pub(in crate::protocol) trackers: &'d mut Slab<TrackerId, Tracker<P::Resource>>,
    pub(in crate::protocol) units: &'d mut Slab<UnitId, Box<PendingUnit<P::Unit>>>,
    pub(in crate::protocol) claims: &'d mut Slab<ClaimId, Claim>,
    pub(in crate::protocol) is_observed: &'d mut bool,
}

/// How many there are of each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(in crate::protocol) rows: usize,
    pub(in crate::protocol) units: usize,
    pub(in crate::protocol) claims: usize,
    pub(in crate::protocol) dylibs: usize,
    pub(in crate::protocol) trackers: usize,
    pub(in crate::protocol) names: usize,
    pub(in crate::protocol) records: usize,
}

impl<P: Payload> Definitions<P> {
    pub(in crate::protocol) fn parts(&mut self) -> Parts<'_, P> {
        let Self { rows, ready_index, dylibs, dylib_names, trackers, units, claims, is_observed, .. } = self;
        Parts { rows, ready_index, dylibs, dylib_names, trackers, units, claims, is_observed }
    }

    pub(in crate::protocol) fn counts(&self) -> Counts {
        Counts {
            rows: self.rows.len(),
            units: self.units.len(),
            claims: self.claims.len(),
            dylibs: self.dylibs.len(),
            trackers: self.trackers.len(),
            names: self.names.len(),
            records: self.ready_index.len(),
        }
    }

    /// How many rows, units and claims there is room for.
    pub(in crate::protocol) fn room(&self) -> [usize; 3] {
        [self.rows.capacity(), self.units.capacity(), self.claims.capacity()]
    }

    pub(in crate::protocol) fn trackers(&self) -> impl Iterator<Item = &Tracker<P::Resource>> {
        self.trackers.iter().map(|(_, tracker)| tracker)
    }
}

impl Claim {
    pub(in crate::protocol) fn break_count(&mut self) {
        self.carried += 1;
    }

    pub(in crate::protocol) fn break_tracker(&mut self, tracker: TrackerId) {
        self.tracker = tracker;
    }
}
