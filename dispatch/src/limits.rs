//! Limits: how much work in the background may queue up, hold in memory, and run at once.
//!
//! | limit | counts | beyond it |
//! |---|---|---|
//! | queue, one each for speculative and idle work | tasks that wait for their start, in the dispatcher's queues or in serial queues | producers are told, or wait |
//! | memory | what tasks hold that run and are not blocked | only demanded tasks start |
//! | the same, with what blocked tasks hold, and tasks that wait for their start but for lazy ones | | producers are told, or wait |
//! | workers in the background | speculative and idle tasks that run and are not blocked | no further one starts |
//! | time in the background | the time in which workers run such tasks (`limits/budget.rs`) | no further one starts |
//!
//! **Architecture Invariants.** A demanded task is never held back, by any of them. A task that is dispatched is queued: limits on
//! producers are asked before work is claimed ([`Limits::admits`]), never after. And nothing waits here for ever:
//!
//! - A task that blocks counts no more with what holds starts back: not for a worker, nor with its memory, which it cannot give back
//!   before what it waits for has run. It goes on at once when its wait is over, and counts again. What waits for its start holds back
//!   no other. So what is held back waits for tasks alone that run and are not blocked, as it does for a worker: each of them ends
//!   or blocks, and with the last of them everything may start.
//! - Time passes, and with it what limits time; once the dispatcher is closed, nothing does.
//! - A producer that waits for room waits only while something of its priority is queued here, or waits in a serial queue and a
//!   *turn* is queued or at work: a task of some serial queue. So it waits only for what will start, and for turns that end or
//!   block. What waits behind a turn that is blocked, perhaps by that very producer, keeps nobody waiting. Nor does what waits behind
//!   the turn of a task that another dispatcher runs, since nobody here would hear that it blocks: tasks of a queue that several
//!   dispatchers share keep producers waiting only while the turn is here.
//!
//! **What memory is bounded by.** A task that is not demanded starts only while those that run and are not blocked hold less than
//! the bound. So they exceed it by what the last to start hold, one for each worker, and by what is demanded or has been blocked.
//! What blocked tasks hold comes on top, for each thread that is blocked at the moment. Any rule that lets start what they wait
//! for comes to that, as nobody here knows which of the queued tasks it is. How much of that there will be is up to producers, who are
//! held back by all of it.
//!
//! **What counts once.** A task that waits in a serial queue counts from its arrival to its start; the turns that are dispatched
//! for it, and those that were overtaken, count for nothing while they are queued. Of the tickets of a unit that becomes more
//! urgent each counts where it is queued, until one takes the unit: then all others cease to, although they are still there
//! ([`Task::leaves_queue`] and [`TaskDispatcher::waits_no_more`](uruk_core::TaskDispatcher::waits_no_more) agree on who
//! counts it out).
//!
//! Held-back tasks are no reason to stay awake: what may start is `Limits::floor`, and who goes to sleep looks for tasks above it
//! alone. So whoever lifts a limit looks again, or is about to: the rules are in `sleep/README.md`. Only time is lifted by nobody:
//! what nothing but time holds back is told to threads, and who finds that sleeps [no longer than it takes](Limits::patience).

mod budget;
mod level;
mod room;

use std::fmt;
use std::time::{Duration, Instant};

use uruk_core::sync::atomic::{AtomicUsize, Ordering};
use uruk_core::sync::{Arc, Condvar, Mutex, weakened};
use uruk_core::{Task, TaskPriority, Waiting};

use level::Level;

use budget::Budget;

pub(crate) use budget::Clock;

/// What a dispatcher may take on in the background; see the module.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// Indexed by priority.
    pub(crate) queued_max: [usize; BACKGROUND],
    pub(crate) memory_bytes_max: usize,
    pub(crate) background_workers_max: usize,
}

/// What somebody who builds a dispatcher has asked for.
#[derive(Clone)]
pub(crate) struct BoundsWanted {
    /// Indexed by priority.
    pub(crate) queued_max: [usize; BACKGROUND],
    pub(crate) memory_bytes_max: usize,
    pub(crate) background_workers_max: Option<usize>,
    pub(crate) background_percent_max: Option<u32>,
    pub(crate) clock: Clock,
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
    /// Of tasks that run and are not blocked.
    memory_bytes: Level,
    /// Of tasks that are blocked.
    blocked_bytes: Level,
    /// Of tasks that wait for their start, but for lazy ones.
    waiting_bytes: Level,
    running: AtomicUsize,
    budget: Option<Budget>,
    /// Producers that wait for room sleep on it; no data is theirs alone.
    waiting: Mutex<()>,
    room: Condvar,
}

/// What one running task counts for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "what a task counted for is given back when it ends"]
pub(crate) struct Charge {
    pub(crate) priority: TaskPriority,
    is_turn: bool,
    memory_bytes: usize,
}

/// Priorities below [`TaskPriority::Lazy`], which are the first two numbers.
const BACKGROUND: usize = TaskPriority::Lazy as usize;

