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

use crate::sync::{Arc, weakened};

use crate::protocol::removal::product::Resources;
use crate::protocol::removal::transfer::Tracker;
use crate::protocol::state::SessionState;
use crate::protocol::state::effects::Effects;
use crate::protocol::state::payload::Payload;
use crate::protocol::state::row::{Links, Row};
use crate::protocol::storage::ids::{DylibId, Id, TrackerId};
use crate::protocol::storage::pieces::Pieces;
use crate::protocol::storage::slab::NONE;
use crate::protocol::symbols::define::Tell;

/// Trackers that were removed at one moment, and have rows left that nobody may see.
#[derive(Debug)]
pub(in crate::protocol) struct Condemned {
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
pub(in crate::protocol) struct ClearedResources<R> {
    gathered: Vec<(Clearing, Pieces<Resources<R>>)>,
}

impl<R> Default for ClearedResources<R> {
    fn default() -> Self {
        Self { gathered: Vec::new() }
    }
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

impl<P: Payload> SessionState<P> {
    /// Whether the tracker was removed, and has rows left that nobody may see.
    pub(crate) fn tracker_is_condemned(&self, tracker: TrackerId) -> bool {
        !self.agenda.condemned.is_empty()
            && self.trackers.get(tracker).is_some_and(|tracker| {
                self.dylibs.get(tracker.dylib).is_none_or(|dylib| dylib.era != tracker.era)
            })
    }

    /// Whether the row was removed with its tracker and only has to go yet.
    pub(crate) fn is_condemned(&self, row: &Row) -> bool {
        self.tracker_is_condemned(row.tracker)
    }

    /// The name of the row's dylib, which may be gone before a condemned row.
    pub(crate) fn dylib_name_of(&self, row: &Row) -> Arc<str> {
        if let Some(dylib) = self.dylibs.get(row.dylib) {
            return dylib.name.clone();
        }
        let condemned = self.agenda.condemned.iter().find(|condemned| condemned.dylib == row.dylib);
        condemned.expect("only condemned rows outlive their dylib").dylib_name.clone()
    }

    /// Removes the tracker for everybody. Gives its resources.
    pub(in crate::protocol) fn condemn(&mut self, id: TrackerId) -> Resources<P::Resource> {
        let resources = self.take_from_dylib(id);
        let tracker = &mut self.trackers[id];
        let Tracker { dylib, rows, .. } = *tracker;
        let state = &mut self.dylibs[dylib];
        tracker.links = Links::ALONE;
        tracker.era = state.era.wrapping_sub(1);
        if self.observed {
            state.rows -= rows;
        }
        self.condemn_list(id.index(), dylib, rows);
        resources
    }

    /// Removes all trackers of the dylib for everybody, if it is there.
    pub(in crate::protocol) fn condemn_all(&mut self, id: DylibId) -> Option<Clearing> {
        let dylib = self.dylibs.get_mut(id)?;
        dylib.era = dylib.era.wrapping_add(1);
        let newest = std::mem::replace(&mut dylib.newest_tracker, NONE);
        let rows = std::mem::take(&mut dylib.rows);
        self.dylibs[id].default_tracker = self.create_tracker_in(id);
        self.condemn_list(newest, id, rows);
        Some(Clearing(self.agenda.condemnations))
    }

    /// Notes the trackers of a list, which have so many `rows`, if that is counted.
    fn condemn_list(&mut self, tracker: u32, dylib: DylibId, rows: u64) {
        let dylib_name = self.dylibs[dylib].name.clone();
        let next_removed = if self.observed { self.reserve_events(rows) } else { 0 };
        self.agenda.condemned.push_back(Condemned { tracker, dylib, dylib_name, next_removed });
        self.agenda.added = true;
        self.losses.note();
        self.agenda.condemnations += 1;
    }

    /// Removes rows of the condemned trackers that are first in line, each tracker after its last row.
    pub(in crate::protocol) fn remove_condemned(&mut self, budget: &mut usize, effects: &mut Effects<P>) {
        while *budget > 0
            && let Some(condemned) = self.agenda.condemned.front_mut()
        {
            *budget -= 1;
            let tracker = self.trackers.at_mut(condemned.tracker);
            if let Some(row) = self.rows.id_at(tracker.first_row) {
                self.remove_row(row, Tell::Nothing, effects);
                continue;
            }
            let resources = std::mem::take(&mut tracker.resources);
            let next = tracker.links.next;
            let id = self.trackers.id_at(std::mem::replace(&mut condemned.tracker, next));
            if let Some(id) = id.filter(|_| !weakened("remove::tracker_lives_on")) {
                self.trackers.discard(id, effects);
            }
            let behind = self.agenda.condemned.len() as u64 - 1;
            self.cleared.add(Clearing(self.agenda.condemnations - behind), resources);
            if next == NONE {
                self.agenda.condemned.pop_front();
                if self.agenda.condemned.is_empty() {
                    self.records.set_removing(false);
                }
                return;
            }
        }
    }

    /// The place of the event that a condemned row goes.
    pub(in crate::protocol) fn next_removed(&mut self) -> u64 {
        let condemned = self.agenda.condemned.front_mut();
        let condemned = condemned.expect("a condemned row goes when its tracker is first in line");
        condemned.next_removed += 1;
        condemned.next_removed - 1
    }

    /// The resources of a dylib that was cleared, if its last row is gone.
    pub(crate) fn take_cleared(&mut self, clearing: Clearing) -> Option<Cleared<P::Resource>> {
        self.is_removed(clearing.0).then(|| self.cleared.take(clearing))
    }
}
