//! The state that the threads of a pool share, and its operations: dispatch, blocking, shutdown.
//!
//! ```text
//!             dispatch ──▶ queues ──▶ worker ──▶ task
//!                │                      ▲          │ blocks: its slot goes to `vacated`,
//!                └─ sleep.notify ───────┘          ▼ another thread takes it
//!                   wakes or starts             latch
//! ```
//!
//! **Architecture Invariants.** A slot's [`Local`] is held by one thread, or lies in `vacated`. It is put there before `sleep`
//! counts the slot as vacant, and taken after, so a thread that may take one finds one. No user code runs under either lock
//! (`vacated`, `threads`).

mod blocked;
mod event_thread;
mod look;

use std::io;

use uruk_core::sync::{Arc, Mutex, weakened};
use uruk_core::{LimitReached, Task, TaskPriority, WaitError, in_span, refuse_wait_in_leaf};

use crate::current::{self, Worker};
use crate::gate::Gate;
use crate::limits::Limits;
use crate::metrics::{Counters, Metrics, Queued, Stamp, Stopwatch};
use crate::queues::{Local, PRIORITIES, Queues};
use crate::sleep::{Sleep, Wake};
use crate::threads::{NotStarted, Threads};
use crate::worker;

use blocked::Blocked;
use event_thread::EventThread;

/// The shared state of a pool.
#[derive(Debug)]
pub(crate) struct Pool {
    pub(crate) queues: Queues<Queued>,
    pub(crate) sleep: Sleep,
    pub(crate) gate: Gate,
    event_thread: EventThread,
    pub(crate) limits: Limits,
    pub(crate) counters: Counters,
    pub(crate) stopwatch: Stopwatch,
    /// Slots that no thread holds.
    vacated: Mutex<Vec<Vacated>>,
    pub(crate) threads: Threads,
    slots: usize,
}

/// A slot without a thread.
#[derive(Debug)]
pub(crate) struct Vacated {
    pub(crate) slot: Local<Queued>,
    /// The priority of the task that blocked, if that is why the last holder left the slot. The next holder is then a
    /// replacement.
    blocked: Option<TaskPriority>,
}

impl Vacated {
    /// Tells those who watch this thread, which has taken the slot, if it replaces another.
    pub(crate) fn tell(&self) {
        if self.blocked.is_some() {
            worker::tell(|| tracing::debug!(slot = self.slot.slot(), "replaces a blocked worker"));
        }
    }
}

impl Pool {
    pub(crate) fn new(slots: usize, threads: Threads, limits: Limits, stopwatch: Stopwatch) -> Self {
        let (queues, locals) = Queues::new(slots);
        // Reversed: slots are taken from the end, and slot 0 is to be the first.
        let vacated = locals.into_iter().rev().map(|slot| Vacated { slot, blocked: None }).collect();
        Self {
            queues,
            sleep: Sleep::new(slots),
            gate: Gate::new(),
            event_thread: EventThread::default(),
            limits,
            counters: Counters::new(slots),
            stopwatch,
            vacated: Mutex::new(vacated),
            threads,
            slots,
        }
    }

    /// Queues a task and sees to it that a thread looks.
    ///
    /// # Errors
    /// A task comes back if the pool is closed, or if no thread could be had; in the second case not
    /// necessarily this one, but one that would have had to wait for a thread as well.
    pub(crate) fn dispatch(self: &Arc<Self>, task: Task) -> Result<(), Task> {
        let worker = current::worker_of(self);
        if !self.admit(worker.as_deref(), 1) {
            return Err(task);
        }
        let task = match task.delivers_events() {
            true => match self.give_to_event_thread(task) {
                Ok(()) => return Ok(()),
                Err(task) => task,
            },
            false => task,
        };
        let now = self.stopwatch.now();
        // By itself: through a list the task would be moved once more.
        let slot = worker.as_deref().map(Worker::slot);
        let local = slot.as_deref().and_then(Option::as_ref);
        let priority = task.priority();
        self.counters.of(local.map(Local::slot)).count(|stripe| &stripe.queued[priority as usize]);
        self.push(local, task, now);
        drop(slot);
        if self.call_for(worker.as_deref(), priority) {
            return Ok(());
        }
        // Nothing to take means that a thread appeared after all.
        self.take_unstarted().map_or(Ok(()), Err)
    }

