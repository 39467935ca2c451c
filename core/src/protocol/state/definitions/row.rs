//! Rows: one definition of one symbol in one dylib, in one of its states.
//!
//! | from | to | by |
//! |---|---|---|
//! | (none) | `NeverSearched` | define |
//! | (none) | `Materializing` | define further symbols while materializing |
//! | `NeverSearched`, `Returned` | `Materializing` | lookup, emit (demand) |
//! | `NeverSearched` | `Ready` | the same, where the address is known |
//! | `Materializing` | `Returned` | withdrawn before it started, replace |
//! | `Materializing` | `Resolved` | resolve |
//! | `Resolved` | `Emitted`, `Ready` | emit |
//! | `Emitted` | `Ready` | emit of what it waits on |
//! | `Materializing`, `Resolved` | `Failed` | fail |
//! | `Emitted` | `Failed` | failure or removal of what it waits on |
//! | any | (none) | remove |
//!
//! **Architecture Invariant:** states only move forward, `Returned` excepted: [`Row::advance`] is the only way to change
//! one, and knows this table.

use crate::{
    ExecutorAddr, ExecutorSymbolDef, JitDylibLookupFlags, RequiredState, SymbolFlags, SymbolName,
    TaskPriority,
};

use crate::protocol::dependences::NodeId;
use crate::protocol::state::rising::RisingPriority;
use crate::protocol::state::{failures::FailedRow, lookups::query::Lodging};
use crate::protocol::storage::{ClaimId, DylibId, NONE, RowId, Slab, TrackerId, TwoLines, UnitId};

/// The definitions of a session.
pub(crate) type RowSlab = Slab<RowId, Row, TwoLines>;

/// One definition of a symbol.
///
/// The fields that an emission reads of the rows it depends on come first, and fill a line of the cache with the slot's
/// generation.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Row {
    pub(crate) name: SymbolName,
    pub(crate) dylib: DylibId,
    pub(crate) state: RowState,
    pub(crate) flags: SymbolFlags,
    /// Its unit's own priority.
    pub(crate) own_priority: TaskPriority,
    /// A query that wants no more than the address has been lodged on it.
    pub(crate) is_wanted_resolved: bool,
    pub(crate) tracker: TrackerId,
    /// The neighbours in the list of all dylibs' definitions of the name.
    pub(crate) namesakes: Links,
    /// Its product, if its unit has registered a resource, or `NONE` (`product.rs`). Fills a gap.
    pub(crate) product: u32,
    /// The unit that provides it, for errors.
    pub(crate) unit_name: SymbolName,
    /// The neighbours in the list of the tracker's rows.
    pub(crate) links: Links,
}

#[cfg(target_pointer_width = "64")]
const _: () = assert!(std::mem::offset_of!(Row, flags) <= 64 - size_of::<u64>(), "see Row");
#[cfg(target_pointer_width = "64")]
const _: () = assert!(size_of::<Row>() == 96, "the product lies where nothing else could");

/// How far a definition has come: each state carries exactly the data that exists in it.
#[derive(Debug)]
pub(crate) enum RowState {
    /// It was never searched.
    NeverSearched { source: Source },
    /// It was searched, then the unit came back unstarted: can be claimed again, no longer overridden.
    Returned { unit: UnitId },
    /// Its unit was claimed.
    Materializing { claim: ClaimId, waiting: Waiters },
    /// It has an address that is not safe to use yet.
    Resolved { claim: ClaimId, address: ExecutorAddr, waiting: Waiters },
    /// Its code is in place; something it depends on is not.
    Emitted { address: ExecutorAddr, priority: RisingPriority, waiting: Waiters },
    /// Safe to use.
    Ready { address: ExecutorAddr },
    /// It will never be Ready. `via` is the row through which the failure came.
    Failed { failed_row: FailedRow, via: RowId },
}

/// The origin of a definition that was never searched.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Source {
    /// A unit makes it.
    Unit(UnitId),
    /// It is there already.
    Address(ExecutorAddr),
}

