//! Order: the place of each event among all events of a session.

/// Gives each event its place.
#[derive(Debug)]
pub(crate) struct EventOrder {
    /// Events are made only if somebody sees them.
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

    #[cfg(all(test, not(uruk_loom)))]
    pub(crate) fn begin_to_observe(&mut self) {
        self.is_observed = true;
    }
}
