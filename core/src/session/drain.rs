//! Draining: how a close knows that nothing of the session moves any more.
//!
//! ```text
//!   tasks:      made ─────────────────────────────────────────▶ over
//!   excused:         in a lookup ▶ back      in a close ▶ back      in a strand ▶ back
//!
//!   idle  =  tasks - in lookups - in closes - in strands = 0,  and a round helps: some are in lookups, or none in strands
//! ```
//!
//! A task that waits in a strand (a serial queue) moves only after the one that runs there. If that one is in a lookup, a round sends it on.
//! If it is a task of another session, it is waited for. If it is in a close, it has left the strand.
//!
//! A close waits until the session is *idle*. If tasks still wait in lookups then, they wait for parked responsibilities or
//! for each other. So the close ends all queries, which sends these tasks on, and waits again: a *round*. A task that waits
//! in a close, of any session, is excused until that close is over, so tasks may close each other's sessions.
//!
//! The tasks that a transaction brings about are counted before its lock is free: a thread that is no task of the session
//! may stop anywhere before it has dispatched the last of them. A thread that works off the slices of an effect is counted
//! too.
//!
//! A frame's excuse says in which round its lookup began to wait, and which lookup that is. A round forgets all such excuses, because
//! it ends their queries: the tasks count as moving again before they know it. The answer of a lookup forgets the excuses of that
//! lookup, in one step with the waking of its thread. The thread that brings the answer is mostly in a task itself, and does so before
//! that task ends. So no task that has its answer, and sleeps still, is taken for one that waits.

use std::borrow::Borrow;

use rustc_hash::FxHashMap;

use crate::sync::atomic::{AtomicUsize, Ordering};
use crate::sync::{Arc, Latch, Mutex, weakened};

use super::ExecutionSession;
use super::answers::WaiterId;

/// Counts the tasks of a session that have not ended, in one word:
///
/// | word | meaning | who moves it |
/// |---|---|---|
/// | `2n` | n tasks, no thread waits for their end | every task: `+2` when it is certain to come, `-2` when over |
/// | `2n + 1` | n tasks, the closing thread waits | `start_round` sets the lowest bit, once |
///
/// A task whose end leaves the bit set looks at the latch under the lock. Because one word holds count and
/// bit, either `start_round` sees the task gone or the task sees the bit.
#[derive(Debug, Default)]
pub(super) struct Drain {
    word: AtomicUsize,
    waiting: Mutex<Excused>,
    /// Open once the session is closed.
    pub(super) closed: Latch,
}

/// The tasks that wait, under the lock.
#[derive(Debug, Default)]
struct Excused {
    /// Lookups of this session in which tasks wait since the last round, and that have no answer. Each with how many tasks it
    /// excuses: those of its thread that do not wait in something else above it.
    lookups: FxHashMap<WaiterId, usize>,
    /// Tasks that wait in closes.
    in_closes: usize,
    /// Tasks that wait in strands: serial queues.
    in_strands: usize,
    round: u64,
    /// The latch at which the closing thread waits.
    idle: Option<Arc<Latch>>,
}

const ONE_TASK: usize = 2;
const WAITED_FOR: usize = 1;

/// The work that a close finds left in a session that was idle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Left {
    /// Nothing that a round would send on.
    Nothing,
    /// Tasks that wait in lookups for which no task works any more.
    InLookups,
    /// A task that has moved on since.
    Moving,
}

/// The end of a thread's wait.
#[derive(Clone, Copy, Debug)]
pub(super) enum Wait<'a> {
    /// The answer of a lookup, which opens the latch.
    Lookup(WaiterId, &'a Latch),
    Close,
}

/// Why a close need not wait for a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Excuse {
    /// It moves.
    None,
    /// It waits in that lookup since that round.
    Lookup { round: u64, of: WaiterId },
    /// It waits in a close.
    Close,
}

impl Drain {
    /// A latch that opens when the session is idle.
    pub(super) fn start_round(&self) -> Arc<Latch> {
        let latch = Arc::new(Latch::new());
        let mut waiting = self.waiting.lock();
        waiting.idle = Some(latch.clone());
        // Relaxed: the two sides agree on the order of this word's changes, and that is all they need.
        self.word.fetch_or(WAITED_FOR, Ordering::Relaxed);
        if !weakened("close::waits_without_looking") {
            self.open_if_idle(&mut waiting);
        }
        latch
    }

