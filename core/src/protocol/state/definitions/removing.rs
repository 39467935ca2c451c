//! Removing: trackers go for everybody at one moment, row by row after it.
//!
//! A tracker may hold a million rows, and a dylib have a million trackers; all of them go at one moment. The tracker is
//! *removing*: from then on it is defunct, no lookup finds its rows, its claims act on nothing, tokens of its rows are tokens
//! of removed rows. The rows themselves go in slices. Until the last one is gone, lookups of Ready symbols take the lock,
//! because records still have them. A tracker of a few rows is removed at once, within one transaction, and is never in this
//! state.
//!
//! ```text
//!   dylib, era 3    newest ─▶ tracker, era 3 ─▶ tracker, era 3
//!   removing        newest ─▶ tracker, era 2 ─▶ tracker, era 2 ─▶ tracker, era 2        went when the dylib was cleared
//!                          ─▶ tracker, era 2                                            went by itself
//! ```
//!
//! Clearing a dylib looks at none of its trackers: it takes the whole list off, and begins an *era*. A tracker of another era than
//! its dylib's is being removed, and so is one whose dylib is gone. Eras that are still in use are close together, so none comes
//! again meanwhile.
//!
//! Trackers being removed are in no dylib's list, and their dylib may be removed before them: its name is kept. The resources of a
//! cleared dylib are gathered tracker by tracker, for the thread that cleared it.

use std::collections::VecDeque;

use crate::protocol::state::payload::Payload;
use crate::protocol::storage::{DylibId, Id, NONE, Pieces, RowId, Takes, TrackerId};
use crate::sync::Arc;

use super::row::{Links, Row};
use super::{Definitions, product::Resources, tracker::Tracker};

/// The trackers that are being removed, in the order in which they go.
pub(super) struct RemovingTrackers<R> {
    removals: VecDeque<RemovingList>,
    /// How many removals there have been.
    begun: u64,
    /// The resources of dylibs that are being cleared, or were, until the clearing thread takes them along: by tracker, the
    /// newest first.
    cleared: Vec<(Clearing, Pieces<Resources<R>>)>,
}

impl<R> Default for RemovingTrackers<R> {
    fn default() -> Self {
        Self { removals: VecDeque::new(), begun: 0, cleared: Vec::new() }
    }
}

/// Trackers that were removed at one moment, and have rows left that must not be seen.
#[derive(Debug)]
struct RemovingList {
    /// The first of a list through the trackers, which is not empty.
    tracker: u32,
    dylib: DylibId,
    dylib_name: Arc<str>,
    /// The place of the next event of a row that goes: what was removed at one moment is so before everything that came
    /// after it.
    next_removed: u64,
}

/// The clearing of a dylib, by its place in the order of all removals by tracker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Clearing(u64);

/// The resources of a dylib that was cleared, by tracker.
pub(crate) struct Cleared<R>(Pieces<Resources<R>>);

impl<R: Send + 'static> Cleared<R> {
    /// Newest last.
    pub(crate) fn into_resources(self) -> Vec<R> {
        self.0.into_entries().rev().flat_map(Resources::into_vec).collect()
    }
}

impl<P: Payload> Definitions<P> {
    /// Whether the tracker was removed, and has rows left that must not be seen.
    #[inline]
    pub(crate) fn tracker_is_removing(&self, tracker: TrackerId) -> bool {
        self.is_removing()
            && self.trackers.get(tracker).is_some_and(|tracker| {
                self.dylibs.get(tracker.dylib).is_none_or(|dylib| dylib.era != tracker.era)
            })
    }

    /// Whether the row was removed with its tracker and only has to go yet.
    #[inline]
    pub(crate) fn row_is_removing(&self, row: &Row) -> bool {
        self.tracker_is_removing(row.tracker)
    }

    /// Whether trackers are being removed.
    #[inline]
    pub(in crate::protocol) fn is_removing(&self) -> bool {
        !self.removing.removals.is_empty()
    }

    /// How many removals by tracker have begun so far: what to give to [`Self::is_removed`].
    pub(crate) fn removals_begun(&self) -> u64 {
        self.removing.begun
    }

    /// Whether the first `removals_begun` removals are over.
    pub(crate) fn is_removed(&self, removals_begun: u64) -> bool {
        self.removing.begun - self.removing.removals.len() as u64 >= removals_begun
    }

    /// The name of the row's dylib, which may be gone before a row being removed.
    pub(crate) fn dylib_name_of(&self, row: &Row) -> Arc<str> {
        if let Some(dylib) = self.dylibs.get(row.dylib) {
            return dylib.name.clone();
        }
        let removing = self.removing.removals.iter().find(|removing| removing.dylib == row.dylib);
        removing.expect("only rows being removed outlive their dylib").dylib_name.clone()
    }

