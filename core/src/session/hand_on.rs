//! Handing on effects: tasks first, then waiters, then code of the embedder.

use crate::generator::{Asked, DetachedRequest};
use crate::platform::UnitNumber;
use crate::protocol::effects::{ClaimedUnit, Completed, Effects, Generation, Leftover};
use crate::query::Completion;
use crate::responsibility::Duty;
use crate::task::Work;
use crate::{
    FailureCause, JitDylib, LookupError, LookupResult, MaterializationUnit, SessionError, SymbolName, Task,
    TaskLabel, TaskPriority,
};

use super::drain::Outstanding;
use super::{ExecutionSession, Live, frame, holding};
use crate::sync::{Arc, weakened};

impl ExecutionSession {
    /// Hands on all that a transaction left to do.
    ///
    /// Nothing here runs code of the embedder: that is enqueued as tasks of its own, behind the units, and
    /// starts at the earliest in `run_ready`, when everything has been handed over.
    pub(super) fn hand_on(&self, effects: Effects<Live>) {
        if !effects.is_empty() {
            self.pass_on(effects);
            self.run_ready();
        }
    }

    /// Lets this thread run what it was left with, if nothing of ours is beneath.
    pub(super) fn run_ready(&self) {
        self.0.dispatcher.run_ready();
        crate::in_place::run_ready();
    }

    /// Enqueues tasks and wakes waiters; what falls to this thread waits for [`Self::run_ready`].
    pub(super) fn pass_on(&self, effects: Effects<Live>) {
        let Effects {
            claimed,
            tasks,
            completed,
            generations,
            leftovers,
            events,
            initializers_gone,
            memory,
            names_released,
        } = effects;
        for claimed in claimed {
            self.enqueue(self.unit_task(claimed));
        }
        for task in tasks {
            self.enqueue(self.counted(task));
        }
        let mut told = Vec::new();
        for Completed { handler, outcome } in completed {
            let outcome = outcome.map(|answer| answer.into_found().collect());
            match handler {
                Completion::Blocked(blocked) => blocked.finish(outcome),
                handler => told.push((handler, outcome)),
            }
        }
        for (handler, outcome) in told {
            let tag = self.tag();
            let outcome = move || outcome.map(|found| LookupResult::new(found, tag));
            self.enqueue(self.answer_task(handler, outcome));
        }
        for generation in generations {
            self.enqueue(self.generation_task(generation));
        }
        if !events.is_empty()
            && let Some(observer) = self.0.observer.clone()
        {
            self.enqueue(self.user_task("session.observe", "the session's observer", move |_| {
                events.iter().for_each(|event| observer(event));
            }));
        }
        if !leftovers.is_empty() {
            self.enqueue(self.user_task(
                "session.release",
                "a drop of the embedder's value",
                move |session| {
                    leftovers.into_iter().for_each(|leftover| session.let_go(leftover));
                },
            ));
        }
        if !initializers_gone.is_empty()
            && let Some(platform) = self.0.platform.clone()
        {
            self.enqueue(self.user_task("platform.unit_removed", "the session's platform", move |_| {
                initializers_gone.into_iter().for_each(|unit| platform.unit_removed(UnitNumber(unit)));
            }));
        }
        // Last: nobody waits for it.
        drop(memory);
        if names_released > 0 {
            self.0.pool.released(names_released);
        }
    }

    /// Gives a handler the answer of a lookup that no transaction had to see, as if one had.
    pub(super) fn answer(&self, handler: Completion, ready: LookupResult) {
        self.enqueue(self.answer_task(handler, || Ok(ready)));
        self.run_ready();
    }

    fn answer_task(
        &self,
        handler: Completion,
        outcome: impl FnOnce() -> Result<LookupResult, LookupError> + Send + 'static,
    ) -> Task {
        self.user_task("query.complete", "a lookup's handler", move |_| match handler {
            Completion::Handler(handler) => handler(outcome()),
            Completion::Future(slot) => slot.finish(outcome()),
            Completion::Blocked(_) => {}
        })
    }

    /// Gives a task to the dispatcher. If it is refused, the thread's own loop drops it, which fails
    /// what it owns, or runs it if it only tells somebody something.
    fn enqueue(&self, task: Task) {
        if let Err(refused) = self.0.dispatcher.dispatch(task) {
            let (label, priority) = (refused.keep_label(), refused.priority());
            let last = match refused.runs_when_refused() {
                true => refused,
                false => Task::new(label, priority, move || drop(refused)),
            };
            crate::in_place::defer(last);
        }
    }

    fn unit_task(&self, claimed: ClaimedUnit<Box<dyn MaterializationUnit>>) -> Task {
        let priority = claimed.priority;
        Task::of(priority, Box::new(QueuedUnit { claimed: Some(claimed), outstanding: self.outstanding() }))
    }

