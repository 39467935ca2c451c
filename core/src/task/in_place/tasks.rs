//! The tasks of one in-place dispatcher on all threads, and the shutdowns that wait for their end.
//!
//! A shutdown called from a task never waits for that task, nor for one that itself waits in a shutdown: two tasks of two
//! threads that close the same dispatcher both return. One called from outside waits for all of them.

use std::cell::Cell;
use std::rc::Rc;

use crate::sync::atomic::Ordering;
use crate::sync::{Arc, Latch, Mutex, Stripe, Striped, weakened};

use super::with;

/// Counts the dispatcher's tasks that have not ended, on all threads. A task is counted in one word from its beginning to its
/// end, or for as long as others that came with it are not made; which one is the choice of the thread that dispatches it, so that
/// threads that have nothing else to do with each other do not meet here. The lowest bit of a word says that no more are taken.
///
/// | word | meaning |
/// |---|---|
/// | `2n` | n tasks, open |
/// | `2n + 1` | n tasks, closed: the count only falls |
///
/// Once all words are closed, their sum only falls as well, and a thread that subtracts from it looks at the rest.
#[derive(Debug, Default)]
pub(super) struct Tasks {
    words: Striped,
    /// The threads that wait in a shutdown.
    waiting: Mutex<Vec<Closer>>,
}

/// A shutdown that waits.
#[derive(Debug)]
struct Closer {
    /// Of the tasks that have not ended, how many wait for its return and for no other's.
    tasks: usize,
    /// It was called from a task, so that it waits only for tasks that do not wait themselves.
    inside: bool,
    latch: Arc<Latch>,
}

/// The tasks of a dispatcher that lie beneath a shutdown of it on this thread.
pub(super) struct Beneath {
    from: *const Tasks,
    /// Where this thread's list of what runs has those that no shutdown beneath has counted.
    uncounted: Vec<usize>,
    /// There are any, counted or not.
    any: bool,
}

impl Beneath {
    /// Counts them for as long as the shutdown waits.
    pub(super) fn of(from: *const Tasks) -> Self {
        with(|thread| {
            let mut beneath = Self { from, uncounted: Vec::new(), any: false };
            for (place, running) in thread.running.iter_mut().enumerate().filter(|(_, it)| it.from == from) {
                beneath.any = true;
                if !std::mem::replace(&mut running.closes, true) {
                    beneath.uncounted.push(place);
                }
            }
            beneath
        })
        .unwrap_or(Self { from, uncounted: Vec::new(), any: false })
    }
}

impl Drop for Beneath {
    fn drop(&mut self) {
        with(|thread| {
            for &place in &self.uncounted {
                debug_assert!(
                    std::ptr::eq(thread.running[place].from, self.from),
                    "what lies beneath stays there"
                );
                thread.running[place].closes = false;
            }
        });
    }
}

const ONE_TASK: usize = 2;
const CLOSED: usize = 1;

impl Tasks {
    /// Takes no more tasks. The latch opens when none is left, or from inside a task, when all that are left wait
    /// in shutdowns: none of them would return for the other.
    pub(super) fn close(&self, beneath: &Beneath) -> Arc<Latch> {
        let latch = Arc::new(Latch::new());
        let mut waiting = self.waiting.lock();
        waiting.push(Closer { tasks: beneath.uncounted.len(), inside: beneath.any, latch: latch.clone() });
        self.take_no_more();
        self.open_drained(&mut waiting);
        latch
    }

    /// Takes no more tasks. For who waits for none: to be counted as one that does would let others return too early.
    pub(super) fn close_without_waiting(&self) {
        let _waiting = self.waiting.lock();
        self.take_no_more();
    }

    /// Closes all words, under the lock of those who wait.
    fn take_no_more(&self) {
        for word in self.words.iter() {
            // Relaxed: count and bit are one word, so either this sees the task gone or the task sees the bit. A task that has seen
            // it looks at the other words after this, by the lock, and sees there what this has.
            word.fetch_or(CLOSED, Ordering::Relaxed);
            if weakened("in_place::closes_one_word") {
                break;
            }
        }
    }

    /// Counts `count` tasks in, unless the dispatcher is closed; says where.
    pub(super) fn enter(&self, count: usize) -> Option<Stripe> {
        let stripe = Stripe::here();
        // Relaxed: see `Tasks::close`. Refused tasks are counted for a moment and then out again.
        if self.words[stripe].fetch_add(count * ONE_TASK, Ordering::Relaxed) & CLOSED == 0 {
            return Some(stripe);
        }
        self.end(stripe, count);
        None
    }

