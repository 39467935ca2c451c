//! Events: the view that observers and tests have of a session.

use crate::sync::Arc;
use crate::{SymbolName, TaskPriority};

/// Something that happened in a session.
///
/// Events reach the observer after the lock is gone and possibly on several threads; `sequence` was
/// taken under the lock and orders them.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SessionEvent {
    /// Position among all events of the session, from 0, without gaps.
    pub sequence: u64,
    /// What happened.
    pub kind: EventKind,
}

/// The kinds of events. One variant per verb of the protocol.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum EventKind {
    /// A unit was defined in a dylib.
    Defined {
        /// The dylib.
        dylib: Arc<str>,
        /// The unit.
        unit: SymbolName,
        /// The symbols that were accepted.
        symbols: Vec<SymbolName>,
    },
    /// A unit was moved out of its rows to be materialized. Symbols at known addresses are Ready without it.
    Claimed {
        /// The dylib.
        dylib: Arc<str>,
        /// The unit.
        unit: SymbolName,
    },
    /// A claimed unit has become more urgent with the lookups that need it. It never becomes less urgent.
    Prioritized {
        /// The dylib.
        dylib: Arc<str>,
        /// The unit.
        unit: SymbolName,
        /// How urgent it is from now on.
        priority: TaskPriority,
    },
    /// A claimed unit that was no longer wanted was put back before it started.
    Returned {
        /// The unit.
        unit: SymbolName,
    },
    /// Addresses became known.
    Resolved {
        /// The unit.
        unit: SymbolName,
    },
    /// Code and data of a unit are in place.
    Emitted {
        /// The unit.
        unit: SymbolName,
    },
    /// A symbol is safe to run.
    Ready {
        /// The dylib.
        dylib: Arc<str>,
        /// The symbol.
        symbol: SymbolName,
    },
    /// A symbol failed, by itself or because of one it waits on.
    Failed {
        /// The dylib.
        dylib: Arc<str>,
        /// The symbol.
        symbol: SymbolName,
    },
    /// A symbol is no longer defined.
    Removed {
        /// The dylib.
        dylib: Arc<str>,
        /// The symbol.
        symbol: SymbolName,
    },
    /// A definition generator was asked.
    Generating {
        /// The dylib.
        dylib: Arc<str>,
        /// The generator.
        generator: Arc<str>,
    },
    /// A query ended with everything it asked for.
    Completed {
        /// How many symbols it asked for.
        symbols: usize,
    },
    /// A query ended with an error.
    QueryFailed {
        /// How many symbols it asked for.
        symbols: usize,
    },
    /// A query was withdrawn.
    Withdrawn {
        /// How many symbols it asked for.
        symbols: usize,
    },
    /// The session takes no more work.
    Closed,
}
