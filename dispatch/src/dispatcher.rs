//! The work-stealing dispatcher as an embedder sees it.

use std::any::Any;
use std::time::{Duration, Instant};
use std::{fmt, io};

use uruk_core::sync::{Arc, Latch};
use uruk_core::{
    InPlaceTaskDispatcher, LimitReached, Task, TaskDispatcher, TaskPriority, WaitError, Waiting,
    refuse_wait_in_leaf,
};

use crate::current;
use crate::limits::BoundsWanted;
use crate::metrics::{Clock, Metrics, Stopwatch};
use crate::pool::Pool;
use crate::sleep::SLOTS_MAX;
use crate::threads::{Permits, Threads};

/// Runs tasks on a pool of threads that take work from each other, and replaces threads that block.
///
/// At most [`workers`](WorkStealingTaskDispatcherBuilder::workers) tasks run at once, not counting those that are blocked in
/// [`wait`](TaskDispatcher::wait) or [`blocking`](Self::blocking). There are at most as many threads as workers and tasks that
/// block or have just ceased to. Threads are started when there is work for them.
///
/// Dropping it shuts it down; dropped by one of its own tasks, it closes without waiting.
///
/// # Concurrency
/// Tasks start in order of [`TaskPriority`](uruk_core::TaskPriority), and within one priority about in the order of dispatch,
/// but for demanded turns that one task of a [`SerialQueue`](uruk_core::SerialQueue) hands over to the next: they go first.
/// Tasks that a task dispatches with the highest priority stay with its worker until another worker steals them.
///
/// # Examples
/// ```
/// use uruk_core::{Task, TaskDispatcher, TaskPriority, sync::{Arc, Latch}};
/// use uruk_dispatch::WorkStealingTaskDispatcher;
///
/// let pool = WorkStealingTaskDispatcher::builder().workers(2).build()?;
/// let done = Arc::new(Latch::new());
/// let task = Task::new("hello", TaskPriority::Demanded, { let done = done.clone(); move || done.open() });
/// pool.dispatch(task).expect("the pool is open");
/// done.wait();
/// pool.shutdown();
/// assert_eq!(pool.metrics().finished, 1);
/// # Ok::<(), uruk_dispatch::BuildError>(())
/// ```
///
/// ORC: `DynamicThreadPoolTaskDispatcher`, which starts a thread for each task.
pub struct WorkStealingTaskDispatcher {
    pool: Arc<Pool>,
    /// Runs the tasks of a child of a fork, if that was asked for.
    in_child: Option<InPlaceTaskDispatcher>,
}

impl fmt::Debug for WorkStealingTaskDispatcher {
    /// Its threads and tasks at the moment: the pool's own state is two pages long.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Metrics { workers, threads, blocked, running, queued, .. } = self.metrics();
        f.debug_struct("WorkStealingTaskDispatcher")
            .field("workers", &workers)
            .field("threads", &threads)
            .field("blocked", &blocked)
            .field("running", &running)
            .field("queued", &queued)
            .finish_non_exhaustive()
    }
}

/// Configures a [`WorkStealingTaskDispatcher`].
#[derive(Clone, Debug)]
#[must_use]
pub struct WorkStealingTaskDispatcherBuilder {
    workers: usize,
    stack_size_bytes: usize,
    thread_name_prefix: String,
    bounds: BoundsWanted,
    clock: Clock,
    measure_waits: bool,
    permits: Permits,
    after_fork: AfterFork,
}

/// The fate of a pool in the child of a fork, where its threads are not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum AfterFork {
    /// Lookups that need a thread of the parent are refused: [`WaitError::Forked`].
    #[default]
    Refuse,
    /// Tasks run on the threads that wait for them. Lookups are refused as above only if the pool had tasks at the moment of the fork: what these
    /// were at work on stays as it was.
    InPlace,
}

/// Why a dispatcher was not built.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// A pool of no workers would never run anything, and one of too many cannot be counted.
    #[error("a pool of {workers} workers was asked for; choose between 1 and {max}")]
    WorkerCount {
        /// The requested number.
        workers: usize,
        /// The most that is possible.
        max: usize,
    },
    /// No thread can be called that.
    #[error("worker threads cannot be called {prefix:?}: a thread's name contains no NUL")]
    ThreadName {
        /// The requested prefix.
        prefix: String,
    },
    /// Rayon's global pool, in which tasks were to run, cannot be had.
    #[error("rayon has no global pool here: {reason}; build a pool and hand that over")]
    NoGlobalPool {
        /// Rayon's error.
        reason: String,
    },
}

/// LLVM recurses over expressions: one of 200,000 levels overflows 8 MiB. Stacks are reserved, not touched, so a large
/// one costs address space alone.
pub(crate) const STACK_SIZE_BYTES: usize = 64 << 20;

