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

/// The same with the payload, for a panic that is to go on later.
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
    fn a_payload_whose_drop_panics_is_survived() {
        let message = guard(|| std::panic::panic_any(PanicsWhenDropped)).unwrap_err();
        assert_eq!(&*message, "a panic without a message");
    }
}
