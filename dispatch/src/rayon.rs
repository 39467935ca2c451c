//! A dispatcher inside a rayon pool that the host owns.
//!
//! ```text
//!  dispatch ──▶ board: our queues ◀── takes the most urgent task ── ticket, on a thread of the host
//!     │                           ◀── the same, while permitted ─── spare, a thread of ours
//!     └─ spawns a ticket in the host's pool, unless it holds one for each of its threads already
//! ```
//!
//! Tasks wait in our own queues. The host's pool gets *tickets*: a ticket is permission to take the most urgent task at the
//! time when it is honoured. So a ticket that the host never honours holds no task.
//!
//! **Architecture Invariant: progress never depends on a thread of the host.** A thread of the host that blocks in a lookup
//! cannot be replaced by rayon, and all tickets may lie behind such threads. So threads of our own, *spares*, take
//! from the same queues while one of these holds (`board.rs` counts them):
//!
//! - a thread, the host's or any other, is blocked in a wait of this dispatcher: one spare for each, and in the place of a spare
//!   that blocks another;
//! - a ticket was turned away (below): one spare for each, until a ticket is honoured again;
//! - nothing was taken for [`PATIENCE`] though tasks were queued: one spare. A task blocks undeclared, or the host is busy for
//!   long. So in any case there is a pool of one worker.
//!
//! While tasks are queued that may start, at least one spare that is not blocked exists and looks at the clock. Spares that have nothing
//! to do retire.
//!
//! **Architecture Invariant: no task runs on the stack of another, nor above a declared wait.** A thread of rayon's that waits
//! in `join`, `scope` or `install` runs other jobs of its pool meanwhile, on the stack of the waiting one. If a task of ours
//! waits so, a task that a ticket ran there might wait for the one beneath, which cannot go on before it ends: a hang with no
//! cycle among symbols. So a ticket that finds itself above a task, above a [`blocking`](TaskDispatcher::blocking) or above a
//! responsibility that its thread holds (`here.rs`, [`uruk_core::thread_is_engaged`]) is *turned away*: it takes nothing, and
//! its turn goes to a spare.
//!
//! One duty is left to the host: its code may hold a *detached* responsibility, which only it can finish, and wait in rayon. It
//! declares such a wait with `session.blocking`.
//!
//! Limits on work in the background are those of a pool (`limits.rs`). No ticket or spare waits for a task that a limit holds
//! back; each change of the board that lifts a limit calls a thread for the tasks that may start then.
//!
//! One lock and one condition variable guard all of it, and every decision is a function of `board.rs` on `&mut`: there
//! is no order of memory to model. `dispatch/tests/rayon/` has the scenarios and hammers it.

mod board;
mod builder;
mod counters;
mod here;
#[cfg(test)]
mod model;
mod spare;

use std::any::Any;
use std::time::Duration;

use rayon_core::ThreadPool;
use uruk_core::sync::{Arc, Condvar, Latch, Mutex};
use uruk_core::{LimitReached, Task, TaskDispatcher, TaskPriority, WaitError, Waiting, refuse_wait_in_leaf};

use crate::gate::Gate;
use crate::limits::{Charge, Limits};
use crate::pool::give_up;
use crate::threads::Threads;
use crate::worker;

use board::{Board, Call, Orders, Who};
use builder::Host;
use counters::RayonCounters;
use here::{Beneath, Entry};

pub use builder::RayonTaskDispatcherBuilder;
pub use counters::RayonMetrics;

/// How long queued tasks lie untaken before a spare serves them. Long beside the time in which a pool that is not
/// stuck takes the next task, and short beside what a user calls a hang.
const PATIENCE: Duration = Duration::from_millis(20);

/// Runs tasks inside a rayon pool that the host owns, and goes on without its threads where they are blocked.
///
/// Tasks run on the host's threads as long as those come; threads of the dispatcher's own step in for each thread that
/// blocks in a lookup, for as long as it does. So a unit may run outside of the pool: what it wants of *this* pool
/// it asks by name, `pool.install(..)`, and declares that with `session.blocking(..)`.
///
/// Dropping it shuts it down; dropped by one of its own tasks, it closes without waiting.
///
/// # Concurrency
/// Tasks start in order of [`TaskPriority`](uruk_core::TaskPriority), and within one priority in the order of dispatch, but for
/// demanded turns of serial queues, which go first. Lookups block the thread that makes them, as everywhere: jobs of the host that rayon has put beneath one on the same stack wait
/// with it. If a unit is beneath, one that waits in `join` or `scope`, and the lookup needs that unit, the lookup is told
/// ([`LookupError::WouldDeadlock`](uruk_core::LookupError::WouldDeadlock)); a job that blocks there by other means hangs, as it would
/// in rayon without us. A job of the host that waits by other means (a channel, a mutex, `block_on`) for something that tasks bring about
/// should say so with `session.blocking(..)`; if it does not, tasks start some milliseconds later.
///
/// A unit that waits for the host's pool (`pool.install(..)`) depends on the host's threads. On one of them it goes on in
/// place; on a spare it waits until one is free. If each of them is blocked in a lookup that needs the unit, none ever is, and
/// nothing can tell: have such units looked up from outside of the pool, or asynchronously.
///
/// # Examples
/// ```
/// use uruk_core::ExecutionSession;
/// use uruk_core::sync::Arc;
/// use uruk_dispatch::RayonTaskDispatcher;
///
/// let pool = Arc::new(rayon_core::ThreadPoolBuilder::new().num_threads(2).build()?);
/// let dispatcher = RayonTaskDispatcher::in_pool(pool.clone()).build()?;
/// let session = ExecutionSession::builder().dispatcher(Arc::new(dispatcher)).build();
/// # session.close()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct RayonTaskDispatcher {
    shared: Arc<Shared>,
}

