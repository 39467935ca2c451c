//! Claim: a unit leaves its rows to be materialized, by one responsibility at a time.
//!
//! The unit itself travels in the effects of whatever claimed it. Rows of a claim carry its id, and a
//! responsibility acts on rows that carry it only.

use smallvec::SmallVec;

use crate::serial_queue::SerialQueueId;
use crate::sync::weakened;
use crate::{EventKind, FailureCause, SerialQueue, SymbolName};

use crate::protocol::queries::why::Begun;
use crate::protocol::state::SessionState;
use crate::protocol::state::demand::Losses;
use crate::protocol::state::effects::{Effects, Leftover};
use crate::protocol::state::payload::Payload;
use crate::protocol::state::pending::PendingUnit;
use crate::protocol::state::rising::RisingPriority;
use crate::protocol::state::row::{Row, RowState, Source, Waiting};
use crate::protocol::storage::ids::{ClaimId, DylibId, RowId, TrackerId, UnitId};
use crate::protocol::urgency::Followers;

/// A responsibility's side of the state. A lookup makes as many as it finds units, so that it is small: the system gives memory
/// page by page, and a page costs as much as a unit.
#[derive(Debug)]
pub(crate) struct Claim {
    /// Where its resources go. Stale only if the claim has no rows.
    pub(crate) tracker: TrackerId,
    /// What [`Claim::rows`] are, unless there is a list of them.
    row: RowId,
    rare: Option<Box<Rare>>,
    /// How many rows carry the claim.
    pub(crate) carried: u32,
    /// The highest of all needs that there have been for its symbols.
    pub(crate) priority: RisingPriority,
    /// A lookup that left it to the unit how urgent it is has been among them.
    pub(crate) is_wanted_as_it_says: bool,
}

#[cfg(target_pointer_width = "64")]
const _: () = assert!(size_of::<Claim>() <= 32, "see Claim");

/// What few claims have.
#[derive(Debug, Default)]
struct Rare {
    /// The rows, where they are not one.
    rows: Option<Rows>,
    /// Where one belongs that may be left without a row, and so without a tracker that says it.
    dylib: Option<DylibId>,
    /// The queue in which the unit's task waits for its turn, until the unit begins.
    queued_in: Option<SerialQueueId>,
    /// When and where the unit began, if that is noted.
    begun: Option<Box<Begun>>,
    /// What rises with it.
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

    /// Adds a row that carries the claim.
    pub(in crate::protocol) fn add_row(&mut self, row: RowId) {
        self.rare.get_or_insert_default().rows.get_or_insert_with(|| one_row(self.row)).push(row);
        self.carried += 1;
    }

    /// The queue in which the unit's task waits for its turn.
    pub(in crate::protocol) fn queued_in(&self) -> Option<SerialQueueId> {
        self.rare.as_ref()?.queued_in
    }

    /// When and where the unit began, if that is noted.
    pub(in crate::protocol) fn begun(&self) -> Option<&Begun> {
        self.rare.as_ref()?.begun.as_deref()
    }

    /// What rises with it, if anything.
    pub(in crate::protocol) fn followers(&self) -> Option<&Followers> {
        self.rare.as_ref().map(|rare| &rare.followers)
    }

    pub(in crate::protocol) fn followers_mut(&mut self) -> &mut Followers {
        &mut self.rare.get_or_insert_default().followers
    }

