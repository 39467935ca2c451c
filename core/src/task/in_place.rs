//! Tasks that run on the thread that dispatched them.
//!
//! Each thread has one queue and one loop. Tasks never run inside one another: the loop runs them one
//! after the other from the thread's outermost frame, and a task that dispatches only lengthens the queue.
//! A blocking lookup inside a task is the exception: it starts a nested loop until its answer is there. That loop runs first what the
//! lookup needs.

mod here;
mod queue;
mod tasks;

use std::time::Duration;

use rustc_hash::FxHashSet;

use crate::sync::{Arc, Latch};
use crate::task::ClaimOfSession;
use crate::task::this_thread::{self, refuse_wait_in_leaf};
use crate::{Task, TaskDispatcher, WaitError};

use queue::{Many, Queue, Queued, Queues};
use tasks::{Beneath, Counted, CountedMany, Tasks};

pub(crate) use here::{defer_refused, queue_here, run_here, runs_here};
pub(crate) use queue::LateTasks;

/// Runs every task on the thread that dispatched it.
///
/// Tasks queue up per thread and run in a loop from the outermost frame, never from inside one another;
/// only a blocking lookup inside a task starts a nested loop, and those have a depth limit.
///
/// # Concurrency
/// A task runs on the thread that dispatched it, before that thread's outermost call into the session
/// returns.
///
/// A task that had to wait in a [`SerialQueue`](crate::SerialQueue) runs on the thread whose task handed over to it. That may be another
/// thread. It may then lie above a blocked unit that it needs, and its lookup is refused.
///
/// # Examples
/// ```
/// use uruk_core::{ExecutionSession, InPlaceTaskDispatcher};
/// use std::sync::Arc;
///
/// // The default of a session: the thread that looks a symbol up materializes it.
/// let session = ExecutionSession::builder().dispatcher(Arc::new(InPlaceTaskDispatcher::default())).build();
/// # session.close()?;
/// # Ok::<(), uruk_core::CloseError>(())
/// ```
///
/// ORC: `InPlaceTaskDispatcher`, which recurses.
#[derive(Debug, Default)]
pub struct InPlaceTaskDispatcher {
    tasks: Arc<Tasks>,
}

/// How many waits may nest on one thread before [`WaitError::TooDeep`]. A level costs a few kilobytes of
/// stack plus what the unit uses; threads of two megabytes are common.
const IN_PLACE_WAIT_DEPTH_MAX: usize = 256;

/// The tasks that a thread runs itself: those of in-place dispatchers, and what it has deferred.
#[derive(Default)]
pub(crate) struct ThreadTasks {
    queue: Queues,
    /// Tasks that dispatchers have refused or dropped, deferred by the thread itself. They run after the queue, and not
    /// inside a task.
    deferred: Queue,
    /// Guards of [`run_here`]: tasks that a dispatcher refuses meanwhile run on this thread.
    here: usize,
    /// Guards of [`hold_back_all`].
    held_back: usize,
    /// Dispatchers that were not told to run their tasks meanwhile.
    owed: Vec<Arc<dyn TaskDispatcher>>,
    /// Loops of this thread that are running tasks right now, outermost first.
    depth: usize,
    /// The tasks running on this thread, outermost first.
    running: Vec<Running>,
}

impl ThreadTasks {
    /// Whether [`run_ready`] has nothing to do.
    #[inline]
    fn rests(&self) -> bool {
        let runs = self.depth == 0 && !(self.queue.is_empty() && self.deferred.is_empty());
        !runs && (self.held_back > 0 || self.owed.is_empty())
    }
}

struct Running {
    /// The dispatcher the task came from.
    from: *const Tasks,
    /// It waits in a shutdown of that dispatcher, which has counted it.
    closes: bool,
}

/// Borrows this thread's tasks. None while the thread ends: then no loop will come, and what is queued runs at once.
#[inline]
fn with<R>(operation: impl FnOnce(&mut ThreadTasks) -> R) -> Option<R> {
    this_thread::with(|thread| operation(&mut thread.tasks))
}

