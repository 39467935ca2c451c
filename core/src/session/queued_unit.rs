//! Queued units: handed to the dispatcher, not begun.

use std::any::Any;

use uruk_recorder::{Entry, Kind};

use crate::ids::{Id as _, SessionTag};
use crate::protocol::state::lookups::query::Asker;
use crate::protocol::state::pending::{ClaimedUnit, Extras, PendingUnit};
use crate::session::responsibility::Duty;
use crate::sync::{Arc, weakened};
use crate::task::ClaimOfSession;
use crate::task::in_place::LateTasks;
use crate::task::this_thread::run_in_leaf;
use crate::task::unit::{A_UNIT, UnitClaim, UnitInBox, UnitSession, UnitTask};
use crate::{
    FailureCause, JitDylib, MaterializationUnit, SessionError, SymbolName, Task, TaskDispatcher, in_span,
};

use super::drain::{ComingLater, Outstanding, TaskCount};
use super::user_tasks::{A_DISCARD, run_soon};
use super::{ClaimedUnits, ExecutionSession, Inner, Unit, frame};

impl ClaimedUnit<Unit> {
    /// The task for the dispatcher: the unit itself, or a ticket for it.
    #[inline]
    pub(super) fn into_task(self, task: TaskCount) -> Task {
        let (hints, queue) = (self.pending.hints, self.pending.serial_queue().cloned());
        let (priority, ticketed) = (self.priority(), self.ticketed.clone());
        let Self { pending, claim, losses, ticketed: kept } = self;
        let work = UnitTask::new(pending, UnitClaim { claim, losses, ticketed: kept, session: task.0.0 });
        match ticketed {
            None => queue.iter().fold(Task::of(priority, work).with_hints(hints), Task::in_queue),
            Some(ticketed) => ticketed.hold(work),
        }
    }

    /// Whether its task is nothing but the unit: it has no ticket, and belongs to no serial queue.
    pub(super) fn is_plain(&self) -> bool {
        self.ticketed.is_none() && self.pending.serial_queue().is_none()
    }
}

/// Units that are claimed and become tasks one by one. Those that never do are dropped as tasks are.
pub(crate) struct QueuedUnits {
    /// The last comes first.
    units: ClaimedUnits,
    coming: ComingLater,
}

impl QueuedUnits {
    pub(super) fn new(mut units: ClaimedUnits, coming: ComingLater) -> Self {
        units.reverse();
        Self { units, coming }
    }
}

impl Iterator for QueuedUnits {
    type Item = Task;

    #[inline]
    fn next(&mut self) -> Option<Task> {
        Some(self.units.pop()?.into_task(self.coming.next_unit()))
    }
}

impl LateTasks for QueuedUnits {
    fn make_needed(&mut self, is_needed: &dyn Fn(ClaimOfSession) -> bool) -> Vec<Task> {
        let session = self.coming.session().tag();
        let needed: Vec<_> = self.units.extract_if(.., |unit| is_needed((session, unit.claim))).collect();
        needed.into_iter().rev().map(|unit| unit.into_task(self.coming.next_unit())).collect()
    }
}

impl Drop for QueuedUnits {
    fn drop(&mut self) {
        self.for_each(drop);
        self.coming.session().keep_room(std::mem::take(&mut self.units));
    }
}

/// Whose code runs when a unit goes that was to begin.
const A_UNITS_DROP: &str = "the drop of a unit";

/// The count tells of the task until the unit has run, or its symbols have failed.
impl UnitInBox for PendingUnit<Unit> {
    fn label(&self) -> &str {
        self.name.as_str()
    }

    /// Runs the unit, and then, when it is counted no more, what was left to this thread meanwhile.
    fn run(self: Box<Self>, claim: UnitClaim) {
        let (unit, outstanding) = claimed(self, claim);
        materialize(unit, outstanding);
        crate::task::in_place::run_ready();
    }

    /// Fails the unit's symbols.
    fn drop_unrun(self: Box<Self>, claim: UnitClaim) {
        let (unit, outstanding) = claimed(self, claim);
        run_soon(A_UNIT, move || {
            let (session, ClaimedUnit { pending, claim, .. }) = (outstanding.session(), unit);
            session.transact(|state, effects| state.fail(claim, FailureCause::NotDispatched, effects));
            if let Err(message) = frame::run(session, move || drop(pending)) {
                session.report_from_task(SessionError::Panicked { place: A_UNITS_DROP, message });
            }
        });
    }
}

