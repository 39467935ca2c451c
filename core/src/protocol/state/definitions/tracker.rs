//! Trackers: what is removed together. Created, filled, joined.

use crate::protocol::state::payload::Payload;
use crate::protocol::storage::{DylibId, Id, NONE, RowId, Takes, TrackerId};
use crate::sync::weakened;

use super::row::{Links, Row};
use super::{Definitions, dylib::Dylib, product::Resources};

/// A group of rows and resources. A tracker that was removed or transferred is not in the slab.
#[derive(Debug)]
pub(crate) struct Tracker<R> {
    pub(crate) dylib: DylibId,
    /// The first of a list through the rows.
    pub(crate) first_row: u32,
    /// How many rows there are.
    pub(crate) rows: u64,
    /// The neighbours in the list of the dylib's trackers, newest first.
    pub(crate) links: Links,
    /// How often the dylib had been cleared before; another number if the tracker was removed and some of its rows are still to
    /// go (`removing.rs`).
    pub(crate) era: u32,
    pub(crate) resources: Resources<R>,
}

impl<P: Payload> Definitions<P> {
    /// A new tracker; defunct from the start if the dylib was removed.
    pub(crate) fn create_tracker(&mut self, dylib: DylibId) -> TrackerId {
        match self.dylibs.contains(dylib) {
            true => self.create_tracker_in(dylib),
            false => TrackerId::new(NONE, 0),
        }
    }

    /// The tracker of what is defined without one; defunct if the dylib was removed.
    pub(crate) fn default_tracker(&self, dylib: DylibId) -> TrackerId {
        self.dylibs.get(dylib).map_or(TrackerId::new(NONE, 0), |dylib| dylib.default_tracker)
    }

    pub(super) fn create_tracker_in(&mut self, dylib: DylibId) -> TrackerId {
        let Dylib { newest_tracker: next, era, .. } = self.dylibs[dylib];
        let links = Links { previous: NONE, next };
        let tracker = self.trackers.insert(Tracker {
            dylib,
            first_row: NONE,
            rows: 0,
            links,
            era,
            resources: Resources::default(),
        });
        if next != NONE {
            self.trackers.at_mut(next).links.previous = tracker.index();
        }
        self.dylibs[dylib].newest_tracker = tracker.index();
        tracker
    }

    /// Takes a tracker out of its dylib's list, before its rows go; a default tracker is followed by a fresh one. Gives its resources.
    pub(in crate::protocol) fn take_from_dylib(&mut self, tracker: TrackerId) -> Resources<P::Resource> {
        let Tracker { dylib, links, ref mut resources, .. } = self.trackers[tracker];
        let (mut links, resources) = (links, std::mem::take(resources));
        if self.dylibs[dylib].default_tracker == tracker {
            self.dylibs[dylib].default_tracker = self.create_tracker_in(dylib);
            links = self.trackers[tracker].links;
        }
        self.close_gap(links, dylib);
        resources
    }

    /// The last row of a tracker that is in no dylib's list any more is gone: it goes too.
    pub(in crate::protocol) fn discard_tracker(&mut self, tracker: TrackerId, memory: &mut impl Takes) {
        debug_assert!(self.trackers[tracker].first_row == NONE, "no more rows are linked than are counted");
        if !weakened("remove::tracker_lives_on") {
            self.trackers.discard(tracker, memory);
        }
    }

    /// Takes a tracker that has no rows any more out of its dylib.
    pub(super) fn delete_tracker(&mut self, tracker: TrackerId, memory: &mut impl Takes) {
        if let Some(&Tracker { dylib, links, .. }) = self.trackers.get(tracker) {
            self.close_gap(links, dylib);
            self.trackers.discard(tracker, memory);
        }
    }

    /// The resources of a tracker; none if it is defunct, or is being removed.
    pub(crate) fn resources_of(&self, tracker: TrackerId) -> impl Iterator<Item = &P::Resource> {
        self.trackers.get(tracker).into_iter().flat_map(|tracker| tracker.resources.iter())
    }

