//! Units of work, and who runs them.

pub(crate) mod in_place;
mod label;
pub(crate) mod serial_queue;
pub(crate) mod this_thread;
pub(crate) mod ticket;
pub(crate) mod unit;
mod waiting;
mod work;

use std::any::Any;
use std::fmt;
use std::time::Duration;

use crate::hints::Hints;
use crate::sync::Latch;
use crate::task::serial_queue::Outside;
use crate::task::this_thread::{refuse_wait_in_leaf, run_in_leaf};
use crate::{InPlaceTaskDispatcher, LimitReached, SerialQueue, TaskPriority, WaitError};

pub use label::TaskLabel;
pub(crate) use unit::ClaimOfSession;
pub use waiting::Waiting;
pub(crate) use work::{TaskWork, Work};

/// One piece of work: a unit to materialize, or user code to run after the lock is gone.
///
/// Dropping a task without running it is allowed at any time: what it owns fails on its way out, and a lookup's handler
/// runs on the thread that drops it, so no lock of the dispatcher may be held.
///
/// # Examples
/// ```
/// use std::sync::mpsc;
/// use uruk_core::{Task, TaskPriority};
///
/// let (done, told) = mpsc::channel();
/// let task = Task::new("indexing", TaskPriority::Idle, move || drop(done.send(42)));
/// task.run(); // A dispatcher does so, on a thread of its choice.
/// assert_eq!(told.recv(), Ok(42));
/// ```
pub struct Task {
    priority: TaskPriority,
    /// It delivers an answer or a report, which must happen even when no dispatcher takes it.
    runs_when_refused: bool,
    /// It is the turn of a task that has waited in a serial queue.
    handed_over: bool,
    delivers_events: bool,
    /// Whose other tasks must not run at the same time.
    serial_queue: Option<SerialQueue>,
    hints: Hints,
    work: TaskWork,
}

impl Task {
    /// Wraps `run`, which may panic: the dispatcher goes on with the next task.
    pub fn new(
        label: impl Into<TaskLabel>,
        priority: TaskPriority,
        run: impl FnOnce() + Send + 'static,
    ) -> Self {
        Self::of(priority, Box::new(work::Labelled::new(label.into(), run)))
    }

    pub(crate) fn of(priority: TaskPriority, work: impl Into<TaskWork>) -> Self {
        let hints = Hints::default();
        let (runs_when_refused, handed_over, delivers_events) = (false, false, false);
        Self {
            priority,
            runs_when_refused,
            handed_over,
            delivers_events,
            serial_queue: None,
            hints,
            work: work.into(),
        }
    }

    /// The task's name in traces.
    pub fn label(&self) -> &str {
        self.work.label()
    }

    /// A label that outlives the task, for a report of how it ended.
    ///
    /// The label of a unit's task does not name the unit: the session itself reports the unit's panics.
    pub fn keep_label(&self) -> TaskLabel {
        self.work.keep_label()
    }

    /// How urgently the task was wanted when it was made.
    ///
    /// A unit that becomes more urgent is dispatched again with its new priority; the older task then does nothing.
    pub fn priority(&self) -> TaskPriority {
        self.priority
    }

    /// The same without [`Self::in_queue`].
    pub(crate) fn in_no_queue(mut self) -> Self {
        self.serial_queue = None;
        self
    }

    /// Declares that the task never blocks: a wait inside it, in a lookup for instance, is refused with [`WaitError::Leaf`], and so is
    /// a close of the session. It runs where other tasks run: none lies on the stack of another.
    #[must_use]
    pub fn leaf(mut self) -> Self {
        self.hints = self.hints.leaf(true);
        self
    }

    /// Whether the task has declared never to block.
    pub fn is_leaf(&self) -> bool {
        self.hints.is_leaf()
    }

    pub(crate) fn with_hints(mut self, hints: Hints) -> Self {
        self.hints = hints;
        self
    }

    pub(crate) fn hints(&self) -> Hints {
        self.hints
    }

    pub(crate) fn run_when_refused(mut self) -> Self {
        self.runs_when_refused = true;
        self
    }

    pub(crate) fn runs_when_refused(&self) -> bool {
        self.runs_when_refused
    }

    /// Makes it a task that tells an observer what has happened.
    #[must_use]
    pub fn delivering_events(mut self) -> Self {
        self.delivers_events = true;
        self
    }

    /// Whether the task tells an observer what has happened.
    ///
    /// Such a task is short, and its news grow old while it is queued behind compiles. A dispatcher may run these tasks on a
    /// thread of their own, in the order in which they came. One that treats them like all others is right as well.
    pub fn delivers_events(&self) -> bool {
        self.delivers_events
    }