impl WorkStealingTaskDispatcher {
    /// Starts to describe a pool: as many workers as the machine runs threads, 64 MiB of stack each.
    pub fn builder() -> WorkStealingTaskDispatcherBuilder {
        WorkStealingTaskDispatcherBuilder {
            workers: threads_of_this_machine(),
            stack_size_bytes: STACK_SIZE_BYTES,
            thread_name_prefix: "uruk-worker".to_owned(),
            bounds: BoundsWanted::default(),
            clock: Clock::default(),
            measure_waits: false,
            permits: Permits::default(),
            after_fork: AfterFork::default(),
        }
    }

    /// Whether no task is queued or runs.
    pub fn is_idle(&self) -> bool {
        self.pool.gate.pending() == 0
    }

    /// The dispatcher in the pool's place, if this is the child of a fork that came when the pool had no task.
    #[inline]
    fn child(&self) -> Option<&InPlaceTaskDispatcher> {
        let in_child = self.in_child.as_ref()?;
        let has_forked = self.pool.threads.are_here().is_err();
        (has_forked && self.is_idle()).then_some(in_child)
    }

    /// Runs `block`, which may wait for something that the pool cannot see, while another thread does this one's work.
    ///
    /// On a thread that is no worker of this pool it just runs `block`.
    ///
    /// # Concurrency
    /// The thread goes on as soon as `block` returns.
    ///
    /// # Errors
    /// [`WaitError`] if the operating system refused another thread and this is the last one that runs queued
    /// tasks, or if the thread runs a [leaf](Task::leaf); `block` has not been run then.
    pub fn blocking<R>(&self, block: impl FnOnce() -> R) -> Result<R, WaitError> {
        refuse_wait_in_leaf()?;
        self.pool.blocking(block)
    }

    /// Reads the pool's counters.
    ///
    /// # Concurrency
    /// Takes no lock; callable at any time, from tasks too.
    pub fn metrics(&self) -> Metrics {
        self.pool.metrics()
    }
}

impl WorkStealingTaskDispatcherBuilder {
    /// How many tasks may run at once.
    pub fn workers(mut self, workers: usize) -> Self {
        self.workers = workers;
        self
    }

    /// How much stack each thread reserves.
    pub fn stack_size_bytes(mut self, stack_size_bytes: usize) -> Self {
        self.stack_size_bytes = stack_size_bytes;
        self
    }

    /// The first part of a thread's name; a number follows. `uruk-worker` unless set.
    pub fn thread_name_prefix(mut self, prefix: impl Into<String>) -> Self {
        self.thread_name_prefix = prefix.into();
        self
    }

    /// How many speculative tasks may wait for their start, in the pool's queues and in [serial ones](uruk_core::SerialQueue),
    /// before producers of more are [told](TaskDispatcher::admits) or [wait](TaskDispatcher::wait_for_room). Any number unless
    /// set. A task that waits in a serial queue behind a blocked task, or behind one that another dispatcher runs, does not
    /// hold producers back.
    ///
    /// A dispatched task is queued even above the limit, because claimed units must run. So threads that ask at the same moment
    /// may exceed it by the tasks that each of them dispatches.
    pub fn speculative_queue_max(mut self, tasks: usize) -> Self {
        self.bounds.queued_max[TaskPriority::Speculative as usize] = tasks;
        self
    }

    /// The same for idle tasks.
    pub fn idle_queue_max(mut self, tasks: usize) -> Self {
        self.bounds.queued_max[TaskPriority::Idle as usize] = tasks;
        self
    }

    /// How many workers may run speculative and idle tasks at once; at least one. All but one unless set, so that demanded
    /// tasks find a worker free of them. A task that blocks does not count, and goes on when its wait is over.
    pub fn background_workers_max(mut self, workers: usize) -> Self {
        self.bounds.background_workers_max = Some(workers);
        self
    }

    /// The clock of [`Self::measure_waits`]. The system's clock unless set. Any thread of the pool asks it, without a lock, when it has
    /// just taken work. It must answer at once: a clock that waits, for a task above all, stalls the pool.
    pub fn clock(mut self, clock: Arc<dyn Fn() -> Instant + Send + Sync>) -> Self {
        self.clock = Clock(clock);
        self
    }

    /// Measures how long tasks wait for their start ([`Metrics::waits`]), which costs a look at a clock when a task, or a batch of
    /// them, is dispatched, and another when it starts.
    pub fn measure_waits(mut self) -> Self {
        self.measure_waits = true;
        self
    }

    /// Its fate in the child of a fork.
    pub fn after_fork(mut self, after_fork: AfterFork) -> Self {
        self.after_fork = after_fork;
        self
    }

    /// Asks before each thread, whose start it may refuse as the operating system might. For tests.
    #[doc(hidden)]
    pub fn before_each_thread(mut self, asked: Arc<dyn Fn() -> io::Result<()> + Send + Sync>) -> Self {
        self.permits = Permits(Some(asked));
        self
    }

