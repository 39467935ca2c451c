//! Claims: a unit has left its rows, which carry a claim instead until they are emitted or have failed.
//!
//! Every row that is Materializing or Resolved carries a claim, which counts it. A claim is where its rows are: in their dylib and
//! their tracker. A responsibility acts on rows that carry its claim only.

use smallvec::SmallVec;

use crate::protocol::dependences::NodeId;
use crate::protocol::state::pending::PendingUnit;
use crate::protocol::state::{payload::Payload, rising::RisingPriority};
use crate::protocol::storage::{ClaimId, DylibId, RowId, Takes, TrackerId};
use crate::protocol::urgency::followers::Followers;
use crate::sync::weakened;
use crate::task::serial_queue::SerialQueueId;
use crate::{SymbolName, TaskPriority};

use super::Definitions;
use super::row::{Row, RowState, Source, Waiters};

/// A responsibility's side of the state. A lookup makes as many as it finds units, so that it is small: the system gives memory
/// page by page, and a page costs as much as a unit.
#[derive(Debug)]
pub(crate) struct Claim {
    /// Where its resources go. Stale only if the claim has no rows.
    pub(super) tracker: TrackerId,
    /// The only one of [`Claim::rows`], unless there is a list of them.
    row: RowId,
    rare: Option<Box<Rare>>,
    /// How many rows carry the claim.
    pub(super) carried: u32,
    /// The highest of all needs that there have been for its symbols.
    pub(crate) priority: RisingPriority,
    /// A lookup that left it to the unit how urgent it is has been among them.
    pub(crate) is_wanted_as_it_says: bool,
}

#[cfg(target_pointer_width = "64")]
const _: () = assert!(size_of::<Claim>() <= 32, "see Claim");

/// Data that few claims have.
#[derive(Debug, Default)]
struct Rare {
    /// The rows, where they are not one.
    rows: Option<Rows>,
    /// Where one belongs that may be left without a row, and so without a tracker that says it.
    dylib: Option<DylibId>,
    /// The queue in which the unit's task waits for its turn, until the unit begins.
    queued_in: Option<SerialQueueId>,
    /// The queries and claims that rise with it.
    followers: Followers,
}

impl Claim {
    /// Every row that carries the claim; and rows that did, until they were removed or delegated.
    #[inline]
    pub(crate) fn rows(&self) -> &[RowId] {
        match self.rare.as_ref().and_then(|rare| rare.rows.as_ref()) {
            None => std::slice::from_ref(&self.row),
            Some(rows) => rows,
        }
    }

    fn set_rows(&mut self, rows: Rows) {
        self.rare.get_or_insert_default().rows = Some(rows);
    }

    /// Where its resources go. Stale only if the claim has no rows.
    pub(crate) fn tracker(&self) -> TrackerId {
        self.tracker
    }

    /// How many rows carry the claim.
    pub(crate) fn carried(&self) -> u32 {
        self.carried
    }

    /// A row stops carrying the claim. Says whether it was the last.
    pub(super) fn loses_one(&mut self) -> bool {
        self.carried -= 1;
        self.carried == 0
    }

    /// Adds a row that carries the claim.
    pub(super) fn add_row(&mut self, row: RowId) {
        self.rare.get_or_insert_default().rows.get_or_insert_with(|| one_row(self.row)).push(row);
        self.carried += 1;
    }

    /// The queue in which the unit's task waits for its turn.
    pub(in crate::protocol) fn queued_in(&self) -> Option<SerialQueueId> {
        self.rare.as_ref()?.queued_in
    }

    /// The queries and claims that rise with it, if any.
    pub(in crate::protocol) fn followers(&self) -> Option<&Followers> {
        self.rare.as_ref().map(|rare| &rare.followers)
    }

    pub(in crate::protocol) fn followers_mut(&mut self) -> &mut Followers {
        &mut self.rare.get_or_insert_default().followers
    }

    /// Notes the queue in which the unit's task waits. None: the unit begins.
    #[inline]
    pub(in crate::protocol) fn set_queue(&mut self, queued_in: Option<SerialQueueId>) {
        if self.rare.is_some() || queued_in.is_some() {
            self.rare.get_or_insert_default().queued_in = queued_in;
        }
    }
}