impl Charge {
    /// Of a thread that runs no task.
    pub(crate) const NONE: Self = Self { priority: TaskPriority::Demanded, is_turn: false, memory_bytes: 0 };

    fn in_background(self) -> bool {
        (self.priority as usize) < BACKGROUND
    }
}

impl Default for BoundsWanted {
    fn default() -> Self {
        Self {
            queued_max: [usize::MAX; BACKGROUND],
            memory_bytes_max: usize::MAX,
            background_workers_max: None,
            background_percent_max: None,
            clock: Arc::new(Instant::now),
        }
    }
}

impl BoundsWanted {
    /// The limits of a dispatcher of so many workers. Unless somebody has said otherwise one is left for what is demanded, if
    /// there are two.
    pub(crate) fn of(self, workers: usize) -> Limits {
        let Self { queued_max, memory_bytes_max, .. } = self;
        let background_workers_max = self.background_workers_max.unwrap_or(workers.saturating_sub(1)).max(1);
        // All of the time is no limit.
        let percent = self.background_percent_max.filter(|&percent| percent < 100);
        let budget = percent.map(|percent| Budget::new(percent, workers, self.clock));
        Limits::new(Bounds { queued_max, memory_bytes_max, background_workers_max }, budget)
    }
}

impl fmt::Debug for BoundsWanted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BoundsWanted")
            .field("queued_max", &self.queued_max)
            .field("memory_bytes_max", &self.memory_bytes_max)
            .field("background_workers_max", &self.background_workers_max)
            .field("background_percent_max", &self.background_percent_max)
            .finish_non_exhaustive()
    }
}

impl Bounds {
    fn limit_producers(self) -> bool {
        self.queued_max != [usize::MAX; BACKGROUND] || self.memory_bytes_max != usize::MAX
    }
}

