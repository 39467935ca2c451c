//! Limits: how much work in the background may queue up, and run at once.
//!
//! | limit | counts | beyond it |
//! |---|---|---|
//! | queue, one each for speculative and idle work | tasks that wait for their start, in the dispatcher's queues or in serial queues | producers are told, or wait |
//! | workers in the background | speculative and idle tasks that run and are not blocked | no further one starts |
//!
//! **Architecture Invariants.** A demanded task is never held back, by either of them. A task that is dispatched is queued: limits on
//! producers are asked before work is claimed ([`Limits::admits`]), never after. And nothing waits here for ever:
//!
//! - A blocked task does not count. It goes on at once when its wait is over, and counts again. So a task that is held back waits
//!   only for tasks that run and are not blocked. Each of them ends or blocks, and then the next may start.
//! - A producer that waits for room waits only while something of its priority is queued here, or waits in a serial queue and a
//!   *turn* is queued or at work: a task of some serial queue. So it waits only for tasks that will start, and for turns that end or
//!   block. A turn that is blocked, perhaps by that very producer, keeps no producer waiting. Neither does a turn of a task that
//!   another dispatcher runs, because this dispatcher would not hear that the task blocks.
//!
//! **Counted once.** A task that waits in a serial queue counts from its arrival to its start. The turns that are dispatched
//! for it, and those that were overtaken, count for nothing while they are queued. Of the tickets of a unit that becomes more
//! urgent each counts where it is queued, until one takes the unit. Then all others cease to count, although they are still there
//! ([`Task::leaves_queue`] and [`TaskDispatcher::waits_no_more`](uruk_core::TaskDispatcher::waits_no_more) agree on which of them
//! counts it out).
//!
//! Held-back tasks are no reason to stay awake: `Limits::floor` says which tasks may start, and a thread that goes to sleep looks
//! for those alone. So a thread that lifts a limit looks again, or is about to: the rules are in `sleep/README.md`.

mod level;
mod room;

use uruk_core::sync::atomic::{AtomicUsize, Ordering};
use uruk_core::sync::{Condvar, Mutex};
use uruk_core::{Task, TaskPriority, Waiting};

use level::Level;

/// The limits of a dispatcher's background work; see the module.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// Indexed by priority.
    pub(crate) queued_max: [usize; BACKGROUND],
    pub(crate) background_workers_max: usize,
}

/// The bounds that a builder of a dispatcher asks for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BoundsWanted {
    /// Indexed by priority.
    pub(crate) queued_max: [usize; BACKGROUND],
    pub(crate) background_workers_max: Option<usize>,
}

/// The counts that the bounds are about.
#[derive(Debug)]
pub(crate) struct Limits {
    bounds: Bounds,
    /// Whether anybody may ever find no room. If not, what waits is not counted.
    limits_producers: bool,
    /// By priority: what is queued in the dispatcher itself.
    queued: [Level; BACKGROUND],
    /// By priority: what waits in serial queues.
    in_turn: [Level; BACKGROUND],
    /// Turns of serial queues that are queued, or run and are not blocked.
    turns: Level,
    running: AtomicUsize,
    /// Producers that wait for room sleep on it; no data is theirs alone.
    waiting: Mutex<()>,
    room: Condvar,
}

/// The share of one running task in the counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "what a task counted for is given back when it ends"]
pub(crate) struct Charge {
    pub(crate) priority: TaskPriority,
    is_turn: bool,
}

/// Priorities below [`TaskPriority::Lazy`], which are the first two numbers.
const BACKGROUND: usize = TaskPriority::Lazy as usize;

impl Charge {
    /// Of a thread that runs no task.
    pub(crate) const NONE: Self = Self { priority: TaskPriority::Demanded, is_turn: false };

    fn in_background(self) -> bool {
        (self.priority as usize) < BACKGROUND
    }
}

impl Default for BoundsWanted {
    fn default() -> Self {
        Self { queued_max: [usize::MAX; BACKGROUND], background_workers_max: None }
    }
}

impl BoundsWanted {
    /// The limits of a dispatcher of so many workers. Unless the builder says otherwise one worker is left for demanded tasks, if
    /// there are two.
    pub(crate) fn of(self, workers: usize) -> Limits {
        let background_workers_max = self.background_workers_max.unwrap_or(workers.saturating_sub(1)).max(1);
        Limits::new(Bounds { queued_max: self.queued_max, background_workers_max })
    }
}

impl Bounds {
    fn limit_producers(self) -> bool {
        self.queued_max != [usize::MAX; BACKGROUND]
    }
}

