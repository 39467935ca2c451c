//! Everything a session knows: the one value on which all operations act.

pub(crate) mod advice;
pub(crate) mod aliased;
pub(crate) mod definitions;
pub(crate) mod demand;
pub(crate) mod dependency;
pub(crate) mod effects;
pub(crate) mod failures;
pub(in crate::protocol) mod look_ahead;
pub(crate) mod lookups;
pub(crate) mod noted;
pub(crate) mod payload;
pub(crate) mod pending;
pub(crate) mod rising;
pub(crate) mod stage;

use std::fmt;

use crate::protocol::deadlock::threads::BlockedThreads;
use crate::protocol::dependants::Dependants;
use crate::protocol::dependences::WaitingForest;
use crate::protocol::slices::agenda::Agenda;
use crate::protocol::storage::{ClaimedRoom, RowId, TrackerId};
use crate::protocol::urgency::followers::Urgency;
use crate::ready_index::ReadyIndex;
use crate::sync::Arc;
use crate::{EventKind, SessionEvent};

pub(crate) use advice::Find;
pub(crate) use definitions::claim::{Claim, Claimed, Rows};
pub(crate) use definitions::product::{ResourceLeft, Resources};
pub(crate) use definitions::removing::Clearing;
pub(crate) use definitions::row::{Row, RowState, Source, Waiters};
pub(crate) use definitions::spare::{Spare, TakenSpare};
pub(crate) use definitions::tracker::Defunct;
pub(crate) use definitions::{RemovedRow, RowNotice};
pub(crate) use demand::DemandLost;
pub(crate) use effects::{Effects, Generation, Leftover};
pub(crate) use failures::{Broken, FailedRow};
pub(crate) use lookups::end::{Answer, Found, FoundEntries};
pub(crate) use lookups::generator::{Arrival, Generator, RuledOut, Suspended};
pub(crate) use lookups::query::{Entries, Entry, Lodged, Lodging, Order, Phase, Progress, Query, Search};
pub(crate) use noted::Noted;
pub(crate) use payload::Payload;
pub(crate) use pending::{ClaimedUnit, PendingUnit};
pub(crate) use rising::RisingPriority;
pub(crate) use stage::{EventOrder, Stage};

use advice::Advice;
use aliased::Aliased;
use definitions::Definitions;
use failures::Failures;
use lookups::Lookups;

/// Everything a session knows.
pub(crate) struct SessionState<P: Payload> {
    pub(in crate::protocol) stage: Stage,
    /// The definitions: symbols, their dylibs, and the units that provide them.
    pub(crate) definitions: Definitions<P>,
    /// Memory for the list of all that one lookup claims.
    pub(crate) claimed: ClaimedRoom<ClaimedUnit<P::Unit>>,
    /// The sources of aliases.
    pub(in crate::protocol) aliased: Aliased,
    /// The lookups that are not answered yet.
    pub(in crate::protocol) lookups: Lookups<P>,
    /// The definitions that may have been meant by names that were missed.
    pub(in crate::protocol) advice: Advice,
    /// The failures, and the notes of removed rows on them.
    pub(in crate::protocol) failures: Failures,
    /// The waits among the rows that are emitted or depended on.
    pub(in crate::protocol) forest: WaitingForest<RowId>,
    /// The dependants of Ready rows, in dylibs that keep them.
    pub(in crate::protocol) dependants: Dependants,
    /// The work left to do.
    pub(in crate::protocol) agenda: Agenda,
    /// How often something was lost that may have kept a claimed unit wanted.
    pub(in crate::protocol) losses: Arc<DemandLost>,
    /// The blocked threads that hold something.
    pub(in crate::protocol) waits: BlockedThreads,
    /// The claims that are about to become more urgent.
    pub(in crate::protocol) urgency: Urgency,
    /// The order of all events.
    pub(in crate::protocol) events: EventOrder,
    /// How often a unit was given back before it started.
    pub(crate) returned: u64,
    /// The common part of notes.
    pub(crate) noted: Noted,
    /// Transactions since the last full check, which costs as much as the state is large.
    #[cfg(any(test, debug_assertions))]
    pub(in crate::protocol) unchecked: usize,
}

impl<P: Payload> SessionState<P> {
    /// An empty state; events are made only if it is `observed`.
    pub(crate) fn new(observed: bool) -> Self {
        Self {
            stage: Stage::Open,
            definitions: Definitions::new(observed),
            claimed: ClaimedRoom::default(),
            aliased: Aliased::default(),
            lookups: Lookups::new(),
            advice: Advice::default(),
            failures: Failures::new(),
            forest: WaitingForest::new(),
            agenda: Agenda::new(),
            dependants: Dependants::default(),
            losses: Arc::default(),
            waits: BlockedThreads::new(),
            urgency: Urgency::default(),
            events: EventOrder::new(observed),
            returned: 0,
            noted: Noted::default(),
            #[cfg(any(test, debug_assertions))]
            unchecked: 0,
        }
    }

    /// The records that lookups of Ready symbols read without the lock.
    pub(crate) fn ready_index(&self) -> Arc<ReadyIndex> {
        self.definitions.ready_index()
    }

    /// The count that units about to start look at instead of asking [`Self::begin`].
    pub(crate) fn losses(&self) -> Arc<DemandLost> {
        self.losses.clone()
    }

    /// Whether the session takes work from outside.
    pub(crate) fn is_open(&self) -> bool {
        self.stage == Stage::Open
    }

    /// Whether nothing starts any more.
    pub(crate) fn is_cancelled(&self) -> bool {
        self.stage.is_cancelled()
    }

    /// Whether everything has ended.
    pub(crate) fn is_closed(&self) -> bool {
        self.stage == Stage::Closed
    }

    /// Whether the session takes work from where it comes.
    pub(crate) fn admits(&self, by_task: bool) -> bool {
        self.stage.admits(by_task)
    }

    /// Whether the tracker was removed or transferred, or has been emptied for good by closing the session.
    pub(crate) fn tracker_is_defunct(&self, tracker: TrackerId) -> bool {
        self.is_closed() || !self.definitions.tracker_lives(tracker)
    }

    /// Whether anybody waits on the row or depends on it: what keeps work wanted.
    pub(crate) fn is_demanded(&self, row: RowId) -> bool {
        let depended_on = |node| self.forest.has_dependants(node);
        let demands = |waiting: &Waiters| !waiting.queries.is_none() || waiting.node.is_some_and(depended_on);
        self.definitions[row].waiting().is_some_and(demands)
    }

    /// The component of the forest in which an emitted row waits.
    pub(crate) fn component_of(&self, row: RowId) -> Option<u32> {
        self.forest.component(self.definitions.row(row)?.waiting()?.node?)
    }

    /// Makes an event, with its place in the order of all events.
    pub(crate) fn observe(&mut self, effects: &mut Effects<P>, kind: impl FnOnce() -> EventKind) {
        if self.events.is_observed() {
            let sequence = self.events.reserve(1);
            effects.more().events.push(SessionEvent { sequence, kind: kind() });
        }
    }
}

impl<P: Payload> fmt::Debug for SessionState<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionState")
            .field("stage", &self.stage)
            .field("definitions", &self.definitions)
            .field("lookups", &self.lookups)
            .finish_non_exhaustive()
    }
}
