//! Handing on effects: tasks first, then waiters, then code of the embedder.

use crate::generator::{Asked, DetachedRequest};
use crate::platform::UnitNumber;
use crate::protocol::effects::{ClaimedUnit, Completed, Effects, Generation, Leftover};
use crate::query::Completion;
use crate::responsibility::Duty;
use crate::task::Work;
use crate::{
    FailureCause, JitDylib, LookupError, LookupResult, MaterializationUnit, SessionError, SymbolName, Task,
    TaskLabel, TaskPriority, leaf,
};

use super::drain::{Coming, Outstanding};
use super::{ExecutionSession, Live, frame, holding};
use crate::sync::{Arc, weakened};

impl ExecutionSession {
    /// Hands on all that a transaction left to do.
    ///
    /// Nothing here runs code of the embedder: that is enqueued as tasks of its own, behind the units, and
    /// starts at the earliest in `run_ready`, when everything has been handed over.
    pub(super) fn hand_on(&self, effects: Handed<'_>) {
        self.pass_on(effects);
        self.run_ready();
    }

    /// Counts the tasks that effects will be. To be called under the lock: see [`Coming`].
    pub(super) fn counting(&self, effects: Effects<Live>) -> Handed<'_> {
        let is_blocked =
            |completed: &&Completed<Completion>| matches!(completed.handler, Completion::Blocked(_));
        let blocked = effects.completed.iter().filter(is_blocked).count();
        let seen = self.0.observer.is_some() && !effects.events.is_empty();
        let told = self.0.platform.is_some() && !effects.initializers_gone.is_empty();
        let single = usize::from(seen) + usize::from(told) + usize::from(!effects.leftovers.is_empty());
        let many = effects.claimed.len() + effects.tasks.len() + effects.generations.len();
        let coming = self.coming(many + single + effects.completed.len() - blocked);
        Handed { effects, coming }
    }

    /// Lets this thread run what it was left with, if nothing of ours is beneath.
    pub(super) fn run_ready(&self) {
        self.0.dispatcher.run_ready();
        crate::in_place::run_ready();
    }

    /// Enqueues tasks and wakes waiters; what falls to this thread waits for [`Self::run_ready`].
    ///
    /// Whatever the dispatcher does: if it panics over a task, the rest is enqueued all the same; and what it drops runs no
    /// code of the embedder before the caller has finished.
    pub(super) fn pass_on(&self, Handed { effects, mut coming }: Handed<'_>) {
        let _held_back = crate::in_place::hold_back();
        let Effects {
            claimed,
            tasks,
            completed,
            generations,
            leftovers,
            events,
            initializers_gone,
            memory,
            records,
            names_released,
        } = effects;
        if !claimed.is_empty() {
            self.enqueue_units(claimed, &mut coming);
        }
        for task in tasks {
            self.enqueue(counted(task, coming.next()));
        }
        if !completed.is_empty() {
            self.tell(completed, &mut coming);
        }
        for generation in generations {
            self.enqueue(self.generation_task(generation, coming.next()));
        }
        if !events.is_empty()
            && let Some(observer) = self.0.observer.clone()
        {
            let tell = move |_: &ExecutionSession| events.iter().for_each(|event| observer(event));
            self.enqueue(user_task(coming.next(), "session.observe", "the session's observer", tell));
        }
        if !leftovers.is_empty() {
            let release = move |session: &ExecutionSession| {
                leftovers.into_iter().for_each(|leftover| session.let_go(leftover));
            };
            self.enqueue(user_task(coming.next(), "session.release", A_DROP, release));
        }
        if !initializers_gone.is_empty()
            && let Some(platform) = self.0.platform.clone()
        {
            let tell = move |_: &ExecutionSession| {
                initializers_gone.into_iter().for_each(|unit| platform.unit_removed(UnitNumber(unit)));
            };
            self.enqueue(user_task(coming.next(), "platform.unit_removed", "the session's platform", tell));
        }
        // Last: nobody waits for it.
        drop((memory, records));
        if names_released > 0 {
            self.0.pool.released(names_released);
        }
    }

    /// Wakes threads that wait in lookups, then enqueues handlers.
    fn tell(&self, completed: Vec<Completed<Completion>>, coming: &mut Coming<'_>) {
        let mut told = Vec::new();
        for Completed { handler, outcome } in completed {
            match handler {
                Completion::Blocked(blocked) => blocked.finish(outcome),
                handler => told.push((handler, outcome)),
            }
        }
        for (handler, outcome) in told {
            let tag = self.tag();
            let outcome = move || outcome.map(|answer| LookupResult::new(answer, tag));
            self.enqueue(answer_task(coming.next(), handler, outcome));
        }
    }

    /// Gives a handler the answer of a lookup that no transaction had to see, as if one had.
    pub(super) fn answer(&self, handler: Completion, ready: LookupResult) {
        let held_back = crate::in_place::hold_back();
        self.enqueue(answer_task(self.outstanding(), handler, || Ok(ready)));
        drop(held_back);
        self.run_ready();
    }

    /// Gives a task to the dispatcher. If it is refused, the thread's own loop drops it, which fails
    /// what it owns, or runs it if it only tells somebody something.
    fn enqueue(&self, task: Task) {
        match crate::panics::guard(|| self.0.dispatcher.dispatch(task)) {
            Ok(Ok(())) => {}
            Ok(Err(refused)) => defer_refused(refused),
            Err(message) => self.defer_report(message),
        }
    }

    /// The same for claimed units, a batch at a time.
    fn enqueue_units(
        &self,
        claimed: Vec<ClaimedUnit<Box<dyn MaterializationUnit>>>,
        coming: &mut Coming<'_>,
    ) {
        if let [_] = claimed[..] {
            return claimed.into_iter().for_each(|claimed| self.enqueue(unit_task(claimed, coming.next())));
        }
        let mut left = claimed.len();
        let mut tasks = Vec::with_capacity(left.min(BATCH_MAX));
        for claimed in claimed {
            tasks.push(unit_task(claimed, coming.next()));
            left -= 1;
            if left == 0 || tasks.len() == BATCH_MAX {
                match crate::panics::guard(|| self.0.dispatcher.dispatch_all(&mut tasks)) {
                    Ok(()) => tasks.drain(..).for_each(defer_refused),
                    Err(message) => {
                        self.defer_report(message);
                        tasks.drain(..).for_each(|task| self.enqueue(task));
                    }
                }
            }
        }
    }

    /// Reports a panic of the dispatcher once nothing of ours is beneath.
    fn defer_report(&self, message: Arc<str>) {
        let session = self.clone();
        crate::in_place::defer(Task::new("session.report", TaskPriority::Demanded, move || {
            session.report(SessionError::Panicked { place: "the dispatcher", message });
        }));
    }

    /// Drops a value of the embedder; a unit hears first what has become of its symbols.
    fn let_go(&self, leftover: Leftover<Live>) {
        let released = match leftover {
            Leftover::Unit { mut unit, dylib, dylib_name, discarded } => {
                let dylib = JitDylib::new(self.clone(), dylib, dylib_name);
                crate::panics::guard(move || {
                    discarded.iter().for_each(|symbol| unit.discard(&dylib, symbol));
                    drop(unit);
                })
            }
            Leftover::Unheard(failure) => {
                self.report(SessionError::Failed(failure));
                Ok(())
            }
            other => crate::panics::guard(move || drop(other)),
        };
        if let Err(message) = released {
            self.report(SessionError::Panicked { place: A_DROP, message });
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

/// How many units are handed over at once. Enough that what a batch costs is nothing beside its units, and so few that
/// workers start on the first of ten thousand long before the last is wrapped.
const BATCH_MAX: usize = 64;

/// Whose code runs when a value of the embedder goes.
const A_DROP: &str = "a drop of the embedder's value";

/// Effects on their way, with the count of the tasks that they will be.
pub(super) struct Handed<'a> {
    effects: Effects<Live>,
    coming: Coming<'a>,
}

fn defer_refused(refused: Task) {
    let (label, priority) = (refused.keep_label(), refused.priority());
    crate::in_place::defer(match refused.runs_when_refused() {
        true => refused,
        false => Task::new(label, priority, move || drop(refused)),
    });
}

fn unit_task(claimed: ClaimedUnit<Box<dyn MaterializationUnit>>, outstanding: Outstanding) -> Task {
    let hints = claimed.hints;
    Task::of(claimed.priority, Box::new(QueuedUnit(Some((claimed, outstanding))))).with_hints(hints)
}

/// A task of the embedder.
fn counted(task: Task, outstanding: Outstanding) -> Task {
    // The task inside says itself whether it is a leaf; what runs after it, outside of it, is none.
    let (label, priority, hints) = (task.keep_label(), task.priority(), task.hints().leaf(false));
    let mut counted = CountedTask(Some((task, outstanding)));
    Task::new(label, priority, move || counted.run()).with_hints(hints)
}

fn answer_task(
    outstanding: Outstanding,
    handler: Completion,
    outcome: impl FnOnce() -> Result<LookupResult, LookupError> + Send + 'static,
) -> Task {
    user_task(outstanding, "query.complete", "a lookup's handler", move |_| match handler {
        Completion::Handler(handler) => handler(outcome()),
        Completion::Future(slot) => slot.finish(outcome()),
        Completion::Blocked(_) => {}
    })
}

/// Code of the embedder as a task of its own, which runs even if the dispatcher refuses or drops it.
fn user_task(
    outstanding: Outstanding,
    label: &'static str,
    place: &'static str,
    code: impl FnOnce(&ExecutionSession) + Send + 'static,
) -> Task {
    let mut told = Told { label, place, code: Some((code, outstanding)) };
    Task::new(label, TaskPriority::Demanded, move || told.run()).run_when_refused()
}

/// A task of the embedder on its way to a worker.
struct CountedTask(
    /// Taken when it runs. The count tells of the task until it has run, or is gone.
    Option<(Task, Outstanding)>,
);

impl CountedTask {
    fn run(&mut self) {
        let Some((task, outstanding)) = self.0.take() else { return };
        run_embedders(outstanding, "a task", |_| task.run());
    }
}

impl Drop for CountedTask {
    fn drop(&mut self) {
        let Some((task, outstanding)) = self.0.take() else { return };
        run_soon(task.keep_label(), move || run_embedders(outstanding, A_DROP, |_| drop(task)));
    }
}

/// Code of the embedder on its way to a worker. Dropped unrun, it runs on the thread that dropped it: a dispatcher
/// may let go of any task, but whoever waits to be told must be.
struct Told<F: FnOnce(&ExecutionSession) + Send + 'static> {
    label: &'static str,
    place: &'static str,
    /// Taken when it runs. The count tells of the task until the code has run.
    code: Option<(F, Outstanding)>,
}

