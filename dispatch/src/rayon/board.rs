//! The tasks that wait, and the threads that may take them: plain bookkeeping, which answers each change with the orders that
//! follow.
//!
//! | number | counts | bound |
//! |---|---|---|
//! | `tickets` | jobs of ours that the host's pool holds, or that run a task | the host's threads |
//! | `honoured` | those of them that run a task, blocked or not | `tickets` |
//! | `blocked` | threads in a wait, ours or others | |
//! | `serving` | spares that run a task and are not blocked | as many as are permitted, when they take it |
//! | `idle` | spares that wait, or are being started | |
//! | `called` | those of them that are on their way to look | `idle` |
//!
//! *Waits*, here, means that a task may start now: the board ignores tasks that a limit (`limits.rs`) holds back. Each event
//! that lifts a limit is a change of the board.
//!
//! *Permitted* are as many spares at once as threads that are not spares are blocked, and besides one for each ticket that was
//! turned away, or one if the host was found stalled, until a ticket takes a task. None is started beyond that, but for one
//! that looks at the clock. So spares never outnumber blocked threads by more than the host has threads, and waits that have
//! just ended.
//!
//! **Invariants**, true while the lock is free and the orders of all calls have been followed:
//!
//! - tasks that wait and threads of the host without a ticket do not exist together, but for tickets turned away, and for tasks that
//!   time alone has held back until now: an idle spare is about to look;
//! - if tasks wait, a spare is serving or idle, which includes looking at the clock; if time alone holds some back, and they
//!   may come to start without a change of the board, one is idle. Otherwise the start of one has failed. Then the host has a
//!   thread that is not blocked here, or the caller has been told that no thread is left; and time holds nothing back until a
//!   spare is there.

#[cfg(test)]
mod tests;
mod watch;

use std::collections::VecDeque;

use uruk_core::sync::Arc;
use uruk_core::{Task, TaskPriority};

use crate::limits::{Charge, Limits};
use crate::metrics::Counter;
use crate::pool::goes_first;
use crate::queues::TURNS_IN_A_ROW_MAX;

use super::counters::RayonCounters;

pub(super) use watch::Watch;

/// The steps to take once the lock is free.
#[derive(Debug, PartialEq, Eq)]
#[must_use]
pub(super) struct Orders {
    /// How many tickets to spawn; they are counted.
    pub(super) tickets: usize,
    pub(super) call: Call,
}

/// Which spare is to look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Call {
    Nobody,
    Wake,
    /// A new one, which is counted.
    Start,
}

/// Whose thread it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Who {
    /// A worker of the host's pool.
    Host,
    /// Ours.
    Spare,
    /// Any other.
    Foreign,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Board {
    /// By priority, the least urgent first.
    queues: [VecDeque<Task>; 4],
    /// Turns of serial queues, which go first (`queues.rs` says why), and how many of them went since anything else did that is
    /// demanded.
    turns: VecDeque<Task>,
    turns_in_a_row: u32,
    limits: Arc<Limits>,
    pub(super) host_threads: usize,
    pub(super) tickets: usize,
    pub(super) honoured: usize,
    /// Tickets turned away since one took a task.
    turned_away: usize,
    /// Nothing was taken for a while.
    stalled: bool,
    pub(super) blocked: usize,
    /// The host's own threads among them.
    blocked_of_host: usize,
    /// Spares among them.
    blocked_spares: usize,
    pub(super) serving: usize,
    pub(super) idle: usize,
    called: usize,
    closed: bool,
    /// Written under the board's lock alone.
    counters: Arc<RayonCounters>,
}

impl Board {
    pub(super) fn new(host_threads: usize, limits: Arc<Limits>) -> Self {
        Self {
            queues: Default::default(),
            turns: VecDeque::new(),
            turns_in_a_row: 0,
            limits,
            host_threads,
            tickets: 0,
            honoured: 0,
            turned_away: 0,
            stalled: false,
            blocked: 0,
            blocked_of_host: 0,
            blocked_spares: 0,
            serving: 0,
            idle: 0,
            called: 0,
            closed: false,
            counters: Arc::default(),
        }
    }

    pub(super) fn push(&mut self, tasks: impl Iterator<Item = Task>) -> Orders {
        for task in tasks {
            self.limits.queue(&task);
            self.counters.queued[task.priority() as usize].plus(1);
            let queue =
                if goes_first(&task) { &mut self.turns } else { &mut self.queues[task.priority() as usize] };
            queue.push_back(task);
        }
        self.orders()
    }

