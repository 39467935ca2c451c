//! Frames: where code of the embedder runs, who answers for its panics, and who knows that it waits.
//!
//! A responsibility dropped by a panic does not know the panic's message: it is left with the frame that
//! catches the panic, which fails its symbols once the message is there.

use std::cell::RefCell;

use crate::FailureCause;
use crate::protocol::state::query::Asker;
use crate::responsibility::{Duty, DutyBox, MaterializationResponsibility, Step};
use crate::sync::{Arc, thread_local};

use super::drain::{Excuse, Outstanding, Wait};
use super::{ExecutionSession, SessionTag, handing};

/// One call of the embedder's code on this thread.
struct Frame {
    on_behalf_of: OnBehalfOf,
    /// The thread was unwinding before the frame began: that it does says nothing of the code inside.
    began_unwinding: bool,
    /// Why a close of the session need not wait for the frame's task at the moment.
    excuse: Excuse,
}

/// The session on whose behalf a frame runs.
enum OnBehalfOf {
    /// As one of its tasks, which lends the frame the handle that it has anyway.
    Task(Outstanding),
    /// A part of a task.
    Session(ExecutionSession),
}

impl OnBehalfOf {
    fn session(&self) -> &ExecutionSession {
        match self {
            Self::Task(outstanding) => outstanding.session(),
            Self::Session(session) => session,
        }
    }
}

/// What a thread knows of the frames on its stack.
#[derive(Default)]
struct ThisThread {
    frames: Vec<Frame>,
    /// Duties that were dropped inside frames while the thread was unwinding, each with the number of frames beneath its own.
    dropped: Vec<(usize, DutyBox)>,
}

thread_local! {
    static THIS_THREAD: RefCell<ThisThread> = RefCell::default();
}

/// Runs `code` of the embedder on behalf of `session`; a panic comes back as its message, after it has
/// failed the symbols of every responsibility it dropped.
pub(super) fn run<R>(session: &ExecutionSession, code: impl FnOnce() -> R) -> Result<R, Arc<str>> {
    run_in_frame(OnBehalfOf::Session(session.clone()), None, code).0
}

/// The same for a task that materializes a unit; also how many responsibilities have failed for the panic, and the task's
/// count.
pub(super) fn run_unit<R>(
    outstanding: Outstanding,
    unit: Asker,
    code: impl FnOnce() -> R,
) -> (Result<R, Arc<str>>, usize, Option<Outstanding>) {
    let unit = (outstanding.session().tag(), unit);
    let (result, failed, on_behalf_of) = run_in_frame(OnBehalfOf::Task(outstanding), Some(unit), code);
    match on_behalf_of {
        Some(OnBehalfOf::Task(outstanding)) => (result, failed, Some(outstanding)),
        _ => (result, failed, None),
    }
}

fn run_in_frame<R>(
    on_behalf_of: OnBehalfOf,
    unit: Option<(SessionTag, Asker)>,
    code: impl FnOnce() -> R,
) -> (Result<R, Arc<str>>, usize, Option<OnBehalfOf>) {
    let began_unwinding = std::thread::panicking();
    let mut on_behalf_of = Some(on_behalf_of);
    // While the thread is torn down there is no place for a frame; its panics then fail duties without a message.
    let pushed = THIS_THREAD.try_with(|thread| {
        if let Some(on_behalf_of) = on_behalf_of.take() {
            thread.borrow_mut().frames.push(Frame { on_behalf_of, began_unwinding, excuse: Excuse::None });
        }
    });
    let on_stack = super::holding::enter(unit);
    let result = crate::panics::guard(code);
    drop(on_stack);
    let mut dropped = None;
    if pushed.is_ok() {
        let _ = THIS_THREAD.try_with(|thread| {
            let mut thread = thread.borrow_mut();
            on_behalf_of = thread.frames.pop().map(|frame| frame.on_behalf_of);
            if !thread.dropped.is_empty() {
                let beneath = thread.frames.len();
                dropped = Some(thread.dropped.extract_if(.., |(of, _)| *of == beneath).collect::<Vec<_>>());
            }
        });
    }
    let failed = dropped.map_or(0, |dropped| fail_all(dropped, &result, began_unwinding));
    (result, failed, on_behalf_of)
}

