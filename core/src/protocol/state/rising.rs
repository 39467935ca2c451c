//! Rising: a priority that never sinks while its owner lives. The events that raise it: `urgency/`.

use crate::TaskPriority;

/// A priority that rises and never sinks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RisingPriority(TaskPriority);

impl RisingPriority {
    /// Where it begins.
    pub(crate) const fn at(priority: TaskPriority) -> Self {
        Self(priority)
    }

    pub(crate) const fn get(self) -> TaskPriority {
        self.0
    }

    /// Says whether it was lower.
    pub(crate) fn rise(&mut self, to: Self) -> bool {
        let rises = *self < to;
        *self = to.max(*self);
        rises
    }
}