/// A few rows, mostly one.
pub(crate) type Rows = SmallVec<[RowId; 2]>;

fn one_row(row: RowId) -> Rows {
    Rows::from_buf_and_len([row, row], 1)
}

/// How many they are: no more than there are ids.
fn count_of(rows: &[RowId]) -> u32 {
    u32::try_from(rows.len()).expect("a session holds fewer than four billion rows")
}

/// The effect of a search on a row.
pub(crate) enum Claimed<U> {
    /// Nothing: it was searched before.
    Nothing,
    /// It was searched for the first time, and its address was known: it is Ready.
    Bound,
    /// The unit that waited in it has left its rows. All of them carry this claim.
    Unit(ClaimId, U),
}

/// Nodes of rows in the forest.
pub(crate) type RowNodes = SmallVec<[NodeId; 2]>;

impl<P: Payload> Definitions<P> {
    /// Claims the unit that waits in `row`: the unit leaves its rows, all of which are Materializing from now on. The claim is as
    /// urgent as `need`; without one the unit's own priority counts.
    #[inline]
    pub(in crate::protocol) fn claim(
        &mut self,
        row: RowId,
        need: Option<RisingPriority>,
        memory: &mut impl Takes,
    ) -> Claimed<Box<PendingUnit<P::Unit>>> {
        let Row { dylib, tracker, ref state, .. } = self.rows[row];
        let unit = match *state {
            RowState::NeverSearched { source: Source::Address(address) } => {
                self.bind(row, address);
                return Claimed::Bound;
            }
            RowState::NeverSearched { source: Source::Unit(unit) } | RowState::Returned { unit } => unit,
            _ => return Claimed::Nothing,
        };
        let Some(unit) = self.units.remove(unit, memory) else { return Claimed::Nothing };
        let PendingUnit { own_priority, ref symbols, .. } = *unit;
        let is_alone = symbols.len() == 1;
        let rows =
            (!is_alone).then(|| symbols.keys().filter_map(|name| self.find(dylib, name)).collect::<Rows>());
        let priority = need.unwrap_or(RisingPriority::at(own_priority));
        let fresh = Claim { tracker, row, rare: None, carried: 1, priority, is_wanted_as_it_says: false };
        let claim = self.claims.insert(fresh);
        if let Some(rows) = rows {
            self.claims[claim].carried = count_of(&rows);
            self.claims[claim].set_rows(rows);
        }
        self.rows[row].advance(RowState::Materializing { claim, waiting: Waiters::NOBODY });
        if !is_alone && !weakened("lookup::claims_one_symbol_of_the_unit") {
            for &named in self.claims[claim].rows().iter().filter(|&&named| named != row) {
                self.rows[named].advance(RowState::Materializing { claim, waiting: Waiters::NOBODY });
            }
        }
        Claimed::Unit(claim, unit)
    }

    /// Puts a claimed unit that has not started into the rows of its claim, which must have no waiters, and ends the claim. Gives nodes
    /// of the rows that have outlived their dependants.
    #[must_use = "nobody else knows the nodes"]
    pub(in crate::protocol) fn give_back(
        &mut self,
        claim: ClaimId,
        unit: Box<PendingUnit<P::Unit>>,
        memory: &mut impl Takes,
    ) -> RowNodes {
        let rows = self.rows_of_claim(claim);
        self.claims.discard(claim, memory);
        let unit = self.units.insert(unit);
        let mut nodes = RowNodes::new();
        for row in rows {
            let row = &mut self.rows[row];
            nodes.extend(row.waiting().and_then(|waiting| waiting.node));
            row.advance(RowState::Returned { unit });
        }
        nodes
    }

    /// Another unit takes the place of the one that was claimed.
    pub(in crate::protocol) fn rename_unit(
        &mut self,
        claim: ClaimId,
        name: &SymbolName,
        own_priority: TaskPriority,
    ) {
        for row in self.rows_of_claim(claim) {
            let row = &mut self.rows[row];
            row.unit_name = name.clone();
            row.own_priority = own_priority;
        }
    }