/// Fails what was dropped inside a frame while it unwound; says how much that was.
#[cold]
fn fail_all<R>(dropped: Vec<(usize, DutyBox)>, result: &Result<R, Arc<str>>, began_unwinding: bool) -> usize {
    let failed = dropped.len();
    // The task is still counted, and in no frame: what this brings about runs after it.
    let _held_back = (failed > 0).then(crate::in_place::hold_back_all);
    for (_, mut duty) in dropped {
        duty.fail(match result {
            Err(message) => FailureCause::Panicked(message.clone()),
            Ok(_) if began_unwinding => FailureCause::Abandoned,
            // The embedder caught the panic itself and kept the message.
            Ok(_) => FailureCause::Panicked("a panic that the unit caught itself".into()),
        });
    }
    failed
}

/// Whether this thread is inside any frame, of whatever session.
pub(crate) fn is_inside_any() -> bool {
    THIS_THREAD.try_with(|thread| !thread.borrow().frames.is_empty()).unwrap_or(false)
}

/// How many frames of `session` this thread is inside of.
pub(super) fn depth_of(session: &ExecutionSession) -> usize {
    let of_session = |thread: &RefCell<ThisThread>| {
        thread.borrow().frames.iter().filter(|frame| frame.on_behalf_of.session() == session).count()
    };
    THIS_THREAD.try_with(of_session).unwrap_or(0)
}

/// Fails what was dropped inside this thread's frames while it unwound, before it waits: it might be for these symbols.
pub(super) fn fail_dropped() {
    let dropped = THIS_THREAD.try_with(|thread| {
        let ThisThread { frames, dropped, .. } = &mut *thread.borrow_mut();
        let taken = std::mem::take(dropped).into_iter();
        let taken = taken.map(|(beneath, duty)| (frames[beneath].began_unwinding, duty));
        taken.collect::<Vec<_>>()
    });
    for (began_unwinding, mut duty) in dropped.into_iter().flatten() {
        duty.fail(match began_unwinding {
            true => FailureCause::Abandoned,
            false => FailureCause::Panicked(
                "a panic whose message was not known when its thread had to wait".into(),
            ),
        });
    }
}

/// Leaves `duty`, which is dropped while the thread unwinds, with the innermost frame; `false` if there is none.
pub(crate) fn defer_to_unwinding_frame(duty: &mut Duty) -> bool {
    let deferred = THIS_THREAD.try_with(|thread| {
        let mut thread = thread.borrow_mut();
        let beneath = thread.frames.len().checked_sub(1)?;
        thread.dropped.push((beneath, duty.move_out()));
        Some(())
    });
    matches!(deferred, Ok(Some(())))
}

/// A responsibility on the frame that materializes its unit.
pub(super) fn attach(duty: DutyBox) -> MaterializationResponsibility {
    MaterializationResponsibility::from_duty(duty)
}

/// Says that this thread waits, until the guard is dropped: in a lookup of `session`, which ends when that session
/// closes, or in a close, which is no session's work.
pub(super) fn waits(session: &ExecutionSession, wait: Wait) -> Waits {
    handing::assert_done();
    let concerns = |frame: &Frame| match wait {
        // One that lies beneath and waits in a lookup as well: that excuse may be of a round that is over.
        Wait::Lookup => frame.on_behalf_of.session() == session && frame.excuse != Excuse::Close,
        Wait::Close => frame.excuse != Excuse::Close,
    };
    let excused = THIS_THREAD.try_with(|thread| {
        let mut excused = Vec::new();
        let frames = &mut thread.borrow_mut().frames;
        for (index, frame) in frames.iter_mut().enumerate().filter(|(_, frame)| concerns(frame)) {
            let before = frame.excuse;
            frame.excuse = frame.on_behalf_of.session().0.drain.excuse(before, wait);
            excused.push((index, before));
        }
        excused
    });
    Waits { excused: excused.unwrap_or_default() }
}

/// A wait of this thread.
pub(super) struct Waits {
    /// The frames it concerns, and what their excuses were before. They lie below the wait and outlive it.
    excused: Vec<(usize, Excuse)>,
}

impl Drop for Waits {
    fn drop(&mut self) {
        let excused = std::mem::take(&mut self.excused);
        // A thread that is torn down has no frames left that could count.
        let _ = THIS_THREAD.try_with(|thread| {
            let frames = &mut thread.borrow_mut().frames;
            for (index, before) in excused {
                let frame = &mut frames[index];
                frame.excuse = frame.on_behalf_of.session().0.drain.restore(frame.excuse, before);
            }
        });
    }
}
