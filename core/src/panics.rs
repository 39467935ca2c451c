//! Keeps the embedder's panics from taking the session with them.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::sync::Arc;

/// Runs `code` of the embedder; a panic comes back as its message.
///
/// Unwind safety is asserted because nothing of ours is borrowed across the call: the code owns what it
/// was given, and no lock is held.
pub(crate) fn guard<R>(code: impl FnOnce() -> R) -> Result<R, Arc<str>> {
    // In a model a panic is the model's finding.
    if cfg!(any(uruk_loom, uruk_shuttle)) {
        return Ok(code());
    }
    catch_unwind(AssertUnwindSafe(code)).map_err(message_of)
}

/// Runs `code` of the embedder with each of `pieces`, a panic over one notwithstanding; `panicked` hears the messages.
pub(crate) fn guard_each<T>(
    pieces: impl IntoIterator<Item = T>,
    mut code: impl FnMut(T),
    mut panicked: impl FnMut(Arc<str>),
) {
    let mut pieces = pieces.into_iter();
    // One guard for all of them, and another for those behind a panic.
    while let Err(message) = guard(|| pieces.by_ref().for_each(&mut code)) {
        panicked(message);
    }
}

/// The same as [`guard`] with the payload, for a panic that is to go on later.
pub(crate) fn catch<R>(code: impl FnOnce() -> R) -> Result<R, Box<dyn Any + Send>> {
    if cfg!(any(uruk_loom, uruk_shuttle)) {
        return Ok(code());
    }
    catch_unwind(AssertUnwindSafe(code))
}

/// The message of a panic's payload. The payload is user code's too: its drop may panic again.
fn message_of(payload: Box<dyn Any + Send>) -> Arc<str> {
    let message: Arc<str> = match (payload.downcast_ref::<&'static str>(), payload.downcast_ref::<String>()) {
        (Some(text), _) => (*text).into(),
        (_, Some(text)) => text.as_str().into(),
        _ => "a panic without a message".into(),
    };
    if let Err(again) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
        #[expect(
            clippy::mem_forget,
            reason = "a payload whose drop panicked once may do so again; leaking it ends that"
        )]
        std::mem::forget(again);
    }
    message
}

#[cfg(all(test, not(uruk_loom)))]
mod tests {
    use super::*;

    struct PanicsWhenDropped;

    impl Drop for PanicsWhenDropped {
        fn drop(&mut self) {
            panic!("again");
        }
    }

    #[test]
    fn the_message_of_a_panic_comes_back() {
        assert_eq!(&*guard(|| panic!("number {}", 7)).unwrap_err(), "number 7");
        assert_eq!(guard(|| 3).unwrap(), 3);
    }

    #[test]
    fn every_piece_has_its_turn_whatever_panics() {
        let (mut seen, mut messages) = (Vec::new(), Vec::new());
        let code = |piece: u32| {
            seen.push(piece);
            assert!(piece.is_multiple_of(2), "number {piece}");
        };
        guard_each(1..=5, code, |message| messages.push(message));
        assert_eq!(seen, [1, 2, 3, 4, 5]);
        assert_eq!(
            messages.iter().map(|message| &**message).collect::<Vec<_>>(),
            ["number 1", "number 3", "number 5"]
        );
    }

    #[test]
    fn a_payload_whose_drop_panics_is_survived() {
        let message = guard(|| std::panic::panic_any(PanicsWhenDropped)).unwrap_err();
        assert_eq!(&*message, "a panic without a message");
    }
}
