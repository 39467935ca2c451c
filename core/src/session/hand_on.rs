//! Handing on effects: tasks first, then waiters, then code of the embedder.

use smallvec::SmallVec;

use crate::generator::{Asked, DetachedRequest};
use crate::platform::UnitNumber;
use crate::protocol::state::effects::{Completed, Effects, Generation, Leftover, MoreEffects};
use crate::protocol::state::lookups::query::Asker;
use crate::protocol::state::pending::ClaimedUnit;
use crate::query::{Completion, Outcome};
use crate::task::Work;
use crate::this_thread::Delivering;
use crate::{JitDylib, LookupError, LookupResult, SessionError, Task, TaskLabel, TaskPriority};

use super::answers::WaiterId;
use super::drain::{Coming, Outstanding};
use super::{ExecutionSession, Live, Unit, frame};
use crate::sync::Arc;

impl ExecutionSession {
    /// Hands on all that a transaction left to do.
    ///
    /// Nothing here runs code of the embedder: that is enqueued as tasks of its own, behind the units, and
    /// starts at the earliest in `run_ready`, when everything has been handed over.
    pub(super) fn hand_on(&self, effects: Handed<'_>) {
        match effects {
            // Nothing was enqueued.
            Handed::Answer(waiter, outcome) => self.0.answers.give(waiter, outcome),
            Handed::Unit(unit, mut coming) => self.start_unit(unit.into_task(coming.next())),
            Handed::All(..) => {
                self.pass_on(effects);
                self.run_ready();
            }
        }
    }

    /// Starts the only task that follows from a transaction, or enqueues it.
    fn start_unit(&self, task: Task) {
        let refused = match self.0.dispatcher.in_place() {
            Some(dispatcher) if task.serial_queue().is_none() => dispatcher.run_at_once(task),
            _ => Err(task),
        };
        if let Err(task) = refused {
            let held_back = crate::in_place::hold_back();
            self.enqueue(task);
            drop(held_back);
            self.run_ready();
        }
    }

