//! A thread that waits inside a task.

use uruk_core::sync::weakened;

use super::Pool;
use crate::current::Worker;

/// A thread inside [`Pool::blocking`]; when it is dropped, also by a panic, the thread has a slot again if one is vacant
/// and no other block is around this one: what is left of that may block for as long as it likes.
pub(super) struct Blocked<'a> {
    pool: &'a Pool,
    worker: &'a Worker,
}

impl<'a> Blocked<'a> {
    /// Says too whether a limit may have been lifted by it.
    pub(super) fn begin(pool: &'a Pool, worker: &'a Worker) -> (Self, bool) {
        let outer = worker.blocks.get();
        worker.blocks.set(outer + 1);
        let lifted = outer == 0 && {
            pool.counters.blocks_begun.increment();
            worker.no_longer_surplus();
            if !weakened("pool::keeps_places_while_it_blocks") {
                pool.gate.give_back(&worker.places);
            }
            !weakened("pool::blocked_tasks_keep_their_place") && pool.limits.stop(worker.charge.get())
        };
        (Self { pool, worker }, lifted)
    }
}

impl Drop for Blocked<'_> {
    fn drop(&mut self) {
        let outer = self.worker.blocks.get() - 1;
        self.worker.blocks.set(outer);
        if outer > 0 {
            return;
        }
        self.pool.counters.blocks_ended.increment();
        self.pool.limits.resume(self.worker.charge.get());
        self.worker.surplus.set(true);
        // A block that could not begin has left it its slot.
        if !self.worker.holds_slot()
            && let Some(slot) = self.pool.occupy()
        {
            self.worker.lend(slot);
        }
        if self.worker.holds_slot() {
            self.worker.no_longer_surplus();
        }
    }
}
