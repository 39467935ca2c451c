//! Delivering effects: tasks go to the dispatcher first, then waiters wake, then code of the embedder is enqueued.
//!
//! A transaction leaves its effects here after the lock is free. A long consequence comes in slices, with the lock free for others
//! between two of them. One thread *attends* to the slices: the one whose transaction found them unattended. Under sustained load others
//! take over in turn, so that it returns (`protocol/slices/settle.rs`).
//!
//! **Architecture Invariant:** nothing runs on this thread before all is delivered: neither a task nor code of the embedder.

use smallvec::SmallVec;

use crate::protocol::slices::agenda::Attendance;
use crate::protocol::state::effects::{Completed, Effects, MoreEffects};
use crate::protocol::state::pending::ClaimedUnit;
use crate::protocol::storage::claimed_room::ClaimedRoom;
use crate::session::platform::UnitNumber;
use crate::sync::{Arc, weakened};
use crate::{LookupResult, SessionError, Task, TaskPriority};

use super::answers::WaiterId;
use super::drain::ComingTasks;
use super::here::Delivering;
use super::query::{Completion, Outcome};
use super::queued_unit::QueuedUnits;
use super::user_tasks::{A_DROP, answer_task, counted, user_calls};
use super::{ClaimedUnits, ExecutionSession, Live, Locked, Unit};