/// A state without its data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    NeverSearched,
    Returned,
    Materializing,
    Resolved,
    Emitted,
    Ready,
    Failed,
}

/// The waiters of a row.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waiters {
    /// The first of the queries lodged on it.
    pub(crate) queries: Lodging,
    /// Its node in the forest, once another row depends on it or it waits itself.
    pub(crate) node: Option<NodeId>,
}

impl Waiters {
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

impl RowState {
    pub(crate) fn standing(&self) -> Standing {
        match self {
            Self::NeverSearched { .. } => Standing::NeverSearched,
            Self::Returned { .. } => Standing::Returned,
            Self::Materializing { .. } => Standing::Materializing,
            Self::Resolved { .. } => Standing::Resolved,
            Self::Emitted { .. } => Standing::Emitted,
            Self::Ready { .. } => Standing::Ready,
            Self::Failed { .. } => Standing::Failed,
        }
    }
}

impl RowState {
    /// The address, once the definition has come as far as `required`. The one place that knows which states have.
    pub(crate) fn reached(&self, required: RequiredState) -> Option<ExecutorAddr> {
        match *self {
            Self::Ready { address } => Some(address),
            Self::Resolved { address, .. } | Self::Emitted { address, .. } => {
                (required == RequiredState::Resolved).then_some(address)
            }
            _ => None,
        }
    }
}

impl Standing {
    /// Whether a definition may go from here to `next`: the table at the head of this file.
    pub(crate) fn may_become(self, next: Self) -> bool {
        use Standing::*;
        match self {
            NeverSearched => matches!(next, Materializing | Ready),
            Returned => matches!(next, Materializing),
            Materializing => matches!(next, Returned | Resolved | Failed),
            Resolved => matches!(next, Emitted | Ready | Failed),
            Emitted => matches!(next, Ready | Failed),
            Ready | Failed => false,
        }
    }
}

impl Row {
    /// Changes the state. The only way to do so.
    pub(crate) fn advance(&mut self, next: RowState) {
        let (from, to) = (self.state.standing(), next.standing());
        debug_assert!(from.may_become(to), "`{}` goes from {from:?} to {to:?}", self.name);
        self.state = next;
    }

    /// The waiters of the row, in the states that can have any.
    pub(crate) fn waiting(&self) -> Option<&Waiters> {
        match &self.state {
            RowState::Materializing { waiting, .. }
            | RowState::Resolved { waiting, .. }
            | RowState::Emitted { waiting, .. } => Some(waiting),
            _ => None,
        }
    }

    /// See [`Row::waiting`].
    pub(crate) fn waiting_mut(&mut self) -> Option<&mut Waiters> {
        match &mut self.state {
            RowState::Materializing { waiting, .. }
            | RowState::Resolved { waiting, .. }
            | RowState::Emitted { waiting, .. } => Some(waiting),
            _ => None,
        }
    }

    /// The row's definition for a query that wants `required`, once the row has come as far.
    pub(crate) fn found(&self, required: RequiredState) -> Option<ExecutorSymbolDef> {
        Some(ExecutorSymbolDef::new(
            self.state.reached(required)?,
            self.flags.difference(SymbolFlags::STRANDED),
        ))
    }

    /// Whether the row is on its way, and has yet to come as far as `required`.
    pub(crate) fn is_behind(&self, required: RequiredState) -> bool {
        self.waiting().is_some() && self.state.reached(required).is_none()
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
            RowState::NeverSearched { source: Source::Unit(unit) } | RowState::Returned { unit } => {
                Some(unit)
            }
            _ => None,
        }
    }

    /// Whether a search that looks at a dylib in this way sees the definition.
    pub(crate) fn is_seen_with(&self, flags: JitDylibLookupFlags) -> bool {
        flags == JitDylibLookupFlags::MatchAllSymbols || self.flags.contains(SymbolFlags::EXPORTED)
    }

    /// Whether it is an alias of what was removed.
    pub(crate) fn is_stranded(&self) -> bool {
        self.flags.intersects(SymbolFlags::STRANDED)
    }

