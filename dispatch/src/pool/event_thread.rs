//! The event thread: a thread that runs tasks which tell observers what has happened.
//!
//! Queued like other tasks, news would wait behind compiles: with one worker, all of them until the last unit is done. So
//! they are told by a thread of their own, in the order in which they came. It is started for the first of them.
//!
//! ```text
//!              accept: first task                next: queue empty and closed
//!   Absent ───────────────────────▶ Telling ────────────────────────────────▶ Absent
//!                                    │    ▲
//!             its task begins to wait│    │ the wait is over
//!                                    ▼    │
//!                                    Waiting
//! ```
//!
//! An observer may wait, in a lookup for instance. While it does, tasks go to the workers as all others do: an observer may
//! wait for an effect of the next event.
//!
//! **Architecture Invariant:** a task that was accepted is given to the event thread, or back to the pool, exactly once. While the
//! state is `Absent` or `Waiting`, the queue is empty. No user code runs under the lock. Model: `loom-tests/tests/models/event_thread.rs`.

use std::collections::VecDeque;

use uruk_core::Task;
use uruk_core::sync::{Arc, Condvar, Mutex, weakened};

use super::Pool;
use crate::current::Worker;
use crate::threads::NotStarted;
use crate::worker;

/// The queue and the state of the event thread.
#[derive(Debug, Default)]
pub(crate) struct EventThread {
    queue: Mutex<EventQueue>,
    /// A task came, or the pool was closed.
    changed: Condvar,
}

#[derive(Debug, Default)]
struct EventQueue {
    tasks: VecDeque<Task>,
    state: State,
    closed: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    /// There is no such thread.
    #[default]
    Absent,
    /// It tells, or waits for tasks.
    Telling,
    /// It waits inside a task.
    Waiting,
}

/// The event thread's answer about a task.
#[derive(Debug)]
enum Accepted {
    /// The event thread will run it.
    Queued,
    /// The event thread will run it, and has to be started.
    First,
    /// The event thread cannot run it now: it goes where all other tasks go.
    Refused(Task),
}

impl EventThread {
    /// Queues a task, if the event thread is there or may be started.
    fn accept(&self, task: Task) -> Accepted {
        let mut queue = self.queue.lock();
        let accepted = match queue.state {
            State::Waiting => return Accepted::Refused(task),
            State::Absent if queue.closed => return Accepted::Refused(task),
            State::Absent => Accepted::First,
            State::Telling => Accepted::Queued,
        };
        queue.state = State::Telling;
        queue.tasks.push_back(task);
        drop(queue);
        self.changed.notify_one();
        accepted
    }

    /// No thread could be started. Gives back what it should have run.
    fn not_started(&self) -> VecDeque<Task> {
        self.leave(State::Absent)
    }

    /// The event thread's next task. Nothing once the pool is closed and all is told; then the thread must end.
    fn next(&self) -> Option<Task> {
        let mut queue = self.queue.lock();
        loop {
            if let Some(task) = queue.tasks.pop_front() {
                return Some(task);
            }
            if queue.closed {
                queue.state = State::Absent;
                return None;
            }
            if weakened("event_thread::sleeps_on_an_earlier_look") {
                drop(queue);
                queue = self.queue.lock();
            }
            queue = self.changed.wait(queue);
        }
    }

    /// The event thread is about to wait inside a task. Gives back what it would have run meanwhile.
    fn begins_to_wait(&self) -> VecDeque<Task> {
        if weakened("event_thread::keeps_its_queue_while_it_waits") {
            return VecDeque::new();
        }
        self.leave(State::Waiting)
    }

    /// Its wait is over.
    fn waits_no_more(&self) {
        self.queue.lock().state = State::Telling;
    }

    /// Lets the thread end once all is told.
    pub(crate) fn close(&self) {
        self.queue.lock().closed = true;
        if !weakened("event_thread::closes_without_waking") {
            self.changed.notify_one();
        }
    }

    fn leave(&self, state: State) -> VecDeque<Task> {
        let mut queue = self.queue.lock();
        queue.state = state;
        std::mem::take(&mut queue.tasks)
    }
}

impl Pool {
    /// Gives an admitted task to the event thread, or back if the event thread cannot take it.
    pub(super) fn give_to_event_thread(self: &Arc<Self>, task: Task) -> Result<(), Task> {
        let priority = task.priority() as usize;
        let accepted = self.event_thread.accept(task);
        if let Accepted::Refused(task) = accepted {
            return Err(task);
        }
        self.counters.of(None).count(|stripe| &stripe.queued[priority]);
        if matches!(accepted, Accepted::First) && !self.start_event_thread() {
            self.queue_with_others(self.event_thread.not_started());
        }
        Ok(())
    }

    /// Runs `block` on the event thread, which may sleep there, while the workers do its work.
    ///
    /// A wait may lie in another, in a lookup that is part of a declared wait for instance. The outer one goes on after it.
    pub(super) fn block_event_thread<R>(self: &Arc<Self>, worker: &Worker, block: impl FnOnce() -> R) -> R {
        struct Waits<'a>(&'a EventThread, &'a Worker);
        impl Drop for Waits<'_> {
            fn drop(&mut self) {
                let outer = self.1.blocks.get() - 1;
                self.1.blocks.set(outer);
                if outer == 0 || weakened("event_thread::ends_the_outer_wait_with_the_inner") {
                    self.0.waits_no_more();
                }
            }
        }
        let outer = worker.blocks.replace(worker.blocks.get() + 1);
        let _waits = Waits(&self.event_thread, worker);
        if outer == 0 {
            self.queue_with_others(self.event_thread.begins_to_wait());
        }
        block()
    }

    fn start_event_thread(self: &Arc<Self>) -> bool {
        let pool = self.clone();
        match self.threads.start_apart("obs", move || run(&pool)) {
            Ok(()) => true,
            Err(NotStarted::Over) => false,
            Err(NotStarted::Refused(error)) => {
                self.tell_refused(&error, true);
                false
            }
        }
    }

    /// Queues what the event thread will not run, and sees to it that a worker looks.
    fn queue_with_others(self: &Arc<Self>, tasks: VecDeque<Task>) {
        let Some(highest) = tasks.iter().map(Task::priority).max() else { return };
        let now = self.stopwatch.now();
        tasks.into_iter().for_each(|task| self.push(None, task, now));
        if !self.call_for(None, highest) {
            self.give_up_queued();
        }
    }
}

/// The loop of the event thread. It takes no other tasks, holds no slot, and ends with the pool.
fn run(pool: &Arc<Pool>) {
    let worker = Worker::enter(pool.clone(), None);
    while let Some(task) = pool.event_thread.next() {
        let tally = pool.counters.of(None);
        let priority = task.priority() as usize;
        tally.count(|stripe| &stripe.started[priority]);
        if worker::run_traced(task) {
            tally.count(|stripe| &stripe.panicked);
        }
        tally.count(|stripe| &stripe.finished[priority]);
        pool.gate.leave();
    }
    drop(worker);
    Worker::leave();
}
