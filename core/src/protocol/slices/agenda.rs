//! What is left to do, and which thread attends to it.

use crate::protocol::dependences::Settled;
use crate::protocol::state::fallen::Going;
use crate::protocol::storage::ids::{QueryId, RowId};
use crate::protocol::storage::pieces::Pieces;

/// About how many steps are taken in one hold of the lock: a few hundred microseconds. In models other threads shall
/// come between any two steps.
pub(crate) const SLICE_STEPS: usize = if cfg!(any(uruk_loom, uruk_shuttle)) { 1 } else { 1024 };

/// So many slices a thread takes after others have added to its work, before the next to add some takes over: a few
/// milliseconds. In models this shall happen at once.
pub(crate) const FOREIGN_SLICES_MAX: usize = if cfg!(any(uruk_loom, uruk_shuttle)) { 1 } else { 16 };

/// Which of all the threads that ever attended to the work of a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Attendance(pub(super) u64);

/// The thread that comes back for the next slice.
#[derive(Debug)]
pub(super) struct Attendant {
    pub(super) attendance: Attendance,
    /// Not all that is left to do is its own.
    pub(super) shares: bool,
    /// Slices it has taken since.
    pub(super) foreign_slices: usize,
}

/// What is left to do, but for the forest's own part.
#[derive(Debug)]
pub(crate) struct Agenda {
    /// Queries that have ended and whose entries are still in the lists of their rows.
    pub(in crate::protocol) ended: Pieces<QueryId>,
    /// What was left behind by rows removed during failures that have reached everybody.
    pub(super) fallen: Going,
    /// What the forest has settled; kept for its memory.
    pub(super) settled: Vec<Settled<RowId>>,
    /// The present transaction has added something.
    pub(in crate::protocol) added: bool,
    /// The present transaction has taken a slice by itself.
    pub(super) has_settled: bool,
    pub(super) attendant: Option<Attendant>,
    /// How many threads have attended so far.
    pub(super) attendances: u64,
    /// How many steps a slice takes.
    pub(in crate::protocol) slice_steps: usize,
    /// How many steps the present hold of the lock has taken, and the longest.
    pub(super) steps: usize,
    pub(super) steps_max: usize,
}

impl Default for Agenda {
    fn default() -> Self {
        Self {
            ended: Pieces::new(),
            fallen: Going::default(),
            settled: Vec::new(),
            added: false,
            has_settled: false,
            attendant: None,
            attendances: 0,
            slice_steps: SLICE_STEPS,
            steps: 0,
            steps_max: 0,
        }
    }
}

impl Agenda {
    /// Counts steps of the present hold of the lock.
    pub(in crate::protocol) fn count_steps(&mut self, steps: usize) {
        self.steps += steps;
    }
}
