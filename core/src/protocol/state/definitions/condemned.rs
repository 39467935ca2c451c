//! Condemned trackers: removed for everybody at one moment, row by row after it.
//!
//! A tracker may hold a million rows, and a dylib have a million trackers; all of them go at one moment. The tracker is
//! *condemned*: from then on it is defunct, nobody finds its rows, its claims act on nothing, tokens of its rows are tokens of
//! removed rows. The rows themselves go in slices. Until the last one is gone, lookups of what is Ready take the lock, because
//! records still tell of them. A tracker of a few rows is removed at once, within one transaction, and is never condemned.
//!
//! ```text
//!   dylib, era 3    newest ─▶ tracker, era 3 ─▶ tracker, era 3
//!   condemned       newest ─▶ tracker, era 2 ─▶ tracker, era 2 ─▶ tracker, era 2        went when the dylib was cleared
//!                          ─▶ tracker, era 2                                            went by itself
//! ```
//!
//! To clear a dylib looks at none of its trackers: it takes the whole list off, and begins an *era*. A tracker of another era
//! than its dylib's is condemned, and so is one whose dylib is gone. Eras of which somebody still knows are close together, so
//! that none comes again meanwhile.
//!
//! Condemned trackers are in no dylib's list, and their dylib may be removed before them: its name is kept. The resources of a
//! cleared dylib are gathered tracker by tracker, for whoever has cleared it.

use std::collections::VecDeque;

use crate::protocol::state::payload::Payload;
use crate::protocol::storage::ids::{DylibId, Id, RowId, TrackerId};
use crate::protocol::storage::memory::Takes;
use crate::protocol::storage::pieces::Pieces;
use crate::protocol::storage::slab::NONE;
use crate::sync::Arc;

use super::Definitions;
use super::product::Resources;
use super::row::{Links, Row};
use super::tracker::Tracker;

/// The trackers that are condemned, in the order in which they go.
pub(super) struct CondemnedTrackers<R> {
    removals: VecDeque<Condemned>,
    /// How many removals there have been.
    begun: u64,
    /// The resources of dylibs that were cleared, until whoever has cleared them takes them along.
    cleared: ClearedResources<R>,
}

impl<R> Default for CondemnedTrackers<R> {
    fn default() -> Self {
        Self { removals: VecDeque::new(), begun: 0, cleared: ClearedResources { gathered: Vec::new() } }
    }
}

/// Trackers that were removed at one moment, and have rows left that nobody may see.
#[derive(Debug)]
struct Condemned {
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

/// Those of dylibs that are being cleared, or were: the newest tracker's first.
struct ClearedResources<R> {
    gathered: Vec<(Clearing, Pieces<Resources<R>>)>,
}

impl<R: Send + 'static> ClearedResources<R> {
    fn add(&mut self, clearing: Clearing, resources: Resources<R>) {
        if resources.is_empty() {
            return;
        }
        // One is at work at a time.
        if self.gathered.last().is_none_or(|(last, _)| *last != clearing) {
            self.gathered.push((clearing, Pieces::new()));
        }
        if let Some((_, lists)) = self.gathered.last_mut() {
            lists.push_back(resources);
        }
    }

    fn take(&mut self, clearing: Clearing) -> Cleared<R> {
        let place = self.gathered.iter().position(|(of, _)| *of == clearing);
        Cleared(place.map_or(Pieces::new(), |place| self.gathered.remove(place).1))
    }
}

impl<P: Payload> Definitions<P> {
    /// Whether the tracker was removed, and has rows left that nobody may see.
    #[inline]
    pub(crate) fn tracker_is_condemned(&self, tracker: TrackerId) -> bool {
        self.is_removing()
            && self.trackers.get(tracker).is_some_and(|tracker| {
                self.dylibs.get(tracker.dylib).is_none_or(|dylib| dylib.era != tracker.era)
            })
    }

    /// Whether the row was removed with its tracker and only has to go yet.
    #[inline]
    pub(crate) fn is_condemned(&self, row: &Row) -> bool {
        self.tracker_is_condemned(row.tracker)
    }

    /// Whether there are condemned trackers.
    #[inline]
    pub(in crate::protocol) fn is_removing(&self) -> bool {
        !self.condemned.removals.is_empty()
    }

