//! Where the jumps lie that stand below 2 GiB for functions elsewhere. Natively they are in the executable, and so
//! `dladdr` says of them.

use std::collections::BTreeSet;

use uruk_core::ExecutorAddr;
use uruk_core::sync::Mutex;

/// Held for one operation.
static ENTRIES: Mutex<BTreeSet<ExecutorAddr>> = Mutex::new(BTreeSet::new());

/// An entry that is known, until this is dropped.
#[derive(Debug)]
pub(crate) struct KnownEntry(ExecutorAddr);

impl KnownEntry {
    /// Notes that there is an entry at `address`.
    pub(crate) fn new(address: ExecutorAddr) -> Self {
        ENTRIES.lock().insert(address);
        Self(address)
    }

    /// Where it is.
    pub(crate) fn address(&self) -> ExecutorAddr {
        self.0
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
