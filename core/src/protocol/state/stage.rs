//! How far the session is on its way to its end, and the order of its events.

/// Gives each event its place.
#[derive(Debug)]
pub(crate) struct EventOrder {
    /// Events are made only if there are observers.
    is_observed: bool,
    /// How many there have been.
    next: u64,
}

impl EventOrder {
    pub(super) fn new(is_observed: bool) -> Self {
        Self { is_observed, next: 0 }
    }

    pub(crate) fn is_observed(&self) -> bool {
        self.is_observed
    }

    /// Keeps `count` places for events that are made later, if anybody sees them; gives the first.
    pub(crate) fn reserve(&mut self, count: u64) -> u64 {
        let first = self.next;
        if self.is_observed {
            self.next += count;
        }
        first
    }
}

/// The treatment of a closing session's work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Shutdown {
    /// Requested work is finished first.
    #[default]
    Drain,
    /// Units that have not started never do: their symbols fail, and every lookup ends now. Units that run are
    /// waited for; lookups that they make are refused.
    Cancel,
}

/// How far the session is on its way to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Takes work.
    Open,
    /// Takes what the work in progress still needs.
    Closing,
    /// Takes nothing, and lets nothing start.
    Cancelling,
    /// Takes nothing; what is left is being removed.
    Closed,
}

impl Stage {
    /// Whether nothing starts any more.
    pub(crate) fn is_cancelled(self) -> bool {
        matches!(self, Self::Cancelling | Self::Closed)
    }

    /// Whether the session takes work from where it comes.
    pub(crate) fn admits(self, by_task: bool) -> bool {
        match self {
            Self::Open => true,
            Self::Closing => by_task,
            Self::Cancelling | Self::Closed => false,
        }
    }
}

#[cfg(all(test, not(uruk_loom)))]
mod parts {
    //! For tests alone.
    use super::*;

    impl EventOrder {
        pub(crate) fn begin_to_observe(&mut self) {
            self.is_observed = true;
        }
    }
}
