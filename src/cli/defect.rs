//! Panics of the command: one message, and an exit code of their own. A session of the REPL goes on.

use std::cell::Cell;
use std::ffi::c_int;
use std::io::Write as _;
use std::panic::{AssertUnwindSafe, PanicHookInfo, catch_unwind, set_hook};

use super::flight;

/// Exit code of a command that has a defect, as Rust has it.
pub(super) const DEFECT: c_int = 101;

thread_local! {
    /// A second panic on the way out of the first one says nothing new.
    static HAS_SAID: Cell<bool> = const { Cell::new(false) };
}

/// Has every panic of this process told as an error.
pub(super) fn tell_panics() {
    set_hook(Box::new(|panic| {
        if !HAS_SAID.replace(true) {
            // Nothing is left to say if stderr is gone.
            _ = std::io::stderr().write_all(message(panic).as_bytes());
        }
    }));
}

/// Runs `work`; nothing if it panics, which has been told then.
pub(super) fn guard<R>(work: impl FnOnce() -> R) -> Option<R> {
    let outcome = catch_unwind(AssertUnwindSafe(work));
    HAS_SAID.set(false);
    outcome.ok()
}

fn message(panic: &PanicHookInfo<'_>) -> String {
    let what = panic.payload_as_str().unwrap_or("no message");
    let place = panic.location().map_or(String::new(), |place| format!(", at {place}"));
    let mut message = format!("error: uruk has a defect ({what}{place}); please report it, with the input\n");
    if let Some(hint) = flight::hint() {
        message += &format!("  hint: {hint}\n");
    }
    message
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_that_panics_is_nothing_and_the_next_one_goes_on() {
        assert_eq!(guard(|| -> u32 { panic!("a test's own") }), None);
        assert_eq!(guard(|| 7), Some(7));
    }
}
