//! What a task counts for while it waits for its start.

use crate::TaskPriority;

/// What a task counts for while it waits for its start, where a dispatcher has limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// How urgent it is.
    pub priority: TaskPriority,
    /// Whether it waits in a [`SerialQueue`](crate::SerialQueue), and not in the dispatcher's own queues.
    pub in_serial_queue: bool,
}

impl Waiting {
    /// Whether there is a limit to which it could matter.
    pub(crate) fn counts(&self) -> bool {
        self.priority < TaskPriority::Lazy
    }
}