    /// Counts the tasks that effects will be, and takes the effects. To be called under the lock: see [`Coming`].
    pub(super) fn counting(&self, effects: &mut Effects<Live>) -> Handed<'_> {
        // What a lookup that is made and waited for in place leaves, twice. Without this `lookup_contended` takes a quarter more, and
        // 1,200 of 5,200 instructions a lookup more.
        if effects.names_released == 0 && effects.look_at_more().is_none() {
            match (&mut effects.claimed, &mut effects.completed) {
                (claimed, completed) if claimed.len() == 1 && completed.is_empty() => {
                    if let Some(unit) = claimed.pop() {
                        return Handed::Unit(unit, self.coming(1));
                    }
                }
                (claimed, completed) if claimed.is_empty() && completed.len() == 1 => {
                    if let Completion::Blocked(waiter) = completed[0].handler
                        && let Some(completed) = completed.pop()
                    {
                        return Handed::Answer(waiter, completed.outcome);
                    }
                }
                _ => {}
            }
        }
        let blocked = effects.completed.iter().filter(|completed| is_blocked(completed)).count();
        let more = effects.look_at_more().map_or(0, |more| {
            let seen = self.0.observer.is_some() && !more.events.is_empty();
            let told = self.0.platform.is_some() && !more.initializers_gone.is_empty();
            let single = usize::from(seen) + usize::from(told) + usize::from(!more.leftovers.is_empty());
            single + more.tasks.len() + more.generations.len()
        });
        let coming = self.coming(effects.claimed.len() + effects.completed.len() - blocked + more);
        Handed::All(std::mem::take(effects), coming)
    }

    /// Lets this thread run what it was left with, if nothing of ours is beneath.
    pub(super) fn run_ready(&self) {
        if crate::in_place::owes(&self.0.dispatcher) {
            return;
        }
        self.0.dispatcher.run_ready();
        crate::in_place::run_ready();
    }

    /// Enqueues tasks and wakes waiters; what falls to this thread waits for [`Self::run_ready`].
    ///
    /// Whatever the dispatcher does: if it panics over a task, the rest is enqueued all the same; and what it drops runs no
    /// code of the embedder before the caller has finished.
    pub(super) fn pass_on(&self, handed: Handed<'_>) {
        let (_held_back, _delivering) = (crate::in_place::hold_back(), Delivering::begin());
        let (mut effects, mut coming) = match handed {
            Handed::Answer(waiter, outcome) => return self.0.answers.give(waiter, outcome),
            Handed::Unit(unit, mut coming) => return self.enqueue(unit.into_task(coming.next())),
            Handed::All(effects, coming) => (effects, coming),
        };
        let mut more = effects.take_more();
        let Effects { claimed, completed, names_released, .. } = effects;
        if !claimed.is_empty() {
            self.enqueue_units(claimed, &mut coming);
        }
        if let Some(more) = &mut more {
            for ticket in more.raised.drain(..).filter_map(|raised| raised.ticket()) {
                self.enqueue(ticket);
            }
            for task in more.tasks.drain(..) {
                self.enqueue(counted(task, coming.next()));
            }
        }
        if !completed.is_empty() {
            self.tell(completed, &mut coming);
        }
        if let Some(more) = more {
            self.pass_on_more(*more, &mut coming);
        }
        if names_released > 0 {
            self.0.pool.released(names_released);
        }
    }

    /// What comes behind the waiters.
    #[inline(never)]
    fn pass_on_more(&self, more: MoreEffects<Live>, coming: &mut Coming<'_>) {
        let MoreEffects { generations, events, leftovers, initializers_gone, memory, records, .. } = more;
        for generation in generations {
            self.enqueue(self.generation_task(generation, coming.next()));
        }
        if !events.is_empty()
            && let Some(observer) = self.0.observer.clone()
        {
            let tell = move |_: &ExecutionSession, event| observer(&event);
            let (label, place) = ("session.observe", "the session's observer");
            self.enqueue(user_calls(coming.next(), label, place, events, tell).delivering_events());
        }
        if !leftovers.is_empty() {
            self.enqueue(user_calls(coming.next(), "session.release", A_DROP, leftovers, Self::let_go));
        }
        if !initializers_gone.is_empty()
            && let Some(platform) = self.0.platform.clone()
        {
            let (label, place) = ("platform.unit_removed", "the session's platform");
            let tell = move |_: &ExecutionSession, unit| platform.unit_removed(UnitNumber(unit));
            self.enqueue(user_calls(coming.next(), label, place, initializers_gone, tell));
        }
        // Last: nobody waits for it.
        drop((memory, records));
    }

    /// Wakes threads that wait in lookups, then enqueues handlers.
    fn tell(&self, completed: SmallVec<[Completed<Completion>; 1]>, coming: &mut Coming<'_>) {
        let mut told = Vec::new();
        for completed in completed {
            match completed.handler {
                Completion::Blocked(waiter) => self.0.answers.give(waiter, completed.outcome),
                _ => told.push(completed),
            }
        }
        for Completed { handler, outcome, asker } in told {
            let tag = self.tag();
            let outcome = move || outcome.map(|answer| LookupResult::new(answer, tag));
            self.enqueue(answer_task(coming.next(), asker, handler, outcome));
        }
    }

    /// Gives a handler the answer of a lookup that no transaction had to see, as if one had.
    pub(super) fn answer(&self, handler: Completion, ready: LookupResult) {
        let held_back = crate::in_place::hold_back();
        let asker = frame::asks(self.tag());
        self.enqueue(answer_task(self.outstanding(), asker, handler, || Ok(ready)));
        drop(held_back);
        self.run_ready();
    }

    /// Tells the error reporter in a task of its own: from a thread that is counted as a task and in no frame.
    #[cold]
    pub(super) fn report_later(&self, error: SessionError) {
        let held_back = crate::in_place::hold_back_all();
        let tell = move |session: &ExecutionSession| session.report(error);
        self.enqueue(user_task(self.outstanding(), "session.report", "the session's error reporter", tell));
        drop(held_back);
    }

    /// Drops a value of the embedder; a unit hears first what has become of its symbols. A panic of the drop is the caller's.
    fn let_go(&self, leftover: Leftover<Live>) {
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

    fn generation_task(
        &self,
        generation: Generation<Arc<dyn crate::DefinitionGenerator>>,
        outstanding: Outstanding,
    ) -> Task {
        let Generation { generator, id, query, dylib, dylib_name, kind, lookup_flags, symbols } = generation;
        let dylib = JitDylib::new(self.clone(), dylib, dylib_name);
        let request = DetachedRequest::new(Asked {
            dylib,
            query,
            generator: id,
            kind,
            lookup_flags,
            symbols,
            finished: false,
        });
        user_task(outstanding, "generator.generate", "a definition generator", move |_| {
            generator.generate(request.attach());
        })
    }
}

/// Whose code runs when a value of the embedder goes.
const A_DROP: &str = "a drop of the embedder's value";

/// Whose code runs when a unit is told what it has lost.
pub(super) const A_DISCARD: &str = "a unit's `discard`";

/// Effects on their way, with the count of the tasks that they will be.
pub(super) enum Handed<'a> {
    /// No more than the answer of a blocked lookup.
    Answer(WaiterId, Outcome),
    /// No more than a unit.
    Unit(ClaimedUnit<Unit>, Coming<'a>),
    All(Effects<Live>, Coming<'a>),
}

fn is_blocked(completed: &Completed<Completion>) -> bool {
    matches!(completed.handler, Completion::Blocked(_))
}

/// A task of the embedder.
fn counted(task: Task, outstanding: Outstanding) -> Task {
    // The task inside says itself whether it is a leaf; what runs after it, outside of it, is none.
    let (label, priority, hints) = (task.keep_label(), task.priority(), task.hints().leaf(false));
    let queue = task.serial_queue().cloned();
    let counted = Task::of(priority, Box::new(CountedTask { label, task: Some((task, outstanding)) }));
    queue.iter().fold(counted, Task::in_queue).with_hints(hints)
}

fn answer_task(
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
fn user_calls<T: Send + 'static>(
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
/// may let go of any task, but whoever waits to be told must be.
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
    crate::in_place::run_ready();
}

/// What a dispatcher drops goes on from this thread's outermost loop: whoever gave it to the dispatcher may not have
/// finished.
pub(super) fn run_soon(label: impl Into<TaskLabel>, run: impl FnOnce() + Send + 'static) {
    crate::in_place::defer(Task::new(label, TaskPriority::Demanded, run));
    crate::in_place::run_ready();
}
