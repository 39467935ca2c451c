//! Code of the embedder as tasks: handlers, observers, generators, drops, and tasks that the embedder dispatched.
//!
//! Each is a task of its own that the session counts, and each call runs in a frame, which catches its panic. Most of them bring an answer
//! that is waited for, and a dispatcher may drop any task. So [`Told`] runs on the thread that drops it.

use crate::protocol::state::effects::{Generation, Leftover};
use crate::protocol::state::lookups::query::Asker;
use crate::session::generator::{Asked, DetachedRequest};
use crate::sync::Arc;
use crate::task::Work;
use crate::{JitDylib, LookupError, LookupResult, SessionError, Task, TaskLabel, TaskPriority};

use super::drain::Outstanding;
use super::query::Completion;
use super::{ExecutionSession, Live, frame};

/// Whose code runs when a value of the embedder goes.
pub(super) const A_DROP: &str = "a drop of the embedder's value";

/// Whose code runs when a unit is told what it has lost.
pub(super) const A_DISCARD: &str = "a unit's `discard`";

impl ExecutionSession {
    /// Gives a handler the answer of a lookup that no transaction had to see, as if one had.
    pub(super) fn answer(&self, handler: Completion, ready: LookupResult) {
        let held_back = crate::task::in_place::hold_back();
        let asker = frame::asks(self.tag());
        self.enqueue(answer_task(self.outstanding(), asker, handler, || Ok(ready)));
        drop(held_back);
        self.run_ready();
    }

    /// Drops a value of the embedder; a unit hears first what has become of its symbols. A panic of the drop is the caller's.
    pub(super) fn let_go(&self, leftover: Leftover<Live>) {
        match leftover {
            Leftover::Unit { mut unit, dylib, dylib_name, discarded } => {
                let dylib = JitDylib::new(self.clone(), dylib, dylib_name);
                crate::panics::guard_each(
                    &discarded,
                    |symbol| unit.get_mut().discard(&dylib, symbol),
                    |message| self.report(SessionError::Panicked { place: A_DISCARD, message }),
                );
                drop(unit);
            }
            Leftover::Unheard(failure) => self.report(SessionError::Failed(failure)),
            other => drop(other),
        }
    }

    pub(super) fn generation_task(
        &self,
        generation: Generation<Arc<dyn crate::DefinitionGenerator>>,
        outstanding: Outstanding,
    ) -> Task {
        let Generation { generator, id, query, dylib, dylib_name, kind, lookup_flags, symbols, ruled_out } =
            generation;
        let dylib = JitDylib::new(self.clone(), dylib, dylib_name);
        let request = DetachedRequest::new(Asked {
            dylib,
            query,
            generator: id,
            kind,
            lookup_flags,
            symbols,
            ruled_out,
            finished: false,
        });
        user_task(outstanding, "generator.generate", "a definition generator", move |_| {
            generator.generate(request.attach());
        })
    }
}

/// A task of the embedder.
pub(super) fn counted(task: Task, outstanding: Outstanding) -> Task {
    // The task inside says itself whether it is a leaf; what runs after it, outside of it, is none.
    let (label, priority, hints) = (task.keep_label(), task.priority(), task.hints().leaf(false));
    let queue = task.serial_queue().cloned();
    let counted = Task::of(priority, Box::new(CountedTask { label, task: Some((task, outstanding)) }));
    queue.iter().fold(counted, Task::in_queue).with_hints(hints)
}

pub(super) fn answer_task(
    outstanding: Outstanding,
    asker: Option<Asker>,
    handler: Completion,
    outcome: impl FnOnce() -> Result<LookupResult, LookupError> + Send + 'static,
) -> Task {
    user_task(outstanding, "query.complete", "a lookup's handler", move |session| {
        if let Some(asker) = asker {
            frame::answers(session.tag(), asker);
        }
        match handler {
            Completion::Handler(handler) => handler(outcome()),
            Completion::Future(slot) => slot.finish(outcome()),
            Completion::Blocked(_) => {}
        }
    })
}

/// Code of the embedder as a task of its own, which runs even if the dispatcher refuses or drops it.
fn user_task(
    outstanding: Outstanding,
    label: &'static str,
    place: &'static str,
    code: impl FnOnce(&ExecutionSession) + Send + 'static,
) -> Task {
    told_task(label, outstanding, move |outstanding| run_embedders(outstanding, place, code))
}

