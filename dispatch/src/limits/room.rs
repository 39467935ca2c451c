//! Room: who would bring about work in the background is told whether there is any, or waits for it.
//!
//! Whether there is room hangs on several counts. A producer watches all of them before it looks, so that whichever falls after
//! its look calls it.

use uruk_core::sync::weakened;
use uruk_core::{Limit, LimitReached, TaskPriority};

use super::budget::Budget;
use super::level::Level;
use super::{BACKGROUND, Bounds, Limits};

/// Where an embedder sets the bounds: methods of both builders.
const QUEUE_BOUNDS: [&str; BACKGROUND] = ["idle_queue_max", "speculative_queue_max"];
const MEMORY_BOUND: &str = "memory_bytes_max";

impl Limits {
    /// Whether `count` more tasks of `priority` may come. If nothing of that priority is going to start, any number may: it never
    /// could otherwise.
    ///
    /// # Errors
    /// The limit that leaves no room.
    pub(crate) fn admits(&self, priority: TaskPriority, count: usize) -> Result<(), LimitReached> {
        let index = priority as usize;
        if index >= BACKGROUND || !self.limits_producers {
            return Ok(());
        }
        let (queued, in_turn) = (self.queued[index].get(), self.in_turn[index].get());
        if queued == 0 && (in_turn == 0 || self.turns.get() == 0) {
            return Ok(());
        }
        let waiting = queued + in_turn;
        let memory_bytes = self.memory_bytes.get() + self.blocked_bytes.get() + self.waiting_bytes.get();
        let Bounds { queued_max, memory_bytes_max, .. } = self.bounds;
        let (limit, level, bound, set_by) = if waiting.saturating_add(count) > queued_max[index] {
            (Limit::Queue(priority), waiting, queued_max[index], QUEUE_BOUNDS[index])
        } else if memory_bytes >= memory_bytes_max {
            (Limit::Memory, memory_bytes, memory_bytes_max, MEMORY_BOUND)
        } else {
            return Ok(());
        };
        Err(LimitReached { limit, level, asked: count, bound, set_by })
    }

    /// Blocks until there is room for `count` more tasks of `priority`, or the dispatcher is closed.
    pub(crate) fn wait_for_room(&self, priority: TaskPriority, count: usize, is_closed: impl Fn() -> bool) {
        let index = priority as usize;
        if index >= BACKGROUND {
            return;
        }
        let has_room = || is_closed() || self.admits(priority, count).is_ok();
        let memory = [&self.memory_bytes, &self.blocked_bytes, &self.waiting_bytes];
        let watched = || [&self.queued[index], &self.in_turn[index], &self.turns].into_iter().chain(memory);
        let mut waiting = self.waiting.lock();
        loop {
            // Watched before it is looked at: a change that the look misses comes later, and sees that it is watched.
            let blind = weakened("pool::producer_looks_before_it_watches");
            let room = blind && has_room();
            watched().for_each(Level::watch);
            if weakened("overload::producer_does_not_watch_turns") {
                self.turns.unwatch();
            }
            if room || !blind && has_room() {
                return;
            }
            waiting = self.room.wait(waiting);
        }
    }

    /// Lets everybody go on who waits for room, and every task start however much time was spent. After the dispatcher has been
    /// closed, and before those who sleep over that are woken.
    pub(crate) fn close(&self) {
        self.budget.iter().for_each(Budget::lift);
        self.call_producers(&[]);
    }

    /// Lowers counts that a producer may watch. Gives what the last of them was before.
    pub(super) fn lower(&self, changes: &[(&Level, usize)]) -> usize {
        // All of them, before anybody is called.
        let (mut before, mut watched) = (0, false);
        for (level, count) in changes {
            let (was, is_watched) = level.subtract(*count);
            (before, watched) = (was, watched || is_watched);
        }
        if watched {
            self.call_producers(changes);
        }
        before
    }

    /// Wakes everybody who waits for room: each looks for itself, and watches again.
    fn call_producers(&self, changed: &[(&Level, usize)]) {
        if weakened("pool::room_tells_nobody") {
            return;
        }
        {
            // A producer that looked before the change is asleep by the time we have the lock.
            let _waiting = self.waiting.lock();
            changed.iter().for_each(|(level, _)| level.unwatch());
        }
        self.room.notify_all();
    }
}
