//! Deadlines: lookups that are withdrawn when their time is over.

use std::time::{Duration, Instant};

use crate::sync::Arc;
use crate::{LookupError, Why};

use super::ExecutionSession;
use super::query::Completion;

/// Gives the time. [`Instant::now`], unless the session was given another clock.
pub(super) type Clock = Arc<dyn Fn() -> Instant + Send + Sync>;

/// The latest moment at which an answer is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Deadline(Instant);

impl Deadline {
    /// At this moment of the session's clock.
    pub fn at(moment: Instant) -> Self {
        Self(moment)
    }

    /// So long from now by the system's clock. A limit beyond what the clock can count is as far away as it can be.
    pub fn after(limit: Duration) -> Self {
        const FAR: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);
        let now = Instant::now();
        Self(now.checked_add(limit).or_else(|| now.checked_add(FAR)).unwrap_or(now))
    }
}

impl ExecutionSession {
    /// How much time is left; zero once it is over.
    pub(crate) fn left_until(&self, deadline: Deadline) -> Duration {
        deadline.0.saturating_duration_since((self.0.clock)())
    }

    /// Lets a handler hear that its answer came too late. Futures look at the clock themselves when they are polled.
    pub(super) fn judged(&self, completion: Completion, deadline: Option<Deadline>) -> Completion {
        match (completion, deadline) {
            (Completion::Handler(handler), Some(deadline)) => {
                let clock = self.0.clock.clone();
                Completion::Handler(Box::new(move |answer| {
                    // A clock that panics has not said that it is late.
                    let is_over = || crate::panics::guard(|| clock() >= deadline.0).unwrap_or(false);
                    let late = answer.is_ok() && is_over();
                    handler(if late { Err(too_late(Vec::new())) } else { answer });
                }))
            }
            (completion, _) => completion,
        }
    }
}

pub(crate) fn too_late(waiting: Vec<Why>) -> LookupError {
    LookupError::DeadlineExceeded { waiting: waiting.into() }
}
