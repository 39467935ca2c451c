//! The limit of a dispatcher that leaves no room for more work in the background.

use std::fmt;

use crate::TaskPriority;

/// A queue limit of a dispatcher that is reached: where it stands, and the setting behind it.
///
/// Told by [`TaskDispatcher::admits`](crate::TaskDispatcher::admits).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitReached {
    /// The priority whose tasks are limited.
    pub priority: TaskPriority,
    /// Number of tasks of that priority that wait for their start.
    pub waiting: usize,
    /// Number of tasks that were to be added.
    pub asked: usize,
    /// The most that may wait.
    pub bound: usize,
    /// The method of the dispatcher's builder that sets the bound.
    pub set_by: &'static str,
}

impl fmt::Display for LimitReached {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { priority, waiting, asked, bound, set_by } = self;
        write!(
            f,
            "{waiting} {priority} tasks wait for their start and {asked} more were asked for, of at most {bound} by `{set_by}`"
        )
    }
}

#[cfg(all(test, not(uruk_loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_limit_says_where_it_stands_and_where_it_was_set() {
        let priority = TaskPriority::Idle;
        let queue = LimitReached { priority, waiting: 3, asked: 2, bound: 4, set_by: "idle_queue_max" };
        let told =
            "3 idle tasks wait for their start and 2 more were asked for, of at most 4 by `idle_queue_max`";
        assert_eq!(queue.to_string(), told);
    }
}
