//! Queued units: handed to the dispatcher, not begun; and their memory, in which their responsibility goes on.

use crate::in_place::LateTasks;
use crate::protocol::state::pending::{Extras, PendingUnit};
use crate::protocol::state::query::Asker;
use crate::protocol::storage::ids::ClaimId;
use crate::responsibility::{Duty, DutyBox};
use crate::sync::{Arc, weakened};
use crate::task::{ClaimedUnit, Work};
use crate::this_thread::run_in_leaf;
use crate::{
    FailureCause, JitDylib, MaterializationUnit, SessionError, SymbolName, Task, TaskDispatcher, TaskLabel,
    TaskPriority, in_span,
};

use super::drain::{ComingLater, Outstanding};
use super::hand_on::{A_DISCARD, run_soon};
use super::{ExecutionSession, Parcels, Unit, frame};

/// The memory of a unit, from its definition until its responsibility is over: only a pointer to it moves. Dropping a unit
/// unrun, once it is on its way, fails its symbols.
pub(crate) struct QueuedUnit(Stage);

enum Stage {
    /// It has not begun.
    Waits {
        pending: PendingUnit<Unit>,
        /// Once it is on its way: counts the task until the unit has run, or its symbols have failed.
        outstanding: Option<Outstanding>,
    },
    /// It has, and this is the duty for its symbols.
    Begun(Duty),
    /// It is gone to where it came from, or out.
    Gone,
}

// With what an allocator adds, as large as what it gives out fast.
#[cfg(target_pointer_width = "64")]
const _: () = assert!(size_of::<QueuedUnit>() <= 112);

impl From<PendingUnit<Unit>> for Box<QueuedUnit> {
    fn from(pending: PendingUnit<Unit>) -> Self {
        Self::new(QueuedUnit(Stage::Waits { pending, outstanding: None }))
    }
}

impl From<Box<QueuedUnit>> for PendingUnit<Unit> {
    fn from(mut queued: Box<QueuedUnit>) -> Self {
        queued.take_pending()
    }
}

impl AsRef<PendingUnit<Unit>> for Box<QueuedUnit> {
    #[inline]
    fn as_ref(&self) -> &PendingUnit<Unit> {
        match &self.0 {
            Stage::Waits { pending, .. } => pending,
            Stage::Begun(_) | Stage::Gone => panic!("{HAS_BEGUN}"),
        }
    }
}

impl AsMut<PendingUnit<Unit>> for Box<QueuedUnit> {
    #[inline]
    fn as_mut(&mut self) -> &mut PendingUnit<Unit> {
        match &mut self.0 {
            Stage::Waits { pending, .. } => pending,
            Stage::Begun(_) | Stage::Gone => panic!("{HAS_BEGUN}"),
        }
    }
}

const HAS_BEGUN: &str = "what has begun is not handed on any more";

/// A unit that begins: apart from the duty for its symbols.
struct Begun {
    unit: Unit,
    /// What the unit is to `discard` is among them.
    extras: Option<Box<Extras>>,
    duty: DutyBox,
    priority: TaskPriority,
    is_leaf: bool,
}

impl QueuedUnit {
    pub(crate) fn of_duty(duty: Duty) -> Self {
        Self(Stage::Begun(duty))
    }

    #[inline]
    pub(crate) fn duty(&self) -> &Duty {
        match &self.0 {
            Stage::Begun(duty) => duty,
            Stage::Waits { .. } | Stage::Gone => panic!("{HAS_NOT_BEGUN}"),
        }
    }

    #[inline]
    pub(crate) fn duty_mut(&mut self) -> &mut Duty {
        match &mut self.0 {
            Stage::Begun(duty) => duty,
            Stage::Waits { .. } | Stage::Gone => panic!("{HAS_NOT_BEGUN}"),
        }
    }

    /// What the dispatcher is given: the unit itself, or a ticket for it.
    #[inline]
    pub(super) fn into_task(mut self: Box<Self>, counted: Outstanding) -> Task {
        let Stage::Waits { pending, outstanding } = &mut self.0 else { panic!("{HAS_BEGUN}") };
        *outstanding = Some(counted);
        let (priority, hints) = (pending.priority, pending.hints);
        if pending.extras.is_none() {
            return Task::of(priority, self).with_hints(hints);
        }
        let (ticketed, queue) = (pending.ticketed().cloned(), pending.serial_queue().cloned());
        match ticketed {
            None => queue.iter().fold(Task::of(priority, self).with_hints(hints), Task::in_queue),
            Some(ticketed) => ticketed.hold(self),
        }
    }

    /// Whether its task is nothing but the unit: it has no ticket, and belongs to no serial queue.
    pub(super) fn is_plain(&self) -> bool {
        matches!(&self.0, Stage::Waits { pending, .. } if pending.extras.is_none())
    }

    /// Of a unit that has not begun.
    fn claim(&self) -> Option<ClaimId> {
        match &self.0 {
            Stage::Waits { pending, .. } => Some(pending.claim),
            Stage::Begun(_) | Stage::Gone => None,
        }
    }

    fn outstanding(&self) -> Option<&Outstanding> {
        match &self.0 {
            Stage::Waits { outstanding, .. } => outstanding.as_ref(),
            Stage::Begun(_) | Stage::Gone => None,
        }
    }

    #[inline]
    fn take_outstanding(&mut self) -> Option<Outstanding> {
        match &mut self.0 {
            Stage::Waits { outstanding, .. } => outstanding.take(),
            Stage::Begun(_) | Stage::Gone => None,
        }
    }

