//! Priorities: how urgently something is wanted.

use std::fmt;

/// How urgently a task is wanted. Later variants go first.
///
/// Priority follows demand: that of a unit's task rises with the lookups that need the unit, also while it is queued. It never
/// sinks. A unit that is no longer needed when its turn comes goes back to where it was, and counts anew when it is needed again.
/// Tasks that deliver an answer are always Demanded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TaskPriority {
    /// When nothing else is left.
    Idle,
    /// It may be wanted soon.
    Speculative,
    /// The first call of a lazy function waits for it.
    Lazy,
    /// A lookup waits for it.
    Demanded,
}

impl fmt::Display for TaskPriority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Idle => "idle",
            Self::Speculative => "speculative",
            Self::Lazy => "lazy",
            Self::Demanded => "demanded",
        })
    }
}