    /// See [`crate::MaterializationResponsibility::delegate`]. None if the claim's rows were removed.
    pub(crate) fn delegate(&mut self, claim: ClaimId, names: &[SymbolName]) -> Option<ClaimId> {
        let from = self.live_claim(claim)?;
        let Claim { tracker, row, priority, is_wanted_as_it_says, .. } = *from;
        // Either may be left without rows.
        let dylib = self.dylib_of_claim(from);
        let followers = Followers::of_delegate(claim);
        let mut rows = Rows::new();
        let rare = Rare { rows: Some(Rows::new()), dylib, queued_in: None, followers };
        let rare = Some(Box::new(rare));
        let delegate =
            self.claims.insert(Claim { tracker, row, rare, carried: 0, priority, is_wanted_as_it_says });
        let left = &mut self.claims[claim];
        left.rare.get_or_insert_default().dylib = dylib;
        for name in names {
            let Some(row) = self.row_of_claim(claim, name) else { continue };
            rows.push(row);
            if let RowState::Materializing { claim, .. } | RowState::Resolved { claim, .. } =
                &mut self.rows[row].state
            {
                *claim = delegate;
            }
        }
        let left = &mut self.claims[claim];
        left.carried -= count_of(&rows);
        // Now and then, so that a claim may be taken apart symbol by symbol.
        if left.rows().len() > 2 * left.carried as usize {
            let rows = self.rows_of_claim(claim);
            self.claims[claim].set_rows(rows);
        }
        self.claims[delegate].carried = count_of(&rows);
        self.claims[delegate].set_rows(rows);
        Some(delegate)
    }

    /// Ends a claim. Its rows, which are [`Claim::rows`], become Ready, emitted or failed before anybody looks at them.
    #[inline]
    pub(in crate::protocol) fn end_claim(
        &mut self,
        claim: ClaimId,
        memory: &mut impl Takes,
    ) -> Option<Claim> {
        self.claims.remove(claim, memory)
    }

    /// The claim, even if its rows are being removed.
    pub(in crate::protocol) fn get_claim(&self, claim: ClaimId) -> Option<&Claim> {
        self.claims.get(claim)
    }

    /// The same, for what has nothing to do with its rows: where it is, and how urgent.
    pub(in crate::protocol) fn claim_mut(&mut self, claim: ClaimId) -> Option<&mut Claim> {
        self.claims.get_mut(claim)
    }

    /// All claims.
    #[cfg(any(test, debug_assertions))]
    pub(in crate::protocol) fn claims(&self) -> impl Iterator<Item = (ClaimId, &Claim)> {
        self.claims.iter()
    }

    /// The claim, unless its rows were removed.
    pub(crate) fn live_claim(&self, claim: ClaimId) -> Option<&Claim> {
        self.claims.get(claim).filter(|claim| !self.tracker_is_removing(claim.tracker))
    }

    /// The dylib of its rows, which a claim that has any shares with its tracker.
    pub(crate) fn dylib_of_claim(&self, claim: &Claim) -> Option<DylibId> {
        let noted = claim.rare.as_ref().and_then(|rare| rare.dylib);
        noted.or_else(|| Some(self.trackers.get(claim.tracker)?.dylib))
    }

    /// The row of `name`, if it carries `claim`.
    pub(crate) fn row_of_claim(&self, claim: ClaimId, name: &SymbolName) -> Option<RowId> {
        let live = self.live_claim(claim)?;
        let row = match live.rows()[..] {
            // The usual unit has one symbol, and that needs no search.
            [row] => Some(row).filter(|&row| self.rows.get(row).is_some_and(|row| row.name == *name)),
            _ => self.find(self.dylib_of_claim(live)?, name),
        };
        row.filter(|&row| self.carries(row, claim))
    }

    /// The rows that carry `claim`.
    pub(crate) fn rows_of_claim(&self, claim: ClaimId) -> Rows {
        let Some(live) = self.live_claim(claim) else { return Rows::new() };
        live.rows().iter().copied().filter(|&row| self.carries(row, claim)).collect()
    }

    /// Whether `row` is there and carries `claim`.
    pub(crate) fn carries(&self, row: RowId, claim: ClaimId) -> bool {
        self.rows.get(row).is_some_and(|row| row.claim() == Some(claim))
    }
}