    /// How many removals by tracker have begun so far: what to give to [`Self::is_removed`].
    pub(crate) fn condemnations(&self) -> u64 {
        self.condemned.begun
    }

    /// Whether the first `condemnations` removals are over.
    pub(crate) fn is_removed(&self, condemnations: u64) -> bool {
        self.condemned.begun - self.condemned.removals.len() as u64 >= condemnations
    }

    /// The name of the row's dylib, which may be gone before a condemned row.
    pub(crate) fn dylib_name_of(&self, row: &Row) -> Arc<str> {
        if let Some(dylib) = self.dylibs.get(row.dylib) {
            return dylib.name.clone();
        }
        let condemned = self.condemned.removals.iter().find(|condemned| condemned.dylib == row.dylib);
        condemned.expect("only condemned rows outlive their dylib").dylib_name.clone()
    }

    /// Removes the tracker for everybody. Gives its resources. The events of its rows have places from `next_removed` on.
    pub(in crate::protocol) fn condemn(
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
        self.condemn_list(id.index(), dylib, next_removed);
        resources
    }

    /// Removes all trackers of the dylib for everybody. The events of its rows have places from `next_removed` on.
    pub(in crate::protocol) fn condemn_all(&mut self, id: DylibId, next_removed: u64) -> Clearing {
        let dylib = &mut self.dylibs[id];
        dylib.era = dylib.era.wrapping_add(1);
        let newest = std::mem::replace(&mut dylib.newest_tracker, NONE);
        dylib.rows = 0;
        self.dylibs[id].default_tracker = self.create_tracker_in(id);
        self.condemn_list(newest, id, next_removed);
        Clearing(self.condemned.begun)
    }

    /// Notes the trackers of a list.
    fn condemn_list(&mut self, tracker: u32, dylib: DylibId, next_removed: u64) {
        let dylib_name = self.dylibs[dylib].name.clone();
        self.condemned.removals.push_back(Condemned { tracker, dylib, dylib_name, next_removed });
        self.condemned.begun += 1;
    }

    /// Readers without the lock are refused while there are condemned trackers.
    pub(in crate::protocol) fn hide_condemned(&self) {
        if self.is_removing() {
            self.records.set_removing(true);
        }
    }

    /// The next row that goes because its tracker is condemned. None if the tracker that is first in line has no more rows.
    pub(in crate::protocol) fn first_condemned(&self) -> Option<RowId> {
        let condemned = self.condemned.removals.front()?;
        self.rows.id_at(self.trackers.at(condemned.tracker).first_row)
    }

    /// The tracker that is first in line goes, after its last row. Says whether that was the last tracker of its removal.
    pub(in crate::protocol) fn discard_condemned(&mut self, memory: &mut impl Takes) -> bool {
        let Some(condemned) = self.condemned.removals.front_mut() else { return true };
        let tracker = self.trackers.at_mut(condemned.tracker);
        let resources = std::mem::take(&mut tracker.resources);
        let next = tracker.links.next;
        let id = self.trackers.id_at(std::mem::replace(&mut condemned.tracker, next));
        let behind = self.condemned.removals.len() as u64 - 1;
        self.condemned.cleared.add(Clearing(self.condemned.begun - behind), resources);
        if let Some(id) = id {
            self.discard_tracker(id, memory);
        }
        if next == NONE {
            self.condemned.removals.pop_front();
            if self.condemned.removals.is_empty() {
                self.records.set_removing(false);
            }
        }
        next == NONE
    }

    /// The place of the event that a condemned row goes.
    pub(super) fn next_removed(&mut self) -> u64 {
        let condemned = self.condemned.removals.front_mut();
        let condemned = condemned.expect("a condemned row goes when its tracker is first in line");
        condemned.next_removed += 1;
        condemned.next_removed - 1
    }

    /// The resources of a dylib that was cleared, if its last row is gone.
    pub(crate) fn take_cleared(&mut self, clearing: Clearing) -> Option<Cleared<P::Resource>> {
        self.is_removed(clearing.0).then(|| self.condemned.cleared.take(clearing))
    }
}
