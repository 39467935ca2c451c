//! Frames: where code of the embedder runs, who answers for its panics, and who knows that it waits.
//!
//! A responsibility that a panic drops does not know the panic's message. It is left with the frame that catches the panic. That fails
//! its symbols once the message is there.

use crate::FailureCause;
use crate::ids::SessionTag;
use crate::protocol::state::lookups::query::Asker;
use crate::session::responsibility::{Duty, MaterializationResponsibility, Step};
use crate::sync::Arc;
use crate::task::this_thread::EmbeddersCall;

use super::drain::{Excuse, Outstanding, Wait};
use super::{ExecutionSession, here};

/// The frames on a thread's stack.
#[derive(Default)]
pub(super) struct Frames {
    /// Outermost first.
    stack: Vec<Frame>,
    begun: FrameNumber,
    /// Duties that were dropped inside frames while the thread was unwinding, each with the number of frames beneath its own.
    dropped: Vec<(usize, Duty)>,
}

/// Counts the frames of a thread. Frame 0 is the thread itself, and in no list.
pub(super) type FrameNumber = u64;

/// One call of the embedder's code on this thread.
struct Frame {
    number: FrameNumber,
    on_behalf_of: OnBehalfOf,
    /// The unit that it materializes, or answers on behalf of.
    unit: Option<(SessionTag, Asker)>,
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

impl Frames {
    #[inline]
    fn push(&mut self, on_behalf_of: OnBehalfOf, unit: Option<(SessionTag, Asker)>, began_unwinding: bool) {
        self.begun += 1;
        self.stack.push(Frame {
            number: self.begun,
            on_behalf_of,
            unit,
            began_unwinding,
            excuse: Excuse::None,
        });
    }

    /// The innermost frame ends; gives what was dropped inside of it, if there was anything.
    #[inline]
    fn pop(&mut self) -> (Option<OnBehalfOf>, Option<Vec<(usize, Duty)>>) {
        let on_behalf_of = self.stack.pop().map(|frame| frame.on_behalf_of);
        let beneath = self.stack.len();
        let of_frame = |dropped: &mut Vec<(usize, Duty)>| {
            dropped.extract_if(.., |(of, _)| *of == beneath).collect::<Vec<_>>()
        };
        (on_behalf_of, (!self.dropped.is_empty()).then(|| of_frame(&mut self.dropped)))
    }

    /// Whether the thread is inside a frame of any session.
    pub(crate) fn is_inside_any(&self) -> bool {
        !self.stack.is_empty()
    }

    /// The number of the innermost frame.
    #[inline]
    pub(super) fn innermost(&self) -> FrameNumber {
        self.stack.last().map_or(0, |frame| frame.number)
    }

    /// Whether that frame has not ended.
    pub(super) fn has(&self, number: FrameNumber) -> bool {
        number == 0 || self.stack.binary_search_by_key(&number, |frame| frame.number).is_ok()
    }
}

/// Runs `code` of the embedder on behalf of `session`; a panic comes back as its message, after it has
/// failed the symbols of every responsibility it dropped.
pub(super) fn run<R>(session: &ExecutionSession, code: impl FnOnce() -> R) -> Result<R, Arc<str>> {
    run_in_frame(OnBehalfOf::Session(session.clone()), None, code).0
}

/// The same for a task that materializes a unit, which was that urgent when it began. Gives also how many responsibilities have failed
/// for the panic, and the task's count.
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
    // While the thread ends there is no place for a frame; its panics then fail duties without a message.
    let pushed = here::with(|thread| {
        if let Some(on_behalf_of) = on_behalf_of.take() {
            thread.frames.push(on_behalf_of, unit, began_unwinding);
        }
    });
    let call = EmbeddersCall::enter();
    let result = crate::panics::guard(code);
    drop(call);
    let mut dropped = None;
    if pushed.is_some() {
        here::with(|thread| (on_behalf_of, dropped) = thread.frames.pop());
    }
    let failed = dropped.map_or(0, |dropped| fail_all(dropped, &result, began_unwinding));
    (result, failed, on_behalf_of)
}

/// Fails what was dropped inside a frame while it unwound; says how much that was.
#[cold]
fn fail_all<R>(dropped: Vec<(usize, Duty)>, result: &Result<R, Arc<str>>, began_unwinding: bool) -> usize {
    let failed = dropped.len();
    // The task is still counted, and in no frame: what this brings about runs after it.
    let _held_back = (failed > 0).then(crate::task::in_place::hold_back_all);
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

/// How many frames of `session` this thread is inside of.
pub(super) fn depth_of(session: &ExecutionSession) -> usize {
    let is_of_session = |frame: &&Frame| frame.on_behalf_of.session() == session;
    here::with(|thread| thread.frames.stack.iter().filter(is_of_session).count()).unwrap_or(0)
}

/// Notes that the innermost frame goes on with what `asker` has asked for.
pub(super) fn answers(session: SessionTag, asker: Asker) {
    here::with(|thread| {
        if let Some(frame) = thread.frames.stack.last_mut() {
            frame.unit = Some((session, asker));
        }
    });
}

/// The unit of the session on whose behalf this thread asks, if it asks from a unit's own frame or from an answer to it.
pub(super) fn asks(session: SessionTag) -> Option<Asker> {
    here::with(|thread| {
        let (tag, asker) = thread.frames.stack.last()?.unit?;
        (tag == session).then_some(asker)
    })
    .flatten()
}

/// Fails what was dropped inside this thread's frames while it unwound, before it waits: it might be for these symbols.
pub(super) fn fail_dropped() {
    let dropped = here::with(|thread| {
        let Frames { stack, dropped, .. } = &mut thread.frames;
        let taken = std::mem::take(dropped).into_iter();
        taken.map(|(beneath, duty)| (stack[beneath].began_unwinding, duty)).collect::<Vec<_>>()
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
    let deferred = here::with(|thread| {
        let beneath = thread.frames.stack.len().checked_sub(1)?;
        thread.frames.dropped.push((beneath, duty.move_out()));
        Some(())
    });
    deferred.flatten().is_some()
}

/// A responsibility on the frame that materializes its unit.
pub(super) fn attach(duty: Box<Duty>) -> MaterializationResponsibility {
    MaterializationResponsibility::from_duty(duty)
}

/// Says that this thread waits, until the guard is dropped: in a lookup of `session`, which ends when that session
/// closes, or in a close, which is no session's work.
pub(super) fn waits(session: &ExecutionSession, wait: Wait<'_>) -> Waits {
    here::assert_delivered();
    let concerns = |frame: &Frame| match wait {
        // One that lies beneath and waits in a lookup as well: that excuse may be of a round that is over.
        Wait::Lookup(..) => frame.on_behalf_of.session() == session && frame.excuse != Excuse::Close,
        Wait::Close => frame.excuse != Excuse::Close,
    };
    let excused = here::with(|thread| {
        let mut excused = Vec::new();
        let frames = &mut thread.frames.stack;
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
        // A thread that ends has no frames left that could count.
        here::with(|thread| {
            for (index, before) in excused {
                let frame = &mut thread.frames.stack[index];
                frame.excuse = frame.on_behalf_of.session().0.drain.restore(frame.excuse, before);
            }
        });
    }
}