    /// The work left when the latch of a round has opened, which may be a while ago. Tasks that wait in lookups count as
    /// moving from now on: the caller ends their queries.
    pub(super) fn end_round(&self) -> Left {
        let mut waiting = self.waiting.lock();
        // The answer that a task waited for may have come just before the end of the task that gave it.
        if !self.is_idle(&waiting) && !weakened("close::takes_what_was_idle_for_idle") {
            return Left::Moving;
        }
        waiting.round += 1;
        let left = if waiting.in_lookups() > 0 { Left::InLookups } else { Left::Nothing };
        waiting.lookups.clear();
        left
    }

    /// A task with the excuse `before` begins to wait; gives its new one.
    pub(super) fn excuse(&self, before: Excuse, wait: Wait<'_>) -> Excuse {
        let mut waiting = self.waiting.lock();
        let now = match wait {
            Wait::Close => Excuse::Close,
            Wait::Lookup(of, answered) => {
                // `answer` opens the latch under this lock. A lookup that has its answer excuses no task.
                if !answered.is_open() || weakened("close::excuses_who_was_answered_before") {
                    waiting.lookups.entry(of).or_default();
                }
                Excuse::Lookup { round: waiting.round, of }
            }
        };
        waiting.forget(before);
        waiting.note(now);
        if !weakened("close::task_that_waits_tells_nobody") {
            self.open_if_idle(&mut waiting);
        }
        now
    }

    /// A wait that began with the excuse `before` is over; gives the excuse that is left. The lookup of that may be answered, or its
    /// round over: then the task moves, or is about to.
    pub(super) fn restore(&self, now: Excuse, before: Excuse) -> Excuse {
        let mut waiting = self.waiting.lock();
        waiting.forget(now);
        if let Excuse::Lookup { of, .. } = now {
            waiting.lookups.remove(&of);
        }
        waiting.note(before);
        self.open_if_idle(&mut waiting);
        before
    }

    /// Wakes the thread that waits for a lookup, whose answer is there. The tasks of that thread count as moving from now on, before it
    /// knows of the answer.
    pub(super) fn answer(&self, waiter: WaiterId, latch: &Latch) {
        let mut waiting = self.waiting.lock();
        if !weakened("close::excuses_who_has_its_answer") {
            waiting.lookups.remove(&waiter);
        }
        latch.open();
    }

    /// A task begins to wait in a strand, or does so no more.
    pub(super) fn count_in_strand(&self, waits: bool) {
        let mut waiting = self.waiting.lock();
        match waits {
            true => waiting.in_strands += 1,
            false => waiting.in_strands -= 1,
        }
        self.open_if_idle(&mut waiting);
    }

    /// So many tasks are over.
    fn count_out(&self, count: usize) {
        // ordering[session-drained]: Release. Pairs with the Acquire in `Drain::is_idle`; what the task did
        // comes before the end of the close that waits for it.
        if self.word.fetch_sub(count * ONE_TASK, Ordering::Release) & WAITED_FOR != 0
            && !weakened("close::last_task_tells_nobody")
        {
            self.open_if_idle(&mut self.waiting.lock());
        }
    }

    fn open_if_idle(&self, waiting: &mut Excused) {
        if waiting.idle.is_some()
            && self.is_idle(waiting)
            && let Some(latch) = waiting.idle.take()
        {
            latch.open();
        }
    }

    /// Whether every task that has not ended is excused.
    fn is_idle(&self, waiting: &Excused) -> bool {
        let in_strands = match weakened("serial_queue::close_takes_who_waits_for_a_turn_to_move") {
            true => 0,
            false => waiting.in_strands,
        };
        let in_lookups = waiting.in_lookups();
        let excused = in_lookups + waiting.in_closes + in_strands;
        let round_helps = in_lookups > 0 || in_strands == 0;
        // ordering[session-drained]: Acquire. Pairs with the Release in `Drain::count_out`; a thread that sees
        // the end of the tasks, and opens the latch, sees what they did. Model: loom-tests/tests/models/close.rs.
        let acquire =
            if weakened("close::counts_without_acquire") { Ordering::Relaxed } else { Ordering::Acquire };
        round_helps && self.word.load(acquire) / ONE_TASK <= excused
    }
}

