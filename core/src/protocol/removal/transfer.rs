//! Trackers: what is removed together. Created, filled, joined.

use crate::sync::weakened;

use crate::protocol::removal::product::Resources;
use crate::protocol::state::SessionState;
use crate::protocol::state::dylib::Dylib;
use crate::protocol::state::effects::Effects;
use crate::protocol::state::payload::Payload;
use crate::protocol::state::row::{Links, Row};
use crate::protocol::storage::ids::{DylibId, Id, RowId, TrackerId};
use crate::protocol::storage::slab::NONE;

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
    /// go (`condemned.rs`).
    pub(crate) era: u32,
    pub(crate) resources: Resources<R>,
}

impl<P: Payload> SessionState<P> {
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

    pub(crate) fn create_tracker_in(&mut self, dylib: DylibId) -> TrackerId {
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

    /// Takes a tracker that has no rows any more out of its dylib.
    pub(crate) fn delete_tracker(&mut self, tracker: TrackerId, effects: &mut Effects<P>) {
        if self.trackers.contains(tracker) {
            self.unlink_tracker(tracker);
            self.trackers.discard(tracker, effects);
        }
    }

    /// Takes a tracker out of its dylib's list.
    pub(crate) fn unlink_tracker(&mut self, tracker: TrackerId) {
        let Tracker { dylib, links, .. } = self.trackers[tracker];
        self.close_gap(links, dylib);
    }

    /// Closes the gap in a dylib's list between the neighbours of a tracker.
    pub(in crate::protocol) fn close_gap(&mut self, Links { previous, next }: Links, dylib: DylibId) {
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
        self.trackers.contains(tracker) && !self.tracker_is_condemned(tracker)
    }

    /// Whether the tracker was removed or transferred, or has been emptied for good by closing the session.
    pub(crate) fn tracker_is_defunct(&self, tracker: TrackerId) -> bool {
        self.is_closed() || !self.tracker_lives(tracker)
    }

    /// See [`crate::ResourceTracker::transfer_to`]. The default tracker's rows move too, but it stays.
    pub(crate) fn transfer_tracker(
        &mut self,
        source: TrackerId,
        destination: TrackerId,
        effects: &mut Effects<P>,
    ) -> Result<(), Defunct> {
        if !self.tracker_lives(source) || !self.tracker_lives(destination) {
            return Err(Defunct);
        }
        if source == destination {
            return Ok(());
        }
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
            self.delete_tracker(source, effects);
        }
        Ok(())
    }

    /// The last handle is gone: what the tracker still has belongs to the default tracker.
    pub(crate) fn release_tracker(&mut self, tracker: TrackerId, effects: &mut Effects<P>) {
        if !self.tracker_lives(tracker) {
            return;
        }
        let default = self.dylibs[self.trackers[tracker].dylib].default_tracker;
        if !weakened("transfer::last_handle_gives_nothing") {
            // Both are live, so that nothing is refused.
            let _ = self.transfer_tracker(tracker, default, effects);
        }
    }

    /// Puts a new row in front of `next`, which was the first, as the row says.
    pub(crate) fn link_to_tracker(&mut self, row: RowId, tracker: TrackerId, next: u32) {
        let tracker = &mut self.trackers[tracker];
        tracker.rows += 1;
        tracker.first_row = row.index();
        if next != NONE {
            self.rows.at_mut(next).links.previous = row.index();
        }
    }

    pub(crate) fn unlink_from_tracker(&mut self, row: RowId) {
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
