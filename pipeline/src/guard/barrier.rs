//! A pair of barriers of which one side costs nothing. The frequent side orders the compiler alone; the rare side has the kernel order all
//! threads of the process (`membarrier`).
//!
//! Between a store and a later load on one side, and a store and a later load on the other, they do what a SeqCst fence on each side does.

use rustix::thread::{MembarrierCommand, membarrier};
use uruk_core::sync::atomic::{Ordering, compiler_fence, fence};

use crate::memory::Granted;

/// Whether the kernel orders threads when it is asked. It has since Linux 4.14; a sandbox may forbid it, and then both sides pay.
#[inline]
fn is_granted() -> bool {
    static GRANTED: Granted = Granted::new();
    GRANTED.by(MembarrierCommand::RegisterPrivateExpedited)
}

/// The side of readers.
#[inline]
pub(super) fn light() {
    // ordering[guard-barrier]: SeqCst. Pairs with the one in `heavy`: of two threads that store and then load what the other has stored,
    // one sees it. The compiler alone is ordered where the kernel does the rest on the other's behalf.
    if is_granted() { compiler_fence(Ordering::SeqCst) } else { fence(Ordering::SeqCst) }
}

/// The side of removers.
pub(super) fn heavy() {
    #[cfg(test)]
    ASKED.set(ASKED.get() + 1);
    // ordering[guard-barrier]: SeqCst. Pairs with the one in `light`.
    fence(Ordering::SeqCst);
    if is_granted() {
        // It was granted, so it cannot fail.
        _ = membarrier(MembarrierCommand::PrivateExpedited);
    }
}

#[cfg(test)]
thread_local! {
    /// How often this thread has asked the kernel.
    pub(super) static ASKED: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}
