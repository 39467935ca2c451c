//! Handing on: a thread that holds effects which are not handed on yet must not wait, for it may be for these (I14).
//!
//! Builds with debug assertions see to it, wherever a thread waits in a lookup or a close, of whatever session; others do not count. A
//! lone unit or answer is handed on uncounted: a dispatcher that ran what it should only take is seen with the first batch.

use std::cell::Cell;

use crate::sync::thread_local;

thread_local! {
    /// How many transactions' effects this thread is handing on: more than one if a dispatcher uses the session meanwhile.
    static HANDING: Cell<usize> = Cell::default();
}

/// Says that this thread hands effects on, until the guard is dropped.
#[inline]
pub(super) fn begins() -> Handing {
    change(|handing| handing + 1);
    Handing
}

/// To be called where a thread waits.
#[inline]
pub(super) fn assert_done() {
    change(|handing| {
        assert!(
            // A thread that is torn down has no queue, and what is enqueued there runs at once.
            handing == 0 || !crate::in_place::has_queue(),
            "a thread waits that holds effects: does the dispatcher run what it should only take?"
        );
        handing
    });
}

#[must_use]
pub(super) struct Handing;

impl Drop for Handing {
    fn drop(&mut self) {
        change(|handing| handing - 1);
    }
}

#[inline]
fn change(change: impl FnOnce(usize) -> usize) {
    if cfg!(debug_assertions) {
        // Never torn down: it has nothing to drop.
        let _ = HANDING.try_with(|handing| handing.set(change(handing.get())));
    }
}