    #[inline]
    fn take_pending(&mut self) -> PendingUnit<Unit> {
        match std::mem::replace(&mut self.0, Stage::Gone) {
            Stage::Waits { pending, .. } => pending,
            Stage::Begun(_) | Stage::Gone => panic!("{HAS_BEGUN}"),
        }
    }

    /// Takes a claimed unit apart. Its memory becomes that of the duty, which keeps `session`.
    #[inline]
    fn begin(mut self: Box<Self>, session: ExecutionSession) -> Begun {
        let PendingUnit {
            unit, claim, dylib, dylib_name, name, symbols, mut extras, priority, hints, ..
        } = self.take_pending();
        let initializer = extras.as_mut().and_then(|extras| extras.initializer.take());
        // It may have been raised while it was queued.
        let ticketed = extras.as_mut().and_then(|extras| extras.ticketed.take());
        let priority = ticketed.map_or(priority, |ticketed| ticketed.priority());
        let dylib = JitDylib::new(session, dylib, dylib_name);
        self.0 = Stage::Begun(Duty::new(dylib, claim, name, symbols, initializer));
        Begun { unit, extras, duty: DutyBox::in_place_of(self), priority, is_leaf: hints.is_leaf() }
    }
}

/// Units that are claimed and become tasks one by one. Those that never do are dropped as tasks are.
pub(super) struct QueuedUnits {
    /// The last comes first.
    units: Parcels,
    coming: ComingLater,
}

impl QueuedUnits {
    pub(super) fn new(mut units: Parcels, coming: ComingLater) -> Self {
        units.reverse();
        Self { units, coming }
    }
}

impl Iterator for QueuedUnits {
    type Item = Task;

    #[inline]
    fn next(&mut self) -> Option<Task> {
        Some(self.units.pop()?.into_task(self.coming.next()))
    }
}

impl LateTasks for QueuedUnits {
    fn make_needed(&mut self, is_needed: &dyn Fn(ClaimedUnit) -> bool) -> Vec<Task> {
        let session = self.coming.session().tag();
        let is_needed = |unit: &QueuedUnit| unit.claim().is_some_and(|claim| is_needed((session, claim)));
        let needed: Vec<_> = self.units.extract_if(.., |unit| is_needed(unit)).collect();
        needed.into_iter().rev().map(|unit| unit.into_task(self.coming.next())).collect()
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

const HAS_NOT_BEGUN: &str = "a responsibility has the duty of a unit that has begun";

impl Work for QueuedUnit {
    fn label(&self) -> &str {
        match &self.0 {
            Stage::Waits { pending, .. } => pending.name.as_str(),
            Stage::Begun(_) | Stage::Gone => "",
        }
    }

    fn keep_label(&self) -> TaskLabel {
        "unit.materialize".into()
    }

    fn marks_leaf(&self) -> bool {
        true
    }

    fn unit(&self) -> Option<ClaimedUnit> {
        Some((self.outstanding()?.session().tag(), self.claim()?))
    }

    fn dispatcher(&self) -> Option<Arc<dyn TaskDispatcher>> {
        self.outstanding().map(|outstanding| outstanding.session().dispatcher().clone())
    }

    fn waits_for_turn(&self, waits: bool) {
        self.outstanding().into_iter().for_each(|outstanding| outstanding.waits_for_turn(waits));
    }

    /// Runs the unit, and then, when it is counted no more, what was left to this thread meanwhile.
    fn run(mut self: Box<Self>) {
        let Some(outstanding) = self.take_outstanding() else { return };
        materialize(self, outstanding);
        crate::in_place::run_ready();
    }
}

impl Drop for QueuedUnit {
    fn drop(&mut self) {
        // Otherwise it goes with its session, or was never on its way, or its duty answers for itself.
        let Some(outstanding) = self.take_outstanding() else { return };
        let queued = Box::new(Self(std::mem::replace(&mut self.0, Stage::Gone)));
        run_soon(queued.keep_label(), move || {
            let session = outstanding.session();
            let Begun { unit, mut duty, .. } = queued.begin(session.clone());
            duty.fail(FailureCause::NotDispatched);
            if let Err(message) = frame::run(session, move || drop(unit)) {
                session.report_from_task(SessionError::Panicked { place: A_UNITS_DROP, message });
            }
        });
    }
}

/// Runs a unit, unless nobody wants it any more: then it goes back to its rows.
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
            let Some(queued) = begun else { return };
            queued
        }
    };
    let Begun { unit, extras, duty, priority, is_leaf } = begun.begin(session.clone());
    let asker = Asker { claim: duty.claim, priority };
    // A panic, in `discard` too, drops the duty inside the frame, which fails it with the message.
    let run = move || {
        let span = tracing::debug_span!("unit.materialize", unit = %duty.unit_name, dylib = duty.dylib().name(), %priority);
        let leaf = is_leaf.then(|| duty.unit_name.clone().into());
        let materialize = || {
            let (mut unit, responsibility) = (unit.into_inner(), frame::attach(duty));
            if let Some(extras) = extras {
                unit = tell_lost(unit, &extras.discarded, responsibility.dylib());
            }
            unit.materialize(responsibility);
        };
        in_span(span, || run_in_leaf(leaf, materialize));
    };
    let (ended, failed, outstanding) = frame::run_unit(outstanding, asker, run);
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