/// The same, called with each of `pieces`: a call that panics takes no other with it.
pub(super) fn user_calls<T: Send + 'static>(
    outstanding: Outstanding,
    label: &'static str,
    place: &'static str,
    pieces: Vec<T>,
    call: impl FnMut(&ExecutionSession, T) + Send + 'static,
) -> Task {
    told_task(label, outstanding, move |outstanding| {
        let (mut pieces, mut call) = (pieces.into_iter(), Some(call));
        // One frame for all of them, and another for those behind a panic.
        run_embedders_until(outstanding, place, |session| {
            if let Some(call) = &mut call {
                pieces.by_ref().for_each(|piece| call(session, piece));
            }
            // It may be the last that keeps what it calls.
            drop(call.take());
        });
    })
}

fn told_task(
    label: &'static str,
    outstanding: Outstanding,
    run: impl FnOnce(Outstanding) + Send + 'static,
) -> Task {
    let mut told = ToldTask { label, run: Some((run, outstanding)) };
    Task::new(label, TaskPriority::Demanded, move || told.run()).run_when_refused()
}

/// A task of the embedder on its way to a worker.
struct CountedTask {
    label: TaskLabel,
    /// Taken when it runs. The count tells of the task until it has run, or is gone.
    task: Option<(Task, Outstanding)>,
}

impl Work for CountedTask {
    fn label(&self) -> &str {
        self.label.as_str()
    }

    fn keep_label(&self) -> TaskLabel {
        self.label.clone()
    }

    fn waits_for_turn(&self, waits: bool) {
        self.task.iter().for_each(|(_, outstanding)| outstanding.waits_for_turn(waits));
    }

    fn run(&mut self) {
        let Some((task, outstanding)) = self.task.take() else { return };
        run_embedders(outstanding, "a task", |_| task.run_in_strand());
    }
}

impl Drop for CountedTask {
    fn drop(&mut self) {
        let Some((task, outstanding)) = self.task.take() else { return };
        run_soon(task.keep_label(), move || run_embedders(outstanding, A_DROP, |_| drop(task)));
    }
}

/// Code of the embedder on its way to a worker. Dropped unrun, it runs on the thread that dropped it: a dispatcher
/// may drop any task, but the answer must arrive.
struct ToldTask<F: FnOnce(Outstanding) + Send + 'static> {
    label: &'static str,
    /// Taken when it runs. The count tells of the task until the code has run.
    run: Option<(F, Outstanding)>,
}

impl<F: FnOnce(Outstanding) + Send + 'static> ToldTask<F> {
    fn run(&mut self) {
        self.run.take().into_iter().for_each(|(run, outstanding)| run(outstanding));
    }
}

impl<F: FnOnce(Outstanding) + Send + 'static> Drop for ToldTask<F> {
    fn drop(&mut self) {
        let Some(run) = self.run.take() else { return };
        let mut told = Self { label: self.label, run: Some(run) };
        run_soon(self.label, move || told.run());
    }
}

/// Runs a task's code of the embedder, and then, when it is counted no more, what was left to this thread meanwhile.
fn run_embedders(outstanding: Outstanding, place: &'static str, code: impl FnOnce(&ExecutionSession)) {
    let mut code = Some(code);
    run_embedders_until(outstanding, place, |session| {
        if let Some(code) = code.take() {
            code(session);
        }
    });
}

/// The same with code that goes on where a panic has left it, until it ends without one. Each time in a frame of its own,
/// for a task has one frame at a time.
fn run_embedders_until(
    outstanding: Outstanding,
    place: &'static str,
    mut code: impl FnMut(&ExecutionSession),
) {
    let session = outstanding.session();
    while let Err(message) = frame::run(session, || code(session)) {
        session.report_from_task(SessionError::Panicked { place, message });
    }
    drop(outstanding);
    crate::task::in_place::run_ready();
}

/// A task that a dispatcher drops goes on from this thread's outermost loop: the call that dispatched it may not
/// have finished.
pub(super) fn run_soon(label: impl Into<TaskLabel>, run: impl FnOnce() + Send + 'static) {
    crate::task::in_place::defer(Task::new(label, TaskPriority::Demanded, run));
    crate::task::in_place::run_ready();
}
