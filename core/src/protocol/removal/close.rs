//! Close: no more work is taken; what is left ends, piece by piece.
//!
//! ```text
//!   start_closing ─▶ (tasks drain, or queries end first) ─▶ end ─▶ end_some_queries* ─▶ end_dylib* ─▶ note_closed
//! ```
//!
//! Each arrow is a transaction of its own, so that no hold of the lock is as long as the session is large.

use crate::sync::{Arc, weakened};
use crate::{EventKind, LookupError};

use crate::protocol::slices::agenda::SLICE_STEPS;
use crate::protocol::state::stage::Shutdown;
use crate::protocol::state::{Clearing, Effects, Payload, SessionState, Stage};
use crate::protocol::storage::DylibId;

impl<P: Payload> SessionState<P> {
    /// Refuses new work from now on, except, if it drains, from the work in progress. Says whether this call is the
    /// first to close.
    pub(crate) fn start_closing(&mut self, shutdown: Shutdown) -> bool {
        let first = self.stage == Stage::Open;
        if first {
            self.definitions.close_ready_index();
        }
        if first || self.stage == Stage::Closing {
            self.stage = match shutdown {
                Shutdown::Drain => Stage::Closing,
                Shutdown::Cancel => Stage::Cancelling,
            };
        }
        // Units that have not started shall ask whether they may.
        self.losses.note();
        first
    }

    /// Takes nothing from now on. Gives the dylibs with their names, newest first, each to be given to [`Self::end_dylib`].
    pub(crate) fn end(&mut self) -> Vec<(DylibId, Arc<str>)> {
        self.stage = Stage::Closed;
        self.losses.note();
        let mut dylibs: Vec<_> = self.definitions.dylibs().collect();
        dylibs.sort_unstable_by_key(|(_, dylib)| std::cmp::Reverse(dylib.created));
        dylibs.into_iter().map(|(id, dylib)| (id, dylib.name.clone())).collect()
    }

    /// How far [`Self::end_some_queries`] has to walk for the queries of this moment.
    pub(crate) fn queries_end(&self) -> u32 {
        self.lookups.end()
    }

    /// Ends some queries with an error: those in the places from `first` on, before `end`. Gives where to go on, if
    /// not all are behind.
    pub(crate) fn end_some_queries(&mut self, first: u32, end: u32, effects: &mut Effects<P>) -> Option<u32> {
        let next = first.saturating_add(SLICE_STEPS as u32).min(end);
        for index in first..next {
            if let Some(query) = self.lookups.id_at(index) {
                self.fail_query(query, LookupError::Closed, effects);
            }
        }
        (next < end).then_some(next)
    }

    /// Ends a dylib: rows and generators go. The resources are the caller's to remove, newest last.
    pub(crate) fn end_dylib(&mut self, dylib: DylibId, effects: &mut Effects<P>) -> Option<Clearing> {
        let clearing = self.clear(dylib, effects)?;
        for generator in self.definitions.take_generators(dylib) {
            if !weakened("close::keeps_its_generators") {
                self.drop_generator(generator, effects);
            }
        }
        Some(clearing)
    }

    /// The last event.
    pub(crate) fn note_closed(&mut self, effects: &mut Effects<P>) {
        self.observe(effects, || EventKind::Closed);
    }
}
