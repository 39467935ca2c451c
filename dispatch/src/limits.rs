//! Limits: how much work in the background may queue up, hold in memory, and run at once.
//!
//! | limit | counts | beyond it |
//! |---|---|---|
//! | queue, one each for speculative and idle work | tasks queued and not started | producers are told, or wait |
//! | memory | what tasks hold that have started, or are demanded, and have not ended | only demanded tasks start; producers as above |
//! | workers in the background | speculative and idle tasks that run and are not blocked | no further one starts |
//!
//! **Architecture Invariants.** A demanded task is never held back, by any of them. A task that is dispatched is queued: limits on
//! producers are asked before work is claimed ([`Limits::admits`]), never after. And nothing waits here for ever:
//!
//! - If no task is at work, one starts, whatever memory the blocked ones hold. So queues run empty, or something is at work.
//! - A task that blocks counts for no worker. It goes on at once when its wait is over, and counts again.
//! - A producer that waits for room waits only while something of its priority is queued, so only for what will start.
//!
//! Held-back tasks are no reason to stay awake: what may start is `Limits::floor`, and who goes to sleep looks for tasks above it
//! alone. So whoever lifts a limit looks again, or is about to: the rules are in `sleep/README.md`.

mod level;

use uruk_core::sync::atomic::{AtomicUsize, Ordering};
use uruk_core::sync::{Condvar, Mutex, weakened};
use uruk_core::{Task, TaskPriority};

use level::Level;

/// What a pool may take on in the background; see the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bounds {
    /// Indexed by priority.
    pub(crate) queued_max: [usize; BACKGROUND],
    pub(crate) memory_bytes_max: usize,
    pub(crate) background_workers_max: usize,
}

/// The counts that the bounds are about.
#[derive(Debug)]
pub(crate) struct Limits {
    bounds: Bounds,
    queued: [Level; BACKGROUND],
    memory_bytes: Level,
    running: AtomicUsize,
    /// Producers that wait for room sleep on it; no data is theirs alone.
    waiting: Mutex<()>,
    room: Condvar,
}

/// What one running task counts for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "what a task counted for is given back when it ends"]
pub(crate) struct Charge {
    pub(crate) priority: TaskPriority,
    memory_bytes: usize,
}

/// Priorities below [`TaskPriority::Lazy`], which are the first two numbers.
const BACKGROUND: usize = TaskPriority::Lazy as usize;

impl Charge {
    /// Of a thread that runs no task.
    pub(crate) const NONE: Self = Self { priority: TaskPriority::Demanded, memory_bytes: 0 };

    fn in_background(self) -> bool {
        (self.priority as usize) < BACKGROUND
    }
}

impl Bounds {
    /// So many workers of all may run background tasks unless somebody says otherwise: one is left for what is demanded, if
    /// there are two.
    pub(crate) fn background_workers_of(workers: usize) -> usize {
        workers.saturating_sub(1).max(1)
    }
}

impl Limits {
    pub(crate) fn new(bounds: Bounds) -> Self {
        Self {
            bounds,
            queued: [Level::default(), Level::default()],
            memory_bytes: Level::default(),
            running: AtomicUsize::new(0),
            waiting: Mutex::new(()),
            room: Condvar::new(),
        }
    }

    /// Counts a task that is about to be queued.
    pub(crate) fn queue(&self, task: &Task) {
        match self.queue_of(task.priority()) {
            Some(queued) => queued.add(1),
            None if task.priority() == TaskPriority::Demanded => self.memory_bytes.add(self.memory_of(task)),
            None => {}
        }
    }

