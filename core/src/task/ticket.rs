//! Tickets: one piece of work that stands in the queue of more than one priority.
//!
//! Work below the highest priority may become more urgent while it is queued. No dispatcher can move a task from queue to
//! queue, so the work is not in the task: it lies in a [`Ticketed`], and what is dispatched are tickets for it. The first
//! ticket that runs takes the work. Those that come later find nothing, and do nothing.
//!
//! ```text
//!                    hold                    a ticket runs
//!   (no work) ───────────────▶ queued ──────────────────────────────────▶ taken
//!                              │ ▲  │
//!   raised: a ticket of the    │ │  │ the last ticket is dropped unrun
//!   new priority is dispatched └─┘  └───────────────────────────────────▶ dropped
//! ```
//!
//! Under the lock, queued work always has a ticket that is dispatched, or that a thread is about to dispatch. One of these
//! is as urgent as the work, except between a raise and what [`Ticketed::ticket`] gives.
//!
//! The priority itself is written by the holder of the session lock, who looks at the tickets afterwards. The first ticket gets
//! its priority under this lock. So of a raise and a [`Ticketed::hold`], the later of the two sees the other.

use std::fmt;

use crate::hints::Hints;
use crate::sync::atomic::{AtomicU8, Ordering};
use crate::sync::{Arc, Mutex, weakened};
use crate::{SerialQueue, SymbolName, TaskPriority};

use super::{ClaimOfSession, Task, TaskLabel, TaskWork, Waiting, Work};

/// Work that may be taken once, by any of its tickets.
pub(crate) struct Ticketed {
    label: SymbolName,
    priority: AtomicU8,
    /// In which its tickets wait for their turn.
    serial_queue: Option<SerialQueue>,
    hints: Hints,
    counter: Mutex<Counter>,
}

#[derive(Default)]
struct Counter {
    work: Option<TaskWork>,
    /// The priorities of the tickets that have neither run nor been dropped: one bit each.
    queued: u8,
    /// Of these, which count no more as queued: a dispatcher has taken them from its queue, or has been told that they are void.
    left: u8,
    /// Of these, which wait for their turn in a serial queue.
    in_turn: u8,
    /// The work was told that it waits for its turn: each of its tickets does.
    told: bool,
}

/// A task that takes the work if it is still there.
struct UnitTicket {
    of: Arc<Ticketed>,
    priority: TaskPriority,
    /// It has run; its drop means nothing any more.
    is_void: bool,
}

impl Ticketed {
    /// No work yet: a raise may come before it does.
    pub(crate) fn new(
        label: SymbolName,
        priority: TaskPriority,
        serial_queue: Option<SerialQueue>,
        hints: Hints,
    ) -> Arc<Self> {
        let priority = AtomicU8::new(priority as u8);
        Arc::new(Self { label, priority, serial_queue, hints, counter: Mutex::default() })
    }

    /// Raises the priority. Called under the session lock; [`Self::ticket`] comes after it.
    pub(crate) fn raise(&self, priority: TaskPriority) {
        // Relaxed, here and below: the lock of the tickets orders a raise and the first ticket.
        self.priority.store(priority as u8, Ordering::Relaxed);
    }

    pub(crate) fn priority(&self) -> TaskPriority {
        match self.priority.load(Ordering::Relaxed) {
            0 => TaskPriority::Idle,
            1 => TaskPriority::Speculative,
            2 => TaskPriority::Lazy,
            _ => TaskPriority::Demanded,
        }
    }

    /// Takes the work, and gives its first ticket, to be dispatched.
    pub(crate) fn hold(self: &Arc<Self>, work: impl Into<TaskWork>) -> Task {
        let early = weakened("urgency::looks_before_it_is_queued").then(|| self.priority());
        let mut counter = self.counter.lock();
        counter.work = Some(work.into());
        let now = early.unwrap_or_else(|| self.priority());
        self.issue(now, &mut counter)
    }