    /// The resources of a dylib's trackers; none if it was removed.
    pub(crate) fn resources_of_dylib(&self, dylib: DylibId) -> impl Iterator<Item = &P::Resource> {
        let trackers = self.dylibs.get(dylib).into_iter().flat_map(|dylib| self.trackers_of(dylib));
        trackers.flat_map(|tracker| self.resources_of(tracker))
    }

    /// The newest row of a tracker.
    pub(in crate::protocol) fn first_row_of(&self, tracker: TrackerId) -> Option<RowId> {
        self.rows.id_at(self.trackers.get(tracker)?.first_row)
    }

    /// The rows of a tracker, newest first.
    pub(in crate::protocol) fn rows_of_tracker(&self, tracker: TrackerId) -> impl Iterator<Item = RowId> {
        let next = |row: &RowId| self.rows.id_at(self.rows[*row].links.next);
        std::iter::successors(self.first_row_of(tracker), next)
    }

    /// Closes the gap in a dylib's list between the neighbours of a tracker.
    fn close_gap(&mut self, Links { previous, next }: Links, dylib: DylibId) {
        if next != NONE {
            self.trackers.at_mut(next).links.previous = previous;
        }
        if previous != NONE {
            self.trackers.at_mut(previous).links.next = next;
        } else {
            self.dylibs[dylib].newest_tracker = next;
        }
    }

    /// Whether the tracker is there for everybody.
    pub(crate) fn tracker_lives(&self, tracker: TrackerId) -> bool {
        self.trackers.contains(tracker) && !self.tracker_is_removing(tracker)
    }

    /// Moves rows and resources of a tracker to another one of its dylib. A tracker that is not its dylib's default one goes.
    pub(in crate::protocol) fn transfer(
        &mut self,
        source: TrackerId,
        destination: TrackerId,
        memory: &mut impl Takes,
    ) {
        let mut cursor = self.trackers[source].first_row;
        let mut last = NONE;
        while cursor != NONE {
            let row = self.rows.at_mut(cursor);
            row.tracker = destination;
            if let Some(claim) = row.claim()
                && !weakened("transfer::leaves_claims_behind")
            {
                self.claims[claim].tracker = destination;
            }
            last = cursor;
            cursor = row.links.next;
        }
        self.splice(source, last, destination);
        let mut moved = std::mem::take(&mut self.trackers[source].resources);
        if !weakened("transfer::leaves_resources_behind") {
            self.trackers[destination].resources.append(&mut moved, &mut self.products);
        }
        if self.dylibs[self.trackers[source].dylib].default_tracker != source {
            self.delete_tracker(source, memory);
        }
    }

    /// Puts a new row in front of `next`, which was the first, as the row says.
    pub(super) fn link_to_tracker(&mut self, row: RowId, tracker: TrackerId, next: u32) {
        let tracker = &mut self.trackers[tracker];
        tracker.rows += 1;
        tracker.first_row = row.index();
        if next != NONE {
            self.rows.at_mut(next).links.previous = row.index();
        }
    }

    pub(super) fn unlink_from_tracker(&mut self, row: RowId) {
        let Row { tracker, links: Links { previous, next }, .. } = self.rows[row];
        let tracker = &mut self.trackers[tracker];
        tracker.rows -= 1;
        if previous == NONE {
            tracker.first_row = next;
        } else {
            self.rows.at_mut(previous).links.next = next;
        }
        if next != NONE {
            self.rows.at_mut(next).links.previous = previous;
        }
    }

    /// Puts the whole row list of `source`, which ends at `last`, in front of that of `destination`.
    fn splice(&mut self, source: TrackerId, last: u32, destination: TrackerId) {
        if last == NONE {
            return;
        }
        let moved = std::mem::take(&mut self.trackers[source].rows);
        self.trackers[destination].rows += moved;
        let first = std::mem::replace(&mut self.trackers[source].first_row, NONE);
        let behind = std::mem::replace(&mut self.trackers[destination].first_row, first);
        self.rows.at_mut(last).links.next = behind;
        if behind != NONE {
            self.rows.at_mut(behind).links.previous = last;
        }
    }
}

/// A tracker was removed or transferred.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Defunct;