impl InPlaceTaskDispatcher {
    /// Runs a task as `dispatch` and then `run_ready` would, if that is this thread's next one and nothing of ours is beneath:
    /// the usual unit is queued nowhere. Gives it back otherwise.
    pub(crate) fn run_at_once(&self, task: Task) -> Result<(), Task> {
        let begins = with(|thread| {
            let is_free = thread.depth == 0
                && thread.queue.is_empty()
                && thread.held_back == 0
                && thread.owed.is_empty();
            if is_free {
                thread.depth = 1;
                thread.running.push(Running { from: Arc::as_ptr(&self.tasks), closes: false });
            }
            is_free
        });
        if !begins.unwrap_or(false) {
            return Err(task);
        }
        let outcome = match self.tasks.enter(1) {
            Some(stripe) => {
                let _panic = crate::panics::guard(|| task.run());
                Ok(stripe)
            }
            None => Err(task),
        };
        let has_more = with(|thread| {
            thread.running.pop();
            thread.depth -= 1;
            !(thread.queue.is_empty() && thread.deferred.is_empty() && thread.owed.is_empty())
        });
        self.tasks.end(outcome?, 1);
        if has_more.unwrap_or(false) {
            run_ready();
        }
        Ok(())
    }

    /// Dispatches `count` tasks that are made when their turn comes: of ten thousand none lies about. Gives back what would make
    /// them if the dispatcher is closed.
    pub(crate) fn dispatch_lazily<T>(&self, count: usize, tasks: T) -> Result<(), T>
    where
        T: LateTasks + 'static,
    {
        let Some(counted) = CountedMany::enter(&self.tasks, count) else { return Err(tasks) };
        let mut many = Some(Many::new(Box::new(tasks), counted));
        with(|thread| many.take().into_iter().for_each(|many| thread.queue.newest().push_many(many)));
        // See `enqueue_all`.
        many.into_iter().flatten().for_each(run);
        Ok(())
    }
}

impl TaskDispatcher for InPlaceTaskDispatcher {
    fn dispatch(&self, task: Task) -> Result<(), Task> {
        let Some(counted) = Counted::enter(&self.tasks) else { return Err(task) };
        enqueue(Queued::new(task, Some(counted)));
        Ok(())
    }

    fn dispatch_all(&self, tasks: &mut Vec<Task>) {
        if let Some(counted) = CountedMany::enter(&self.tasks, tasks.len()) {
            enqueue_all(counted.zip(tasks.drain(..)).map(|(counted, task)| Queued::new(task, Some(counted))));
        }
    }

    fn run_ready(&self) {
        run_ready();
    }

    fn in_place(&self) -> Option<&InPlaceTaskDispatcher> {
        Some(self)
    }

    fn wait(&self, latch: &Latch) -> Result<(), WaitError> {
        if latch.is_open() {
            return Ok(());
        }
        refuse_wait_in_leaf()?;
        let _level = Level::nest()?;
        while !latch.is_open() {
            // If this thread has nothing left to run, another thread opens the latch.
            if !run_next() {
                latch.wait();
            }
        }
        Ok(())
    }

    fn wait_until(&self, latch: &Latch, left: &dyn Fn() -> Duration) -> Result<bool, WaitError> {
        if !latch.is_open() {
            refuse_wait_in_leaf()?;
        }
        run_while(|| !latch.is_open() && !left().is_zero())?;
        // Nothing is left that this thread could do, or no time.
        Ok(latch.wait_while(left))
    }

    fn shutdown(&self) {
        if refuse_wait_in_leaf().is_err() {
            return self.tasks.close_without_waiting();
        }
        let from = Arc::as_ptr(&self.tasks);
        let beneath = Beneath::of(from);
        let latch = self.tasks.close(&beneath);
        let _level = Level::enter();
        // Tasks this thread queued would otherwise wait for this very call to return.
        while !latch.is_open() {
            if !run_next() {
                latch.wait();
            }
        }
    }
}

/// Queues `task` on this thread, for its outermost loop, without a dispatcher.
pub(crate) fn defer(task: Task) {
    enqueue(Queued::new(task, None));
}

/// Runs the thread's queue, unless a loop further out does so anyway.
///
/// Deferred tasks wait for the end of the task that runs here, if any: a task refused by a dispatcher of threads runs
/// inside no call of another.
pub(crate) fn run_ready() {
    if with(|thread| thread.rests()).unwrap_or(true) {
        return;
    }
    pay_owed();
    let left = |thread: &mut ThreadTasks| match thread.depth {
        0 => (!thread.queue.is_empty(), !thread.deferred.is_empty()),
        _ => (false, false),
    };
    let (queued, deferred) = with(left).unwrap_or_default();
    let inside = this_thread::is_inside_call();
    if !queued && (inside || !deferred) {
        return;
    }
    let _level = Level::enter();
    while if inside { run_next_queued() } else { run_next() } {}
    pay_owed();
}

/// Tells the dispatchers that were held back.
fn pay_owed() {
    let owed = with(|thread| match thread.held_back {
        0 => std::mem::take(&mut thread.owed),
        _ => Vec::new(),
    });
    owed.into_iter().flatten().for_each(|dispatcher| dispatcher.run_ready());
}

