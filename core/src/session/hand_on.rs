//! Handing on effects: tasks first, then waiters, then code of the embedder.

use crate::protocol::effects::{ClaimedUnit, Completed, Effects, Generation, Leftover};
use crate::query::Completion;
use crate::responsibility::Duty;
use crate::sync::Arc;
use crate::{
    FailureCause, GenerateRequest, JitDylib, LookupResult, MaterializationUnit, SessionError, SymbolName,
    Task, TaskPriority,
};

use super::{ExecutionSession, Live, frame};

impl ExecutionSession {
    /// Hands on all that a transaction left to do.
    ///
    /// Nothing here runs code of the embedder: that is enqueued as tasks of its own, behind the units, and
    /// starts at the earliest in `run_ready`, when everything has been handed over.
    pub(super) fn hand_on(&self, effects: Effects<Live>) {
        if effects.is_empty() {
            return;
        }
        let Effects { claimed, tasks, completed, generations, leftovers, events } = effects;
        for claimed in claimed {
            self.enqueue(self.unit_task(claimed));
        }
        for task in tasks {
            self.enqueue(self.counted(task));
        }
        let mut told = Vec::new();
        for Completed { handler, outcome } in completed {
            match handler {
                Completion::Blocked(blocked) => blocked.finish(outcome),
                handler => told.push((handler, outcome)),
            }
        }
        for (handler, outcome) in told {
            self.enqueue(self.user_task("query.complete", "a lookup's handler", move |session| {
                let outcome = outcome.map(|found| LookupResult::new(found, session.tag()));
                match handler {
                    Completion::Handler(handler) => handler(outcome),
                    Completion::Future(slot) => slot.finish(outcome),
                    Completion::Blocked(_) => {}
                }
            }));
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
        self.0.dispatcher.run_ready();
        crate::in_place::run_ready();
    }

    /// Gives a task to the dispatcher. If it is refused, the thread's own loop drops it, which fails
    /// what it owns, or runs it if it only tells somebody something.
    fn enqueue(&self, task: Task) {
        if let Err(refused) = self.0.dispatcher.dispatch(task) {
            let (label, priority) = (refused.label().clone(), refused.priority());
            let last = match refused.runs_when_refused() {
                true => refused,
                false => Task::new(label, priority, move || drop(refused)),
            };
            crate::in_place::defer(last);
        }
    }

    fn unit_task(&self, claimed: ClaimedUnit<Box<dyn MaterializationUnit>>) -> Task {
        let (label, priority): (Arc<str>, _) = (claimed.unit_name.as_str().into(), claimed.priority);
        let guard = self.outstanding();
        let mut queued = QueuedUnit::new(self, claimed);
        Task::new(label, priority, move || {
            let _guard = guard;
            queued.materialize();
        })
    }

    fn counted(&self, task: Task) -> Task {
        let guard = self.outstanding();
        Task::new(task.label().clone(), task.priority(), move || {
            if let Err(message) = frame::run(guard.session(), move || task.run()) {
                guard.session().report(SessionError::Panicked { place: "a task", message });
            }
        })
    }

    /// Code of the embedder as a task of its own, which runs even if the dispatcher refuses it.
    fn user_task(
        &self,
        label: &'static str,
        place: &'static str,
        code: impl FnOnce(&ExecutionSession) + Send + 'static,
    ) -> Task {
        let guard = self.outstanding();
        Task::new(label, TaskPriority::Demanded, move || {
            let session = guard.session();
            if let Err(message) = frame::run(session, move || code(session)) {
                session.report(SessionError::Panicked { place, message });
            }
        })
        .run_when_refused()
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
            other => crate::panics::guard(move || drop(other)),
        };
        if let Err(message) = released {
            self.report(SessionError::Panicked { place: "a drop of the embedder's value", message });
        }
    }

    fn generation_task(&self, generation: Generation<Arc<dyn crate::DefinitionGenerator>>) -> Task {
        let Generation { generator, id, query, dylib, dylib_name, kind, lookup_flags, symbols } = generation;
        let dylib = JitDylib::new(self.clone(), dylib, dylib_name);
        let request =
            GenerateRequest { dylib, query, generator: id, kind, lookup_flags, symbols, finished: false };
        self.user_task("generator.generate", "a definition generator", move |_| generator.generate(request))
    }
}

/// A claimed unit on its way to a worker. Dropping it unrun fails its symbols.
struct QueuedUnit {
    /// Taken when it runs.
    unit: Option<Box<dyn MaterializationUnit>>,
    discarded: Vec<SymbolName>,
    duty: Duty,
    priority: TaskPriority,
}

impl QueuedUnit {
    fn new(session: &ExecutionSession, claimed: ClaimedUnit<Box<dyn MaterializationUnit>>) -> Self {
        let ClaimedUnit {
            unit,
            discarded,
            claim,
            dylib,
            dylib_name,
            unit_name,
            symbols,
            initializer,
            priority,
        } = claimed;
        let dylib = JitDylib::new(session.clone(), dylib, dylib_name);
        let duty = Duty { dylib, claim, unit_name, symbols, initializer, settled: false };
        Self { unit: Some(unit), discarded, duty, priority }
    }

    /// Runs the unit, unless nobody wants it any more: then it goes back to its rows.
    fn materialize(&mut self) {
        let session = self.duty.session().clone();
        let Some(mut claimed) = self.take() else { return };
        let begun = session.transact(|state, effects| state.begin(claimed, effects));
        let Some(begun) = begun else { return };
        claimed = begun;
        let mut queued = Self::new(&session, claimed);
        let Some(unit) = queued.unit.take() else { return };
        let discarded = std::mem::take(&mut queued.discarded);
        let dylib = queued.duty.dylib.clone();
        let span =
            tracing::debug_span!("unit.materialize", unit = %queued.duty.unit_name, dylib = dylib.name());
        // A panic before the unit has the responsibility drops it inside the frame as well.
        let duty = queued.duty.move_out();
        let _outcome = frame::run(&session, move || {
            let responsibility = frame::attach(duty);
            let _entered = span.entered();
            let mut unit = unit;
            discarded.iter().for_each(|symbol| unit.discard(&dylib, symbol));
            unit.materialize(responsibility);
        });
    }

    /// The claimed unit as the protocol knows it, leaving a settled husk.
    fn take(&mut self) -> Option<ClaimedUnit<Box<dyn MaterializationUnit>>> {
        let unit = self.unit.take()?;
        let mut duty = self.duty.move_out();
        duty.settle();
        Some(ClaimedUnit {
            unit,
            discarded: std::mem::take(&mut self.discarded),
            claim: duty.claim,
            dylib: duty.dylib.id(),
            dylib_name: duty.dylib.shared_name(),
            unit_name: duty.unit_name.clone(),
            symbols: std::mem::take(&mut duty.symbols),
            initializer: duty.initializer.take(),
            priority: self.priority,
        })
    }
}

impl Drop for QueuedUnit {
    fn drop(&mut self) {
        if let Some(unit) = self.unit.take() {
            if let Err(message) = crate::panics::guard(move || drop(unit)) {
                let place = "the drop of a unit";
                self.duty.session().report(SessionError::Panicked { place, message });
            }
            self.duty.fail(FailureCause::NotDispatched);
        }
    }
}