impl Limits {
    pub(crate) fn new(bounds: Bounds, budget: Option<Budget>) -> Self {
        Self {
            bounds,
            budget,
            limits_producers: bounds.limit_producers(),
            queued: [Level::default(), Level::default()],
            in_turn: [Level::default(), Level::default()],
            turns: Level::default(),
            memory_bytes: Level::default(),
            blocked_bytes: Level::default(),
            waiting_bytes: Level::default(),
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
        self.count_in(&self.queued, task.priority(), self.memory_of(task));
    }

    /// Counts a task that begins to wait in a serial queue.
    pub(crate) fn begin_to_wait(&self, task: Waiting) {
        if !self.limits_producers {
            return;
        }
        let memory_bytes = self.memory_counts(task.memory_bytes);
        self.count_in(self.waiting_levels(task.in_serial_queue), task.priority, memory_bytes);
    }

    /// It waits no more, or is void; see [`uruk_core::TaskDispatcher::waits_no_more`].
    pub(crate) fn wait_no_more(&self, task: Waiting) {
        if !self.limits_producers {
            return;
        }
        let memory_bytes = self.memory_counts(task.memory_bytes);
        self.count_out(self.waiting_levels(task.in_serial_queue), task.priority, memory_bytes);
    }

    /// The lowest priority of which a task may start now.
    pub(crate) fn floor(&self) -> TaskPriority {
        match self.floor_but_for_time() {
            TaskPriority::Idle if self.budget.as_ref().is_some_and(Budget::is_spent) => TaskPriority::Lazy,
            floor => floor,
        }
    }

    /// For how long at most somebody may sleep who has found nothing to start, if a task in the background waits: no time limit, if
    /// others than time hold it back.
    pub(crate) fn patience(&self) -> Option<Duration> {
        let budget = self.budget.as_ref()?;
        (self.floor_but_for_time() == TaskPriority::Idle).then(|| budget.sleep_for())
    }

    /// Whether [`Self::patience`] may be limited.
    pub(crate) fn are_about_time(&self) -> bool {
        self.budget.is_some()
    }

    /// The same as `floor`, once enough time has passed.
    pub(crate) fn floor_but_for_time(&self) -> TaskPriority {
        // Relaxed: who relies on the answer has passed the fence of `sleep.rs`, or searches and will.
        if self.memory_bytes.get() >= self.memory_bytes_that_hold_back() {
            TaskPriority::Demanded
        } else if self.running.load(Ordering::Relaxed) >= self.bounds.background_workers_max {
            TaskPriority::Lazy
        } else {
            TaskPriority::Idle
        }
    }

    /// Takes one of the places for background tasks, if there is one: for a task that is looked for, and may not be found.
    pub(crate) fn reserve(&self) -> bool {
        // Relaxed: as above.
        let free = |running| (running < self.bounds.background_workers_max).then_some(running + 1);
        let reserved = self.running.fetch_update(Ordering::Relaxed, Ordering::Relaxed, free).is_ok();
        if reserved {
            self.spend(1);
        }
        reserved
    }

    /// How many such places there are.
    #[cfg(all(feature = "rayon", not(any(uruk_loom, uruk_shuttle))))]
    pub(crate) fn places_left(&self) -> usize {
        // Relaxed: as above.
        self.bounds.background_workers_max.saturating_sub(self.running.load(Ordering::Relaxed))
    }

    /// The place is not needed, as no task was found. Who gives one back looks again before it sleeps.
    pub(crate) fn unreserve(&self) {
        self.spend(-1);
        // Relaxed: see `floor`.
        self.running.fetch_sub(1, Ordering::Relaxed);
    }

    /// A task leaves its queue in order to run; if it is in the background, a place has been reserved for it.
    pub(crate) fn start(&self, task: &Task) -> Charge {
        let charge =
            Charge { priority: task.priority(), is_turn: task.is_turn(), memory_bytes: self.memory_of(task) };
        // Before it is counted out as waiting: a producer that looks in between rather sees it twice than never. What a turn is the
        // turn of is counted out when that begins, a moment later.
        self.memory_bytes.add(charge.memory_bytes);
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

    /// A task has ended. Says whether another may be able to start for it.
    pub(crate) fn end(&self, charge: Charge) -> bool {
        let lifted = self.release_memory(charge.memory_bytes);
        self.stop(charge) || lifted
    }

    /// A task blocks. Says whether another may be able to start for it.
    pub(crate) fn pause(&self, charge: Charge) -> bool {
        // Before it counts no more among those that run, for producers; see `start`.
        self.blocked_bytes.add(charge.memory_bytes);
        let lifted =
            !weakened("pool::blocked_tasks_hold_starts_back") && self.release_memory(charge.memory_bytes);
        self.stop(charge) || lifted
    }

    /// A task goes on after it was blocked.
    pub(crate) fn resume(&self, charge: Charge) {
        self.memory_bytes.add(charge.memory_bytes);
        self.lower(&[(&self.blocked_bytes, charge.memory_bytes)]);
        if charge.is_turn {
            self.begin_turn();
        }
        if charge.in_background() {
            // Relaxed: as above.
            self.running.fetch_add(1, Ordering::Relaxed);
            self.spend(1);
        }
    }

    /// A task runs no more, or is blocked. Says whether another may be able to start for it, whatever becomes of its memory.
    fn stop(&self, charge: Charge) -> bool {
        if charge.is_turn {
            self.end_turn();
        }
        if !charge.in_background() {
            return false;
        }
        self.spend(-1);
        // Relaxed: see `floor`; and it goes by the order of this word's own changes.
        let was_last = self.running.fetch_sub(1, Ordering::Relaxed) == self.bounds.background_workers_max;
        // With one less that spends it, somebody may have to wait for the budget.
        was_last || self.budget.is_some()
    }

    /// So many more tasks in the background run, or so many fewer.
    fn spend(&self, change: i128) {
        self.budget.iter().for_each(|budget| budget.count(change));
    }

    fn begin_turn(&self) {
        if self.limits_producers {
            self.turns.add(1);
        }
    }

    fn end_turn(&self) {
        if self.limits_producers {
            self.lower(&[(&self.turns, 1)]);
        }
    }

    /// A task is queued no more, unless it was counted out before.
    fn leave_queue(&self, task: &Task) {
        if self.limits_producers && task.priority() != TaskPriority::Lazy && task.leaves_queue() {
            self.count_out(&self.queued, task.priority(), self.memory_of(task));
        }
    }

    /// A task begins to wait for its start, where `levels` count.
    fn count_in(&self, levels: &[Level; BACKGROUND], priority: TaskPriority, memory_bytes: usize) {
        if let Some(level) = levels.get(priority as usize) {
            level.add(1);
        }
        if priority != TaskPriority::Lazy {
            self.waiting_bytes.add(memory_bytes);
        }
    }

    /// It waits no more.
    fn count_out(&self, levels: &[Level; BACKGROUND], priority: TaskPriority, memory_bytes: usize) {
        let memory = (&self.waiting_bytes, memory_bytes);
        if let Some(level) = levels.get(priority as usize) {
            self.lower(&[(level, 1), memory]);
        } else if priority != TaskPriority::Lazy {
            self.lower(&[memory]);
        }
    }

    /// Says whether that lifted the limit.
    fn release_memory(&self, bytes: usize) -> bool {
        if bytes == 0 {
            return false;
        }
        // Of several that end at once one has gone below the limit, and knows it by what its own change has found.
        let before = self.lower(&[(&self.memory_bytes, bytes)]);
        let max = self.memory_bytes_that_hold_back();
        before >= max && before.saturating_sub(bytes) < max
    }

    /// Starts are held back by this much; never by nothing, which nobody could give back.
    fn memory_bytes_that_hold_back(&self) -> usize {
        self.bounds.memory_bytes_max.max(1)
    }

    fn waiting_levels(&self, in_serial_queue: bool) -> &[Level; BACKGROUND] {
        if in_serial_queue { &self.in_turn } else { &self.queued }
    }

    fn memory_of(&self, task: &Task) -> usize {
        self.memory_counts(task.memory_bytes())
    }

    /// As much of it as the limit concerns.
    fn memory_counts(&self, bytes: usize) -> usize {
        if self.bounds.memory_bytes_max == usize::MAX { 0 } else { bytes }
    }
}
