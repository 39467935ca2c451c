//! A thread's record of the sessions that it works for, beside the record of its tasks (`task/this_thread.rs`).
//!
//! | what nests | guard | part of the record |
//! |---|---|---|
//! | a call of the embedder's code | the body of `frame::run` | `frames` |
//! | a wait that a close need not wait for | `frame::Waits` | `frames` |
//! | something that only this thread can finish | `holding::Hold` | `holding` |
//! | a lookup that blocks; one of a thread that holds something | `answers::Asked`, `holding::Blocking` | `asked`, `holding` |
//! | effects on their way | [`Delivering`] | `delivering` |
//!
//! The rules are those of the other record. Once this one is destroyed [`with`] gives `None`: no frame, and nothing held.

use std::cell::RefCell;

use crate::sync::thread_local;

use super::answers::AskedHere;
use super::frame::Frames;
use super::holding::Holding;

/// The record of one thread.
#[derive(Default)]
pub(super) struct Here {
    /// The calls of the embedder's code on the stack.
    pub(super) frames: Frames,
    /// The work that this thread alone can finish, and the lookups it is blocked in meanwhile.
    pub(super) holding: Holding,
    /// The lookups whose answers this thread may give itself.
    pub(super) asked: AskedHere,
    /// How many transactions' effects this thread is delivering: more than one if a dispatcher uses the session meanwhile.
    delivering: usize,
}

thread_local! {
    static HERE: RefCell<Here> = RefCell::default();
}

/// Borrows this thread's record. `None` once the record is destroyed, because the thread ends.
///
/// `operation` runs no code of the embedder, and does not ask for the record itself.
#[inline]
pub(super) fn with<R>(operation: impl FnOnce(&mut Here) -> R) -> Option<R> {
    HERE.try_with(|here| operation(&mut here.borrow_mut())).ok()
}

/// Effects that this thread delivers, until the guard is dropped. It must not wait meanwhile: it may be for these effects (I14).
///
/// Only builds with debug assertions count, and check where a thread waits in a lookup or a close of any session. A lone unit or
/// answer is delivered uncounted: a dispatcher that runs a task that it should only take is seen with the first batch.
#[must_use]
pub(super) struct Delivering(());

impl Delivering {
    #[inline]
    pub(super) fn begin() -> Self {
        if cfg!(debug_assertions) {
            with(|here| here.delivering += 1);
        }
        Self(())
    }
}

impl Drop for Delivering {
    #[inline]
    fn drop(&mut self) {
        if cfg!(debug_assertions) {
            with(|here| here.delivering -= 1);
        }
    }
}

/// To be called where a thread waits.
#[inline]
pub(super) fn assert_delivered() {
    if cfg!(debug_assertions) {
        assert!(
            with(|here| here.delivering == 0).unwrap_or(true),
            "a thread waits that holds effects: does the dispatcher run what it should only take?"
        );
    }
}

#[cfg(all(test, not(any(uruk_loom, uruk_shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn effects_are_delivered_when_a_panic_passes() {
        let unwound = std::panic::catch_unwind(|| {
            let _delivering = Delivering::begin();
            panic!("on purpose");
        });
        assert!(unwound.is_err());
        assert_delivered();
    }
}