impl RayonTaskDispatcher {
    /// Starts to describe a dispatcher inside `pool`, which it keeps alive.
    pub fn in_pool(pool: Arc<ThreadPool>) -> RayonTaskDispatcherBuilder {
        RayonTaskDispatcherBuilder::new(Host::Pool(pool))
    }

    /// Starts to describe a dispatcher inside rayon's global pool. Dispatched from a thread of another pool of rayon's, tasks
    /// run in that one.
    pub fn in_global_pool() -> RayonTaskDispatcherBuilder {
        RayonTaskDispatcherBuilder::new(Host::Global)
    }

    /// Reads the counters.
    ///
    /// # Concurrency
    /// Takes no lock. Counters are read one after another: beside tasks that run they may be a few tasks off.
    pub fn metrics(&self) -> RayonMetrics {
        self.shared.counters.read()
    }
}

/// The state that tickets and spares share.
#[derive(Debug)]
struct Shared {
    board: Mutex<Board>,
    /// The board's.
    counters: Arc<RayonCounters>,
    limits: Arc<Limits>,
    /// Where spares wait to be called.
    called: Condvar,
    gate: Gate,
    threads: Threads,
    host: Host,
}

impl Shared {
    /// Does what the board has decided. Says whether anybody is left who could run what is queued.
    fn follow(self: &Arc<Self>, orders: Orders) -> bool {
        self.spawn(orders.tickets);
        match orders.call {
            Call::Nobody => true,
            Call::Wake => {
                self.called.notify_one();
                true
            }
            Call::Start => self.start_spare(),
        }
    }

    /// Spawns tickets, which are counted.
    fn spawn(self: &Arc<Self>, tickets: usize) {
        for _ in 0..tickets {
            let shared = self.clone();
            self.host.spawn(move || shared.honour());
        }
    }

    /// The body of a ticket, run by a thread of the host.
    fn honour(self: Arc<Self>) {
        if here::is_occupied() || uruk_core::thread_is_engaged() {
            let orders = self.board.lock().turn_away();
            self.follow(orders);
            return;
        }
        let Some((task, charge)) = self.board.lock().take_for_ticket() else { return };
        let panicked = self.run(task, Who::Host, charge);
        let orders = self.board.lock().ticket_ended(charge, panicked);
        self.follow(orders);
        self.gate.leave();
    }

    /// Runs a task at the bottom of this thread's stack, as far as we are concerned; says whether it panicked.
    fn run(&self, task: Task, who: Who, charge: Charge) -> bool {
        let _entry = Entry::enter(self, Beneath::Task(who, charge));
        worker::run_traced(task)
    }

    /// Starts a spare if no thread is left to run the queued tasks, and gives all of them up if none can be started.
    ///
    /// Each dispatch has tried already; this is for tasks whose dispatch relied on the attempt of another thread.
    fn settle(self: &Arc<Self>) {
        let Some(orders) = self.board.lock().call_if_deserted() else { return };
        if !self.follow(orders) {
            self.give_up_queued();
        }
    }

    fn give_up_queued(&self) {
        while let Some(task) = { self.board.lock().take_back() } {
            give_up(task);
            self.gate.leave();
        }
    }

    fn dispatch(self: &Arc<Self>, tasks: &mut Vec<Task>) {
        let count = tasks.len();
        if count == 0 || self.threads.are_here().is_err() || !self.gate.enter(count) {
            return;
        }
        let orders = self.board.lock().push(tasks.drain(..));
        if !self.follow(orders) {
            let mut board = self.board.lock();
            while tasks.len() < count
                && let Some(task) = board.take_back()
            {
                tasks.push(task);
            }
            drop(board);
            tasks.iter().for_each(|_| self.gate.leave());
        }
    }

