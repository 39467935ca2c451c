//! A thread's queue: tasks in the order in which they were dispatched, some of them not made yet.

use std::collections::VecDeque;

use crate::Task;
use crate::task::ClaimOfSession;

use super::Running;
use super::tasks::{Counted, CountedMany};

/// A task on its way to run.
pub(super) struct Queued {
    pub(super) task: Task,
    /// Counts the task in at its dispatcher; none for what the thread deferred by itself.
    pub(super) counted: Option<Counted>,
    /// With the last of many: what has made them. Goes after it, where nothing is borrowed: it may hold the last handle of a session.
    pub(super) spent: Option<Box<Many>>,
}

impl Queued {
    pub(super) fn new(task: Task, counted: Option<Counted>) -> Self {
        Self { task, counted, spent: None }
    }

    fn claim(&self) -> Option<ClaimOfSession> {
        self.task.claim()
    }

    pub(super) fn running(&self) -> Running {
        let from = self.counted.as_ref().map_or(std::ptr::null(), Counted::dispatcher);
        Running { from, closes: false }
    }
}

/// Tasks that are made when their turn comes.
pub(crate) trait LateTasks: Iterator<Item = Task> {
    /// Makes those now that begin with units which are needed, in their order.
    fn make_needed(&mut self, is_needed: &dyn Fn(ClaimOfSession) -> bool) -> Vec<Task>;
}

/// Tasks that are made one by one, when their turn comes.
pub(super) struct Many {
    tasks: Box<dyn LateTasks>,
    /// Counts as many as there are tasks.
    counted: CountedMany,
}

impl Many {
    pub(super) fn new(tasks: Box<dyn LateTasks>, counted: CountedMany) -> Self {
        Self { tasks, counted }
    }
}

impl Iterator for Many {
    type Item = Queued;

    #[inline]
    fn next(&mut self) -> Option<Queued> {
        let counted = Some(self.counted.next()?);
        Some(Queued::new(self.tasks.next()?, counted))
    }
}

enum Lot {
    /// It began with a unit when it was queued; a ticket may have become void since.
    Unit(Queued),
    Other(Queued),
    /// At least one.
    Many(Box<Many>),
}

/// Tasks in the order in which they came.
#[derive(Default)]
pub(super) struct Queue {
    lots: VecDeque<Lot>,
    /// How many of them begin with no unit.
    others: usize,
}

impl Queue {
    pub(super) fn is_empty(&self) -> bool {
        self.lots.is_empty()
    }

    pub(super) fn push(&mut self, queued: Queued) {
        let lot = if queued.claim().is_some() { Lot::Unit(queued) } else { Lot::Other(queued) };
        self.others += usize::from(matches!(lot, Lot::Other(_)));
        self.lots.push_back(lot);
    }

    pub(super) fn push_many(&mut self, many: Many) {
        self.lots.push_back(Lot::Many(Box::new(many)));
    }

    #[inline(always)]
    pub(super) fn pop(&mut self) -> Option<Queued> {
        match self.lots.front_mut()? {
            Lot::Many(many) if many.counted.left() > 1 => many.next(),
            _ => self.pop_one(),
        }
    }

    #[inline(never)]
    fn pop_one(&mut self) -> Option<Queued> {
        match self.lots.pop_front()? {
            Lot::Unit(queued) => Some(queued),
            Lot::Other(queued) => {
                self.others -= 1;
                Some(queued)
            }
            Lot::Many(mut many) => {
                let mut last = many.next()?;
                last.spent = Some(many);
                Some(last)
            }
        }
    }

    /// The first that begins with no unit.
    fn pop_other(&mut self) -> Option<Queued> {
        let is_other = |lot: &Lot| matches!(lot, Lot::Other(_));
        let first = if self.others > 0 { self.lots.iter().position(is_other) } else { None };
        match self.lots.remove(first?)? {
            Lot::Other(queued) => {
                self.others -= 1;
                Some(queued)
            }
            Lot::Unit(_) | Lot::Many(_) => None,
        }
    }

