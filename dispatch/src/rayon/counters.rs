//! The counters of a dispatcher inside rayon: written under the lock of its board, read without it.

use crate::metrics::{Counter, PerPriority};

/// The state of a [`RayonTaskDispatcher`](crate::RayonTaskDispatcher) at one moment, and its totals.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RayonMetrics {
    /// Tasks that wait.
    pub queued: PerPriority<usize>,
    /// Tasks being run, those that are blocked included.
    pub running: PerPriority<usize>,
    /// Tasks that were taken, by tickets and by spares.
    pub started: PerPriority<u64>,
    /// Those of them that spares took.
    pub started_by_spares: u64,
    /// Tasks that have ended.
    pub finished: u64,
    /// Those of them that panicked.
    pub panicked: u64,
    /// Threads that are blocked in a wait, ours or others.
    pub blocked: usize,
    /// Threads of the dispatcher's own.
    pub spares: usize,
    /// How many of them were ever started.
    pub started_threads: u64,
    /// How often the operating system refused one.
    pub refused_threads: u64,
    /// Tickets that were honoured above a task, a declared wait or a responsibility, and took nothing.
    pub turned_away: u64,
}

/// The counters behind them.
#[derive(Debug, Default)]
pub(super) struct RayonCounters {
    pub(super) queued: [Counter; 4],
    pub(super) running: [Counter; 4],
    pub(super) started: [Counter; 4],
    pub(super) started_by_spares: Counter,
    pub(super) finished: Counter,
    pub(super) panicked: Counter,
    pub(super) blocked: Counter,
    pub(super) spares: Counter,
    pub(super) started_threads: Counter,
    pub(super) refused_threads: Counter,
    pub(super) turned_away: Counter,
}

impl RayonCounters {
    pub(super) fn read(&self) -> RayonMetrics {
        let now = |counter: &Counter| counter.get() as usize;
        RayonMetrics {
            queued: PerPriority(self.queued.each_ref().map(now)),
            running: PerPriority(self.running.each_ref().map(now)),
            started: PerPriority(self.started.each_ref().map(Counter::get)),
            started_by_spares: self.started_by_spares.get(),
            finished: self.finished.get(),
            panicked: self.panicked.get(),
            blocked: now(&self.blocked),
            spares: now(&self.spares),
            started_threads: self.started_threads.get(),
            refused_threads: self.refused_threads.get(),
            turned_away: self.turned_away.get(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use crate::RayonTaskDispatcher;

    #[test]
    fn metrics_are_read_while_somebody_has_the_board() {
        let pool = rayon_core::ThreadPoolBuilder::new().num_threads(1).build().expect("one thread");
        let dispatcher = RayonTaskDispatcher::in_pool(Arc::new(pool)).build().expect("the pool is there");
        let board = dispatcher.shared.board.lock();
        assert_eq!(dispatcher.metrics(), super::RayonMetrics::default());
        drop(board);
    }
}
