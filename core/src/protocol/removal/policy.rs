//! Policy: the fate of dependants when a tracker is removed.
//!
//! Dependants that are emitted or Ready count, because the removal does not fail them: the forest has forgotten edges to rows that
//! were Ready before. Asking and removing is one transaction, so that no new dependant appears in between. An emission that comes
//! later is refused.

use rustc_hash::FxHashSet;

use crate::sync::{Arc, weakened};
use crate::{RemovalPolicy, RemoveError};

use crate::protocol::state::{Effects, Payload, Resources, RowNotice, RowState, SessionState};
use crate::protocol::storage::{RowId, TrackerId};

/// A removal's error names so many dependants.
const DEPENDANTS_NAMED_MAX: usize = 16;

/// The treatment of dependants at a removal.
#[derive(Clone, Copy, Debug)]
pub(crate) enum OnDependants {
    /// It is refused if the dylib keeps dependants and there are any.
    AsKept,
    /// The embedder's choice.
    Policy(RemovalPolicy),
    /// They stay, even if they need removed symbols.
    Leave,
}

/// The resources that a removal by tracker leaves.
pub(crate) struct RemovedTracker<R> {
    own: Resources<R>,
    /// Those of dependants, which go before: newest last.
    of_dependants: Vec<R>,
}

impl<R> RemovedTracker<R> {
    pub(crate) fn is_empty(&self) -> bool {
        self.own.is_empty() && self.of_dependants.is_empty()
    }

    /// The last one goes first: dependants before what they need.
    pub(crate) fn into_vec(self) -> Vec<R> {
        let mut all = self.own.into_vec();
        all.extend(self.of_dependants);
        all
    }
}

impl<P: Payload> SessionState<P> {
    /// See [`crate::ResourceTracker::remove_with`]. The resources are the caller's to remove, once the rows are gone.
    pub(crate) fn remove_tracker_with(
        &mut self,
        tracker: TrackerId,
        on_dependants: OnDependants,
        dylib_name: impl FnOnce() -> Arc<str>,
        effects: &mut Effects<P>,
    ) -> Result<RemovedTracker<P::Resource>, RemoveError> {
        let mut of_dependants = Vec::new();
        if self.definitions.tracker_lives(tracker) {
            let keeps = self.dependants.keeps(self.definitions[tracker].dylib);
            match on_dependants {
                OnDependants::Policy(_) if !keeps => {
                    return Err(RemoveError::DependantsNotKept { dylib: dylib_name() });
                }
                OnDependants::AsKept if !keeps => {}
                OnDependants::AsKept | OnDependants::Policy(RemovalPolicy::Refuse) => {
                    self.ask_dependants(tracker, dylib_name)?;
                }
                OnDependants::Policy(RemovalPolicy::Cascade) => {
                    of_dependants = self.remove_dependants(tracker, effects);
                }
                OnDependants::Leave => {}
            }
        }
        Ok(RemovedTracker { own: self.remove_tracker(tracker, effects), of_dependants })
    }

    /// An error if a symbol that is not the tracker's needs one that is.
    pub(crate) fn ask_dependants(
        &self,
        tracker: TrackerId,
        dylib_name: impl FnOnce() -> Arc<str>,
    ) -> Result<(), RemoveError> {
        let (mut needed, mut dependants) = (Vec::new(), FxHashSet::default());
        for row in self.definitions.rows_of_tracker(tracker) {
            let before = dependants.len();
            dependants.extend(self.dependants.of(row).filter(|&row| self.is_outside(row, tracker)));
            needed.extend((dependants.len() > before).then_some(row));
        }
        if dependants.is_empty() || weakened("dependants::refuses_nothing") {
            return Ok(());
        }
        let (needed, dependants) = (self.telling(needed), self.telling(dependants.into_iter().collect()));
        let name = |row: &RowId| self.definitions[*row].name.clone();
        Err(RemoveError::Needed {
            dylib: dylib_name(),
            symbol: name(&needed[0]),
            dependants: dependants.iter().take(DEPENDANTS_NAMED_MAX).map(name).collect(),
            count: dependants.len(),
        })
    }

    /// Those of `rows` with meaningful names, if there are any: not symbols for side effects only.
    fn telling(&self, mut rows: Vec<RowId>) -> Vec<RowId> {
        let tells = |row: &RowId| !self.definitions[*row].is_for_side_effects_only();
        if rows.iter().any(tells) {
            rows.retain(tells);
        }
        rows.sort_unstable();
        rows
    }

    /// Removes all direct and indirect dependants of the tracker's symbols, with the rows emitted together with them. The tracker's
    /// own rows stay. Gives the resources that serve no row any more, newest last: a needed symbol's come before those of its
    /// dependants.
    fn remove_dependants(&mut self, tracker: TrackerId, effects: &mut Effects<P>) -> Vec<P::Resource> {
        let rows: Vec<_> = self.definitions.rows_of_tracker(tracker).collect();
        let closure = self.dependants.closure(&rows, |row| self.stands(row));
        let (mut resources_left, mut removed) = (Vec::new(), Vec::new());
        for rows in closure {
            for row in rows {
                let is_another = self.definitions.row(row).is_some_and(|row| row.tracker != tracker);
                if is_another && !weakened("dependants::nobody_goes_along") {
                    self.definitions.note_resources(row, &mut resources_left);
                    self.remove_row(row, RowNotice::Discarded, effects);
                }
            }
            removed.push(self.definitions.take_orphans());
        }
        // The error of rows that fall with them names their removal, and not that of the initializer symbol swept after them.
        self.settle_any(effects);
        removed.push(self.sweep(resources_left, effects));
        removed.into_iter().rev().flatten().map(|(_, resource)| resource).collect()
    }

    fn is_outside(&self, row: RowId, tracker: TrackerId) -> bool {
        self.stands(row) && self.definitions[row].tracker != tracker
    }

    /// Whether the row is in place, and would be found or is about to be.
    fn stands(&self, row: RowId) -> bool {
        let in_place = |state: &RowState| matches!(state, RowState::Emitted { .. } | RowState::Ready { .. });
        let row = self.definitions.row(row).filter(|row| in_place(&row.state));
        row.is_some_and(|row| !self.definitions.row_is_removing(row))
    }
}