    /// The lowest priority of which a task may start now. `all_idle` says whether no slot is at work.
    pub(crate) fn floor(&self, all_idle: impl FnOnce() -> bool) -> TaskPriority {
        // Relaxed: who relies on the answer has passed the fence of `sleep.rs`, or searches and will.
        if self.memory_bytes.get() >= self.bounds.memory_bytes_max && !all_idle() {
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
        self.running.fetch_update(Ordering::Relaxed, Ordering::Relaxed, free).is_ok()
    }

    /// The place is not needed, as no task was found. Who gives one back looks again before it sleeps.
    pub(crate) fn unreserve(&self) {
        // Relaxed: see `floor`.
        self.running.fetch_sub(1, Ordering::Relaxed);
    }

    /// A task leaves its queue in order to run; if it is in the background, a place has been reserved for it.
    pub(crate) fn start(&self, task: &Task) -> Charge {
        let charge = Charge { priority: task.priority(), memory_bytes: self.memory_of(task) };
        self.leave_queue(charge.priority);
        if charge.priority != TaskPriority::Demanded {
            self.memory_bytes.add(charge.memory_bytes);
        }
        charge
    }

    /// A task leaves its queue and will not run.
    pub(crate) fn give_up(&self, task: &Task) {
        self.leave_queue(task.priority());
        if task.priority() == TaskPriority::Demanded {
            self.release_memory(self.memory_of(task));
        }
    }

    /// A task has ended. Says whether another may be able to start for it.
    pub(crate) fn end(&self, charge: Charge) -> bool {
        let lifted = self.release_memory(charge.memory_bytes);
        self.pause(charge) || lifted
    }

    /// A task blocks. Says whether another may be able to start for it.
    pub(crate) fn pause(&self, charge: Charge) -> bool {
        // Relaxed: see `floor`; and it goes by the order of this word's own changes.
        charge.in_background()
            && self.running.fetch_sub(1, Ordering::Relaxed) == self.bounds.background_workers_max
    }

    /// A task goes on after it was blocked.
    pub(crate) fn resume(&self, charge: Charge) {
        if charge.in_background() {
            // Relaxed: as above.
            self.running.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Whether `count` more tasks of `priority` may come. If none is queued, any number may: it never could otherwise.
    pub(crate) fn admits(&self, priority: TaskPriority, count: usize) -> bool {
        let Some(queued) = self.queue_of(priority).map(Level::get) else { return true };
        queued == 0
            || queued.saturating_add(count) <= self.bounds.queued_max[priority as usize]
                && self.memory_bytes.get() < self.bounds.memory_bytes_max
    }

    /// Blocks until there is room for one more task of `priority`, or the pool is closed.
    pub(crate) fn wait_for_room(&self, priority: TaskPriority, is_closed: impl Fn() -> bool) {
        let Some(queued) = self.queue_of(priority) else { return };
        let mut waiting = self.waiting.lock();
        loop {
            // Watched before it is looked at: a change that the look misses comes later, and sees that it is watched.
            let blind = weakened("pool::producer_looks_before_it_watches");
            let room = blind && (is_closed() || self.admits(priority, 1));
            queued.watch();
            self.memory_bytes.watch();
            if room || !blind && (is_closed() || self.admits(priority, 1)) {
                return;
            }
            waiting = self.room.wait(waiting);
        }
    }

    /// Lets everybody go on who waits for room. After the pool has been closed.
    pub(crate) fn close(&self) {
        self.call_producers(&[]);
    }

    fn leave_queue(&self, priority: TaskPriority) {
        if let Some(queued) = self.queue_of(priority)
            && queued.subtract(1)
        {
            self.call_producers(&[queued]);
        }
    }

    /// Says whether that lifted the limit.
    fn release_memory(&self, bytes: usize) -> bool {
        if bytes == 0 {
            return false;
        }
        if self.memory_bytes.subtract(bytes) {
            self.call_producers(&[&self.memory_bytes]);
        }
        let max = self.bounds.memory_bytes_max;
        let after = self.memory_bytes.get();
        after < max && after.saturating_add(bytes) >= max
    }

    /// Wakes everybody who waits for room: each looks for itself, and watches again.
    fn call_producers(&self, changed: &[&Level]) {
        if weakened("pool::room_tells_nobody") {
            return;
        }
        {
            // A producer that looked before the change is asleep by the time we have the lock.
            let _waiting = self.waiting.lock();
            changed.iter().for_each(|level| level.unwatch());
        }
        self.room.notify_all();
    }

    fn queue_of(&self, priority: TaskPriority) -> Option<&Level> {
        self.queued.get(priority as usize)
    }

    fn memory_of(&self, task: &Task) -> usize {
        if self.bounds.memory_bytes_max == usize::MAX { 0 } else { task.memory_bytes() }
    }
}