    /// A ticket to be dispatched, if the work is queued and none is on the way that is as urgent.
    pub(crate) fn ticket(self: &Arc<Self>) -> Option<Task> {
        if weakened("urgency::raises_without_a_ticket") {
            return None;
        }
        let mut counter = self.counter.lock();
        let now = self.priority();
        let needed = counter.work.is_some() && !counter.has_one_for(now);
        needed.then(|| self.issue(now, &mut counter))
    }

    fn issue(self: &Arc<Self>, priority: TaskPriority, counter: &mut Counter) -> Task {
        counter.queued |= bit(priority);
        counter.tell();
        let ticket = Task::of(priority, Box::new(UnitTicket { of: self.clone(), priority, is_void: false }));
        self.serial_queue.iter().fold(ticket.with_hints(self.hints), Task::in_queue)
    }

    /// The work if it is still there, and which other tickets are void from now on, and still count as queued.
    fn redeem(&self, ticket: TaskPriority) -> Option<(TaskWork, u8)> {
        let mut counter = self.counter.lock();
        counter.forget(ticket);
        let work = counter.take()?;
        Some((work, counter.void()))
    }

    /// Tells the dispatcher that it may forget these tickets, which it will find queued all the same.
    fn forget_void(&self, void: u8, work: &dyn Work) {
        let Some(dispatcher) = (if void == 0 { None } else { work.dispatcher() }) else { return };
        for priority in [TaskPriority::Idle, TaskPriority::Speculative] {
            if void & bit(priority) != 0 {
                let void = Waiting { priority, in_serial_queue: self.serial_queue.is_some() };
                if let Err(message) = crate::panics::guard(|| dispatcher.waits_no_more(void)) {
                    tracing::error!(message = &*message, "a dispatcher panicked over a ticket that is void");
                }
            }
        }
    }
}

impl Counter {
    /// Whether a ticket of that priority or a higher one is queued.
    fn has_one_for(&self, priority: TaskPriority) -> bool {
        self.queued >> priority as u8 != 0
    }

    /// A ticket runs or goes.
    fn forget(&mut self, ticket: TaskPriority) {
        self.queued &= !bit(ticket);
        self.left &= !bit(ticket);
        self.in_turn &= !bit(ticket);
        self.tell();
    }

    /// A ticket counts as queued no more. Says whether it did.
    fn leave(&mut self, ticket: TaskPriority) -> bool {
        let counted = self.left & bit(ticket) == 0;
        self.left |= bit(ticket);
        counted
    }

    /// The work was taken: which tickets below the highest priority count as queued; they do no more. (One of the
    /// highest is about to be taken from its queue anyway, and counts for nothing but its memory.)
    fn void(&mut self) -> u8 {
        let void = self.queued & !self.left & !bit(TaskPriority::Demanded);
        self.left |= void;
        if weakened("overload::void_tickets_leave_twice") {
            self.left &= !void;
        }
        void
    }

    fn take(&mut self) -> Option<TaskWork> {
        let work = self.work.take()?;
        if std::mem::take(&mut self.told) {
            work.waits_for_turn(false);
        }
        Some(work)
    }

    /// Tells the work whether all of its tickets wait for their turn, if that has changed.
    fn tell(&mut self) {
        let waits = self.queued != 0 && self.in_turn == self.queued;
        if let Some(work) = &self.work
            && waits != self.told
        {
            work.waits_for_turn(waits);
            self.told = waits;
        }
    }
}

fn bit(priority: TaskPriority) -> u8 {
    1 << priority as u8
}

impl Work for UnitTicket {
    fn marks_leaf(&self) -> bool {
        true
    }

    fn label(&self) -> &str {
        self.of.label.as_str()
    }

    fn keep_label(&self) -> TaskLabel {
        "unit.materialize".into()
    }

    fn leaves_queue(&self) -> bool {
        self.of.counter.lock().leave(self.priority)
    }

    fn claim(&self) -> Option<ClaimOfSession> {
        self.of.counter.lock().work.as_ref()?.claim()
    }

