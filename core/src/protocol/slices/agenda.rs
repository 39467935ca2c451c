//! The agenda: work left to do, the share of it in one hold of the lock, and the thread that attends to the rest.

use crate::protocol::dependences::Settled;
use crate::protocol::storage::{Pieces, QueryId, RowId, Takes};
use crate::sync::weakened;

/// About how many steps are taken in one hold of the lock: a few hundred microseconds. In models other threads shall
/// come between any two steps.
pub(crate) const SLICE_STEPS: usize = if cfg!(any(uruk_loom, uruk_shuttle)) { 1 } else { 1024 };

/// So many slices a thread takes after others have added to its work, before the next to add some takes over: a few
/// milliseconds. In models this shall happen at once.
pub(crate) const FOREIGN_SLICES_MAX: usize = if cfg!(any(uruk_loom, uruk_shuttle)) { 1 } else { 16 };

/// Which of all the threads that ever attended to the work of a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Attendance(u64);

/// The thread that comes back for the next slice.
#[derive(Debug)]
struct Attendant {
    attendance: Attendance,
    /// Not all that is left to do is its own.
    shares: bool,
    /// Slices it has taken since.
    foreign_slices: usize,
}

/// Work left to do that lies in no other part of the state.
#[derive(Debug)]
pub(crate) struct Agenda {
    /// Queries that have ended and whose entries are still in the lists of their rows.
    ended: Pieces<QueryId>,
    /// The nodes that the forest has settled in the present slice; kept for its memory.
    pub(super) settled: Vec<Settled<RowId>>,
    /// The present transaction has added something, here or elsewhere.
    added: bool,
    /// The present transaction has taken a slice by itself.
    has_settled: bool,
    attendant: Option<Attendant>,
    /// How many threads have attended so far.
    attendances: u64,
    /// How many steps a slice takes.
    slice_steps: usize,
    /// How many steps the present hold of the lock has taken, and the longest.
    steps: usize,
    steps_max: usize,
}

impl Agenda {
    pub(crate) fn new() -> Self {
        Self {
            ended: Pieces::new(),
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

    /// The present transaction leaves something to do.
    pub(crate) fn add(&mut self) {
        self.added = true;
    }

    /// A query has ended. Its entries are to leave the lists of their rows.
    pub(crate) fn end_later(&mut self, query: QueryId) {
        self.ended.push_back(query);
        self.added = true;
    }

    /// The query that ended first, of those whose entries are to leave.
    pub(super) fn first_ended(&self) -> Option<QueryId> {
        self.ended.front().copied()
    }

    /// The last entry of that query has left.
    pub(crate) fn drop_ended(&mut self, memory: &mut impl Takes) {
        self.ended.pop_front(memory);
    }

    /// How many steps a slice takes.
    pub(crate) fn slice_steps(&self) -> usize {
        self.slice_steps
    }

    /// Counts steps of the present hold of the lock.
    pub(crate) fn count_steps(&mut self, steps: usize) {
        self.steps += steps;
    }

    /// The present transaction takes a slice by itself.
    pub(super) fn note_settled(&mut self) {
        self.has_settled = true;
    }

    /// Whether the present transaction has added nothing, and no thread attends to the work of others.
    #[inline]
    pub(super) fn rests(&self) -> bool {
        !self.added && self.attendant.is_none()
    }

    /// The present transaction ends. Says whether it has added something, and whether it has taken a slice by itself.
    #[inline]
    pub(super) fn end_transaction(&mut self) -> (bool, bool) {
        (std::mem::take(&mut self.added), std::mem::take(&mut self.has_settled))
    }

    /// The present hold of the lock ends.
    #[inline]
    pub(super) fn end_hold(&mut self) {
        if self.steps > 0 {
            self.steps_max = self.steps_max.max(std::mem::take(&mut self.steps));
        }
    }

    /// The most steps that one hold of the lock has taken.
    pub(super) fn steps_max(&self) -> usize {
        self.steps_max
    }

    /// Decides whether the thread whose transaction ends here attends to what is left from now on.
    pub(super) fn attend(&mut self, added: bool) -> Option<Attendance> {
        let mut shares = false;
        if let Some(attendant) = &mut self.attendant {
            if !added || attendant.foreign_slices < FOREIGN_SLICES_MAX {
                attendant.shares |= added;
                return None;
            }
            shares = true;
        }
        let attendance = Attendance(self.attendances);
        self.attendances += 1;
        self.attendant = Some(Attendant { attendance, shares, foreign_slices: 0 });
        (!shares || !weakened("emit::nobody_takes_over")).then_some(attendance)
    }

    /// The thread comes back for a slice. Says whether it still attends to the work.
    pub(super) fn comes_back(&mut self, attendance: Attendance) -> bool {
        let attendant = self.attendant.as_mut().filter(|attendant| attendant.attendance == attendance);
        let is_expected = attendant.is_some();
        attendant.into_iter().for_each(|attendant| attendant.foreign_slices += usize::from(attendant.shares));
        is_expected
    }

    /// Nothing is left to do.
    pub(super) fn dismiss(&mut self) {
        self.attendant = None;
    }
}

#[cfg(all(test, not(uruk_loom)))]
mod parts {
    use super::Agenda;

    impl Agenda {
        pub(crate) fn set_slice_steps(&mut self, steps: usize) {
            self.slice_steps = steps;
        }
    }
}
