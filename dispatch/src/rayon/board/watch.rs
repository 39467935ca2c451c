//! How long a spare waits before it looks at the clock, and what it concludes from that.

use std::time::Duration;

use crate::rayon::PATIENCE;

use super::{Board, Orders};

/// What an idle spare knows of the time in which it waits.
#[derive(Debug, Default)]
pub(in crate::rayon) struct Watch {
    /// How long it has had nothing to do.
    pub(in crate::rayon) quiet: Duration,
    /// How long tasks have been there and none was taken.
    untaken: Duration,
    /// How many had been taken when it last began to wait, and how long it meant to wait then.
    taken: u64,
    patience: Duration,
    /// What might start was held back by time alone.
    held_by_time: bool,
}

impl Board {
    /// An idle spare begins to wait. Gives how long at most: what time alone holds back shall not lie for longer than that.
    pub(in crate::rayon) fn begin_watch(&self, watch: &mut Watch) -> Duration {
        watch.held_by_time = self.startable() == 0 && self.startable_in_time() > 0;
        watch.patience = match self.startable_in_time() > self.startable() {
            true => self.limits.patience().map_or(PATIENCE, |left| left.min(PATIENCE)),
            false => PATIENCE,
        };
        watch.taken = self.taken();
        watch.patience
    }

    /// It was not called meanwhile.
    pub(in crate::rayon) fn look_at_clock(&mut self, watch: &mut Watch) -> Orders {
        watch.quiet += watch.patience;
        if self.startable() == 0 || self.taken() != watch.taken {
            watch.untaken = Duration::ZERO;
        } else if !watch.held_by_time {
            watch.untaken += watch.patience;
        }
        // What has become startable by now is the host's first.
        self.stalled |= watch.untaken >= PATIENCE;
        self.orders()
    }

    /// Whether somebody looks at the clock, if anything is queued. One that serves does not before its task ends: that is good enough
    /// for what may start now, since others are called for it too.
    pub(super) fn is_watched(&self, startable: usize) -> bool {
        self.idle > 0 || {
            let held_by_time = self.startable_in_time() > startable;
            !held_by_time && (self.serving > 0 || startable == 0)
        }
    }
}
