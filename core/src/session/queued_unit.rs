//! Queued units: handed to the dispatcher, not begun.

use crate::protocol::claim::Begin;
use crate::protocol::pending::PendingUnit;
use crate::responsibility::Duty;
use crate::sync::{Arc, weakened};
use crate::task::Work;
use crate::task::ticket::Ticketed;
use crate::{FailureCause, JitDylib, SessionError, SymbolName, Task, TaskDispatcher, TaskLabel, leaf};

use super::drain::Outstanding;
use super::hand_on::run_soon;
use super::{ExecutionSession, Unit, frame, holding};

/// A unit in the memory in which it goes to a worker. Dropping it unrun, once it is on its way, fails its symbols.
///
/// It is made when the unit is defined, and from there to its start only a pointer to it moves.
pub(crate) struct QueuedUnit {
    /// Taken when it runs.
    pending: Option<PendingUnit<Unit>>,
    /// Once it is on its way: counts the task until the unit has run, or its symbols have failed.
    outstanding: Option<Outstanding>,
}

impl From<PendingUnit<Unit>> for Box<QueuedUnit> {
    fn from(pending: PendingUnit<Unit>) -> Self {
        Self::new(QueuedUnit { pending: Some(pending), outstanding: None })
    }
}

impl From<Box<QueuedUnit>> for PendingUnit<Unit> {
    fn from(mut queued: Box<QueuedUnit>) -> Self {
        queued.pending.take().expect(NOT_BEGUN)
    }
}

impl AsRef<PendingUnit<Unit>> for Box<QueuedUnit> {
    fn as_ref(&self) -> &PendingUnit<Unit> {
        self.pending.as_ref().expect(NOT_BEGUN)
    }
}

impl AsMut<PendingUnit<Unit>> for Box<QueuedUnit> {
    fn as_mut(&mut self) -> &mut PendingUnit<Unit> {
        self.pending.as_mut().expect(NOT_BEGUN)
    }
}

/// Why there is a unit in it.
const NOT_BEGUN: &str = "what is taken out of it is not handed on any more";

impl QueuedUnit {
    /// What the dispatcher is given: the unit itself, or a ticket for it.
    pub(super) fn into_task(mut self: Box<Self>, outstanding: Outstanding) -> Task {
        self.outstanding = Some(outstanding);
        let pending: &PendingUnit<Unit> = self.as_ref();
        let (priority, hints) = (pending.priority, pending.hints);
        let (ticketed, queue) = (pending.ticketed().cloned(), pending.serial_queue().cloned());
        match ticketed {
            None => queue.iter().fold(Task::of(priority, self).with_hints(hints), Task::in_queue),
            Some(ticketed) => ticketed.hold(self),
        }
    }

    /// What is left to do about a unit that was on its way.
    fn take(&mut self) -> Option<(PendingUnit<Unit>, Outstanding)> {
        self.pending.take().zip(self.outstanding.take())
    }
}

impl Work for QueuedUnit {
    fn label(&self) -> &str {
        self.pending.as_ref().map_or("", |pending| pending.name.as_str())
    }

    fn keep_label(&self) -> TaskLabel {
        "unit.materialize".into()
    }

    fn marks_leaf(&self) -> bool {
        true
    }

    fn requeue(&self) -> Box<dyn FnOnce(Task) -> Result<(), Task>> {
        let Some(outstanding) = &self.outstanding else { return Box::new(Err) };
        let session = outstanding.session().clone();
        Box::new(move |task| session.offer(task).map(|()| session.run_ready()))
    }

    fn dispatcher(&self) -> Option<Arc<dyn TaskDispatcher>> {
        self.outstanding.as_ref().map(|outstanding| outstanding.session().dispatcher().clone())
    }

    fn waits_for_turn(&self, waits: bool) {
        self.outstanding.iter().for_each(|outstanding| outstanding.waits_for_turn(waits));
    }

    /// Runs the unit, and then, when it is counted no more, what was left to this thread meanwhile.
    fn run(mut self: Box<Self>) {
        let Some(outstanding) = self.outstanding.take() else { return };
        materialize(self, outstanding);
        crate::in_place::run_ready();
    }
}

impl Drop for QueuedUnit {
    fn drop(&mut self) {
        // It goes with its session, or was never on its way.
        let Some((pending, outstanding)) = self.take() else { return };
        run_soon(self.keep_label(), move || {
            let session = outstanding.session();
            let (unit, _, mut duty) = session.duty_of(pending);
            duty.fail(FailureCause::NotDispatched);
            if let Err(message) = frame::run(session, move || drop(unit)) {
                let place = "the drop of a unit";
                session.report_from_task(SessionError::Panicked { place, message });
            }
        });
    }
}

/// Runs a unit, unless nobody wants it any more: then it goes back to its rows. Should it be less urgent than it was when
/// it was dispatched, it is dispatched again.
fn materialize(queued: Box<QueuedUnit>, outstanding: Outstanding) {
    let session = outstanding.session();
    let pending: &PendingUnit<Unit> = queued.as_ref();
    if weakened("withdraw::decides_before_it_gives_back")
        && !session.transact(|state, _| state.is_wanted(pending.claim))
    {
        return session.transact(|state, effects| state.put_back(queued, effects));
    }
    let here = session.begun_here();
    // Without a loss of demand since it was claimed it is wanted, and the state need not be asked; that of a serial queue says
    // that it waits there no more.
    let asks = here.is_some() || pending.serial_queue().is_some();
    let begun = match !asks && session.0.losses.count() == pending.losses {
        true => queued,
        false => {
            // The task is counted, and in no frame yet.
            let held_back = crate::in_place::hold_back_all();
            let begun = session.transact(|state, effects| state.begin(queued, here, effects));
            drop(held_back);
            match begun {
                Begin::Now(queued) => queued,
                Begin::Later(queued, ticketed) => return begin_later(queued, &ticketed, outstanding),
                Begin::Never => return,
            }
        }
    };
    let begun: PendingUnit<Unit> = begun.into();
    let (priority, leaf) = (begun.priority, begun.hints.is_leaf().then(|| begun.name.clone().into()));
    let (mut unit, discarded, duty) = session.duty_of(begun);
    let span = tracing::debug_span!("unit.materialize", unit = %duty.unit_name, dylib = duty.dylib.name(), %priority);
    // A panic, in `discard` too, drops the duty inside the frame, which fails it with the message.
    let run = move || {
        holding::materializes(&duty, priority);
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

/// Dispatches a unit anew that was demanded when it was dispatched, and is not any more.
fn begin_later(mut queued: Box<QueuedUnit>, ticketed: &Arc<Ticketed>, outstanding: Outstanding) {
    let session = outstanding.session().clone();
    queued.outstanding = Some(outstanding);
    let ticket = ticketed.hold(queued);
    // A dispatcher that takes no more tasks still runs those it has.
    if let Err(refused) = session.offer(ticket) {
        refused.run();
    }
    session.run_ready();
}

impl ExecutionSession {
    /// Takes a claimed unit apart: the unit, what it is to `discard`, and the duty for its symbols.
    fn duty_of(&self, pending: PendingUnit<Unit>) -> (Unit, Vec<SymbolName>, Duty) {
        let PendingUnit { unit, claim, dylib, dylib_name, name: unit_name, symbols, extras, .. } = pending;
        let (initializer, discarded) =
            extras.map(|extras| (extras.initializer, extras.discarded)).unwrap_or_default();
        let dylib = JitDylib::new(self.clone(), dylib, dylib_name);
        (unit, discarded, Duty { dylib, claim, unit_name, symbols, initializer, settled: false, hold: None })
    }
}