impl Excused {
    /// How many tasks wait in lookups of this session, of those that began since the last round and have no answer.
    fn in_lookups(&self) -> usize {
        self.lookups.values().sum()
    }

    /// Where a task with that excuse is counted. Nowhere if its lookup is answered or its round over.
    fn count_of(&mut self, excuse: Excuse) -> Option<&mut usize> {
        match excuse {
            Excuse::Lookup { round, of } if round == self.round => self.lookups.get_mut(&of),
            Excuse::Close => Some(&mut self.in_closes),
            Excuse::None | Excuse::Lookup { .. } => None,
        }
    }

    fn note(&mut self, excuse: Excuse) {
        self.count_of(excuse).into_iter().for_each(|count| *count += 1);
    }

    fn forget(&mut self, excuse: Excuse) {
        self.count_of(excuse).into_iter().for_each(|count| *count -= 1);
    }
}

impl ExecutionSession {
    /// Counts a task in, until the guard is dropped.
    pub(super) fn outstanding(&self) -> Outstanding {
        Outstanding::of(self.count_task())
    }

    fn count_task(&self) -> TaskCount {
        // Relaxed: nothing is read on the strength of the count but the count itself. A task that counts
        // itself in while another closes comes from a task that is counted already.
        self.0.drain.word.fetch_add(ONE_TASK, Ordering::Relaxed);
        TaskCount(self.clone())
    }

    /// Counts tasks in before they are made. Under the session lock, so that a close that begins after the transaction
    /// that they follow from knows of them, wherever its thread is by then.
    pub(super) fn coming(&self, count: usize) -> ComingTasks<'_> {
        let count = if weakened("close::overtakes_what_is_handed_on") { 0 } else { count };
        if count > 0 {
            // Relaxed: as above; and the lock comes between this and a close that begins later.
            self.0.drain.word.fetch_add(count * ONE_TASK, Ordering::Relaxed);
        }
        Counted { session: self, left: count }
    }
}

/// Tasks that are counted and not made yet; also a thread that is on its way to do something.
#[must_use = "a close waits for them"]
pub(super) struct Counted<S: Borrow<ExecutionSession>> {
    session: S,
    left: usize,
}

/// They are made before the thread returns from where it was counted for them.
pub(super) type ComingTasks<'a> = Counted<&'a ExecutionSession>;

/// They are made one by one, later.
pub(super) type ComingLater = Counted<ExecutionSession>;

impl<S: Borrow<ExecutionSession>> Counted<S> {
    pub(super) fn session(&self) -> &ExecutionSession {
        self.session.borrow()
    }

    /// One more has been made.
    #[inline]
    pub(super) fn next(&mut self) -> Outstanding {
        Outstanding::of(self.next_unit())
    }

    /// One more has been made, a unit's.
    #[inline]
    pub(super) fn next_unit(&mut self) -> TaskCount {
        match self.left.checked_sub(1) {
            Some(left) => {
                self.left = left;
                TaskCount(self.session().clone())
            }
            None => self.session().count_task(),
        }
    }

    /// So many of them are made later.
    pub(super) fn later(&mut self, count: usize) -> ComingLater {
        let count = count.min(self.left);
        self.left -= count;
        Counted { session: self.session().clone(), left: count }
    }
}

impl<S: Borrow<ExecutionSession>> Drop for Counted<S> {
    fn drop(&mut self) {
        if self.left > 0 {
            self.session().0.drain.count_out(self.left);
        }
    }
}

/// The session of a task that is counted. The owner must make it [`Outstanding`] again, or the task is never counted out.
#[must_use = "a close waits for the task"]
pub(super) struct TaskCount(pub(super) ExecutionSession);

/// A task that has not ended. Dropping it counts the task out.
pub(super) struct Outstanding(ExecutionSession);

impl Outstanding {
    #[inline]
    pub(super) fn of(counted: TaskCount) -> Self {
        Self(counted.0)
    }

    #[inline]
    pub(super) fn session(&self) -> &ExecutionSession {
        &self.0
    }

    /// The task begins to wait in a serial queue, or does so no more.
    pub(super) fn waits_for_turn(&self, waits: bool) {
        self.0.0.drain.count_in_strand(waits);
    }
}

impl Drop for Outstanding {
    fn drop(&mut self) {
        self.0.0.drain.count_out(1);
    }
}
