//! Close: no more work is taken; what is left ends.

use crate::record::CLOSED;
use crate::sync::{Arc, weakened};
use crate::{EventKind, LookupError};

use super::effects::Effects;
use super::{Payload, SessionState};

/// How far the session is on its way to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Takes work.
    Open,
    /// Takes what the work in progress still needs.
    Closing,
    /// Takes nothing.
    Closed,
}

impl<P: Payload> SessionState<P> {
    /// Refuses new work from now on, except from the work in progress. Says whether this call did it.
    pub(crate) fn start_closing(&mut self) -> bool {
        let first = self.stage == Stage::Open;
        if first {
            self.stage = Stage::Closing;
            self.records.set_flag(CLOSED, true);
        }
        first
    }

    /// Ends everything: queries fail, rows go, newest dylib first. The resources are the caller's to
    /// remove, by dylib, newest last within each.
    pub(crate) fn close(&mut self, effects: &mut Effects<P>) -> Vec<(Arc<str>, Vec<P::Resource>)> {
        self.stage = Stage::Closed;
        let forget = weakened("close::forgets_the_queries");
        let queries: Vec<_> = self.queries.iter().filter(|_| !forget).map(|(id, _)| id).collect();
        for query in queries {
            self.fail_query(query, LookupError::Closed, effects);
        }
        let mut dylibs: Vec<_> = self.dylibs.iter().map(|(id, dylib)| (dylib.created, id)).collect();
        dylibs.sort_unstable_by_key(|&(created, _)| std::cmp::Reverse(created));
        let mut resources = Vec::with_capacity(dylibs.len());
        for (_, dylib) in dylibs {
            let name = self.dylibs[dylib].name.clone();
            resources.push((name, self.clear(dylib, effects)));
            for generator in std::mem::take(&mut self.dylibs[dylib].generators) {
                self.drop_generator(generator, effects);
            }
        }
        self.settle_all(effects);
        self.observe(effects, || EventKind::Closed);
        resources
    }

    /// Whether the session takes work from outside.
    pub(crate) fn is_open(&self) -> bool {
        self.stage == Stage::Open
    }

    /// Whether everything has ended.
    pub(crate) fn is_closed(&self) -> bool {
        self.stage == Stage::Closed
    }

    /// Whether the session takes work from where it comes.
    pub(crate) fn admits(&self, by_task: bool) -> bool {
        match self.stage {
            Stage::Open => true,
            Stage::Closing => by_task,
            Stage::Closed => false,
        }
    }
}
