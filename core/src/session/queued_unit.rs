//! Queued units: claimed, handed to the dispatcher, not begun.

use crate::protocol::claim::Begin;
use crate::protocol::effects::ClaimedUnit;
use crate::responsibility::Duty;
use crate::sync::{Arc, weakened};
use crate::task::Work;
use crate::task::ticket::Ticketed;
use crate::{FailureCause, JitDylib, MaterializationUnit, SessionError, SymbolName, Task, TaskLabel, leaf};

use super::drain::Outstanding;
use super::hand_on::run_soon;
use super::{ExecutionSession, frame, holding};

/// What the dispatcher is given: the unit itself, or a ticket for it.
pub(super) fn unit_task(
    claimed: ClaimedUnit<Box<dyn MaterializationUnit>>,
    outstanding: Outstanding,
) -> Task {
    if let Some(ticketed) = claimed.ticketed.clone() {
        return ticketed.hold(Box::new(QueuedUnit(Some((claimed, outstanding)))));
    }
    let (priority, hints, queue) = (claimed.priority, claimed.hints, claimed.serial_queue.clone());
    let unit = Task::of(priority, Box::new(QueuedUnit(Some((claimed, outstanding))))).with_hints(hints);
    queue.iter().fold(unit, Task::in_queue)
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

    fn requeue(&self) -> Box<dyn FnOnce(Task) -> Result<(), Task>> {
        let Some((_, outstanding)) = &self.0 else { return Box::new(Err) };
        let session = outstanding.session().clone();
        Box::new(move |task| session.offer(task).map(|()| session.run_ready()))
    }

    fn waits_for_turn(&self, waits: bool) {
        self.0.iter().for_each(|(_, outstanding)| outstanding.waits_for_turn(waits));
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

/// Runs a unit, unless nobody wants it any more: then it goes back to its rows. Should it be less urgent than it was when
/// it was dispatched, it is dispatched again.
fn materialize(claimed: ClaimedUnit<Box<dyn MaterializationUnit>>, outstanding: Outstanding) {
    let session = outstanding.session();
    if weakened("withdraw::decides_before_it_gives_back")
        && !session.transact(|state, _| state.is_wanted(&claimed))
    {
        return session.transact(|state, effects| state.put_back(claimed, effects));
    }
    let here = session.begun_here();
    // Without a loss of demand since it was claimed it is wanted, and the state need not be asked; that of a serial queue says
    // that it waits there no more.
    let asks = here.is_some() || claimed.serial_queue.is_some();
    let begun = match !asks && session.0.losses.count() == claimed.losses {
        true => claimed,
        false => {
            // The task is counted, and in no frame yet.
            let held_back = crate::in_place::hold_back();
            let begun = session.transact(|state, effects| state.begin(claimed, here, effects));
            drop(held_back);
            match begun {
                Begin::Now(claimed) => claimed,
                Begin::Later(claimed, ticketed) => return begin_later(claimed, &ticketed, outstanding),
                Begin::Never => return,
            }
        }
    };
    let (priority, leaf) = (begun.priority, begun.hints.is_leaf().then(|| begun.unit_name.clone().into()));
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
fn begin_later(
    claimed: ClaimedUnit<Box<dyn MaterializationUnit>>,
    ticketed: &Arc<Ticketed>,
    outstanding: Outstanding,
) {
    let session = outstanding.session().clone();
    let ticket = ticketed.hold(Box::new(QueuedUnit(Some((claimed, outstanding)))));
    // A dispatcher that takes no more tasks still runs those it has.
    if let Err(refused) = session.offer(ticket) {
        refused.run();
    }
    session.run_ready();
}

impl ExecutionSession {
    /// Takes a claimed unit apart: the unit, what it is to `discard`, and the duty for its symbols.
    fn duty_of(
        &self,
        claimed: ClaimedUnit<Box<dyn MaterializationUnit>>,
    ) -> (Box<dyn MaterializationUnit>, Box<[SymbolName]>, Duty) {
        let ClaimedUnit {
            unit, discarded, claim, dylib, dylib_name, unit_name, symbols, initializer, ..
        } = claimed;
        let dylib = JitDylib::new(self.clone(), dylib, dylib_name);
        (unit, discarded, Duty { dylib, claim, unit_name, symbols, initializer, settled: false, hold: None })
    }
}
