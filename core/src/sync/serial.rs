//! Numbers that no two things of this process share.
//!
//! The standard library's atomics in every build: a count that lives as long as the process is no model's business,
//! and loom has no statics.

use std::sync::atomic::{AtomicU64, Ordering};

static NEXT: AtomicU64 = AtomicU64::new(0);

/// A number that was never given out before.
pub(crate) fn unique() -> u64 {
    // Relaxed: nothing is read on the strength of the number; it only has to be unique.
    NEXT.fetch_add(1, Ordering::Relaxed)
}