    /// The same for many tasks; refused ones are left in `tasks`, as many as there were if the pool is closed.
    ///
    /// One searcher is called for all of them: who finds one calls the next while more are waiting.
    pub(crate) fn dispatch_all(self: &Arc<Self>, tasks: &mut Vec<Task>) {
        let count = tasks.len();
        let worker = current::worker_of(self);
        if count == 0 || !self.admit(worker.as_deref(), count) {
            return;
        }
        let highest = self.enqueue(worker.as_deref(), tasks);
        if !self.call_for(worker.as_deref(), highest) {
            tasks.extend(std::iter::from_fn(|| self.take_unstarted()).take(count));
        }
    }

    /// Starts a thread for the queued tasks if no slot is occupied, and gives all of them up if none can be started.
    ///
    /// Each dispatch has tried already; this is for tasks whose dispatch relied on the attempt of another thread.
    pub(crate) fn settle(self: &Arc<Self>) {
        let nobody = self.sleep.counts().vacant as usize == self.slots;
        if nobody && self.any_startable() && !self.follow(self.sleep.notify()) {
            self.give_up_queued();
        }
    }

    /// Runs `block`, which may sleep, while another thread does this one's work.
    ///
    /// Once `block` returns, the thread goes on at once: it might hold what another worker waits for in a way that
    /// we cannot see. For a moment more threads than slots may run; the surplus retires at the end of its task.
    ///
    /// # Errors
    /// If no thread could be started and this one is the last that runs queued tasks.
    pub(crate) fn blocking<R>(self: &Arc<Self>, block: impl FnOnce() -> R) -> Result<R, WaitError> {
        let phase = uruk_core::phase!("dispatch.block");
        in_span(phase, || self.block(block))
    }

    fn block<R>(self: &Arc<Self>, block: impl FnOnce() -> R) -> Result<R, WaitError> {
        let Some(worker) = current::worker_of(self) else { return Ok(block()) };
        if worker.is_event_thread() {
            return Ok(self.block_event_thread(&worker, block));
        }
        let (blocked, lifted) = Blocked::begin(self, &worker);
        match worker.take() {
            Some(slot) => {
                // Looks for tasks that the lifted limit lets start.
                self.vacate(&worker, slot)?;
            }
            // A thread that has already given its slot up needs no replacement.
            None => self.unless_deserted(&worker, self.look_if(lifted))?,
        }
        let result = block();
        drop(blocked);
        Ok(result)
    }

    /// Whether the limits would let `count` more tasks of `priority` come. A closed pool has better reasons to refuse them.
    pub(crate) fn admits(&self, priority: TaskPriority, count: usize) -> Result<(), LimitReached> {
        // The gate last: all who dispatch write there.
        self.limits
            .admits(priority, count)
            .or_else(|reached| if self.gate.is_closed() { Ok(()) } else { Err(reached) })
    }

    /// Blocks until there is room for `count` tasks of `priority`, or the pool is closed; see [`Pool::blocking`].
    pub(crate) fn wait_for_room(
        self: &Arc<Self>,
        priority: TaskPriority,
        count: usize,
    ) -> Result<(), WaitError> {
        self.blocking(|| self.limits.wait_for_room(priority, count, || self.gate.is_closed()))
    }

    /// Refuses tasks from now on, and lets threads end once nothing is queued. Does not wait.
    pub(crate) fn close(&self) {
        if self.gate.close() {
            self.limits.close();
            if !weakened("pool::closes_without_waking") {
                self.sleep.wake_all();
            }
            self.event_thread.close();
        }
    }

    /// Closes, and waits until every admitted task has ended; see `TaskDispatcher::shutdown`. A leaf waits for nothing: what is queued
    /// is run all the same, by threads that end then.
    pub(crate) fn shutdown(self: &Arc<Self>) {
        // The threads of another process end nothing here.
        if self.threads.are_here().is_err() {
            return;
        }
        self.close();
        if refuse_wait_in_leaf().is_err() {
            return;
        }
        if current::worker_of(self).is_some() {
            // The slot goes to another thread, since queued tasks may be left and this may be the only one.
            if self.blocking(|| self.gate.wait_for_others()).is_err() {
                self.give_up_queued();
                self.gate.wait_for_others();
            }
        } else {
            self.settle();
            self.gate.wait_for_all();
            self.threads.join_all();
        }
    }

