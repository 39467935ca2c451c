//! Rows: one definition of one symbol in one dylib, in one of its states.
//!
//! | from | to | by |
//! |---|---|---|
//! | (none) | `NeverSearched` | define |
//! | (none) | `Materializing` | define further symbols while materializing |
//! | `NeverSearched`, `Returned` | `Materializing` | lookup, emit (demand) |
//! | `Materializing` | `Returned` | withdrawn before it started, replace |
//! | `Materializing` | `Resolved` | resolve |
//! | `Resolved` | `Emitted`, `Ready` | emit |
//! | `Emitted` | `Ready` | emit of what it waits on |
//! | `Materializing`, `Resolved` | `Failed` | fail |
//! | `Emitted` | `Failed` | failure or removal of what it waits on |
//! | any | (none) | remove |

use crate::{ExecutorAddr, SymbolFlags, SymbolName};

use super::ids::{ClaimId, DylibId, FailureId, RowId, TrackerId, UnitId};
use super::query::Lodging;
use super::slab::NONE;
use super::waiting_on::NodeId;

/// One definition of a symbol.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) name: SymbolName,
    /// The unit that provides it, for errors.
    pub(crate) unit_name: SymbolName,
    pub(crate) dylib: DylibId,
    pub(crate) tracker: TrackerId,
    /// The neighbours in the list of the tracker's rows.
    pub(crate) links: Links,
    /// The neighbours in the list of all dylibs' definitions of the name.
    pub(crate) namesakes: Links,
    pub(crate) flags: SymbolFlags,
    pub(crate) state: RowState,
}

/// How far a definition has come: each state carries exactly the data that exists in it.
#[derive(Debug)]
pub(crate) enum RowState {
    /// Nobody has looked for it.
    NeverSearched { unit: UnitId },
    /// Somebody has, then the unit came back unstarted: can be claimed again, no longer overridden.
    Returned { unit: UnitId },
    /// Its unit was claimed.
    Materializing { claim: ClaimId, waiting: Waiting },
    /// It has an address that is not safe to use yet.
    Resolved { claim: ClaimId, address: ExecutorAddr, waiting: Waiting },
    /// Its code is in place; something it depends on is not.
    Emitted { address: ExecutorAddr, waiting: Waiting },
    /// Safe to use.
    Ready { address: ExecutorAddr },
    /// It will never be Ready. `via` is the row through which the failure came, `root` where it began.
    Failed { failure: FailureId, via: RowId, root: RowId, depth: u32 },
}

/// Who waits on a row.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waiting {
    /// The first of the queries lodged on it.
    pub(crate) queries: Lodging,
    /// Its node in the forest, once somebody depends on it or it waits itself.
    pub(crate) node: Option<NodeId>,
}

impl Waiting {
    /// Nobody.
    pub(crate) const NOBODY: Self = Self { queries: Lodging::NONE, node: None };
}

/// The neighbours of an entity in a list threaded through its slab.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Links {
    pub(crate) previous: u32,
    pub(crate) next: u32,
}

impl Links {
    /// In no list, or alone in one.
    pub(crate) const ALONE: Self = Self { previous: NONE, next: NONE };

    /// Whether there are no neighbours.
    pub(crate) fn is_alone(self) -> bool {
        self.previous == NONE && self.next == NONE
    }
}

impl Row {
    /// Who waits on the row, in the states in which anybody can.
    pub(crate) fn waiting(&self) -> Option<&Waiting> {
        match &self.state {
            RowState::Materializing { waiting, .. }
            | RowState::Resolved { waiting, .. }
            | RowState::Emitted { waiting, .. } => Some(waiting),
            _ => None,
        }
    }

    /// See [`Row::waiting`].
    pub(crate) fn waiting_mut(&mut self) -> Option<&mut Waiting> {
        match &mut self.state {
            RowState::Materializing { waiting, .. }
            | RowState::Resolved { waiting, .. }
            | RowState::Emitted { waiting, .. } => Some(waiting),
            _ => None,
        }
    }

    /// The claim that may act on the row.
    pub(crate) fn claim(&self) -> Option<ClaimId> {
        match self.state {
            RowState::Materializing { claim, .. } | RowState::Resolved { claim, .. } => Some(claim),
            _ => None,
        }
    }

    /// The unit that waits in the row.
    pub(crate) fn unit(&self) -> Option<UnitId> {
        match self.state {
            RowState::NeverSearched { unit } | RowState::Returned { unit } => Some(unit),
            _ => None,
        }
    }

    /// Whether the symbol exists so that looking it up runs its unit, and never has an address.
    pub(crate) fn is_for_side_effects_only(&self) -> bool {
        self.flags.contains(SymbolFlags::MATERIALIZATION_SIDE_EFFECTS_ONLY)
    }
}