    /// Takes out those that begin with units which are needed, in their order.
    fn take_needed(&mut self, is_needed: &dyn Fn(ClaimOfSession) -> bool) -> Vec<Queued> {
        let mut taken = Vec::new();
        for lot in std::mem::take(&mut self.lots) {
            match lot {
                Lot::Unit(queued) if queued.claim().is_some_and(is_needed) => taken.push(queued),
                Lot::Unit(_) | Lot::Other(_) => self.lots.push_back(lot),
                Lot::Many(mut many) => {
                    let made = many.tasks.make_needed(is_needed);
                    taken.extend(made.into_iter().zip(&mut many.counted).map(of_many));
                    match (many.counted.left(), taken.last_mut()) {
                        (0, Some(last)) => last.spent = Some(many),
                        _ => self.lots.push_back(Lot::Many(many)),
                    }
                }
            }
        }
        taken
    }
}

fn of_many((task, counted): (Task, Counted)) -> Queued {
    Queued::new(task, Some(counted))
}

/// The queues of a thread: one, and above it one for each lookup that blocks above another frame, for what came since that began.
#[derive(Default)]
pub(super) struct Queues {
    oldest: Queue,
    above: Vec<Queue>,
}

impl Queues {
    pub(super) fn is_empty(&self) -> bool {
        self.oldest.is_empty() && self.above.iter().all(Queue::is_empty)
    }

    /// Where what comes now is queued.
    #[inline]
    pub(super) fn newest(&mut self) -> &mut Queue {
        self.above.last_mut().unwrap_or(&mut self.oldest)
    }

    #[inline(always)]
    pub(super) fn pop(&mut self) -> Option<Queued> {
        match self.above.is_empty() {
            true => self.oldest.pop(),
            false => self.all().find_map(Queue::pop),
        }
    }

    /// The newest first.
    fn all(&mut self) -> impl Iterator<Item = &mut Queue> {
        self.above.iter_mut().rev().chain(std::iter::once(&mut self.oldest))
    }

    pub(super) fn begin_another(&mut self) {
        self.above.push(Queue::default());
    }

    /// Leaves what is in the newest to the one beneath.
    pub(super) fn end_newest(&mut self) {
        let Queue { lots, others } = self.above.pop().unwrap_or_default();
        let beneath = self.newest();
        beneath.lots.extend(lots);
        beneath.others += others;
    }

    pub(super) fn pop_of_newest(&mut self) -> Option<Queued> {
        self.newest().pop()
    }

    /// Moves what is needed to the newest. Says whether there was any.
    pub(super) fn call_needed(&mut self, is_needed: &dyn Fn(ClaimOfSession) -> bool) -> bool {
        let older = self.all().skip(1);
        let needed: Vec<_> = older.flat_map(|queue| queue.take_needed(is_needed)).collect();
        let any = !needed.is_empty();
        needed.into_iter().for_each(|queued| self.newest().push(queued));
        any
    }

    /// Of what is older than the newest: what begins with no unit, and then the rest.
    pub(super) fn pop_older(&mut self) -> Option<Queued> {
        let other = self.all().skip(1).find_map(Queue::pop_other);
        other.or_else(|| self.all().skip(1).find_map(Queue::pop))
    }
}

#[cfg(all(test, not(uruk_loom)))]
mod tests {
    use super::LateTasks;
    use crate::ids::SessionTag;
    use crate::ids::{ClaimId, Id};
    use crate::sync::{Arc, Latch, Mutex, thread};
    use crate::task::in_place::{self, tasks::Beneath};
    use crate::task::{ClaimOfSession, Work};
    use crate::{InPlaceTaskDispatcher, Task, TaskDispatcher, TaskLabel, TaskPriority};

    type Log = Arc<Mutex<Vec<usize>>>;