    /// Builds the pool. Starts no thread.
    ///
    /// # Errors
    /// [`BuildError::WorkerCount`] for no worker, or more than the pool can count; [`BuildError::ThreadName`].
    pub fn build(self) -> Result<WorkStealingTaskDispatcher, BuildError> {
        if !(1..=SLOTS_MAX).contains(&self.workers) {
            return Err(BuildError::WorkerCount { workers: self.workers, max: SLOTS_MAX });
        }
        if self.thread_name_prefix.contains('\0') {
            return Err(BuildError::ThreadName { prefix: self.thread_name_prefix });
        }
        let threads = Threads::new(self.thread_name_prefix, self.stack_size_bytes, self.permits);
        let stopwatch = Stopwatch::new(self.measure_waits.then_some(self.clock));
        let pool = Pool::new(self.workers, threads, self.bounds.of(self.workers), stopwatch);
        let in_child = (self.after_fork == AfterFork::InPlace).then(InPlaceTaskDispatcher::default);
        Ok(WorkStealingTaskDispatcher { pool: Arc::new(pool), in_child })
    }
}

impl TaskDispatcher for WorkStealingTaskDispatcher {
    /// Queues the task.
    ///
    /// # Errors
    /// Gives a task back when the pool is closed, or when no thread can be had to run it.
    fn dispatch(&self, task: Task) -> Result<(), Task> {
        match self.child() {
            Some(child) => child.dispatch(task),
            None => self.pool.dispatch(task),
        }
    }

    fn dispatch_all(&self, tasks: &mut Vec<Task>) {
        match self.child() {
            Some(child) => child.dispatch_all(tasks),
            None => self.pool.dispatch_all(tasks),
        }
    }

    fn runs_here(&self) -> Result<(), WaitError> {
        if self.child().is_some() { Ok(()) } else { self.pool.threads.are_here() }
    }

    /// Gives up the queued tasks if threads were refused and none is left to run them.
    fn run_ready(&self) {
        match self.child() {
            Some(child) => child.run_ready(),
            None => self.pool.settle(),
        }
    }

    fn in_place(&self) -> Option<&InPlaceTaskDispatcher> {
        self.child()
    }

    fn wait(&self, latch: &Latch) -> Result<(), WaitError> {
        match self.child() {
            Some(child) => child.wait(latch),
            None if latch.is_open() => Ok(()),
            None => self.blocking(|| latch.wait()),
        }
    }

    fn wait_until(&self, latch: &Latch, left: &dyn Fn() -> Duration) -> Result<bool, WaitError> {
        if let Some(child) = self.child() {
            return child.wait_until(latch, left);
        }
        self.blocking(|| latch.wait_while(left))
    }

    fn blocking(&self, block: &mut dyn FnMut()) -> Result<(), WaitError> {
        match self.child() {
            Some(child) => TaskDispatcher::blocking(child, block),
            None => WorkStealingTaskDispatcher::blocking(self, block),
        }
    }

    fn admits(&self, priority: TaskPriority, count: usize) -> Result<(), LimitReached> {
        if self.child().is_some() { Ok(()) } else { self.pool.admits(priority, count) }
    }

    /// # Errors
    /// As [`TaskDispatcher::blocking`].
    fn wait_for_room(&self, priority: TaskPriority, count: usize) -> Result<(), WaitError> {
        if self.child().is_some() || self.pool.admits(priority, count).is_ok() {
            return Ok(());
        }
        refuse_wait_in_leaf()?;
        self.pool.wait_for_room(priority, count)
    }

    fn begins_to_wait(&self, task: Waiting) {
        self.pool.limits.begin_to_wait(task);
    }

    fn waits_no_more(&self, task: Waiting) {
        // It lifts no limit on what may start.
        self.pool.limits.wait_no_more(task);
    }

    fn now_us(&self) -> Option<u32> {
        self.pool.stopwatch.now_us()
    }

    fn inspect(&self, reader: &mut dyn FnMut(&dyn Any)) {
        reader(self);
    }

    fn shutdown(&self) {
        match self.child() {
            Some(child) => child.shutdown(),
            None => self.pool.shutdown(),
        }
    }
}

impl Drop for WorkStealingTaskDispatcher {
    fn drop(&mut self) {
        if current::worker_of(&self.pool).is_some() {
            // Its threads keep the pool alive until they have run what is queued.
            self.pool.close();
        } else {
            self.pool.shutdown();
        }
    }
}

#[cfg(not(any(uruk_loom, uruk_shuttle)))]
fn threads_of_this_machine() -> usize {
    // Where the system does not say, one worker is right, and replacement makes it enough.
    uruk_core::sync::thread::available_parallelism().map_or(1, usize::from).min(SLOTS_MAX)
}

/// Models have few threads.
#[cfg(any(uruk_loom, uruk_shuttle))]
fn threads_of_this_machine() -> usize {
    1
}