/// Runs this thread's queue from inside the code that runs on it, until the latch is open or nothing is left.
///
/// # Errors
/// When that would nest too deep.
pub(crate) fn run_until(latch: &Latch) -> Result<(), WaitError> {
    run_while(|| !latch.is_open())
}

/// The same for as long as `goes_on` says.
pub(crate) fn run_while(goes_on: impl Fn() -> bool) -> Result<(), WaitError> {
    if with(|thread| thread.queue.is_empty() && thread.deferred.is_empty()).unwrap_or(true) {
        return Ok(());
    }
    let _level = Level::nest()?;
    while goes_on() && run_next() {}
    Ok(())
}

/// Keeps what is queued from now on apart from what was queued before, until what is returned is dropped: for a lookup that may
/// block above another frame of this thread.
pub(crate) fn separate_queue() -> SeparateQueue {
    with(|thread| thread.queue.begin_another());
    SeparateQueue
}

/// See [`separate_queue`].
pub(crate) struct SeparateQueue;

impl Drop for SeparateQueue {
    fn drop(&mut self) {
        with(|thread| thread.queue.end_newest());
    }
}

/// Runs this thread's queue for a lookup that is [apart](separate_queue), as long as `goes_on` says: first tasks that came since it began
/// and the units that it needs, then tasks without a unit, and other units only when nothing else is left.
///
/// A unit that the lookup does not need might need what lies beneath it. Its lookup would then wait for a frame that goes on only after
/// the unit has returned.
///
/// # Errors
/// When that would nest too deep.
pub(crate) fn run_needed(
    goes_on: impl Fn() -> bool,
    needed: impl Fn() -> FxHashSet<ClaimOfSession>,
) -> Result<(), WaitError> {
    if with(|thread| thread.queue.is_empty()).unwrap_or(true) {
        return Ok(());
    }
    let _level = Level::nest()?;
    while goes_on() {
        if run_of(|thread| thread.queue.pop_of_newest()) {
            continue;
        }
        if with(|thread| thread.queue.is_empty()).unwrap_or(true) {
            return Ok(());
        }
        let needed = needed();
        let is_called =
            with(|thread| thread.queue.call_needed(&|unit| needed.contains(&unit))).unwrap_or(false);
        if !is_called && !run_of(|thread| thread.queue.pop_older()) {
            return Ok(());
        }
    }
    Ok(())
}

/// Keeps this thread's queue from running, until what is returned is dropped.
pub(crate) fn hold_back() -> impl Drop {
    Level::enter()
}

/// The same, and keeps dispatchers from being told to run theirs; [`run_ready`] tells them afterwards.
///
/// For a thread that is counted as a task and in no frame: a handler that runs above it, and closes the session, would wait
/// for it for ever.
pub(crate) fn hold_back_all() -> impl Drop {
    with(|thread| {
        thread.held_back += 1;
        thread.depth += 1;
    });
    HeldBack
}

struct HeldBack;

impl Drop for HeldBack {
    fn drop(&mut self) {
        with(|thread| {
            thread.held_back -= 1;
            thread.depth -= 1;
        });
    }
}

/// Whether dispatchers are held back; `dispatcher` is told later then.
pub(crate) fn owes(dispatcher: &Arc<dyn TaskDispatcher>) -> bool {
    with(|thread| {
        let held_back = thread.held_back > 0;
        if held_back && !thread.owed.iter().any(|owed| Arc::ptr_eq(owed, dispatcher)) {
            thread.owed.push(dispatcher.clone());
        }
        held_back
    })
    .unwrap_or(false)
}

fn enqueue(queued: Queued) {
    enqueue_all(std::iter::once(queued));
}

fn enqueue_all(mut queued: impl Iterator<Item = Queued>) {
    with(|thread| {
        queued.by_ref().for_each(|queued| match queued.counted {
            Some(_) => thread.queue.newest().push(queued),
            None => thread.deferred.push(queued),
        });
    });
    // Left over while the thread ends: no loop will come, and nothing of ours is beneath but that.
    queued.for_each(run);
}

/// Runs the thread's next task. Says whether there was one.
fn run_next() -> bool {
    run_of(|thread| match thread.queue.pop() {
        None => thread.deferred.pop(),
        next => next,
    })
}

/// The same without what was deferred.
fn run_next_queued() -> bool {
    run_of(|thread| thread.queue.pop())
}