    fn task(run: impl FnOnce() + Send + 'static) -> Task {
        Task::new("test", TaskPriority::Demanded, run)
    }

    fn notes(log: &Log, number: usize) -> Task {
        let log = log.clone();
        task(move || log.lock().push(number))
    }

    /// None of them begins with a unit.
    struct NoUnits<I>(I);

    impl<I: Iterator<Item = Task>> Iterator for NoUnits<I> {
        type Item = Task;

        fn next(&mut self) -> Option<Task> {
            self.0.next()
        }
    }

    impl<I: Iterator<Item = Task>> LateTasks for NoUnits<I> {
        fn make_needed(&mut self, _: &dyn Fn(ClaimOfSession) -> bool) -> Vec<Task> {
            Vec::new()
        }
    }

    #[test]
    fn what_is_made_late_runs_in_its_turn() {
        let (dispatcher, log) = (InPlaceTaskDispatcher::default(), Log::default());
        let made = Arc::new(Mutex::new(0));
        let makes = |numbers: std::ops::Range<usize>| {
            let (log, made) = (log.clone(), made.clone());
            numbers.map(move |number| {
                *made.lock() += 1;
                let made = made.clone();
                let log = log.clone();
                task(move || {
                    assert_eq!(*made.lock(), number, "none is made before its turn");
                    log.lock().push(number);
                })
            })
        };
        dispatcher.dispatch(notes(&log, 0)).unwrap();
        assert!(dispatcher.dispatch_lazily(3, NoUnits(makes(1..4))).is_ok());
        assert!(dispatcher.dispatch_lazily(2, NoUnits(makes(4..6))).is_ok());
        dispatcher.dispatch(notes(&log, 6)).unwrap();
        assert_eq!(*made.lock(), 0);
        dispatcher.run_ready();
        assert_eq!(*log.lock(), [0, 1, 2, 3, 4, 5, 6]);
    }

    #[test]
    fn who_waits_in_one_of_many_runs_the_rest() {
        let (dispatcher, latch) = (Arc::new(InPlaceTaskDispatcher::default()), Arc::new(Latch::new()));
        let (inner, waits) = (dispatcher.clone(), latch.clone());
        let log = Log::default();
        let tasks = [task(move || inner.wait(&waits).unwrap()), notes(&log, 1), task(move || latch.open())];
        assert!(dispatcher.dispatch_lazily(3, NoUnits(tasks.into_iter())).is_ok());
        dispatcher.dispatch(notes(&log, 2)).unwrap();
        dispatcher.run_ready();
        assert_eq!(*log.lock(), [1, 2]);
    }

    #[test]
    fn a_closed_dispatcher_gives_back_what_would_make_them() {
        let (dispatcher, log) = (Arc::new(InPlaceTaskDispatcher::default()), Log::default());
        let inner = dispatcher.clone();
        let tasks = [task(move || inner.shutdown()), notes(&log, 1)];
        assert!(dispatcher.dispatch_lazily(2, NoUnits(tasks.into_iter())).is_ok());
        dispatcher.run_ready();
        assert_eq!(*log.lock(), [1], "a shutdown in one of many runs the rest first");
        let refused = dispatcher.dispatch_lazily(2, NoUnits([notes(&log, 2), notes(&log, 3)].into_iter()));
        assert_eq!(refused.err().map(Iterator::count), Some(2));
    }

    /// Goes with the last task, and uses the queue.
    struct Dispatches(Arc<InPlaceTaskDispatcher>, Log);

    impl Iterator for Dispatches {
        type Item = Task;

        fn next(&mut self) -> Option<Task> {
            Some(notes(&self.1, 1))
        }
    }

    impl Drop for Dispatches {
        fn drop(&mut self) {
            self.0.dispatch(notes(&self.1, 2)).unwrap();
        }
    }