    /// Runs `block`, which may sleep, while a spare may take tasks in this thread's place.
    fn blocking<R>(self: &Arc<Self>, block: impl FnOnce() -> R) -> Result<R, WaitError> {
        let (who, task) = match here::innermost(self) {
            // The wait around this one has said so already.
            Some(Beneath::Wait) => return Ok(block()),
            Some(Beneath::Task(who, charge)) => (who, Some(charge)),
            None if self.host.runs_here() => (Who::Host, None),
            None => (Who::Foreign, None),
        };
        let orders = self.board.lock().begin_wait(who, task);
        let _blocked = WaitingThread { shared: self, who, task };
        if !self.follow(orders) && who != Who::Foreign {
            return Err(WaitError::NoThread { queued: self.board.lock().waiting() });
        }
        let _entry = Entry::enter(self, Beneath::Wait);
        Ok(block())
    }

    /// Whether the limits would let `count` more tasks of `priority` come. A closed dispatcher says yes here and refuses them
    /// for that reason.
    fn admits(&self, priority: TaskPriority, count: usize) -> Result<(), LimitReached> {
        // The gate last: all who dispatch write there.
        self.limits
            .admits(priority, count)
            .or_else(|reached| if self.gate.is_closed() { Ok(()) } else { Err(reached) })
    }

    fn close(&self) {
        self.gate.close();
        // Before anybody is called: who looks now finds that time holds nothing back any more.
        self.limits.close();
        self.board.lock().close();
        self.called.notify_all();
    }

    fn shutdown(self: &Arc<Self>) {
        // The threads of another process end nothing here.
        if self.threads.are_here().is_err() {
            return;
        }
        self.close();
        // A leaf waits for nothing; what is queued is run all the same.
        if refuse_wait_in_leaf().is_err() {
            return;
        }
        let inside = here::is_inside_task_of(self);
        let wait = || if inside { self.gate.wait_for_others() } else { self.gate.wait_for_all() };
        if self.blocking(wait).is_err() {
            self.give_up_queued();
            wait();
        }
        if !inside {
            self.threads.join_all();
        }
    }
}

/// A thread that waits; when it is dropped, also by a panic, the thread goes on.
struct WaitingThread<'a> {
    shared: &'a Arc<Shared>,
    who: Who,
    task: Option<Charge>,
}

impl Drop for WaitingThread<'_> {
    fn drop(&mut self) {
        let orders = self.shared.board.lock().end_wait(self.who, self.task);
        self.shared.follow(orders);
    }
}

impl TaskDispatcher for RayonTaskDispatcher {
    /// Queues the task.
    ///
    /// # Errors
    /// Gives a task back when the dispatcher is closed, or when every thread of the host is blocked here and no spare can be had.
    /// In the second case not necessarily this one, but one that would have had to wait for a thread as well.
    fn dispatch(&self, task: Task) -> Result<(), Task> {
        let mut tasks = vec![task];
        self.shared.dispatch(&mut tasks);
        tasks.pop().map_or(Ok(()), Err)
    }

    fn dispatch_all(&self, tasks: &mut Vec<Task>) {
        self.shared.dispatch(tasks);
    }

    fn runs_here(&self) -> Result<(), WaitError> {
        self.shared.threads.are_here()
    }

    /// Gives up the queued tasks if spares were refused and no thread is left to run them.
    fn run_ready(&self) {
        self.shared.settle();
    }

    fn wait(&self, latch: &Latch) -> Result<(), WaitError> {
        if latch.is_open() { Ok(()) } else { self.blocking(&mut || latch.wait()) }
    }

    fn blocking(&self, block: &mut dyn FnMut()) -> Result<(), WaitError> {
        refuse_wait_in_leaf()?;
        self.shared.blocking(block)
    }

    fn admits(&self, priority: TaskPriority, count: usize) -> Result<(), LimitReached> {
        self.shared.admits(priority, count)
    }

    /// # Errors
    /// As [`TaskDispatcher::blocking`].
    fn wait_for_room(&self, priority: TaskPriority, count: usize) -> Result<(), WaitError> {
        if self.shared.admits(priority, count).is_ok() {
            return Ok(());
        }
        refuse_wait_in_leaf()?;
        let Shared { limits, gate, .. } = &*self.shared;
        self.shared.blocking(|| limits.wait_for_room(priority, count, || gate.is_closed()))
    }

    fn begins_to_wait(&self, task: Waiting) {
        self.shared.limits.begin_to_wait(task);
    }

    fn waits_no_more(&self, task: Waiting) {
        // It lifts no limit on what may start.
        self.shared.limits.wait_no_more(task);
    }

    fn inspect(&self, reader: &mut dyn FnMut(&dyn Any)) {
        reader(self);
    }

    fn shutdown(&self) {
        self.shared.shutdown();
    }
}

impl Drop for RayonTaskDispatcher {
    fn drop(&mut self) {
        if here::is_inside_task_of(&self.shared) {
            // Tickets and spares keep their shared state alive until they have run the queued tasks.
            self.shared.close();
        } else {
            self.shared.shutdown();
        }
    }
}
