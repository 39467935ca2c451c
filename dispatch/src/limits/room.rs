//! Room: who would bring about work in the background is told whether there is any, or waits for it.
//!
//! Whether there is room hangs on several counts. A producer watches all of them before it looks, so that whichever falls after
//! its look calls it.

use uruk_core::sync::weakened;
use uruk_core::{LimitReached, TaskPriority};

use super::level::Level;
use super::{BACKGROUND, Limits};

/// Where an embedder sets the bounds: methods of both builders.
const QUEUE_BOUNDS: [&str; BACKGROUND] = ["idle_queue_max", "speculative_queue_max"];

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
        let (waiting, bound) = (queued + in_turn, self.bounds.queued_max[index]);
        if waiting.saturating_add(count) <= bound {
            return Ok(());
        }
        Err(LimitReached { priority, waiting, asked: count, bound, set_by: QUEUE_BOUNDS[index] })
    }

    /// Blocks until there is room for `count` more tasks of `priority`, or the dispatcher is closed.
    pub(crate) fn wait_for_room(&self, priority: TaskPriority, count: usize, is_closed: impl Fn() -> bool) {
        let index = priority as usize;
        if index >= BACKGROUND {
            return;
        }
        let has_room = || is_closed() || self.admits(priority, count).is_ok();
        let watched = [&self.queued[index], &self.in_turn[index], &self.turns];
        let mut waiting = self.waiting.lock();
        loop {
            // Watched before it is looked at: a change that the look misses comes later, and sees that it is watched.
            let blind = weakened("pool::producer_looks_before_it_watches");
            let room = blind && has_room();
            watched.into_iter().for_each(Level::watch);
            if weakened("overload::producer_does_not_watch_turns") {
                self.turns.unwatch();
            }
            if room || !blind && has_room() {
                return;
            }
            waiting = self.room.wait(waiting);
        }
    }

    /// Wakes all producers that wait for room. Called after the dispatcher has been closed.
    pub(crate) fn close(&self) {
        self.call_producers(None);
    }

    /// Lowers a count by one. A producer may watch it.
    pub(super) fn lower(&self, level: &Level) {
        if level.subtract() {
            self.call_producers(Some(level));
        }
    }

    /// Wakes all producers that wait for room: each looks for itself, and watches again.
    fn call_producers(&self, changed: Option<&Level>) {
        if weakened("pool::room_tells_nobody") {
            return;
        }
        {
            // A producer that looked before the change is asleep by the time we have the lock.
            let _waiting = self.waiting.lock();
            changed.into_iter().for_each(Level::unwatch);
        }
        self.room.notify_all();
    }
}