    #[test]
    fn what_has_made_its_last_task_goes_where_the_queue_may_be_used() {
        let (dispatcher, log) = (Arc::new(InPlaceTaskDispatcher::default()), Log::default());
        let makes = Dispatches(dispatcher.clone(), log.clone());
        assert!(dispatcher.dispatch_lazily(2, NoUnits(makes)).is_ok());
        dispatcher.run_ready();
        assert_eq!(*log.lock(), [1, 1, 2]);
    }

    #[test]
    fn what_is_never_made_counts_no_more() {
        let dispatcher = Arc::new(InPlaceTaskDispatcher::default());
        let inner = dispatcher.clone();
        let left = thread::spawn(move || {
            let never = std::iter::repeat_with(|| task(|| panic!("the thread has ended")));
            assert!(inner.dispatch_lazily(3, NoUnits(never.take(3))).is_ok());
        });
        left.join().unwrap();
        // The tasks that a shutdown waits for.
        let ended = dispatcher.tasks.close(&Beneath::of(Arc::as_ptr(&dispatcher.tasks)));
        assert!(ended.is_open(), "some are counted that never were and never will be");
    }

    /// The task of a unit, which notes its number.
    struct Begins(u32, Log);

    impl Work for Begins {
        fn label(&self) -> &str {
            "unit"
        }

        fn keep_label(&self) -> TaskLabel {
            "unit".into()
        }

        fn claim(&self) -> Option<ClaimOfSession> {
            Some(unit(self.0))
        }

        fn run(&mut self) {
            self.1.lock().push(self.0 as usize);
        }
    }

    fn unit(number: u32) -> ClaimOfSession {
        (SessionTag::default(), ClaimId::new(number, 0))
    }

    struct Units(Vec<u32>, Log);

    impl Units {
        fn task(&self, number: u32) -> Task {
            Task::of(TaskPriority::Demanded, Box::new(Begins(number, self.1.clone())))
        }
    }

    impl Iterator for Units {
        type Item = Task;

        fn next(&mut self) -> Option<Task> {
            let first = (!self.0.is_empty()).then(|| self.0.remove(0))?;
            Some(self.task(first))
        }
    }

    impl LateTasks for Units {
        fn make_needed(&mut self, is_needed: &dyn Fn(ClaimOfSession) -> bool) -> Vec<Task> {
            let needed: Vec<_> = self.0.extract_if(.., |number| is_needed(unit(*number))).collect();
            needed.into_iter().map(|number| self.task(number)).collect()
        }
    }

    impl Drop for Units {
        fn drop(&mut self) {
            self.1.lock().push(100);
        }
    }

    #[test]
    fn a_lookup_apart_runs_the_new_then_the_needed_then_tasks_then_other_units() {
        let (dispatcher, log) = (InPlaceTaskDispatcher::default(), Log::default());
        let units = |numbers: &[u32]| Units(numbers.to_vec(), log.clone());
        assert!(dispatcher.dispatch_lazily(3, units(&[1, 2, 3])).is_ok());
        assert!(dispatcher.dispatch_lazily(2, units(&[4, 5])).is_ok());
        dispatcher.dispatch(notes(&log, 6)).unwrap();
        dispatcher.dispatch(Task::of(TaskPriority::Demanded, Box::new(Begins(7, log.clone())))).unwrap();
        let apart = in_place::separate_queue();
        dispatcher.dispatch(notes(&log, 8)).unwrap();
        log.lock().clear();
        // All but the last, which is left to the thread.
        let goes_on = || log.lock().len() < 10;
        let needed = || [2, 4, 5, 7].map(unit).into_iter().collect();
        in_place::run_needed(goes_on, needed).unwrap();
        // An iterator goes after its last task: 100 twice, once with 5 and once with 3.
        assert_eq!(*log.lock(), [8, 2, 4, 5, 100, 7, 6, 1, 3, 100]);
        dispatcher.dispatch(notes(&log, 9)).unwrap();
        drop(apart);
        dispatcher.run_ready();
        assert_eq!(log.lock()[10..], [9]);
    }
}