    pub(crate) fn handed_over(mut self) -> Self {
        self.handed_over = true;
        self
    }

    /// Whether it is the turn of a task that has waited in a [`SerialQueue`] and was handed over by the one before it.
    ///
    /// A dispatcher that starts such a task before others of the same priority keeps the serial queue moving: tasks there wait
    /// for one turn after another, and each turn goes through the dispatcher. A dispatcher that does not is correct too.
    pub fn is_handed_over(&self) -> bool {
        self.handed_over
    }

    /// Makes it a task of `queue`: [`ExecutionSession::dispatch`](crate::ExecutionSession::dispatch) has it run when no other
    /// of the queue does. For a dispatcher of one's own, see [`SerialQueue::dispatch`].
    #[must_use]
    pub fn in_queue(mut self, queue: &SerialQueue) -> Self {
        self.serial_queue = Some(queue.clone());
        self
    }

    /// The queue whose other tasks must not run at the same time.
    pub fn serial_queue(&self) -> Option<&SerialQueue> {
        self.serial_queue.as_ref()
    }

    /// Whether it is the turn of another task, which [counts](TaskDispatcher::begins_to_wait) where it waits: in a serial queue.
    pub fn is_turn(&self) -> bool {
        self.hints.is_turn()
    }

    /// Since when the task whose turn it is has waited in a [`SerialQueue`]: what its dispatcher then [said](TaskDispatcher::now_us).
    pub fn waits_since_us(&self) -> Option<u32> {
        self.work.waits_since_us()
    }

    /// Tells the task that a dispatcher which limits how many are queued takes it from its queue, to run it or to drop it. Says
    /// whether it has counted there until now: [`TaskDispatcher::waits_no_more`] may have come before.
    pub fn leaves_queue(&self) -> bool {
        // A demanded task is never raised: no later ticket takes its place.
        self.priority == TaskPriority::Demanded || self.work.leaves_queue()
    }

    /// The claim of the unit that it is to begin with, if it is the task of one.
    pub(crate) fn claim(&self) -> Option<ClaimOfSession> {
        self.work.claim()
    }

    /// Runs the task on this thread.
    pub fn run(self) {
        let _outside = Outside::enter();
        self.run_in_strand();
    }

    /// Runs the task in the strand that this thread has entered for it, if the task is one of a serial queue.
    pub(crate) fn run_in_strand(mut self) {
        let marked = self.is_leaf() && !self.work.marks_leaf();
        let leaf = marked.then(|| self.work.keep_label());
        run_in_leaf(leaf, || self.work.run());
    }

    /// Its share of the limits while it waits in a serial queue.
    pub(crate) fn in_turn(&self) -> Waiting {
        Waiting { priority: self.priority, in_serial_queue: true }
    }

    pub(crate) fn waits_for_turn(&self, waits: bool) {
        self.work.waits_for_turn(waits);
    }

    pub(crate) fn work_mut(&mut self) -> &mut dyn Work {
        &mut *self.work
    }
}

impl fmt::Debug for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Task")
            .field("label", &self.label())
            .field("priority", &self.priority)
            .finish_non_exhaustive()
    }
}

/// Runs tasks: in place, on a pool, or on an executor of the embedder's.
///
/// # Concurrency
/// Every method may be called from any thread, workers included, and no lock of ours is held. None may call back into the session before
/// it returns, nor wait in another, except [`run_ready`](Self::run_ready) and those that block: [`wait`](Self::wait),
/// [`wait_until`](Self::wait_until), [`blocking`](Self::blocking), [`wait_for_room`](Self::wait_for_room)
/// and [`shutdown`](Self::shutdown).
///
/// ORC: `TaskDispatcher`.
pub trait TaskDispatcher: Send + Sync + fmt::Debug {
    /// Takes a task and returns at once. One that panics has dropped the task, as far as the session is concerned.
    ///
    /// # Errors
    /// Gives the task back when the dispatcher no longer takes work. The caller drops it, which fails
    /// the work that it owned.
    fn dispatch(&self, task: Task) -> Result<(), Task>;

    /// Takes all of `tasks`, as [`dispatch`](Self::dispatch) would one after another; those it refuses are left there.
    ///
    /// # Cost
    /// A dispatcher that can admit and announce many tasks at once does better than the loop that this is otherwise:
    /// one lookup may claim ten thousand units.
    fn dispatch_all(&self, tasks: &mut Vec<Task>) {
        // Taken from behind one by one, so that a panic over one leaves the others where they are.
        tasks.reverse();
        let mut refused = Vec::new();
        while let Some(task) = tasks.pop() {
            refused.extend(self.dispatch(task).err());
        }
        *tasks = refused;
    }