    /// A ticket takes the most urgent task, or ends.
    pub(super) fn take_for_ticket(&mut self) -> Option<(Task, Charge)> {
        let Some(taken) = self.pop() else {
            self.tickets -= 1;
            return None;
        };
        self.honoured += 1;
        self.turned_away = 0;
        self.stalled = false;
        Some(taken)
    }

    /// The task of a ticket has ended.
    pub(super) fn ticket_ended(&mut self, charge: Charge, panicked: bool) -> Orders {
        self.tickets -= 1;
        self.honoured -= 1;
        self.ended(charge, panicked)
    }

    /// A ticket must not take a task where it is.
    pub(super) fn turn_away(&mut self) -> Orders {
        self.tickets -= 1;
        self.counters.turned_away.plus(1);
        let startable = self.startable();
        if startable == 0 {
            return Orders { tickets: 0, call: Call::Nobody };
        }
        self.turned_away = (self.turned_away + 1).min(self.host_threads);
        // No ticket in its place: the same thread might come to that one too, again and again.
        Orders { tickets: 0, call: self.call(startable) }
    }

    /// Whether a spare that holds no task may take one.
    pub(super) fn is_permitted(&self) -> bool {
        self.startable() > 0 && self.serving < self.permitted()
    }

    /// An idle spare takes the most urgent task, if it may.
    pub(super) fn take_for_spare(&mut self) -> Option<(Task, Charge, Orders)> {
        let (task, charge) = if self.is_permitted() { self.pop()? } else { return None };
        self.idle -= 1;
        self.serving += 1;
        self.counters.started_by_spares.plus(1);
        // Where more are permitted, each calls the next.
        let startable = self.startable();
        Some((task, charge, Orders { tickets: 0, call: self.call(startable) }))
    }

    /// The task of a spare has ended.
    pub(super) fn spare_ended(&mut self, charge: Charge, panicked: bool) -> Orders {
        self.serving -= 1;
        self.idle += 1;
        self.ended(charge, panicked)
    }

    /// A thread is about to wait, in a task if that is said.
    pub(super) fn begin_wait(&mut self, who: Who, task: Option<Charge>) -> Orders {
        self.blocked += 1;
        self.counters.blocked.plus(1);
        if let Some(charge) = task {
            // The orders take a lifted limit into account.
            let _lifted = self.limits.stop(charge);
        }
        match who {
            Who::Host => self.blocked_of_host += 1,
            Who::Spare => {
                self.serving -= 1;
                self.blocked_spares += 1;
            }
            Who::Foreign => {}
        }
        self.orders()
    }

    /// It goes on at once, permitted or not.
    pub(super) fn end_wait(&mut self, who: Who, task: Option<Charge>) -> Orders {
        self.blocked -= 1;
        self.counters.blocked.minus(1);
        if let Some(charge) = task {
            self.limits.resume(charge);
        }
        match who {
            Who::Host => self.blocked_of_host -= 1,
            Who::Spare => {
                self.serving += 1;
                self.blocked_spares -= 1;
            }
            Who::Foreign => {}
        }
        self.orders()
    }

    /// A spare that waited, or was started, has come to look.
    pub(super) fn arrived(&mut self) {
        self.called = self.called.saturating_sub(1);
    }

    /// A spare could not be started, as the operating system refused it or, after the end of all, because it is too late. Says whether
    /// a thread is left that could run what is queued.
    pub(super) fn start_failed(&mut self, refused: bool) -> bool {
        self.idle -= 1;
        self.called = self.called.saturating_sub(1);
        self.counters.spares.minus(1);
        self.counters.started_threads.minus(1);
        self.counters.refused_threads.plus(u64::from(refused));
        self.is_attended()
    }

    /// Something is queued, no ticket will come to it, and no spare is there: calls one.
    pub(super) fn call_if_deserted(&mut self) -> Option<Orders> {
        let deserted = self.startable() > 0 && !self.is_attended();
        deserted.then(|| self.orders())
    }

    /// Whether a spare is there, or a thread of the host that is not blocked here.
    fn is_attended(&self) -> bool {
        self.idle + self.serving > 0 || self.blocked_of_host < self.host_threads
    }

    /// Whether an idle spare ends, and is counted no more. `quiet`: it has had nothing to do for long.
    pub(super) fn retires(&mut self, quiet: bool) -> bool {
        let nothing_waits = self.startable() == 0;
        let surplus = self.idle > self.host_threads.max(1) && !self.is_permitted();
        // A spare that was called serves, however long it has been quiet: no other was called in its place.
        let spare = quiet && self.idle > 1 && !self.is_permitted();
        let retires = surplus || spare || (nothing_waits && (quiet || self.closed));
        self.idle -= usize::from(retires);
        self.counters.spares.minus(u64::from(retires));
        retires
    }