#[inline(always)]
fn run_of(pop: impl Fn(&mut ThreadTasks) -> Option<Queued>) -> bool {
    let begins = |thread: &mut ThreadTasks| {
        let queued = pop(thread)?;
        thread.running.push(queued.running());
        Some(queued)
    };
    match with(begins) {
        Some(Some(queued)) => {
            run_to_end(queued);
            true
        }
        _ => false,
    }
}

fn run(queued: Queued) {
    with(|thread| thread.running.push(queued.running()));
    run_to_end(queued);
}

/// Runs what is on the list of what runs.
#[inline(always)]
fn run_to_end(Queued { task, counted, spent }: Queued) {
    // The session's tasks catch panics themselves; a bare task's panic ends that task only.
    let _panic = crate::panics::guard(|| task.run());
    if spent.is_some() {
        let _panic = crate::panics::guard(|| drop(spent));
    }
    with(|thread| thread.running.pop());
    drop(counted);
}

/// A loop of this thread, for as long as it runs.
struct Level;

impl Level {
    fn enter() -> Self {
        with(|thread| thread.depth += 1);
        Self
    }

    /// A loop inside the others, if that is not too deep.
    fn nest() -> Result<Self, WaitError> {
        let depth = with(|thread| thread.depth).unwrap_or(0);
        if depth >= IN_PLACE_WAIT_DEPTH_MAX { Err(WaitError::TooDeep { depth }) } else { Ok(Self::enter()) }
    }
}

impl Drop for Level {
    fn drop(&mut self) {
        with(|thread| thread.depth -= 1);
    }
}

#[cfg(all(test, not(uruk_loom)))]
mod tests {
    use super::*;
    use crate::TaskPriority;
    use crate::sync::{Mutex, thread};

    fn task(run: impl FnOnce() + Send + 'static) -> Task {
        Task::new("test", TaskPriority::Demanded, run)
    }

    #[test]
    fn tasks_run_in_order_and_never_inside_one_another() {
        let dispatcher = Arc::new(InPlaceTaskDispatcher::default());
        let log = Arc::new(Mutex::new(Vec::new()));
        let (inner, inner_log) = (dispatcher.clone(), log.clone());
        dispatcher
            .dispatch(task(move || {
                inner_log.lock().push(1);
                let last_log = inner_log.clone();
                inner.dispatch(task(move || last_log.lock().push(3))).unwrap();
                inner.run_ready();
                inner_log.lock().push(2);
            }))
            .unwrap();
        dispatcher.run_ready();
        assert_eq!(*log.lock(), [1, 2, 3]);
    }

    #[test]
    fn a_wait_inside_a_task_runs_the_queue() {
        let dispatcher = Arc::new(InPlaceTaskDispatcher::default());
        let latch = Arc::new(Latch::new());
        let (inner, opened) = (dispatcher.clone(), latch.clone());
        dispatcher
            .dispatch(task(move || {
                let opens = opened.clone();
                inner.dispatch(task(move || opens.open())).unwrap();
                inner.wait(&opened).unwrap();
            }))
            .unwrap();
        dispatcher.run_ready();
        assert!(latch.is_open());
    }

    #[test]
    fn a_panicking_task_does_not_stop_the_next() {
        let dispatcher = InPlaceTaskDispatcher::default();
        let latch = Arc::new(Latch::new());
        let opens = latch.clone();
        dispatcher.dispatch(task(|| panic!("on purpose"))).unwrap();
        dispatcher.dispatch(task(move || opens.open())).unwrap();
        dispatcher.run_ready();
        assert!(latch.is_open());
    }

    #[test]
    fn a_closed_dispatcher_gives_tasks_back() {
        let dispatcher = InPlaceTaskDispatcher::default();
        dispatcher.shutdown();
        dispatcher.shutdown();
        assert!(dispatcher.dispatch(task(|| {})).is_err());
    }

    #[test]
    fn shutdown_inside_a_task_waits_for_the_others_only() {
        let dispatcher = Arc::new(InPlaceTaskDispatcher::default());
        let inner = dispatcher.clone();
        let ran = Arc::new(Latch::new());
        let last = ran.clone();
        dispatcher.dispatch(task(move || inner.shutdown())).unwrap();
        dispatcher.dispatch(task(move || last.open())).unwrap();
        dispatcher.run_ready();
        assert!(ran.is_open());
    }