    /// Whether tasks run in this process. To be forwarded by a dispatcher that hands tasks on to another one.
    ///
    /// Asked before a thread waits. In the child of a fork a dispatcher's threads do not exist, and what they were at work on, locks
    /// included, stays as it was.
    ///
    /// # Errors
    /// [`WaitError::Forked`], if threads that were started before a [fork](crate::sync::Process) are to run them.
    fn runs_here(&self) -> Result<(), WaitError> {
        Ok(())
    }

    /// Called by the session after it has handed over all its tasks, with no lock held. A dispatcher
    /// without threads of its own runs its tasks here.
    fn run_ready(&self) {}

    /// The dispatcher itself, if it runs tasks on the threads that dispatch them: a task that nothing comes before need not be
    /// queued then.
    #[doc(hidden)]
    fn in_place(&self) -> Option<&InPlaceTaskDispatcher> {
        None
    }

    /// Blocks until `latch` is open. A pool whose worker blocks here sees to it that another runs.
    ///
    /// A thread that sleeps in [`Latch::wait`] wakes now and then and looks for a deadlock, on behalf of its session. A dispatcher that
    /// polls instead must sleep in [`Latch::wait_timeout`], or deadlocks of that thread are not found.
    ///
    /// # Errors
    /// When the wait would nest deeper than the dispatcher allows, or the thread runs a [leaf](Task::leaf).
    fn wait(&self, latch: &Latch) -> Result<(), WaitError> {
        if !latch.is_open() {
            refuse_wait_in_leaf()?;
            latch.wait();
        }
        Ok(())
    }

    /// Blocks until `latch` is open, or `left` says that no time is left; says whether it is open.
    ///
    /// # Errors
    /// As [`TaskDispatcher::wait`].
    fn wait_until(&self, latch: &Latch, left: &dyn Fn() -> Duration) -> Result<bool, WaitError> {
        let mut open = false;
        self.blocking(&mut || open = latch.wait_while(left))?;
        Ok(open)
    }

    /// Runs `block`, which may wait for something that the dispatcher cannot see. A pool whose worker blocks here sees
    /// to it that another runs.
    ///
    /// # Errors
    /// As [`TaskDispatcher::wait`]; `block` has not been run then. It is run once otherwise.
    fn blocking(&self, block: &mut dyn FnMut()) -> Result<(), WaitError> {
        refuse_wait_in_leaf()?;
        block();
        Ok(())
    }

    /// Whether work of `priority` that `count` symbols may bring about would be admitted now. Asked by the session before a
    /// lookup in the background claims anything; claimed units are dispatched in any case.
    ///
    /// # Errors
    /// The limit that leaves no room. None ever for demanded and lazy work.
    fn admits(&self, _priority: TaskPriority, _count: usize) -> Result<(), LimitReached> {
        Ok(())
    }

    /// Blocks until [`admits`](Self::admits) would admit `count` more tasks of `priority`, or the dispatcher is shut down. A pool
    /// whose worker blocks here sees to it that another runs.
    ///
    /// # Errors
    /// As [`TaskDispatcher::wait`].
    fn wait_for_room(&self, _priority: TaskPriority, _count: usize) -> Result<(), WaitError> {
        Ok(())
    }

    /// A task of this dispatcher begins to wait for its turn in a [`SerialQueue`]. When that comes, a task that
    /// [is a turn](Task::is_turn) is dispatched for it. For dispatchers with limits; not told of what counts for nothing.
    ///
    /// A dispatcher that hands tasks on to another one forwards this and [`waits_no_more`](Self::waits_no_more): what the other has
    /// counted in would never be counted out.
    fn begins_to_wait(&self, _task: Waiting) {}

    /// It waits no more, because it begins or goes. Or a task that was dispatched here has nothing left to do, since another one
    /// has taken its work; it counts no more, although it is still queued. Called on any thread that runs tasks.
    fn waits_no_more(&self, _task: Waiting) {}

    /// The dispatcher's own time in microseconds, which may come round, if it measures how long tasks wait for their start. A task that
    /// begins to wait in a [`SerialQueue`] notes it for [`Task::waits_since_us`]. To be forwarded like the two above.
    fn now_us(&self) -> Option<u32> {
        None
    }

    /// Hands `reader` the dispatcher that runs the tasks: this one, or the one that it hands tasks on to. A reader that knows its type
    /// reads its counters. The default hands over nothing.
    fn inspect(&self, reader: &mut dyn FnMut(&dyn Any)) {
        let _ = reader;
    }

    /// Stops taking tasks; returns when no task is queued or running any more (called from one of its
    /// own tasks: when no other is; inside a [leaf](Task::leaf), which waits for nothing: at once). Idempotent.
    fn shutdown(&self);
}
