//! Pending units: what a unit is from its definition until it begins.
//!
//! A unit lies in one piece of memory from its definition on. While it waits in its rows the state has it; whoever claims
//! it moves a pointer, and notes there for what. When it begins, the memory becomes that of its responsibility.

use crate::hints::Hints;
use crate::sync::Arc;
use crate::task::ticket::Ticketed;
use crate::{SerialQueue, SymbolFlagsMap, SymbolName, TaskPriority};

use crate::protocol::storage::ids::{ClaimId, DylibId, Id};
use crate::protocol::storage::slab::NONE;

/// A unit that has not begun, and what its responsibility is made of.
#[derive(Debug)]
pub(crate) struct PendingUnit<U> {
    pub(crate) unit: U,
    pub(crate) name: SymbolName,
    pub(crate) dylib: DylibId,
    pub(crate) dylib_name: Arc<str>,
    /// Exactly the symbols whose rows it waits in, or that carry its claim.
    pub(crate) symbols: SymbolFlagsMap,
    /// What the unit says of itself.
    pub(crate) own_priority: TaskPriority,
    pub(crate) hints: Hints,
    pub(crate) extras: Option<Box<Extras>>,
    /// Nobody's before it is claimed.
    pub(crate) claim: ClaimId,
    /// How urgent it was when it was claimed.
    pub(crate) priority: TaskPriority,
    /// The losses of demand before it was claimed: without a further one it is wanted when it starts.
    pub(crate) losses: u64,
}

/// What few units have. Apart from the rest, of which there may be millions.
#[derive(Debug, Default)]
pub(crate) struct Extras {
    pub(crate) initializer: Option<SymbolName>,
    /// Where its task waits for its turn.
    pub(crate) serial_queue: Option<SerialQueue>,
    /// Symbols that other definitions have won, for the unit's `discard`.
    pub(crate) discarded: Vec<SymbolName>,
    /// Where the unit lies while it is queued below the highest priority.
    pub(crate) ticketed: Option<Arc<Ticketed>>,
}

// See `QueuedUnit`, which holds it.
#[cfg(target_pointer_width = "64")]
const _: () = assert!(size_of::<PendingUnit<crate::session::Unit>>() <= 96);

/// A pending unit in the memory in which it is handed on.
pub(crate) trait Parcel<U>:
    From<PendingUnit<U>> + Into<PendingUnit<U>> + AsRef<PendingUnit<U>> + AsMut<PendingUnit<U>>
{
}

impl<U, T> Parcel<U> for T where
    T: From<PendingUnit<U>> + Into<PendingUnit<U>> + AsRef<PendingUnit<U>> + AsMut<PendingUnit<U>>
{
}

impl<U> PendingUnit<U> {
    /// A unit that waits in its rows.
    pub(crate) fn new(
        unit: U,
        name: SymbolName,
        (dylib, dylib_name): (DylibId, Arc<str>),
        symbols: SymbolFlagsMap,
        own_priority: TaskPriority,
        hints: Hints,
    ) -> Self {
        Self {
            unit,
            name,
            dylib,
            dylib_name,
            symbols,
            own_priority,
            hints,
            extras: None,
            claim: ClaimId::new(NONE, 0),
            priority: own_priority,
            losses: 0,
        }
    }

    /// The same with what few units have.
    pub(crate) fn with(
        mut self,
        initializer: Option<SymbolName>,
        serial_queue: Option<SerialQueue>,
        discarded: Vec<SymbolName>,
    ) -> Self {
        if initializer.is_some() || serial_queue.is_some() || !discarded.is_empty() {
            self.extras = Some(Box::new(Extras { initializer, serial_queue, discarded, ticketed: None }));
        }
        self
    }

    pub(crate) fn serial_queue(&self) -> Option<&SerialQueue> {
        self.extras.as_ref()?.serial_queue.as_ref()
    }

    pub(crate) fn ticketed(&self) -> Option<&Arc<Ticketed>> {
        self.extras.as_ref()?.ticketed.as_ref()
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

#[cfg(all(test, not(uruk_loom)))]
mod plain {
    use super::PendingUnit;
    use crate::SymbolName;

    impl<U> PendingUnit<U> {
        pub(crate) fn initializer(&self) -> Option<&SymbolName> {
            self.extras.as_ref()?.initializer.as_ref()
        }

        pub(crate) fn discarded(&self) -> &[SymbolName] {
            self.extras.as_ref().map_or(&[], |extras| &extras.discarded)
        }
    }

    /// Tests carry units as they are.
    impl AsRef<Self> for PendingUnit<u32> {
        fn as_ref(&self) -> &Self {
            self
        }
    }

    impl AsMut<Self> for PendingUnit<u32> {
        fn as_mut(&mut self) -> &mut Self {
            self
        }
    }

    impl AsRef<Self> for PendingUnit<usize> {
        fn as_ref(&self) -> &Self {
            self
        }
    }

    impl AsMut<Self> for PendingUnit<usize> {
        fn as_mut(&mut self) -> &mut Self {
            self
        }
    }
}
