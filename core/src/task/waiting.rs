//! A task that waits for its start, as limits count it.

use crate::TaskPriority;

/// A task that waits for its start, as a dispatcher with limits counts it.
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