impl Limits {
    pub(crate) fn new(bounds: Bounds) -> Self {
        Self {
            bounds,
            limits_producers: bounds.limit_producers(),
            queued: [Level::default(), Level::default()],
            in_turn: [Level::default(), Level::default()],
            turns: Level::default(),
            running: AtomicUsize::new(0),
            waiting: Mutex::new(()),
            room: Condvar::new(),
        }
    }

    /// Counts a task that is about to be queued.
    pub(crate) fn queue(&self, task: &Task) {
        if !self.limits_producers {
            return;
        }
        if task.is_turn() {
            return self.begin_turn();
        }
        count_in(&self.queued, task.priority());
    }

    /// Counts a task that begins to wait in a serial queue.
    pub(crate) fn begin_to_wait(&self, task: Waiting) {
        if self.limits_producers {
            count_in(self.waiting_levels(task.in_serial_queue), task.priority);
        }
    }

    /// It waits no more, or is void; see [`uruk_core::TaskDispatcher::waits_no_more`].
    pub(crate) fn wait_no_more(&self, task: Waiting) {
        if self.limits_producers {
            self.count_out(self.waiting_levels(task.in_serial_queue), task.priority);
        }
    }

    /// The lowest priority of which a task may start now.
    pub(crate) fn floor(&self) -> TaskPriority {
        // Relaxed: a thread that relies on the answer has passed the fence of `sleep.rs`, or searches and will.
        match self.running.load(Ordering::Relaxed) >= self.bounds.background_workers_max {
            true => TaskPriority::Lazy,
            false => TaskPriority::Idle,
        }
    }

    /// Takes one of the places for background tasks, if there is one: for a task that is looked for, and may not be found.
    pub(crate) fn reserve(&self) -> bool {
        // Relaxed: as above.
        let free = |running| (running < self.bounds.background_workers_max).then_some(running + 1);
        self.running.fetch_update(Ordering::Relaxed, Ordering::Relaxed, free).is_ok()
    }

    /// How many such places there are.
    #[cfg(all(feature = "rayon", not(any(uruk_loom, uruk_shuttle))))]
    pub(crate) fn places_left(&self) -> usize {
        // Relaxed: as above.
        self.bounds.background_workers_max.saturating_sub(self.running.load(Ordering::Relaxed))
    }

    /// Gives back a place for which no task was found. The thread looks again before it sleeps.
    pub(crate) fn unreserve(&self) {
        // Relaxed: see `floor`.
        self.running.fetch_sub(1, Ordering::Relaxed);
    }

    /// A task leaves its queue in order to run; if it is in the background, a place has been reserved for it.
    pub(crate) fn start(&self, task: &Task) -> Charge {
        let charge = Charge { priority: task.priority(), is_turn: task.is_turn() };
        // The task behind a turn is counted out when it begins, a moment later.
        if !charge.is_turn {
            self.leave_queue(task);
        }
        charge
    }

    /// A task leaves its queue and will not run.
    pub(crate) fn give_up(&self, task: &Task) {
        if task.is_turn() {
            self.end_turn();
        } else {
            self.leave_queue(task);
        }
    }

    /// A task has ended, or is about to block. Says whether another may be able to start for it.
    pub(crate) fn stop(&self, charge: Charge) -> bool {
        if charge.is_turn {
            self.end_turn();
        }
        // Relaxed: see `floor`; and it goes by the order of this word's own changes.
        charge.in_background()
            && self.running.fetch_sub(1, Ordering::Relaxed) == self.bounds.background_workers_max
    }

    /// A task goes on after it was blocked.
    pub(crate) fn resume(&self, charge: Charge) {
        if charge.is_turn {
            self.begin_turn();
        }
        if charge.in_background() {
            // Relaxed: as above.
            self.running.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn begin_turn(&self) {
        if self.limits_producers {
            self.turns.add();
        }
    }

    fn end_turn(&self) {
        if self.limits_producers {
            self.lower(&self.turns);
        }
    }

    /// A task is queued no more, unless it was counted out before.
    fn leave_queue(&self, task: &Task) {
        if self.limits_producers && task.priority() != TaskPriority::Lazy && task.leaves_queue() {
            self.count_out(&self.queued, task.priority());
        }
    }

    /// It waits no more.
    fn count_out(&self, levels: &[Level; BACKGROUND], priority: TaskPriority) {
        if let Some(level) = levels.get(priority as usize) {
            self.lower(level);
        }
    }

    fn waiting_levels(&self, in_serial_queue: bool) -> &[Level; BACKGROUND] {
        if in_serial_queue { &self.in_turn } else { &self.queued }
    }
}

/// A task begins to wait for its start, where `levels` count.
fn count_in(levels: &[Level; BACKGROUND], priority: TaskPriority) {
    if let Some(level) = levels.get(priority as usize) {
        level.add();
    }
}
