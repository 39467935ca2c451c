//! Why waits are refused.

use std::fmt;
use std::panic::Location;

use crate::sync::Arc;

/// Why a dispatcher refused to wait.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WaitError {
    /// Waits inside tasks inside waits reached the limit of the stack they share.
    #[error(
        "a blocking lookup nested {depth} deep on one thread; use the asynchronous faces inside units, or a pool"
    )]
    TooDeep {
        /// How many waits this thread was inside of.
        depth: usize,
    },
    /// The waiter is the last thread that runs queued tasks, and no other could be started in its place.
    #[error(
        "the operating system refused a thread to go on with the {queued} queued tasks while this one waits"
    )]
    NoThread {
        /// How many tasks would be left without a thread.
        queued: usize,
    },
    /// The thread holds something that the work it would wait for may need.
    #[error("a wait while this thread holds {held}; let go of it first, or use the asynchronous faces")]
    Holding {
        /// The thing it holds.
        held: HeldResource,
    },
    /// The process is the child of a fork, and the threads that run the session's tasks have stayed in its parent.
    #[error(
        "this process is the child of a fork, and the threads that run the session's tasks are its parent's; look up what is needed before the fork, run tasks in place, or make a session in the child"
    )]
    Forked,
    /// The thread runs a task that was declared never to block.
    #[error(
        "task `{task}` would block, but is declared a leaf; use the asynchronous faces there, or do not declare it"
    )]
    Leaf {
        /// The task.
        task: Arc<str>,
    },
}

/// A thing that a thread must not hold while it waits, and where it took it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeldResource {
    /// In words that follow "this thread holds".
    pub what: &'static str,
    /// The call that took it, if that is known.
    pub taken_at: Option<&'static Location<'static>>,
}

impl From<&'static str> for HeldResource {
    fn from(what: &'static str) -> Self {
        Self { what, taken_at: None }
    }
}

impl fmt::Display for HeldResource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.what)?;
        self.taken_at.map_or(Ok(()), |place| write!(f, ", taken at {place}"))
    }
}
