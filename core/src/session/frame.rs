//! Frames: where code of the embedder runs, and who answers for its panics.
//!
//! A responsibility dropped by a panic does not know the panic's message: it is left with the frame that
//! catches the panic, which fails its symbols once the message is there.

use std::cell::RefCell;

use crate::FailureCause;
use crate::responsibility::{Duty, MaterializationResponsibility, Step};
use crate::sync::{Arc, thread_local};

use super::ExecutionSession;

/// One call of the embedder's code on this thread.
struct Frame {
    /// The session on whose behalf it runs.
    session: usize,
    /// Duties that a panic dropped inside it.
    dropped_in_panic: Vec<Duty>,
}

thread_local! {
    static FRAMES: RefCell<Vec<Frame>> = RefCell::default();
}

/// Runs `code` of the embedder on behalf of `session`; a panic comes back as its message, after it has
/// failed the symbols of every responsibility it dropped.
pub(super) fn run<R>(session: &ExecutionSession, code: impl FnOnce() -> R) -> Result<R, Arc<str>> {
    run_counting(session, code).0
}

/// The same, and how many responsibilities have failed for the panic.
pub(super) fn run_counting<R>(
    session: &ExecutionSession,
    code: impl FnOnce() -> R,
) -> (Result<R, Arc<str>>, usize) {
    let fresh = Frame { session: session.tag(), dropped_in_panic: Vec::new() };
    // While the thread is torn down there is no place for a frame; its panics then fail duties without a message.
    let pushed = FRAMES.try_with(|frames| frames.borrow_mut().push(fresh)).is_ok();
    let on_stack = super::holding::enter();
    let result = crate::panics::guard(code);
    drop(on_stack);
    let frame = FRAMES.try_with(|frames| frames.borrow_mut().pop_if(|_| pushed)).unwrap_or(None);
    let dropped = frame.map(|frame| frame.dropped_in_panic).unwrap_or_default();
    let failed = dropped.len();
    for mut duty in dropped {
        let message = match &result {
            Err(message) => message.clone(),
            // The embedder caught the panic itself and kept the message.
            Ok(_) => "a panic that the unit caught itself".into(),
        };
        duty.fail(FailureCause::Panicked(message));
    }
    (result, failed)
}

/// How many frames of `session` this thread is inside of.
pub(super) fn depth_of(session: &ExecutionSession) -> usize {
    let tag = session.tag();
    FRAMES.try_with(|frames| frames.borrow().iter().filter(|frame| frame.session == tag).count()).unwrap_or(0)
}

/// Fails what panics have dropped inside this thread's frames, before the thread waits: it might be for these symbols.
pub(super) fn fail_dropped() {
    let dropped = FRAMES.try_with(|frames| {
        let mut frames = frames.borrow_mut();
        frames.iter_mut().flat_map(|frame| std::mem::take(&mut frame.dropped_in_panic)).collect::<Vec<_>>()
    });
    for mut duty in dropped.into_iter().flatten() {
        duty.fail(FailureCause::Panicked(
            "a panic whose message was not known when its thread had to wait".into(),
        ));
    }
}

/// Leaves `duty`, which a panic is dropping, with the innermost frame; `false` if there is none.
pub(crate) fn defer_to_panicking_frame(duty: &mut Duty) -> bool {
    let deferred = FRAMES.try_with(|frames| {
        let mut frames = frames.borrow_mut();
        let frame = frames.last_mut()?;
        frame.dropped_in_panic.push(duty.move_out());
        Some(())
    });
    matches!(deferred, Ok(Some(())))
}

/// A responsibility on the frame that materializes its unit.
pub(super) fn attach(duty: Duty) -> MaterializationResponsibility {
    MaterializationResponsibility::from_duty(duty)
}