impl<F: FnOnce(&ExecutionSession) + Send + 'static> Told<F> {
    fn run(&mut self) {
        let Some((code, outstanding)) = self.code.take() else { return };
        run_embedders(outstanding, self.place, code);
    }
}

impl<F: FnOnce(&ExecutionSession) + Send + 'static> Drop for Told<F> {
    fn drop(&mut self) {
        let Some(code) = self.code.take() else { return };
        let mut told = Self { label: self.label, place: self.place, code: Some(code) };
        run_soon(self.label, move || told.run());
    }
}

/// Runs a task's code of the embedder, and then, when it is counted no more, what was left to this thread meanwhile.
fn run_embedders(outstanding: Outstanding, place: &'static str, code: impl FnOnce(&ExecutionSession)) {
    let session = outstanding.session();
    if let Err(message) = frame::run(session, || code(session)) {
        session.report_from_task(SessionError::Panicked { place, message });
    }
    drop(outstanding);
    crate::in_place::run_ready();
}

/// A claimed unit on its way to a worker. Dropping it unrun fails its symbols.
struct QueuedUnit(
    /// Taken when it runs. The count tells of the task until the unit has run, or its symbols have failed.
    Option<(ClaimedUnit<Box<dyn MaterializationUnit>>, Outstanding)>,
);