    /// Removes the tracker for everybody. Gives its resources. The events of its rows have places from `next_removed` on.
    pub(in crate::protocol) fn begin_removing(
        &mut self,
        id: TrackerId,
        next_removed: u64,
    ) -> Resources<P::Resource> {
        let resources = self.take_from_dylib(id);
        let tracker = &mut self.trackers[id];
        let Tracker { dylib, rows, .. } = *tracker;
        let state = &mut self.dylibs[dylib];
        tracker.links = Links::ALONE;
        tracker.era = state.era.wrapping_sub(1);
        if self.is_observed {
            state.rows -= rows;
        }
        self.begin_removing_list(id.index(), dylib, next_removed);
        resources
    }

    /// Removes all trackers of the dylib for everybody. The events of its rows have places from `next_removed` on.
    pub(in crate::protocol) fn begin_removing_all(&mut self, id: DylibId, next_removed: u64) -> Clearing {
        let dylib = &mut self.dylibs[id];
        dylib.era = dylib.era.wrapping_add(1);
        let newest = std::mem::replace(&mut dylib.newest_tracker, NONE);
        dylib.rows = 0;
        self.dylibs[id].default_tracker = self.create_tracker_in(id);
        self.begin_removing_list(newest, id, next_removed);
        Clearing(self.removing.begun)
    }

    /// Notes the trackers of a list.
    fn begin_removing_list(&mut self, tracker: u32, dylib: DylibId, next_removed: u64) {
        let dylib_name = self.dylibs[dylib].name.clone();
        self.removing.removals.push_back(RemovingList { tracker, dylib, dylib_name, next_removed });
        self.removing.begun += 1;
    }

    /// Readers without the lock are refused while trackers are being removed.
    pub(in crate::protocol) fn hide_removing(&self) {
        if self.is_removing() {
            self.ready_index.set_removing(true);
        }
    }

    /// The next row that goes because its tracker is being removed. None if the tracker that is first in line has no more rows.
    pub(in crate::protocol) fn first_removing(&self) -> Option<RowId> {
        let removing = self.removing.removals.front()?;
        self.rows.id_at(self.trackers.at(removing.tracker).first_row)
    }

    /// The tracker that is first in line goes, after its last row. Says whether that was the last tracker of its removal.
    pub(in crate::protocol) fn discard_removing(&mut self, memory: &mut impl Takes) -> bool {
        let Some(removing) = self.removing.removals.front_mut() else { return true };
        let tracker = self.trackers.at_mut(removing.tracker);
        let resources = std::mem::take(&mut tracker.resources);
        let next = tracker.links.next;
        let id = self.trackers.id_at(std::mem::replace(&mut removing.tracker, next));
        let behind = self.removing.removals.len() as u64 - 1;
        self.gather(Clearing(self.removing.begun - behind), resources);
        if let Some(id) = id {
            self.discard_tracker(id, memory);
        }
        if next == NONE {
            self.removing.removals.pop_front();
            if self.removing.removals.is_empty() {
                self.ready_index.set_removing(false);
            }
        }
        next == NONE
    }

    /// The place of the event that a row being removed goes.
    pub(super) fn next_removed(&mut self) -> u64 {
        let removing = self.removing.removals.front_mut();
        let removing = removing.expect("a row being removed goes when its tracker is first in line");
        removing.next_removed += 1;
        removing.next_removed - 1
    }

    /// The resources of a dylib that was cleared, if its last row is gone.
    pub(crate) fn take_cleared(&mut self, clearing: Clearing) -> Option<Cleared<P::Resource>> {
        if !self.is_removed(clearing.0) {
            return None;
        }
        let cleared = &mut self.removing.cleared;
        let place = cleared.iter().position(|(of, _)| *of == clearing);
        Some(Cleared(place.map_or(Pieces::new(), |place| cleared.remove(place).1)))
    }

    /// Keeps what a tracker of a dylib that is being cleared had.
    fn gather(&mut self, clearing: Clearing, resources: Resources<P::Resource>) {
        let cleared = &mut self.removing.cleared;
        match cleared.last_mut() {
            _ if resources.is_empty() => {}
            // One is at work at a time.
            Some((last, lists)) if *last == clearing => lists.push_back(resources),
            _ => {
                let mut lists = Pieces::new();
                lists.push_back(resources);
                cleared.push((clearing, lists));
            }
        }
    }
}
