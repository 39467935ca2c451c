//! [`Counter`]: a figure that many threads raise.

use uruk_core::sync::atomic::{AtomicU64, Ordering};

/// Counts; nothing is decided by it.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self, count: u64) {
        // Relaxed, here and below: a figure.
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
