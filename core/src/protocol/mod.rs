//! The symbol protocol as a pure state machine: `&mut SessionState` in, [`Effects`] out.
//!
//! | operation | file | what it does |
//! |---|---|---|
//! | define, replace | `define.rs` | rows appear, `NeverSearched`; weak ones yield |
//! | define addresses | `absolute.rs` | the same without a unit; a search makes them Ready at once |
//! | lookup | `lookup.rs`, `lookup_one.rs` | names are matched, units claimed, the query lodged |
//! | generate | `generate.rs` | what is missing is asked of generators; lookups suspend and resume |
//! | claim, begin, delegate | `claim.rs` | a unit leaves its rows, and may come back before it starts |
//! | resolve | `resolve.rs` | addresses are recorded |
//! | publish | `publish.rs` | Ready rows are found without the lock |
//! | emit | `emit.rs` | rows become Ready, or wait in the forest |
//! | fail | `fail.rs` | rows fail, and everything that waits on them |
//! | remove | `remove.rs`, `condemned.rs` | rows disappear, at one moment for everybody |
//! | settle | `settle.rs` | long consequences are worked off in slices |
//! | begin_wait, look, end_wait | `deadlock/` | threads block; a cycle that never ends is an error |
//! | rise | `urgency/` | priority follows demand upwards |
//! | why, expire | `why.rs` | nothing changes, or a query ends with an explanation |
//! | transfer | `transfer.rs` | trackers: created, filled, joined, emptied |
//! | commit | `transaction.rs` | several of the above happen together or not at all |
//!
//! No locks, no callbacks, no threads, no I/O: values of the embedder are moved, never called, never
//! dropped.
//!
//! Three things leave an operation beside its `Effects`. Each is a store to an atomic that others read without the session lock:
//!
//! | what | written by | read by |
//! |---|---|---|
//! | [`Recorder`] | `publish.rs`, `dylib.rs`, `close.rs` and others: which symbols are Ready | lookups of Ready symbols (`record.rs`) |
//! | [`Losses`] | `demand.rs`: how often demand may have been lost | a unit that is about to start |
//! | `Ticketed::raise` | `urgency/rise.rs`: how urgent a queued unit is | a ticket that is about to run (`task/ticket.rs`) |
//!
//! They cannot wait for the `Effects`, which are delivered after the lock is free. A reader must not find what a transaction has
//! removed before.
//!
//! **Architecture Invariant:** after each operation the state satisfies `check.rs`.
//!
#![doc = include_str!("README.md")]

pub(crate) mod absolute;
pub(crate) mod alias;
pub(crate) mod answer;
#[cfg(any(test, debug_assertions))]
mod check;
pub(crate) mod claim;
pub(crate) mod claimed_room;
mod close;
pub(crate) mod condemned;
pub(crate) mod deadlock;
pub(crate) mod define;
pub(crate) mod demand;
pub(crate) mod dylib;
pub(crate) mod effects;
pub(crate) mod emit;
mod fail;
mod fallen;
mod flags;
pub(crate) mod generate;
pub(crate) mod ids;
mod initializers;
mod link_order;
mod look_ahead;
pub(crate) mod lookup;
pub(crate) mod lookup_one;
mod memory;
mod names;
pub(crate) mod pending;
mod pieces;
mod places;
pub(crate) mod product;
mod publish;
pub(crate) mod query;
mod remove;
mod resolve;
mod rising;
mod row;
pub(crate) mod settle;
pub(crate) mod slab;
#[cfg(all(test, not(uruk_loom)))]
mod tests;
pub(crate) mod transaction;
pub(crate) mod transfer;
pub(crate) mod urgency;
mod waiting_on;
pub(crate) mod why;

use std::collections::HashMap;
use std::fmt;

use crate::record::{Recorder, Records};
use crate::sync::Arc;
use crate::{EventKind, SessionEvent};

use alias::AliasEdges;
use claim::Claim;
use claimed_room::ClaimedRoom;
use close::Stage;
use condemned::ClearedResources;
use deadlock::Waits;
use demand::Losses;
use dylib::Dylib;
use effects::Effects;
use fail::FailureRecord;
use fallen::FallenRows;
use generate::Generator;
use ids::{ClaimId, DylibId, FailureId, GeneratorId, QueryId, RowId, TrackerId, UnitId};
use initializers::Initializers;
use names::NameIndex;
use pending::Parcel;
use product::Products;
use query::Query;
use row::RowSlab;
use settle::Agenda;
use slab::Slab;
use transfer::Tracker;
use urgency::Urgency;
use waiting_on::{Settled, WaitingForest};

/// The types of the values the protocol carries and never looks into.
pub(crate) trait Payload {
    /// Provides definitions.
    type Unit: Send + 'static;
    /// A unit in the form in which it is handed on: made where it is defined, and not moved any more.
    type Parcel: Parcel<Self::Unit> + Send + 'static;
    /// Is told when a query ends.
    type Handler: Send + 'static;
    /// Provides units.
    type Generator: Clone + Send + 'static;
    /// Lives as long as a tracker.
    type Resource: Send + 'static;
}

/// Everything a session knows.
pub(crate) struct SessionState<P: Payload> {
    stage: Stage,
    dylibs: Slab<DylibId, Dylib>,
    dylib_names: HashMap<Arc<str>, DylibId>,
    rows: RowSlab,
    names: NameIndex,
    /// What lookups of Ready symbols read without the lock.
    records: Recorder,
    /// Those that wait in their rows.
    units: Slab<UnitId, P::Parcel>,
    claims: Slab<ClaimId, Claim>,
    products: Products,
    /// Resources whose last row was removed by name, with its dylib; only while an operation removes.
    orphans: Vec<(DylibId, P::Resource)>,
    /// Memory for the list of all that one lookup claims.
    pub(crate) claimed: ClaimedRoom<P::Parcel>,
    queries: Slab<QueryId, Query<P::Handler>>,
    trackers: Slab<TrackerId, Tracker<P::Resource>>,
    /// Of dylibs that were cleared, until whoever has cleared them takes them along.
    cleared: ClearedResources<P::Resource>,
    generators: Slab<GeneratorId, Generator<P::Generator>>,
    failures: Slab<FailureId, FailureRecord>,
    /// Who waits for whom among the rows that are emitted or depended on.
    forest: WaitingForest<RowId>,
    /// What the forest has settled; kept for its memory.
    settled: Vec<Settled<RowId>>,
    /// What rows that were removed while a failure spreads would say of it to their dependants. Each holds its record.
    fallen: FallenRows,
    /// What is left to do.
    agenda: Agenda,
    aliases: AliasEdges,
    initializers: Initializers,
    /// How often something was lost that may have kept a claimed unit wanted.
    losses: Arc<Losses>,
    /// The blocked threads that hold something.
    waits: Waits,
    /// What is about to become more urgent.
    urgency: Urgency,
    /// Each unit that begins is noted.
    pub(crate) notes_units: bool,
    /// Events are made only if somebody sees them.
    observed: bool,
    /// How many events there have been.
    sequence: u64,
    /// How many dylibs have been created.
    dylibs_created: u64,
    /// How often a unit was given back before it started.
    pub(crate) returned: u64,
    /// Transactions since the last full check, which costs as much as the state is large.
    #[cfg(any(test, debug_assertions))]
    unchecked: usize,
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
    fn reserve_events(&mut self, count: u64) -> u64 {
        let first = self.sequence;
        self.sequence += count;
        first
    }

    /// Makes an event, with its place in the order of all events.
    fn observe(&mut self, effects: &mut Effects<P>, kind: impl FnOnce() -> EventKind) {
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