    /// Obeys the parking protocol. Says whether anybody is left to run what is queued; a thread that holds a slot
    /// need not ask.
    pub(crate) fn follow(self: &Arc<Self>, wake: Wake) -> bool {
        wake != Wake::Start || self.start_thread()
    }

    /// Takes a vacant slot, if there is one; at work from then on.
    pub(crate) fn occupy(&self) -> Option<Local<Queued>> {
        self.sleep.occupy().then(|| self.take_vacated().slot)
    }

    /// The same for a thread that has lost its own slot, which may thus replace another that blocks.
    pub(crate) fn occupy_as_replacement(&self) -> Option<Local<Queued>> {
        self.sleep.occupy().then(|| {
            let vacated = self.replace();
            vacated.tell();
            vacated.slot
        })
    }

    /// Lays down a slot. To be followed by the change of `sleep` that counts it as vacant.
    pub(crate) fn put_back(&self, slot: Local<Queued>) {
        self.vacated.lock().push(Vacated { slot, blocked: None });
    }

    /// The last thing that a worker does.
    pub(crate) fn thread_ended(&self, number: usize) {
        self.threads.ended(number);
    }

    pub(crate) fn metrics(&self) -> Metrics {
        let parked = self.sleep.counts().sleeping as usize;
        Metrics { workers: self.slots, parked, ..self.counters.snapshot() }
    }

    fn admit(&self, worker: Option<&Worker>, count: usize) -> bool {
        self.threads.are_here().is_ok()
            && worker
                .map_or_else(|| self.gate.enter(count), |worker| self.gate.enter_from(&worker.places, count))
    }

    /// Ensures that a thread looks for the tasks that the running thread has queued, unless a limit holds all of them back.
    /// Says whether any thread is left to run them.
    fn call_for(self: &Arc<Self>, worker: Option<&Worker>, highest: TaskPriority) -> bool {
        if self.slots == 1 && worker.is_some_and(Worker::holds_slot) {
            // No other slot exists, and this thread will look.
            return true;
        }
        self.follow(self.sleep.notify_if(|| self.may_start(highest)))
    }

    /// Queues all of them. Gives the highest priority.
    fn enqueue(&self, worker: Option<&Worker>, tasks: &mut Vec<Task>) -> TaskPriority {
        // One look at the clock for all of them, and one count.
        let now = self.stopwatch.now();
        let slot = worker.map(Worker::slot);
        let slot = slot.as_deref().and_then(Option::as_ref);
        let mut counts = [0; PRIORITIES];
        let mut highest = TaskPriority::Idle;
        for task in &*tasks {
            counts[task.priority() as usize] += 1;
            highest = highest.max(task.priority());
        }
        self.counters.of(slot.map(Local::slot)).count_queued(counts);
        tasks.drain(..).for_each(|task| self.push(slot, task, now));
        highest
    }

    /// A demanded turn of a strand goes into the lane, other demanded tasks of a slot's holder into its own deque, the rest
    /// into shared queues. The caller counts it.
    // Always: a call would move the task once more, and batches are where it counts.
    #[inline(always)]
    fn push(&self, slot: Option<&Local<Queued>>, task: Task, now: Stamp) {
        let priority = task.priority();
        self.limits.queue(&task);
        let goes_first = goes_first(&task);
        let task = Queued::new(task, now);
        match slot {
            _ if goes_first => self.queues.hand_over(task),
            Some(slot) if priority == TaskPriority::Demanded => slot.push(task),
            _ => self.queues.inject(priority, task),
        }
    }

    fn tell_refused(&self, error: &io::Error, somebody_left: bool) {
        self.counters.refused_threads.increment();
        worker::tell(|| {
            tracing::warn!(%error, somebody_left, "the operating system refused to start a thread");
        });
    }

    fn start_thread(self: &Arc<Self>) -> bool {
        let vacated = self.replace();
        // Handed over by a cell that survives a failed start: the slot must not be lost with the thread's body.
        let hand_over = Arc::new(Mutex::new(Some(vacated)));
        let body = {
            let (pool, hand_over) = (self.clone(), hand_over.clone());
            move |number| {
                let vacated = hand_over.lock().take().expect("a slot is handed over once");
                worker::run(pool, number, vacated);
            }
        };
        self.counters.begun_threads.increment();
        match self.threads.start(body) {
            Ok(()) => {
                self.counters.started_threads.increment();
                true
            }
            Err(reason) => {
                self.counters.ended_threads.increment();
                let vacated = hand_over.lock().take().expect("no thread was started to take it");
                if let Some(priority) = vacated.blocked {
                    self.counters.replaced[priority as usize].decrement();
                }
                // As it was: who takes it later is the replacement.
                self.vacated.lock().push(vacated);
                let somebody_left = self.sleep.start_failed();
                let NotStarted::Refused(error) = reason else { return true };
                self.tell_refused(&error, somebody_left);
                somebody_left
            }
        }
    }

