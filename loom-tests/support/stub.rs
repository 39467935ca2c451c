//! The slot that a stub of a model jumps through. Bodies are numbers.

use uruk_core::sync::Arc;
use uruk_core::sync::atomic::{AtomicU64, Ordering};

use crate::cell::JumpWord;

/// Where the slot leads before anybody calls.
const UNBOUND: u64 = 0;
/// Added to a body whose calls are counted.
pub(crate) const COUNTED: u64 = 1000;

#[derive(Clone)]
pub(crate) struct Word(Arc<AtomicU64>);

impl Word {
    pub(crate) fn new() -> Self {
        Self(Arc::new(AtomicU64::new(UNBOUND)))
    }

    /// The body that a call reaches, unless it is a first one.
    pub(crate) fn body(&self) -> Option<u64> {
        Some(self.load()).filter(|&address| address != UNBOUND).map(|address| address % COUNTED)
    }
}

impl JumpWord for Word {
    fn load(&self) -> u64 {
        self.0.load(Ordering::Relaxed) // as the processor does: one word, whose order the cell's lock gives
    }

    fn store(&self, address: u64) {
        self.0.store(address, Ordering::Relaxed); // as above
    }

    fn store_counted(&self, address: u64, _calls: u32) {
        self.store(address + COUNTED);
    }
}
