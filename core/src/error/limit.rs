//! Which limit of a dispatcher leaves no room for more work in the background.

use std::fmt;

use crate::TaskPriority;

/// A limit of a dispatcher that is reached: which, where it stands, and who set it.
///
/// Told by [`TaskDispatcher::admits`](crate::TaskDispatcher::admits).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitReached {
    /// What is limited.
    pub limit: Limit,
    /// How much of it there is: tasks, or bytes.
    pub level: usize,
    /// How many tasks were to be added.
    pub asked: usize,
    /// How much of it there may be.
    pub bound: usize,
    /// What sets the bound: a method of the dispatcher's builder.
    pub set_by: &'static str,
}

/// What a dispatcher limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Limit {
    /// How many tasks of that priority wait for their start.
    Queue(TaskPriority),
    /// How many bytes are held by tasks that have started, or wait for it.
    Memory,
}

impl fmt::Display for LimitReached {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { limit, level, asked, bound, set_by } = self;
        match limit {
            Limit::Queue(priority) => {
                write!(f, "{level} {priority} tasks wait for their start and {asked} more were asked for")?;
            }
            Limit::Memory => write!(f, "tasks hold {level} bytes")?,
        }
        write!(f, ", of at most {bound} by `{set_by}`")
    }
}

#[cfg(all(test, not(uruk_loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_limit_says_where_it_stands_and_who_set_it() {
        let limit = Limit::Queue(TaskPriority::Idle);
        let queue = LimitReached { limit, level: 3, asked: 2, bound: 4, set_by: "idle_queue_max" };
        let told =
            "3 idle tasks wait for their start and 2 more were asked for, of at most 4 by `idle_queue_max`";
        assert_eq!(queue.to_string(), told);
        let memory =
            LimitReached { limit: Limit::Memory, level: 9, bound: 8, set_by: "memory_bytes_max", ..queue };
        assert_eq!(memory.to_string(), "tasks hold 9 bytes, of at most 8 by `memory_bytes_max`");
    }
}