    fn counted(&self, task: Task) -> Task {
        let guard = self.outstanding();
        Task::new(task.keep_label(), task.priority(), move || {
            if let Err(message) = frame::run(guard.session(), move || task.run()) {
                guard.session().report_from_task(SessionError::Panicked { place: "a task", message });
            }
        })
    }

    /// Code of the embedder as a task of its own, which runs even if the dispatcher refuses or drops it.
    fn user_task(
        &self,
        label: &'static str,
        place: &'static str,
        code: impl FnOnce(&ExecutionSession) + Send + 'static,
    ) -> Task {
        let mut told = Told { label, place, code: Some(code), outstanding: self.outstanding() };
        Task::new(label, TaskPriority::Demanded, move || told.run()).run_when_refused()
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
            self.report(SessionError::Panicked { place: "a drop of the embedder's value", message });
        }
    }

    fn generation_task(&self, generation: Generation<Arc<dyn crate::DefinitionGenerator>>) -> Task {
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
        self.user_task("generator.generate", "a definition generator", move |_| {
            generator.generate(request.attach());
        })
    }
}

/// Code of the embedder on its way to a worker. Dropped unrun, it runs on the thread that dropped it: a dispatcher
/// may let go of any task, but whoever waits to be told must be.
struct Told<F: FnOnce(&ExecutionSession) + Send + 'static> {
    label: &'static str,
    place: &'static str,
    /// Taken when it runs.
    code: Option<F>,
    /// Counts the task in until the code has run.
    outstanding: Outstanding,
}

impl<F: FnOnce(&ExecutionSession) + Send + 'static> Told<F> {
    fn run(&mut self) {
        let Some(code) = self.code.take() else { return };
        let (session, place) = (self.outstanding.session(), self.place);
        if let Err(message) = frame::run(session, move || code(session)) {
            session.report_from_task(SessionError::Panicked { place, message });
        }
    }
}

impl<F: FnOnce(&ExecutionSession) + Send + 'static> Drop for Told<F> {
    fn drop(&mut self) {
        let Some(code) = self.code.take() else { return };
        let (label, place, outstanding) = (self.label, self.place, self.outstanding.session().outstanding());
        let mut told = Self { label, place, code: Some(code), outstanding };
        crate::in_place::defer(Task::new(label, TaskPriority::Demanded, move || told.run()));
        crate::in_place::run_ready();
    }
}

/// A claimed unit on its way to a worker. Dropping it unrun fails its symbols.
struct QueuedUnit {
    /// Taken when it runs.
    claimed: Option<ClaimedUnit<Box<dyn MaterializationUnit>>>,
    /// Counts the task in until the unit has run, or its symbols have failed.
    outstanding: Outstanding,
}

impl Work for QueuedUnit {
    fn label(&self) -> &str {
        self.claimed.as_ref().map_or("", |claimed| claimed.unit_name.as_str())
    }

    fn keep_label(&self) -> TaskLabel {
        "unit.materialize".into()
    }

    /// Runs the unit, unless nobody wants it any more: then it goes back to its rows.
    fn run(mut self: Box<Self>) {
        let session = self.outstanding.session();
        let Some(claimed) = self.claimed.take() else { return };
        if weakened("withdraw::decides_before_it_gives_back")
            && !session.transact(|state, _| state.is_wanted(&claimed))
        {
            return session.transact(|state, effects| state.put_back(claimed, effects));
        }
        let here = session.begun_here();
        // Without a loss of demand since it was claimed it is wanted, and the state need not be asked.
        let begun = match here.is_none() && session.0.losses.count() == claimed.losses {
            true => Some(claimed),
            false => session.transact(|state, effects| state.begin(claimed, here, effects)),
        };
        let Some(begun) = begun else { return };
        let (mut unit, discarded, duty) = session.duty_of(begun);
        let span =
            tracing::debug_span!("unit.materialize", unit = %duty.unit_name, dylib = duty.dylib.name());
        // A panic, in `discard` too, drops the duty inside the frame, which fails it with the message.
        let (ended, failed) = frame::run_counting(session, move || {
            holding::materializes(&duty);
            let responsibility = frame::attach(duty);
            let _entered = span.entered();
            discarded.iter().for_each(|symbol| unit.discard(responsibility.dylib(), symbol));
            unit.materialize(responsibility);
        });
        // One that had finished or parked its responsibility has no symbol left to fail.
        if let (Err(message), 0) = (ended, failed) {
            session.report_from_task(SessionError::Panicked { place: "a unit", message });
        }
    }
}

impl Drop for QueuedUnit {
    fn drop(&mut self) {
        let Some(claimed) = self.claimed.take() else { return };
        let session = self.outstanding.session();
        let (unit, _, mut duty) = session.duty_of(claimed);
        duty.fail(FailureCause::NotDispatched);
        if let Err(message) = frame::run(session, move || drop(unit)) {
            let place = "the drop of a unit";
            session.report_from_task(SessionError::Panicked { place, message });
        }
    }
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
