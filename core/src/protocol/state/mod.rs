//! Everything a session knows: the one value on which all operations act.

pub(crate) mod alias;
pub(crate) mod answer;
pub(crate) mod demand;
pub(crate) mod dylib;
pub(crate) mod effects;
pub(in crate::protocol) mod fallen;
pub(in crate::protocol) mod names;
pub(crate) mod payload;
pub(crate) mod pending;
pub(crate) mod query;
pub(in crate::protocol) mod rising;
pub(in crate::protocol) mod row;

use std::collections::HashMap;
use std::fmt;

use crate::protocol::deadlock::Waits;
use crate::protocol::dependences::{Settled, WaitingForest};
use crate::protocol::queries::generate::Generator;
use crate::protocol::removal::close::Stage;
use crate::protocol::removal::condemned::ClearedResources;
use crate::protocol::removal::product::Products;
use crate::protocol::removal::transfer::Tracker;
use crate::protocol::slices::settle::Agenda;
use crate::protocol::storage::claimed_room::ClaimedRoom;
use crate::protocol::storage::ids::{
    ClaimId, DylibId, FailureId, GeneratorId, QueryId, RowId, TrackerId, UnitId,
};
use crate::protocol::storage::slab::Slab;
use crate::protocol::symbols::claim::Claim;
use crate::protocol::symbols::fail::FailureRecord;
use crate::protocol::symbols::initializers::Initializers;
use crate::protocol::urgency::Urgency;
use crate::record::{Recorder, Records};
use crate::sync::Arc;
use crate::{EventKind, SessionEvent};

use alias::AliasEdges;
use demand::Losses;
use dylib::Dylib;
use effects::Effects;
use fallen::FallenRows;
use names::NameIndex;
use payload::Payload;
use query::Query;
use row::RowSlab;

/// Everything a session knows.
pub(crate) struct SessionState<P: Payload> {
    pub(in crate::protocol) stage: Stage,
    pub(in crate::protocol) dylibs: Slab<DylibId, Dylib>,
    pub(in crate::protocol) dylib_names: HashMap<Arc<str>, DylibId>,
    pub(in crate::protocol) rows: RowSlab,
    pub(in crate::protocol) names: NameIndex,
    /// What lookups of Ready symbols read without the lock.
    pub(in crate::protocol) records: Recorder,
    /// Those that wait in their rows.
    pub(in crate::protocol) units: Slab<UnitId, P::Parcel>,
    pub(in crate::protocol) claims: Slab<ClaimId, Claim>,
    pub(in crate::protocol) products: Products,
    /// Resources whose last row was removed by name, with its dylib; only while an operation removes.
    pub(in crate::protocol) orphans: Vec<(DylibId, P::Resource)>,
    /// Memory for the list of all that one lookup claims.
    pub(crate) claimed: ClaimedRoom<P::Parcel>,
    pub(in crate::protocol) queries: Slab<QueryId, Query<P::Handler>>,
    pub(in crate::protocol) trackers: Slab<TrackerId, Tracker<P::Resource>>,
    /// Of dylibs that were cleared, until whoever has cleared them takes them along.
    pub(in crate::protocol) cleared: ClearedResources<P::Resource>,
    pub(in crate::protocol) generators: Slab<GeneratorId, Generator<P::Generator>>,
    pub(in crate::protocol) failures: Slab<FailureId, FailureRecord>,
    /// Who waits for whom among the rows that are emitted or depended on.
    pub(in crate::protocol) forest: WaitingForest<RowId>,
    /// What the forest has settled; kept for its memory.
    pub(in crate::protocol) settled: Vec<Settled<RowId>>,
    /// What rows that were removed while a failure spreads would say of it to their dependants. Each holds its record.
    pub(in crate::protocol) fallen: FallenRows,
    /// What is left to do.
    pub(in crate::protocol) agenda: Agenda,
    pub(in crate::protocol) aliases: AliasEdges,
    pub(in crate::protocol) initializers: Initializers,
    /// How often something was lost that may have kept a claimed unit wanted.
    pub(in crate::protocol) losses: Arc<Losses>,
    /// The blocked threads that hold something.
    pub(in crate::protocol) waits: Waits,
    /// What is about to become more urgent.
    pub(in crate::protocol) urgency: Urgency,
    /// Each unit that begins is noted.
    pub(crate) notes_units: bool,
    /// Events are made only if somebody sees them.
    pub(in crate::protocol) observed: bool,
    /// How many events there have been.
    pub(in crate::protocol) sequence: u64,
    /// How many dylibs have been created.
    pub(in crate::protocol) dylibs_created: u64,
    /// How often a unit was given back before it started.
    pub(crate) returned: u64,
    /// Transactions since the last full check, which costs as much as the state is large.
    #[cfg(any(test, debug_assertions))]
    pub(in crate::protocol) unchecked: usize,
}

impl<P: Payload> SessionState<P> {
    /// An empty state; events are made only if it is `observed`.
    pub(crate) fn new(observed: bool) -> Self {
        Self {
            stage: Stage::Open,
            dylibs: Slab::new(),
            dylib_names: HashMap::default(),
            rows: Slab::new(),
            names: NameIndex::new(),
            records: Recorder::new(),
            units: Slab::new(),
            claims: Slab::of_passing(),
            products: Slab::new(),
            orphans: Vec::new(),
            claimed: ClaimedRoom::default(),
            queries: Slab::new(),
            trackers: Slab::new(),
            cleared: ClearedResources::default(),
            generators: Slab::new(),
            failures: Slab::new(),
            forest: WaitingForest::new(),
            settled: Vec::new(),
            fallen: FallenRows::default(),
            agenda: Agenda::default(),
            aliases: AliasEdges::default(),
            initializers: Initializers::default(),
            losses: Arc::default(),
            waits: Waits::new(),
            urgency: Urgency::default(),
            notes_units: false,
            observed,
            sequence: 0,
            dylibs_created: 0,
            returned: 0,
            #[cfg(any(test, debug_assertions))]
            unchecked: 0,
        }
    }

    /// What lookups of Ready symbols read without the lock.
    pub(crate) fn records(&self) -> Arc<Records> {
        self.records.clone()
    }

    /// What units that are about to start look at instead of asking [`Self::begin`].
    pub(crate) fn losses(&self) -> Arc<Losses> {
        self.losses.clone()
    }

    /// Keeps places in the order of all events for `count` that are made later; gives the first.
    pub(in crate::protocol) fn reserve_events(&mut self, count: u64) -> u64 {
        let first = self.sequence;
        self.sequence += count;
        first
    }

    /// Makes an event, with its place in the order of all events.
    pub(in crate::protocol) fn observe(
        &mut self,
        effects: &mut Effects<P>,
        kind: impl FnOnce() -> EventKind,
    ) {
        if self.observed {
            effects.more().events.push(SessionEvent { sequence: self.sequence, kind: kind() });
            self.sequence += 1;
        }
    }
}

impl<P: Payload> fmt::Debug for SessionState<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionState")
            .field("stage", &self.stage)
            .field("dylibs", &self.dylibs)
            .field("rows", &self.rows)
            .field("queries", &self.queries)
            .finish_non_exhaustive()
    }
}
