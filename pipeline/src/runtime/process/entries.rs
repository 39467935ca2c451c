//! Where the jumps lie that stand below 2 GiB for functions elsewhere. Natively they are in the executable, and so
//! `dladdr` says of them.

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;

use uruk_core::ExecutorAddr;

use crate::memory::MemoryError;
use crate::runtime::forks::{self, LockOrder, RuntimeLock};

/// Held for one operation, and over a whole fork.
static ENTRIES: RuntimeLock<BTreeSet<ExecutorAddr>> =
    RuntimeLock::new(LockOrder::LowEntries, BTreeSet::new());

/// An entry that is known, until this is dropped.
#[derive(Debug)]
pub(crate) struct KnownEntry(ExecutorAddr);

impl KnownEntry {
    /// Notes that there is an entry at `address`.
    ///
    /// # Errors
    /// [`MemoryError::Watch`] if the system cannot note what forks have to do.
    pub(crate) fn new(address: ExecutorAddr) -> Result<Self, MemoryError> {
        forks::watch()
            .map_err(|code| MemoryError::Watch { source: Arc::new(io::Error::from_raw_os_error(code)) })?;
        ENTRIES.lock().insert(address);
        Ok(Self(address))
    }
}

impl Drop for KnownEntry {
    fn drop(&mut self) {
        ENTRIES.lock().remove(&self.0);
    }
}

/// Whether an entry begins at `address`.
pub(super) fn is_entry(address: u64) -> bool {
    ENTRIES.lock().contains(&ExecutorAddr::new(address))
}
