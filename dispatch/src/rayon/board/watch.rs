//! The decision of an idle spare that has waited for [`PATIENCE`].

use std::time::Duration;

use crate::rayon::PATIENCE;

use super::{Board, Orders};

/// The notes of an idle spare about the time that it has waited.
#[derive(Debug, Default)]
pub(in crate::rayon) struct Watch {
    /// How long it has had nothing to do.
    pub(in crate::rayon) quiet: Duration,
    /// How many tasks had been taken when it last began to wait.
    taken: u64,
}

impl Board {
    /// An idle spare begins to wait.
    pub(in crate::rayon) fn begin_watch(&self, watch: &mut Watch) {
        watch.taken = self.taken();
    }

    /// It has waited for [`PATIENCE`], and was not called.
    pub(in crate::rayon) fn look_at_clock(&mut self, watch: &mut Watch) -> Orders {
        watch.quiet += PATIENCE;
        self.stalled |= self.startable() > 0 && self.taken() == watch.taken;
        self.orders()
    }
}