    /// Notes where the unit is: in a queue, or begun.
    #[inline]
    fn set_place(&mut self, queued_in: Option<SerialQueueId>, begun: Option<Box<Begun>>) {
        if self.rare.is_some() || queued_in.is_some() || begun.is_some() {
            let rare = self.rare.get_or_insert_default();
            (rare.queued_in, rare.begun) = (queued_in, begun);
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

impl<P: Payload> SessionState<P> {
    /// Moves the unit that waits in `row` out of its rows: all of them are Materializing from now on.
    ///
    /// One whose address is known is Ready instead. Does nothing if the row was claimed before. What it is claimed for
    /// is as urgent as `need`; without one the unit says so itself.
    pub(crate) fn claim(&mut self, row: RowId, need: Option<RisingPriority>, effects: &mut Effects<P>) {
        let Row { dylib, tracker, ref state, .. } = self.rows[row];
        let unit = match *state {
            RowState::NeverSearched { source: Source::Address(address) } => {
                return self.bind(row, address, effects);
            }
            RowState::NeverSearched { source: Source::Unit(unit) } | RowState::Returned { unit } => unit,
            _ => return,
        };
        let Some(unit) = self.units.remove(unit, effects) else { return };
        let &PendingUnit { own_priority, ref symbols, .. } = unit.as_ref();
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
        self.rows[row].advance(RowState::Materializing { claim, waiting: Waiting::NOBODY });
        if !is_alone && !weakened("lookup::claims_one_symbol_of_the_unit") {
            for &named in self.claims[claim].rows().iter().filter(|&&named| named != row) {
                self.rows[named].advance(RowState::Materializing { claim, waiting: Waiting::NOBODY });
            }
        }
        self.hand_over(claim, unit, effects);
    }

    /// Sends a unit on its way to be materialized under `claim`.
    pub(crate) fn hand_over(&mut self, claim: ClaimId, mut parcel: P::Parcel, effects: &mut Effects<P>) {
        let unit = parcel.as_mut();
        let queued_in = unit.serial_queue().map(SerialQueue::id);
        self.claims[claim].set_place(queued_in, None);
        unit.claim = claim;
        unit.losses = if self.stage.is_cancelled() { Losses::ALWAYS_ASK } else { self.losses.count() };
        self.set_out(claim, unit);
        if self.observed {
            let (dylib, unit) = (unit.dylib_name.clone(), unit.name.clone());
            self.observe(effects, || EventKind::Claimed { dylib, unit });
        }
        effects.claimed.push(parcel);
    }

    /// Asked with a claimed unit that is about to start: gives it if it shall.
    ///
    /// A unit that nobody wants any more goes back to its rows; one whose rows were removed, or that a
    /// cancelled session lets not start, leaves through `effects`.
    pub(crate) fn begin(
        &mut self,
        parcel: P::Parcel,
        here: Option<Box<Begun>>,
        effects: &mut Effects<P>,
    ) -> Option<P::Parcel> {
        let claim = parcel.as_ref().claim;
        if self.live_claim(claim).is_none() {
            effects.leave(Leftover::RefusedUnit(parcel.into().unit));
            return None;
        }
        if self.is_cancelled() {
            self.fail(claim, FailureCause::Closed, effects);
            effects.leave(Leftover::RefusedUnit(parcel.into().unit));
            return None;
        }
        if self.is_wanted(claim) || weakened("withdraw::starts_what_nobody_wants") {
            self.claims[claim].set_place(None, here);
            return Some(parcel);
        }
        self.put_back(parcel, effects);
        None
    }

    /// Whether anybody waits for, or depends on, what the claimed unit provides.
    pub(crate) fn is_wanted(&self, claim: ClaimId) -> bool {
        self.rows_of_claim(claim).iter().any(|&row| self.is_demanded(row))
    }

    /// Puts a claimed unit that has not started back into its rows, on which nobody may wait.
    pub(crate) fn put_back(&mut self, mut parcel: P::Parcel, effects: &mut Effects<P>) {
        let unit = parcel.as_mut();
        let (claim, name) = (unit.claim, self.observed.then(|| unit.name.clone()));
        // Whoever claims it again makes new tickets.
        if let Some(extras) = &mut unit.extras {
            extras.ticketed = None;
        }
        let rows = self.rows_of_claim(claim);
        self.claims.discard(claim, effects);
        self.returned += 1;
        if let Some(unit) = name {
            self.observe(effects, || EventKind::Returned { unit });
        }
        let unit = self.units.insert(parcel);
        for row in rows {
            self.give_back(row, unit);
        }
    }

    /// Puts a row that nobody waits on back to its unit.
    pub(crate) fn give_back(&mut self, row: RowId, unit: UnitId) {
        // Its node outlived those who depended on it.
        if let Some(node) = self.rows[row].waiting().and_then(|waiting| waiting.node) {
            self.forest.remove(node);
        }
        self.rows[row].advance(RowState::Returned { unit });
    }

    /// See [`crate::MaterializationResponsibility::requested_symbols`].
    pub(crate) fn requested(&self, claim: ClaimId) -> Vec<SymbolName> {
        let mut rows = self.rows_of_claim(claim);
        rows.retain(|row| self.is_demanded(*row));
        rows.into_iter().map(|row| self.rows[row].name.clone()).collect()
    }

    /// See [`crate::MaterializationResponsibility::delegate`]. None if the claim's rows were removed.
    pub(crate) fn delegate(&mut self, claim: ClaimId, names: &[SymbolName]) -> Option<ClaimId> {
        let from = self.live_claim(claim)?;
        let Claim { tracker, row, priority, is_wanted_as_it_says, .. } = *from;
        // Either may be left without rows.
        let dylib = self.dylib_of_claim(from);
        let (begun, followers) = (from.begun().cloned().map(Box::new), Followers::of_delegate(claim));
        let mut rows = Rows::new();
        let rare = Rare { rows: Some(Rows::new()), dylib, queued_in: None, begun, followers };
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

    /// The claim, unless its rows were removed.
    pub(crate) fn live_claim(&self, claim: ClaimId) -> Option<&Claim> {
        self.claims.get(claim).filter(|claim| !self.tracker_is_condemned(claim.tracker))
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

    /// Notes that a row stops carrying its claim because it is removed. The last one ends the claim.
    ///
    /// # Cost
    /// Constant: the row stays in the claim's list, where its id is stale from now on.
    pub(crate) fn leave_claim(&mut self, row: RowId, effects: &mut Effects<P>) {
        let Some(id) = self.rows[row].claim() else { return };
        let claim = &mut self.claims[id];
        claim.carried -= 1;
        if claim.carried == 0 && !weakened("remove::claim_outlives_its_rows") {
            self.claims.discard(id, effects);
        }
    }
}