    fn vacate(self: &Arc<Self>, worker: &Worker, slot: Local<Queued>) -> Result<(), WaitError> {
        let vacated = Vacated { slot, blocked: Some(worker.charge.get().priority) };
        let wake = if weakened("pool::counts_a_slot_before_it_lies_there") {
            let wake = self.sleep.vacate(|| self.any_startable());
            self.vacated.lock().push(vacated);
            wake
        } else {
            self.vacated.lock().push(vacated);
            self.sleep.vacate(|| self.any_startable())
        };
        self.unless_deserted(worker, self.follow(wake))
    }

    /// A thread without a slot is about to block. If no thread is left to run queued tasks, it takes a slot and is refused the
    /// wait.
    fn unless_deserted(&self, worker: &Worker, somebody_left: bool) -> Result<(), WaitError> {
        if !somebody_left && let Some(slot) = self.occupy() {
            worker.lend(slot);
            return Err(WaitError::NoThread { queued: self.metrics().queued.total() });
        }
        Ok(())
    }

    fn take_vacated(&self) -> Vacated {
        self.vacated.lock().pop().expect("a slot lies in the list before it is counted as vacant")
    }

    fn replace(&self) -> Vacated {
        let vacated = self.take_vacated();
        if let Some(priority) = vacated.blocked {
            self.counters.replaced[priority as usize].increment();
        }
        vacated
    }

    fn give_up_queued(&self) {
        while let Some(task) = self.take_unstarted() {
            give_up(task);
        }
    }

    /// Takes a queued task out of the pool's care.
    fn take_unstarted(&self) -> Option<Task> {
        let task = self.queues.take_any()?.task;
        self.counters.of(None).discount(|stripe| &stripe.queued[task.priority() as usize]);
        self.limits.give_up(&task);
        self.gate.leave();
        Some(task)
    }
}

/// Whether a task goes before all others: it is a turn that was handed over, and demanded. Background tasks go by their
/// priority alone.
pub(crate) fn goes_first(task: &Task) -> bool {
    task.is_handed_over() && task.priority() == TaskPriority::Demanded
}

/// Drops a task, which fails what it owned.
pub(crate) fn give_up(task: Task) {
    let label = task.keep_label();
    if let Err(message) = worker::catch(|| drop(task)) {
        worker::tell(|| {
            tracing::error!(task = label.as_str(), message, "dropping a task that could not be run panicked")
        });
    }
}

#[cfg(all(test, not(any(uruk_loom, uruk_shuttle))))]
mod tests {
    use super::*;
    use crate::limits::BoundsWanted;
    use crate::threads::Permits;

    fn pool(slots: usize) -> Arc<Pool> {
        let limits = BoundsWanted::default().of(slots);
        let threads = Threads::new("test".to_owned(), 1 << 20, Permits::default());
        Arc::new(Pool::new(slots, threads, limits, Stopwatch::new(None)))
    }

    fn task() -> Task {
        Task::new("test", TaskPriority::Demanded, || ())
    }

    /// ```text
    ///  late dispatch:  admitted ─ push ............................................. calls for a thread
    ///  other dispatch:                  push ─ starts a thread, which runs both
    ///  shutdown:                                                          joins it
    /// ```
    #[test]
    fn no_thread_starts_after_the_last_one_was_joined() {
        let pool = pool(2);
        assert!(pool.gate.enter(1));
        let highest = pool.enqueue(None, &mut vec![task()]);
        pool.dispatch(task()).expect("the pool is open");
        pool.shutdown();
        let before = pool.metrics();
        assert_eq!((before.finished, before.threads), (2, 0));
        assert!(pool.call_for(None, highest), "its task needs nobody any more");
        assert_eq!(pool.metrics(), before);
        assert_eq!(pool.sleep.counts().vacant, 2);
    }
}