    /// Whether the symbol exists so that looking it up runs its unit, and never has an address.
    pub(crate) fn is_for_side_effects_only(&self) -> bool {
        self.flags.contains(SymbolFlags::MATERIALIZATION_SIDE_EFFECTS_ONLY)
    }
}

#[cfg(all(test, not(uruk_loom)))]
mod tests {
    use super::*;
    use crate::ids::{FailureId, Id};

    const ALL: [Standing; 7] = [
        Standing::NeverSearched,
        Standing::Returned,
        Standing::Materializing,
        Standing::Resolved,
        Standing::Emitted,
        Standing::Ready,
        Standing::Failed,
    ];

    /// The pairs of the table at the head of this file, from its text.
    fn documented() -> Vec<(Standing, Standing)> {
        let named = |cell: &str| -> Vec<Standing> {
            ALL.into_iter().filter(|standing| cell.contains(&format!("`{standing:?}`"))).collect()
        };
        let rows = include_str!("row.rs").lines().filter_map(|line| line.strip_prefix("//! | `"));
        let mut pairs = Vec::new();
        for row in rows {
            let cells: Vec<_> = row.split('|').collect();
            let from = named(&format!("`{}", cells[0]));
            pairs.extend(from.iter().flat_map(|&from| named(cells[1]).into_iter().map(move |to| (from, to))));
        }
        pairs
    }

    #[test]
    fn states_move_as_the_table_says_and_no_other_way() {
        let documented = documented();
        assert_eq!(documented.len(), 11, "{documented:?}");
        for from in ALL {
            for to in ALL {
                let expected = documented.contains(&(from, to));
                assert_eq!(from.may_become(to), expected, "from {from:?} to {to:?}");
            }
        }
    }

    #[test]
    fn nobody_else_assigns_a_state() {
        let mut folders = vec![std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/protocol")];
        let mut read = 0;
        while let Some(folder) = folders.pop() {
            for file in std::fs::read_dir(folder).unwrap() {
                let path = file.unwrap().path();
                if path.is_dir() {
                    folders.push(path);
                } else if path.extension().is_some_and(|extension| extension == "rs")
                    && !path.ends_with("row.rs")
                    // It breaks states on purpose, one at a time.
                    && !path.ends_with("tests/check.rs")
                {
                    let assigns = std::fs::read_to_string(&path).unwrap().contains(".state = ");
                    assert!(!assigns, "{} changes a state without `Row::advance`", path.display());
                    read += 1;
                }
            }
        }
        assert!(read > 60);
    }

    #[test]
    fn a_row_has_reached_what_its_state_says() {
        use RequiredState::{Ready, Resolved};
        let (id, address, waiting) = (RowId::new(0, 0), ExecutorAddr::new(16), Waiters::NOBODY);
        let (claim, priority) = (ClaimId::new(0, 0), RisingPriority::at(TaskPriority::Demanded));
        let failed_row = FailedRow { failure: FailureId::new(0, 0), root: id, depth: 0 };
        let states = [
            (RowState::NeverSearched { source: Source::Address(address) }, None, None),
            (RowState::Returned { unit: UnitId::new(0, 0) }, None, None),
            (RowState::Materializing { claim, waiting }, None, None),
            (RowState::Resolved { claim, address, waiting }, Some(address), None),
            (RowState::Emitted { address, priority, waiting }, Some(address), None),
            (RowState::Ready { address }, Some(address), Some(address)),
            (RowState::Failed { failed_row, via: id }, None, None),
        ];
        for (state, resolved, ready) in states {
            assert_eq!((state.reached(Resolved), state.reached(Ready)), (resolved, ready), "{state:?}");
        }
    }

    #[test]
    fn no_way_leads_back_but_to_the_unit() {
        // Forward is a larger number; Returned alone stands outside.
        let place = |standing| ALL.iter().position(|&other| other == standing);
        for (from, to) in documented() {
            assert!(to == Standing::Returned || place(from) < place(to), "from {from:?} to {to:?}");
        }
    }
}