    #[test]
    fn shutdowns_inside_tasks_of_two_threads_do_not_wait_for_each_other() {
        let dispatcher = Arc::new(InPlaceTaskDispatcher::default());
        let begun = [Arc::new(Latch::new()), Arc::new(Latch::new())];
        let threads = [0, 1].map(|this| {
            let (dispatcher, begun) = (dispatcher.clone(), begun.clone());
            thread::spawn(move || {
                let inner = dispatcher.clone();
                let closes = task(move || {
                    begun[this].open();
                    begun[1 - this].wait();
                    inner.shutdown();
                });
                dispatcher.dispatch(closes).unwrap();
                dispatcher.run_ready();
            })
        });
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        dispatcher.shutdown();
    }

    #[test]
    fn a_shutdown_runs_tasks_one_after_another() {
        let dispatcher = Arc::new(InPlaceTaskDispatcher::default());
        let log = Arc::new(Mutex::new(Vec::new()));
        let (inner, first, second) = (dispatcher.clone(), log.clone(), log.clone());
        let runs = task(move || {
            first.lock().push("first begins");
            inner.run_ready();
            first.lock().push("first ends");
        });
        dispatcher.dispatch(runs).unwrap();
        dispatcher.dispatch(task(move || second.lock().push("second"))).unwrap();
        dispatcher.shutdown();
        assert_eq!(*log.lock(), ["first begins", "first ends", "second"]);
    }

    #[test]
    fn a_shutdown_in_a_task_of_a_shutdown_returns() {
        let dispatcher = Arc::new(InPlaceTaskDispatcher::default());
        let (outer, inner) = (dispatcher.clone(), dispatcher.clone());
        let ran = Arc::new(Latch::new());
        let last = ran.clone();
        dispatcher.dispatch(task(move || outer.shutdown())).unwrap();
        let closes = task(move || {
            inner.shutdown();
            last.open();
        });
        dispatcher.dispatch(closes).unwrap();
        dispatcher.run_ready();
        assert!(ran.is_open());
    }

    #[test]
    fn a_closed_dispatcher_gives_a_whole_batch_back() {
        let dispatcher = InPlaceTaskDispatcher::default();
        let count = Arc::new(Mutex::new(0));
        let batch = || (0..3).map(|_| count.clone()).map(|count| task(move || *count.lock() += 1)).collect();
        let mut tasks: Vec<Task> = batch();
        dispatcher.dispatch_all(&mut tasks);
        assert!(tasks.is_empty());
        dispatcher.shutdown();
        assert_eq!(*count.lock(), 3);
        let mut tasks: Vec<Task> = batch();
        dispatcher.dispatch_all(&mut tasks);
        assert_eq!(tasks.len(), 3);
    }

    #[test]
    fn shutdown_waits_for_tasks_of_other_threads() {
        let dispatcher = Arc::new(InPlaceTaskDispatcher::default());
        let (started, go_on) = (Arc::new(Latch::new()), Arc::new(Latch::new()));
        let worker = thread::spawn({
            let (dispatcher, started, go_on) = (dispatcher.clone(), started.clone(), go_on.clone());
            move || {
                dispatcher
                    .dispatch(task(move || {
                        started.open();
                        go_on.wait();
                    }))
                    .unwrap();
                dispatcher.run_ready();
            }
        });
        started.wait();
        let closer = thread::spawn({
            let dispatcher = dispatcher.clone();
            move || dispatcher.shutdown()
        });
        go_on.open();
        closer.join().unwrap();
        worker.join().unwrap();
    }

    #[test]
    fn waits_nest_only_so_deep() {
        fn nest(dispatcher: Arc<InPlaceTaskDispatcher>, deepest: Arc<Mutex<Option<WaitError>>>) {
            let (inner, error) = (dispatcher.clone(), deepest.clone());
            dispatcher.dispatch(task(move || nest(inner, error))).unwrap();
            if let Err(error) = dispatcher.wait(&Latch::new()) {
                deepest.lock().get_or_insert(error);
                panic!("unwinds the nest");
            }
        }
        let deepest = Arc::new(Mutex::new(None));
        let (dispatcher, error) = (Arc::new(InPlaceTaskDispatcher::default()), deepest.clone());
        // The waits above the refused one never end: they stay behind on this thread.
        let done = Arc::new(Latch::new());
        let reached = done.clone();
        thread::spawn(move || {
            let watch = error.clone();
            let inner = dispatcher.clone();
            dispatcher.dispatch(task(move || nest(inner, error))).unwrap();
            dispatcher
                .dispatch(task(move || {
                    assert!(watch.lock().is_none());
                    reached.open();
                }))
                .unwrap();
            dispatcher.run_ready();
        });
        done.wait();
        while deepest.lock().is_none() {
            thread::yield_now();
        }
        assert_eq!(*deepest.lock(), Some(WaitError::TooDeep { depth: IN_PLACE_WAIT_DEPTH_MAX }));
    }
}