/// Effects that are to be delivered, with the count of the tasks that they will be.
pub(super) enum Delivery<'a> {
    /// No more than the answer of a blocked lookup.
    Answer(WaiterId, Outcome),
    /// No more than a unit.
    Unit(ClaimedUnit<Unit>, ComingTasks<'a>),
    All(Effects<Live>, ComingTasks<'a>),
}

impl ExecutionSession {
    /// Delivers what a transaction left to do, and then runs what falls to this thread.
    ///
    /// Code of the embedder is enqueued as tasks of its own, behind the units. It starts at the earliest in `run_ready`, when everything
    /// is delivered.
    pub(super) fn deliver_and_run(&self, delivery: Delivery<'_>) {
        match delivery {
            // Nothing was enqueued.
            Delivery::Answer(waiter, outcome) => self.give_answer(waiter, outcome),
            Delivery::Unit(unit, mut coming) => self.start_unit(unit.into_task(coming.next_unit())),
            Delivery::All(..) => {
                self.deliver(delivery);
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
            let held_back = crate::task::in_place::hold_back();
            self.enqueue(task);
            drop(held_back);
            self.run_ready();
        }
    }

    /// Counts the tasks that effects will be, and takes the effects. To be called under the lock: see [`ComingTasks`].
    pub(super) fn take_effects(&self, effects: &mut Effects<Live>) -> Delivery<'_> {
        // The two cases of a lookup made and answered in place: one unit, one answer. Without them `lookup_contended` takes a fifth
        // longer, and a lookup 1,200 of 6,500 instructions more.
        if effects.names_released == 0 && effects.look_at_more().is_none() {
            match (&mut effects.claimed, &mut effects.completed) {
                (claimed, completed) if claimed.len() == 1 && completed.is_empty() => {
                    if let Some(unit) = claimed.pop() {
                        return Delivery::Unit(unit, self.coming(1));
                    }
                }
                (claimed, completed) if claimed.is_empty() && completed.len() == 1 => {
                    if let Completion::Blocked(waiter) = completed[0].handler
                        && let Some(completed) = completed.pop()
                    {
                        return Delivery::Answer(waiter, completed.outcome);
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
        Delivery::All(std::mem::take(effects), coming)
    }

    /// Runs what was left to this thread, if nothing of ours lies beneath on its stack.
    pub(super) fn run_ready(&self) {
        if crate::task::in_place::owes(&self.0.dispatcher) {
            return;
        }
        self.0.dispatcher.run_ready();
        crate::task::in_place::run_ready();
    }

    /// Enqueues tasks and wakes waiters. Tasks of this thread wait for [`Self::run_ready`].
    ///
    /// The dispatcher may panic over a task: the rest is enqueued all the same. It may drop a task: that runs no code of the embedder before
    /// the caller has finished.
    pub(super) fn deliver(&self, delivery: Delivery<'_>) {
        let (_held_back, _delivering) = (crate::task::in_place::hold_back(), Delivering::begin());
        let (mut effects, mut coming) = match delivery {
            Delivery::Answer(waiter, outcome) => return self.give_answer(waiter, outcome),
            Delivery::Unit(unit, mut coming) => return self.enqueue(unit.into_task(coming.next_unit())),
            Delivery::All(effects, coming) => (effects, coming),
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
            self.deliver_more(*more, &mut coming);
        }
        if names_released > 0 {
            self.0.pool.released(names_released);
        }
    }

    /// Delivers the effects that come after the waiters.
    #[inline(never)]
    fn deliver_more(&self, more: MoreEffects<Live>, coming: &mut ComingTasks<'_>) {
        let MoreEffects { generations, events, leftovers, initializers_gone, memory, .. } = more;
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
        // Last: no thread waits for it.
        drop(memory);
    }

    /// Wakes threads that wait in lookups, then enqueues handlers.
    fn tell(&self, completed: SmallVec<[Completed<Completion>; 1]>, coming: &mut ComingTasks<'_>) {
        let mut told = Vec::new();
        for completed in completed {
            match completed.handler {
                Completion::Blocked(waiter) => self.give_answer(waiter, completed.outcome),
                _ => told.push(completed),
            }
        }
        for Completed { handler, outcome, asker } in told {
            let tag = self.tag();
            let outcome = move || outcome.map(|answer| LookupResult::new(answer, tag));
            self.enqueue(answer_task(coming.next(), asker, handler, outcome));
        }
    }

    /// Gives a blocked lookup its answer, before the task that brought it can end.
    #[inline]
    fn give_answer(&self, waiter: WaiterId, outcome: Outcome) {
        self.0.answers.give(waiter, outcome, |latch| self.0.drain.answer(waiter, latch));
    }

    /// Attends to slices until none is left or another thread takes over. `first` is what the transaction itself left to do.
    #[inline(never)]
    pub(super) fn attend(
        &self,
        attendance: Attendance,
        attends: ComingTasks<'_>,
        first: Option<Delivery<'_>>,
    ) {
        if weakened("emit::leaves_its_slices") {
            return first.into_iter().for_each(|first| self.deliver_and_run(first));
        }
        // Not even a task that the dispatcher drops or refuses runs before the last slice: it may wait for one. Code of the embedder must
        // not find a thread beneath it that has promised to come back. `deliver` runs nothing.
        first.into_iter().for_each(|first| self.deliver(first));
        loop {
            let (more, effects) = self.locked(|locked| {
                let mut effects = Effects::default();
                locked.state.noted.act_for(None);
                let more = locked.state.slice(attendance, &mut effects);
                (more, self.take_effects(&mut effects))
            });
            self.deliver(effects);
            if !more {
                break;
            }
        }
        drop(attends);
        self.run_ready();
    }

    /// Gives a task to the dispatcher. If it is refused, the thread's own loop runs it if it only
    /// delivers an answer or a report. Otherwise the loop drops it, which fails the work that it owns.
    pub(super) fn enqueue(&self, task: Task) {
        if let Err(refused) = self.offer(task) {
            crate::task::in_place::defer_refused(refused);
        }
    }

    /// Gives a task to the dispatcher, which may refuse it. One that panics has dropped it.
    pub(super) fn offer(&self, task: Task) -> Result<(), Task> {
        let dispatcher = &self.0.dispatcher;
        let offered = crate::panics::guard(|| match task.serial_queue().cloned() {
            Some(queue) => queue.dispatch(dispatcher, task),
            None => dispatcher.dispatch(task),
        });
        offered.unwrap_or_else(|message| {
            self.defer_report(message);
            Ok(())
        })
    }

    /// The same for claimed units, a batch at a time.
    pub(super) fn enqueue_units(
        &self,
        claimed: SmallVec<[ClaimedUnit<Unit>; 1]>,
        coming: &mut ComingTasks<'_>,
    ) {
        if let [_] = claimed[..] {
            return claimed.into_iter().for_each(|unit| self.enqueue(unit.into_task(coming.next_unit())));
        }
        let Some(claimed) = self.enqueue_lazily(claimed.into_vec(), coming) else { return };
        let mut left = claimed.len();
        let mut tasks = Vec::with_capacity(left.min(BATCH_MAX));
        for unit in claimed {
            let task = unit.into_task(coming.next_unit());
            match task.serial_queue() {
                // Its turn may not have come.
                Some(_) => self.enqueue(task),
                None => tasks.push(task),
            }
            left -= 1;
            if left == 0 || tasks.len() == BATCH_MAX {
                match crate::panics::guard(|| self.0.dispatcher.dispatch_all(&mut tasks)) {
                    Ok(()) => tasks.drain(..).for_each(crate::task::in_place::defer_refused),
                    Err(message) => {
                        self.defer_report(message);
                        tasks.drain(..).for_each(|task| self.enqueue(task));
                    }
                }
            }
        }
    }

    /// The same in place, where a unit becomes a task when its turn has come. Gives back what cannot wait for that: units with
    /// tickets, by which others may call them, or in serial queues, and all if the dispatcher is closed.
    fn enqueue_lazily(&self, claimed: ClaimedUnits, coming: &mut ComingTasks<'_>) -> Option<ClaimedUnits> {
        let Some(dispatcher) = self.0.dispatcher.in_place() else { return Some(claimed) };
        if !claimed.iter().all(|unit| unit.is_plain()) {
            return Some(claimed);
        }
        let count = claimed.len();
        let queued = QueuedUnits::new(claimed, coming.later(count));
        let refused = dispatcher.dispatch_lazily(count, queued).err()?;
        refused.for_each(crate::task::in_place::defer_refused);
        None
    }

    /// Keeps the memory of a list of units for the next large lookup.
    pub(super) fn keep_room(&self, spent: ClaimedUnits) {
        if ClaimedRoom::wants(&spent) {
            let rest = self.locked(|Locked { state, .. }| state.claimed.keep(spent));
            drop(rest);
        }
    }

    /// Reports a panic of the dispatcher once nothing of ours is beneath.
    fn defer_report(&self, message: Arc<str>) {
        let session = self.clone();
        crate::task::in_place::defer(Task::new("session.report", TaskPriority::Demanded, move || {
            session.report(SessionError::Panicked { place: "the dispatcher", message });
        }));
    }
}

fn is_blocked(completed: &Completed<Completion>) -> bool {
    matches!(completed.handler, Completion::Blocked(_))
}

/// How many units are dispatched at once. Enough that what a batch costs is nothing beside its units. So few that workers start on the
/// first of ten thousand long before the last is wrapped.
const BATCH_MAX: usize = 64;