    pub(super) fn close(&mut self) {
        self.closed = true;
    }

    /// Takes a task that no thread would run: the least urgent, the latest.
    pub(super) fn take_back(&mut self) -> Option<Task> {
        let task = self.queues.iter_mut().chain([&mut self.turns]).find_map(VecDeque::pop_back)?;
        self.counters.queued[task.priority() as usize].minus(1);
        self.limits.give_up(&task);
        Some(task)
    }

    /// How many tasks were ever taken to be run.
    pub(super) fn taken(&self) -> u64 {
        self.counters.started.iter().map(Counter::get).sum()
    }

    /// To be read without the board.
    pub(super) fn counters(&self) -> &Arc<RayonCounters> {
        &self.counters
    }

    /// How many tasks are queued.
    pub(super) fn waiting(&self) -> usize {
        self.queues.iter().chain([&self.turns]).map(VecDeque::len).sum()
    }

    /// How many of them may start now.
    pub(super) fn startable(&self) -> usize {
        let [idle, speculative, lazy, demanded] = self.queued();
        demanded + lazy + (idle + speculative).min(self.limits.places_left())
    }

    /// By priority; turns are demanded.
    fn queued(&self) -> [usize; 4] {
        let mut queued = self.queues.each_ref().map(VecDeque::len);
        queued[TaskPriority::Demanded as usize] += self.turns.len();
        queued
    }

    fn pop(&mut self) -> Option<(Task, Charge)> {
        let task = match self.pop_turn() {
            Some(turn) => turn,
            None => self.pop_startable()?,
        };
        let (priority, charge) = (task.priority() as usize, self.limits.start(&task));
        self.counters.queued[priority].minus(1);
        self.counters.started[priority].plus(1);
        self.counters.running[priority].plus(1);
        if self.waiting() == 0 {
            self.turned_away = 0;
            self.stalled = false;
        }
        Some((task, charge))
    }

    /// Takes the most urgent that no limit holds back.
    fn pop_startable(&mut self) -> Option<Task> {
        let startable = self.limits.floor() as usize..self.queues.len();
        let priority = startable.rev().find(|&priority| !self.queues[priority].is_empty())?;
        let is_free = priority >= TaskPriority::Lazy as usize || self.limits.reserve();
        if is_free { self.queues[priority].pop_front() } else { None }
    }

    /// Takes a turn, unless something else that is demanded has to come first.
    fn pop_turn(&mut self) -> Option<Task> {
        let others_wait = !self.queues[TaskPriority::Demanded as usize].is_empty();
        if self.turns.is_empty() || (others_wait && self.turns_in_a_row >= TURNS_IN_A_ROW_MAX) {
            self.turns_in_a_row = 0;
            return None;
        }
        self.turns_in_a_row += 1;
        self.turns.pop_front()
    }

    fn ended(&mut self, charge: Charge, panicked: bool) -> Orders {
        // The orders take a lifted limit into account.
        let _lifted = self.limits.stop(charge);
        self.counters.running[charge.priority as usize].minus(1);
        self.counters.finished.plus(1);
        self.counters.panicked.plus(u64::from(panicked));
        self.orders()
    }

    /// A spare that blocks gives its own permission to its replacement.
    pub(super) fn permitted(&self) -> usize {
        self.blocked - self.blocked_spares + self.turned_away.max(usize::from(self.stalled))
    }

    fn orders(&mut self) -> Orders {
        let startable = self.startable();
        Orders { tickets: self.issue_tickets(startable), call: self.call(startable) }
    }

    /// Counts the tickets that are missing for so many tasks that may start.
    fn issue_tickets(&mut self, startable: usize) -> usize {
        let wanted = (startable + self.honoured).min(self.host_threads);
        let missing = wanted.saturating_sub(self.tickets);
        self.tickets += missing;
        missing
    }

    /// Calls one spare if one more may serve, or if none is there to look at the clock. So many tasks may start.
    fn call(&mut self, startable: usize) -> Call {
        let wanted = self.permitted().saturating_sub(self.serving).min(startable);
        if wanted > self.called {
            self.called += 1;
            if self.called <= self.idle {
                return Call::Wake;
            }
        } else if self.idle + self.serving > 0 || startable == 0 {
            return Call::Nobody;
        } else {
            self.called += 1;
        }
        self.idle += 1;
        self.counters.spares.plus(1);
        self.counters.started_threads.plus(1);
        Call::Start
    }
}