impl Work for QueuedUnit {
    fn label(&self) -> &str {
        self.0.as_ref().map_or("", |(claimed, _)| claimed.unit_name.as_str())
    }

    fn keep_label(&self) -> TaskLabel {
        "unit.materialize".into()
    }

    fn marks_leaf(&self) -> bool {
        true
    }

    /// Runs the unit, and then, when it is counted no more, what was left to this thread meanwhile.
    fn run(mut self: Box<Self>) {
        let Some((claimed, outstanding)) = self.0.take() else { return };
        materialize(claimed, outstanding);
        crate::in_place::run_ready();
    }
}

impl Drop for QueuedUnit {
    fn drop(&mut self) {
        let Some((claimed, outstanding)) = self.0.take() else { return };
        run_soon(self.keep_label(), move || {
            let session = outstanding.session();
            let (unit, _, mut duty) = session.duty_of(claimed);
            duty.fail(FailureCause::NotDispatched);
            if let Err(message) = frame::run(session, move || drop(unit)) {
                let place = "the drop of a unit";
                session.report_from_task(SessionError::Panicked { place, message });
            }
        });
    }
}

/// Runs a unit, unless nobody wants it any more: then it goes back to its rows.
fn materialize(claimed: ClaimedUnit<Box<dyn MaterializationUnit>>, outstanding: Outstanding) {
    let session = outstanding.session();
    if weakened("withdraw::decides_before_it_gives_back")
        && !session.transact(|state, _| state.is_wanted(&claimed))
    {
        return session.transact(|state, effects| state.put_back(claimed, effects));
    }
    let here = session.begun_here();
    // Without a loss of demand since it was claimed it is wanted, and the state need not be asked.
    let begun = match here.is_none() && session.0.losses.count() == claimed.losses {
        true => Some(claimed),
        false => {
            // The task is counted, and in no frame yet.
            let _held_back = crate::in_place::hold_back();
            session.transact(|state, effects| state.begin(claimed, here, effects))
        }
    };
    let Some(begun) = begun else { return };
    let leaf = begun.hints.is_leaf().then(|| begun.unit_name.clone().into());
    let (mut unit, discarded, duty) = session.duty_of(begun);
    let span = tracing::debug_span!("unit.materialize", unit = %duty.unit_name, dylib = duty.dylib.name());
    // A panic, in `discard` too, drops the duty inside the frame, which fails it with the message.
    let run = move || {
        holding::materializes(&duty);
        let responsibility = frame::attach(duty);
        let _entered = span.entered();
        discarded.iter().for_each(|symbol| unit.discard(responsibility.dylib(), symbol));
        unit.materialize(responsibility);
    };
    let (ended, failed, outstanding) = frame::run_task(outstanding, || leaf::run_if(leaf, run));
    // One that had finished or parked its responsibility has no symbol left to fail.
    if let (Err(message), 0, Some(outstanding)) = (ended, failed, outstanding) {
        let error = SessionError::Panicked { place: "a unit", message };
        outstanding.session().report_from_task(error);
    }
}

/// What a dispatcher drops goes on from this thread's outermost loop: whoever gave it to the dispatcher may not have
/// finished.
fn run_soon(label: impl Into<TaskLabel>, run: impl FnOnce() + Send + 'static) {
    crate::in_place::defer(Task::new(label, TaskPriority::Demanded, run));
    crate::in_place::run_ready();
}

impl ExecutionSession {
    /// Takes a claimed unit apart: the unit, what it is to `discard`, and the duty for its symbols.
    fn duty_of(
        &self,
        claimed: ClaimedUnit<Box<dyn MaterializationUnit>>,
    ) -> (Box<dyn MaterializationUnit>, Vec<SymbolName>, Duty) {
        let ClaimedUnit {
            unit, discarded, claim, dylib, dylib_name, unit_name, symbols, initializer, ..
        } = claimed;
        let dylib = JitDylib::new(self.clone(), dylib, dylib_name);
        (unit, discarded, Duty { dylib, claim, unit_name, symbols, initializer, settled: false, hold: None })
    }
}