    /// Counts tasks out where they were counted in.
    pub(super) fn end(&self, stripe: Stripe, count: usize) {
        // ordering[in-place-drained]: Release. Pairs with the Acquire in `Tasks::open_drained`; what the task did comes
        // before the end of the shutdown that waits for it.
        if self.words[stripe].fetch_sub(count * ONE_TASK, Ordering::Release) & CLOSED != 0
            && !weakened("in_place::last_task_tells_nobody")
        {
            self.open_drained(&mut self.waiting.lock());
        }
    }

    fn open_drained(&self, waiting: &mut Vec<Closer>) {
        // ordering[in-place-drained]: Acquire. Pairs with the Release in `Tasks::end`; a thread that sees the end
        // of the tasks, and opens the latch, sees what they did. Model: loom-tests/tests/models/in_place.rs.
        let acquire =
            if weakened("in_place::counts_without_acquire") { Ordering::Relaxed } else { Ordering::Acquire };
        let left: usize = self.words.iter().map(|word| word.load(acquire) / ONE_TASK).sum();
        let closing: usize = waiting.iter().map(|closer| closer.tasks).sum();
        waiting.retain(|closer| {
            let drained = left <= if closer.inside { closing } else { 0 };
            if drained {
                closer.latch.open();
            }
            !drained
        });
    }
}

/// A task that has not ended, and where it is counted.
pub(super) enum Counted {
    Alone(Arc<Tasks>, Stripe),
    /// One of many that were dispatched at once, none of which leaves its thread.
    OneOf(Rc<Batch>),
}

/// Tasks of one thread that were counted in at once. They share one reference to the counter, and are counted out together: while
/// some of them are not made, a shutdown waits for them in any case, for they cannot wait in a shutdown themselves.
pub(super) struct Batch {
    tasks: Arc<Tasks>,
    stripe: Stripe,
    /// How many are not made.
    left: Cell<usize>,
    /// How many have ended and are counted still; none once all are made.
    ended: Cell<usize>,
}

impl Batch {
    /// All are made, or never will be: `further` more have ended.
    fn count_out(&self, further: usize) {
        let ended = self.ended.take() + further;
        if ended > 0 {
            self.tasks.end(self.stripe, ended);
        }
    }

    fn end_one(&self) {
        match self.left.get() > 0 {
            true => self.ended.set(self.ended.get() + 1),
            false => self.tasks.end(self.stripe, 1),
        }
    }
}

impl Counted {
    /// Counts a task in, unless the dispatcher is closed.
    pub(super) fn enter(tasks: &Arc<Tasks>) -> Option<Self> {
        tasks.enter(1).map(|stripe| Self::Alone(tasks.clone(), stripe))
    }

    /// Which dispatcher counts it; to be compared only.
    pub(super) fn dispatcher(&self) -> *const Tasks {
        Arc::as_ptr(match self {
            Self::Alone(tasks, _) => tasks,
            Self::OneOf(batch) => &batch.tasks,
        })
    }
}

/// Tasks that were counted in at once, of which some are not made yet.
pub(super) struct CountedMany(Rc<Batch>);

impl CountedMany {
    /// Counts `count` tasks in, unless the dispatcher is closed.
    pub(super) fn enter(tasks: &Arc<Tasks>, count: usize) -> Option<Self> {
        let (stripe, tasks) = (tasks.enter(count)?, tasks.clone());
        Some(Self(Rc::new(Batch { tasks, stripe, left: Cell::new(count), ended: Cell::new(0) })))
    }

    /// How many are not made.
    pub(super) fn left(&self) -> usize {
        self.0.left.get()
    }
}

impl Iterator for CountedMany {
    type Item = Counted;

    #[inline]
    fn next(&mut self) -> Option<Counted> {
        let left = self.left().checked_sub(1)?;
        self.0.left.set(left);
        if left == 0 {
            // Before the last one runs, which may wait in a shutdown.
            self.0.count_out(0);
        }
        Some(Counted::OneOf(self.0.clone()))
    }
}

/// Those that were never made end as well.
impl Drop for CountedMany {
    fn drop(&mut self) {
        self.0.count_out(self.0.left.take());
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        match self {
            Self::Alone(tasks, stripe) => tasks.end(*stripe, 1),
            Self::OneOf(batch) => batch.end_one(),
        }
    }
}