/// The unit as it was before it became a task.
fn claimed(pending: Box<PendingUnit<Unit>>, claim: UnitClaim) -> (ClaimedUnit<Unit>, Outstanding) {
    let UnitClaim { claim, losses, ticketed, session } = claim;
    let session: Arc<dyn Any + Send + Sync> = session;
    let session = session.downcast().expect("a session makes its units' tasks itself");
    let outstanding = Outstanding::of(TaskCount(ExecutionSession(session)));
    (ClaimedUnit { pending, claim, losses, ticketed }, outstanding)
}

impl UnitSession for Inner {
    fn tag(&self) -> SessionTag {
        self.tag
    }

    fn dispatcher(&self) -> &Arc<dyn TaskDispatcher> {
        &self.dispatcher
    }

    fn waits_for_turn(&self, waits: bool) {
        self.drain.count_in_strand(waits);
    }
}

/// Runs a unit, or puts it back to its rows if it is no longer wanted.
fn materialize(unit: ClaimedUnit<Unit>, outstanding: Outstanding) {
    let session = outstanding.session();
    if weakened("withdraw::decides_before_it_gives_back")
        && !session.transact(|state, _| state.is_wanted(unit.claim))
    {
        return session.transact(|state, effects| state.put_back(unit, effects));
    }
    // Without a loss of demand since it was claimed it is wanted, and the state need not be asked; that of a serial queue says
    // that it waits there no more.
    let asks = unit.pending.serial_queue().is_some();
    let begun = match !asks && session.0.losses.count() == unit.losses {
        true => Some(unit),
        false => {
            // The task is counted, and in no frame yet.
            let _held_back = crate::task::in_place::hold_back_all();
            session.transact(|state, effects| state.begin(unit, effects))
        }
    };
    if let Some(begun) = begun {
        run(begun, outstanding);
    }
}

/// Runs a unit that begins.
fn run(unit: ClaimedUnit<Unit>, outstanding: Outstanding) {
    let (claim, priority) = (unit.claim, unit.priority());
    let PendingUnit { unit, dylib, dylib_name, name, symbols, extras, hints, .. } = *unit.pending;
    let Extras { initializer, discarded, .. } = extras.map(|extras| *extras).unwrap_or_default();
    let dylib = JitDylib::new(outstanding.session().clone(), dylib, dylib_name);
    let duty = Box::new(Duty::new(dylib, claim, name, symbols, initializer));
    // A panic, in `discard` too, drops the duty inside the frame, which fails it with the message.
    let run = move || {
        let phase = crate::in_span::phase!(
            "unit.materialize",
            session = duty.session().tag().noted(),
            claim = claim.noted(),
            unit = %duty.unit_name,
            dylib = duty.dylib().name(),
            %priority,
        );
        let leaf = hints.is_leaf().then(|| duty.unit_name.clone().into());
        let materialize = || {
            let (mut unit, responsibility) = (unit.into_inner(), frame::attach(duty));
            if !discarded.is_empty() {
                unit = tell_lost(unit, &discarded, responsibility.dylib());
            }
            if let Some(spare) = unit.spare() {
                responsibility.keep_spare(spare);
            }
            unit.materialize(responsibility);
        };
        in_span(phase, || run_in_leaf(leaf, materialize));
    };
    let session = outstanding.session().tag().noted();
    let note = |kind, panicked| {
        uruk_recorder::note(|| Entry::new(kind).of(session).with(claim.noted(), u64::from(panicked)));
    };
    note(Kind::Begun, false);
    let (ended, failed, outstanding) = frame::run_unit(outstanding, Asker { claim, priority }, run);
    note(Kind::Ended, ended.is_err());
    let Some(outstanding) = outstanding else { return };
    // One that had finished or parked its responsibility has no symbol left to fail.
    if let (Err(message), 0) = (ended, failed) {
        let error = SessionError::Panicked { place: "a unit", message };
        outstanding.session().report_from_task(error);
    }
}

/// Tells a unit that is about to materialize which symbols it has lost. If it panics over one it hears of the rest and goes, for
/// it may believe that it still has to define what it has lost: the first panic goes on, and the others are reported.
fn tell_lost(
    mut unit: Box<dyn MaterializationUnit>,
    discarded: &[SymbolName],
    dylib: &JitDylib,
) -> Box<dyn MaterializationUnit> {
    let report = |place, message| dylib.session().report(SessionError::Panicked { place, message });
    let mut first = None;
    crate::panics::guard_each(
        discarded,
        |symbol| unit.discard(dylib, symbol),
        |message| match &first {
            None => first = Some(message),
            Some(_) => report(A_DISCARD, message),
        },
    );
    let Some(message) = first else { return unit };
    // Not while that panic unwinds: another one, of the drop, would end the process.
    if let Err(message) = crate::panics::guard(move || drop(unit)) {
        report(A_UNITS_DROP, message);
    }
    std::panic::resume_unwind(Box::new(String::from(&*message)))
}
