//! Admits tasks until it is closed, and knows when the last admitted one has ended.
//!
//! One word holds the closed flag and the number of tasks that are queued or running, so that admission and
//! closing are changes of one location and have an order: a task is either admitted before the closing, and then
//! waited for, or refused.
//!
//! ```text
//!  bit 0      closed
//!  bits 1..   tasks admitted and not yet ended, and places that workers keep
//! ```
//!
//! A worker whose task has ended keeps its [place](Places) while it goes on with another that it finds at hand, for what that
//! one will dispatch: so most tasks do not touch the word, which all threads share. A kept place delays no shutdown: the worker
//! gives it back before it searches, blocks or ends. Until then a task of its own is counted as well.

use std::cell::Cell;

use crossbeam_utils::CachePadded;
use uruk_core::sync::atomic::{AtomicUsize, Ordering};
use uruk_core::sync::{Condvar, Mutex, weakened};

/// See the module.
#[derive(Debug)]
pub(crate) struct Gate {
    word: CachePadded<AtomicUsize>,
    inside: Mutex<Inside>,
    /// A task ended after the closing, or one more of them waits for the others.
    progressed: Condvar,
}

/// Tasks of the running thread that have ended and are counted still.
#[derive(Debug, Default)]
pub(crate) struct Places(Cell<usize>);

impl Places {
    /// A task has ended.
    pub(crate) fn keep(&self) {
        self.0.set(self.0.get() + 1);
    }
}

/// Tasks that wait inside themselves for all *other* tasks to end.
#[derive(Debug, Default)]
struct Inside {
    waiting: usize,
    /// All tasks that were left have met here once. They stay released when some go on before others look again.
    released: bool,
}

const CLOSED: usize = 1;
const TASK: usize = 2;

impl Gate {
    pub(crate) fn new() -> Self {
        Self {
            word: CachePadded::new(AtomicUsize::new(0)),
            inside: Mutex::new(Inside::default()),
            progressed: Condvar::new(),
        }
    }

    /// Counts `count` more tasks, unless the gate is closed.
    pub(crate) fn enter(&self, count: usize) -> bool {
        // Relaxed: the task travels through a queue, which orders what it carries; only the order of changes of
        // this one word decides between admission and closing.
        let early = weakened("pool::admits_by_an_earlier_look").then(|| !self.is_closed());
        let admitted = self.word.fetch_add(count * TASK, Ordering::Relaxed) & CLOSED == 0;
        let admitted = early.unwrap_or(admitted);
        if !admitted {
            self.leave_many(count);
        }
        admitted
    }

    /// The same for a worker that runs a task, in places that it has kept as far as there are any.
    pub(crate) fn enter_from(&self, places: &Places, count: usize) -> bool {
        let kept = places.0.get();
        let used = kept.min(count);
        // The look at the flag may be out of date by the time the task is queued: then the places were still counted when the gate was
        // closed, and the task is waited for as if it had come before.
        let admitted = if used == count { !self.is_closed() } else { self.enter(count - used) };
        if admitted {
            places.0.set(kept - used);
        }
        admitted
    }

    /// Counts out the tasks whose places were kept.
    pub(crate) fn give_back(&self, places: &Places) {
        let kept = places.0.take();
        if kept > 0 {
            self.leave_many(kept);
        }
    }

    /// One admitted task has ended, or was given back.
    pub(crate) fn leave(&self) {
        self.leave_many(1);
    }

    fn leave_many(&self, count: usize) {
        // ordering[gate-drained]: Release. Pairs with the Acquire in `pending`: a thread that sees that no task is left sees
        // the tasks' effects.
        let before = self.word.fetch_sub(count * TASK, Ordering::Release);
        if before & CLOSED != 0 {
            // Taken and dropped: a waiter that saw the old count is asleep by the time we have the lock.
            drop(self.inside.lock());
            self.progressed.notify_all();
        }
    }

    /// Closes the gate; says whether this call did it.
    pub(crate) fn close(&self) -> bool {
        // Relaxed: `Sleep::wake_all` follows with the change that makes the flag visible to threads about to sleep.
        self.word.fetch_or(CLOSED, Ordering::Relaxed) & CLOSED == 0
    }

    pub(crate) fn is_closed(&self) -> bool {
        // Relaxed: a thread about to sleep has changed the word of `sleep.rs` before it asks; for others see `enter_from`.
        self.word.load(Ordering::Relaxed) & CLOSED != 0
    }

    /// Tasks queued or running.
    pub(crate) fn pending(&self) -> usize {
        // ordering[gate-drained]: Acquire. Pairs with the Release in `leave`.
        let acquire = match weakened("pool::counts_tasks_without_acquire") {
            true => Ordering::Relaxed,
            false => Ordering::Acquire,
        };
        self.word.load(acquire) / TASK
    }

    /// Blocks until no admitted task is left. Not for a thread that runs one: it would wait for itself.
    pub(crate) fn wait_for_all(&self) {
        let mut inside = self.inside.lock();
        while self.pending() > 0 {
            inside = self.progressed.wait(inside);
        }
    }

    /// Blocks the running task until all tasks that are left wait here as well, or have. The gate must be closed: none
    /// that comes later would be waited for.
    pub(crate) fn wait_for_others(&self) {
        let mut inside = self.inside.lock();
        inside.waiting += 1;
        self.progressed.notify_all();
        while !inside.released && self.pending() > inside.waiting {
            inside = self.progressed.wait(inside);
        }
        inside.released = true;
        inside.waiting -= 1;
    }
}

#[cfg(all(test, not(uruk_loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_closed_gate_admits_nothing_and_still_counts_what_is_inside() {
        let gate = Gate::new();
        assert!(gate.enter(1));
        assert!(gate.close());
        assert!(!gate.close(), "only one call closes it");
        assert!(!gate.enter(1));
        assert_eq!(gate.pending(), 1);
        gate.leave();
        gate.wait_for_all();
    }

    #[test]
    fn a_kept_place_is_counted_until_it_is_given_back_and_admits_one_task() {
        let (gate, places) = (Gate::new(), Places::default());
        assert!(gate.enter(2));
        places.keep();
        assert_eq!(gate.pending(), 2);
        assert!(gate.enter_from(&places, 2), "one in its place, and one more");
        assert_eq!(gate.pending(), 3);
        places.keep();
        gate.close();
        assert!(!gate.enter_from(&places, 1) && !gate.enter_from(&places, 2));
        gate.give_back(&places);
        gate.give_back(&places);
        assert_eq!(gate.pending(), 2);
    }

    #[test]
    fn a_task_does_not_wait_for_itself() {
        let gate = Gate::new();
        assert!(gate.enter(1));
        gate.close();
        gate.wait_for_others();
        assert_eq!(gate.pending(), 1);
    }

    #[test]
    fn tasks_that_have_met_do_not_wait_for_each_others_end() {
        let gate = Gate::new();
        assert!(gate.enter(2));
        gate.close();
        std::thread::scope(|scope| {
            let other = scope.spawn(|| gate.wait_for_others());
            gate.wait_for_others();
            // This task goes on, and the other must as well.
            other.join().unwrap();
        });
        assert_eq!(gate.pending(), 2);
    }
}
