//! Pending units: a unit from its definition until it begins.
//!
//! ```text
//!   PendingUnit ──claim──▶ ClaimedUnit ──begin──▶ Duty (`session/responsibility/duty.rs`)
//!        ▲                      │
//!        └─────put back─────────┘
//! ```
//!
//! Each stage is a type of its own, made from the one before it. A pending unit lies in one box from its definition until it
//! begins, so that a claim moves a pointer.

use crate::hints::Hints;
use crate::protocol::storage::{ClaimId, DylibId};
use crate::sync::Arc;
use crate::task::ticket::Ticketed;
use crate::{SerialQueue, SymbolFlagsMap, SymbolName, TaskPriority};

/// A unit's description of itself.
#[derive(Clone, Debug)]
pub(crate) struct Definition {
    pub(crate) unit_name: SymbolName,
    pub(crate) symbols: SymbolFlagsMap,
    pub(crate) initializer: Option<SymbolName>,
    pub(crate) priority: TaskPriority,
    /// Where its task waits for its turn.
    pub(crate) serial_queue: Option<SerialQueue>,
    pub(crate) hints: Hints,
    /// The unit's number, if it has an initializer.
    pub(crate) number: Option<u64>,
    /// The work in progress of a closing session may still define.
    pub(crate) by_task: bool,
}

/// A unit that waits in its rows, and what its responsibility will be made of.
#[derive(Debug)]
pub(crate) struct PendingUnit<U> {
    pub(crate) unit: U,
    pub(crate) name: SymbolName,
    pub(crate) dylib: DylibId,
    pub(crate) dylib_name: Arc<str>,
    /// Exactly the symbols whose rows it waits in, or that carry its claim.
    pub(crate) symbols: SymbolFlagsMap,
    /// The priority from the unit's own description.
    pub(crate) own_priority: TaskPriority,
    pub(crate) hints: Hints,
    pub(crate) extras: Option<Box<Extras>>,
}

/// A unit that was claimed and has not begun.
#[derive(Debug)]
pub(crate) struct ClaimedUnit<U> {
    pub(crate) pending: Box<PendingUnit<U>>,
    pub(crate) claim: ClaimId,
    /// The losses of demand before it was claimed. Without a further one it is wanted when it starts.
    pub(crate) losses: u64,
    /// Where the unit lies while it is queued below the highest priority.
    pub(crate) ticketed: Option<Arc<Ticketed>>,
}

/// Data that few units have. Apart from the rest, of which there may be millions.
#[derive(Debug, Default)]
pub(crate) struct Extras {
    pub(crate) initializer: Option<SymbolName>,
    /// Where its task waits for its turn.
    pub(crate) serial_queue: Option<SerialQueue>,
    /// Symbols that other definitions have won, for the unit's `discard`.
    pub(crate) discarded: Vec<SymbolName>,
}

impl<U> PendingUnit<U> {
    /// A unit that waits in the rows of what is left of its definition.
    pub(crate) fn of(
        definition: Definition,
        unit: U,
        (dylib, dylib_name): (DylibId, Arc<str>),
        discarded: Vec<SymbolName>,
    ) -> Box<Self> {
        let Definition { unit_name: name, symbols, initializer, serial_queue, hints, .. } = definition;
        let initializer = initializer.filter(|name| symbols.contains_key(name));
        let has_more = initializer.is_some() || serial_queue.is_some() || !discarded.is_empty();
        let extras = has_more.then(|| Box::new(Extras { initializer, serial_queue, discarded }));
        let own_priority = definition.priority;
        Box::new(Self { unit, name, dylib, dylib_name, symbols, own_priority, hints, extras })
    }

    pub(crate) fn initializer(&self) -> Option<&SymbolName> {
        self.extras.as_ref()?.initializer.as_ref()
    }

    pub(crate) fn serial_queue(&self) -> Option<&SerialQueue> {
        self.extras.as_ref()?.serial_queue.as_ref()
    }

    /// Another definition has won against its definition of `name`, or that was removed.
    pub(crate) fn lose(&mut self, name: &SymbolName) {
        self.symbols.remove(name);
        if let Some(extras) = &mut self.extras {
            extras.initializer.take_if(|initializer| initializer == name);
        }
    }

    pub(crate) fn into_discarded(self) -> (U, Vec<SymbolName>) {
        (self.unit, self.extras.map(|extras| extras.discarded).unwrap_or_default())
    }
}

impl<U> ClaimedUnit<U> {
    /// How urgent it is: it may have risen since it was claimed.
    pub(crate) fn priority(&self) -> TaskPriority {
        self.ticketed.as_ref().map_or(TaskPriority::Demanded, |ticketed| ticketed.priority())
    }
}

#[cfg(all(test, not(uruk_loom)))]
mod plain {
    use super::*;

    impl<U> PendingUnit<U> {
        /// A unit that says nothing of itself.
        pub(crate) fn new(
            unit: U,
            name: SymbolName,
            (dylib, dylib_name): (DylibId, Arc<str>),
            symbols: SymbolFlagsMap,
            own_priority: TaskPriority,
            hints: Hints,
        ) -> Self {
            Self { unit, name, dylib, dylib_name, symbols, own_priority, hints, extras: None }
        }

        pub(crate) fn discarded(&self) -> &[SymbolName] {
            self.extras.as_ref().map_or(&[], |extras| &extras.discarded)
        }
    }
}