    fn waits_for_turn(&self, waits: bool) {
        let mut counter = self.of.counter.lock();
        match waits {
            true => counter.in_turn |= bit(self.priority),
            false => counter.in_turn &= !bit(self.priority),
        }
        counter.tell();
    }

    fn run(&mut self) {
        self.is_void = true;
        if let Some((mut work, void)) = self.of.redeem(self.priority) {
            self.of.forget_void(void, &*work);
            work.run();
        }
    }
}

impl Drop for UnitTicket {
    fn drop(&mut self) {
        if self.is_void {
            return;
        }
        let mut counter = self.of.counter.lock();
        counter.forget(self.priority);
        let was_last = counter.queued == 0 || weakened("urgency::any_ticket_takes_the_work_along");
        let work = if was_last { counter.take() } else { None };
        // Dropping it fails what it owns, without this lock.
        drop(counter);
        drop(work);
    }
}

impl fmt::Debug for Ticketed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ticketed")
            .field("label", &self.label)
            .field("priority", &self.priority())
            .finish_non_exhaustive()
    }
}

#[cfg(all(test, not(uruk_loom)))]
mod tests {
    use super::*;
    use crate::SymbolStringPool;
    use TaskPriority::{Demanded, Idle, Lazy, Speculative};

    /// Says in the log when it runs and when it is dropped unrun.
    struct Logged {
        log: Arc<Mutex<Vec<&'static str>>>,
        is_over: bool,
    }

    impl Work for Logged {
        fn label(&self) -> &str {
            "logged"
        }

        fn keep_label(&self) -> TaskLabel {
            "logged".into()
        }

        fn run(&mut self) {
            self.is_over = true;
            self.log.lock().push("ran");
        }
    }

    impl Drop for Logged {
        fn drop(&mut self) {
            if !self.is_over {
                self.log.lock().push("dropped");
            }
        }
    }

    struct Scene {
        ticketed: Arc<Ticketed>,
        log: Arc<Mutex<Vec<&'static str>>>,
    }

    fn scene(priority: TaskPriority) -> (Scene, Task) {
        let ticketed =
            Ticketed::new(SymbolStringPool::new().intern("unit"), priority, None, Hints::default());
        let log = Arc::default();
        let first = ticketed.hold(Box::new(Logged { log: Arc::clone(&log), is_over: false }));
        (Scene { ticketed, log }, first)
    }

    #[test]
    fn the_first_ticket_that_runs_takes_the_work() {
        let (scene, first) = scene(Speculative);
        assert_eq!((first.priority(), first.label()), (Speculative, "unit"));
        scene.ticketed.raise(Demanded);
        let second = scene.ticketed.ticket().expect("none is as urgent");
        assert_eq!(second.priority(), Demanded);
        assert!(scene.ticketed.ticket().is_none(), "one is on the way");
        second.run();
        first.run();
        assert_eq!(*scene.log.lock(), ["ran"]);
        assert!(scene.ticketed.ticket().is_none(), "nothing is left to take");
    }

    #[test]
    fn a_raise_before_the_work_is_there_gives_its_first_ticket_the_priority() {
        let ticketed = Ticketed::new(SymbolStringPool::new().intern("unit"), Idle, None, Hints::default());
        ticketed.raise(Lazy);
        assert!(ticketed.ticket().is_none());
        let first = ticketed.hold(Box::new(Logged { log: Arc::default(), is_over: false }));
        assert_eq!(first.priority(), Lazy);
    }

    #[test]
    fn the_work_goes_with_its_last_ticket() {
        let (scene, first) = scene(Speculative);
        scene.ticketed.raise(Demanded);
        let second = scene.ticketed.ticket().unwrap();
        drop(second);
        assert!(scene.log.lock().is_empty());
        drop(first);
        assert_eq!(*scene.log.lock(), ["dropped"]);
    }

    #[test]
    fn a_stale_ticket_that_is_dropped_does_nothing() {
        let (scene, first) = scene(Speculative);
        scene.ticketed.raise(Demanded);
        scene.ticketed.ticket().unwrap().run();
        drop(first);
        assert_eq!(*scene.log.lock(), ["ran"]);
    }
}
