//! [`SerialQueue`]: tasks that run one after another, on any threads.
//!
//! A queue is a *strand*: a line of tasks of which one runs at a time. A task whose queue is busy waits here, on no worker and in no
//! dispatcher. The task that was chosen stays here too, and the dispatcher gets a *ticket* for it. The thread that runs the ticket is in
//! the strand until the task ends or [leaves](SerialQueue::leave).
//!
//! ```text
//!            dispatch              its ticket starts
//!    idle ────────────▶ chosen ──────────────────────▶ running
//!     ▲                 │   ▲                             │
//!     │    a more urgent│   │ something waits             │ ends, panics, leaves
//!     │    one arrives: └─▶─┤◀────────────────────────────┤
//!     │    it is chosen                                   │
//!     └───────────────────────────────────────────────────┘
//!                          nothing waits
//! ```
//!
//! | state | tickets that mean something | what waits |
//! |---|---|---|
//! | idle | none | nothing |
//! | chosen | the one with the number of the choice | anything not more urgent than what is chosen |
//! | running | none | anything |
//!
//! What holds:
//!
//! - The chosen task lies in the queue until its ticket starts. So a more urgent one can take its place.
//! - A ticket does nothing if its number is not that of the choice.
//! - A ticket that is dropped takes its task with it, and the next is chosen all the same.
//! - Tasks leave by priority, and within one priority in the order of their arrival.
//!
//! Three things never happen: foreign code runs under the lock, a thread waits, one task starts the next on its own stack.

pub(crate) mod strand;

use std::any::Any;
use std::collections::VecDeque;
use std::fmt;
use std::panic::resume_unwind;

use crate::hints::Hints;
use crate::sync::{Arc, Mutex, unique, weakened};
use crate::task::Work;
use crate::{Task, TaskDispatcher, TaskLabel, TaskPriority};

use strand::InStrand;
pub(crate) use strand::{Outside, Strands};

/// A queue of tasks that must not run at the same time, because they use the same thing: an LLVM context, a file, a compiler
/// that is not made for several threads.
///
/// A handle: clones are the same queue. Units say to which queue they belong by
/// [`MaterializationUnit::serial_queue`](crate::MaterializationUnit::serial_queue), tasks by [`Task::in_queue`].
///
/// # Concurrency
/// Two tasks of a queue never run at once, on any dispatchers, and the next task sees all writes of the one before.
/// The most urgent goes first. No thread waits: while a task runs, the others lie in the queue.
///
/// A task that blocks in a lookup keeps its queue busy. A lookup of a unit that waits in that queue would never end and is
/// refused with [`LookupError::WouldDeadlock`](crate::LookupError::WouldDeadlock); [leave](Self::leave) first.
///
/// # Cost
/// Two short holds of the queue's lock for each task, and one ticket through a dispatcher; one more where a more urgent task
/// arrives before the chosen one has started.
///
/// A ticket that one task hands over to the next [says so](Task::is_handed_over), and a pool starts it before what else is demanded:
/// so a queue with much to do waits for no other work between two of its tasks. In place, tickets run in the order in which they
/// were dispatched, as everything does there.
///
/// ORC: `ThreadSafeContext`, whose lock lets threads sleep.
#[derive(Clone)]
pub struct SerialQueue(Arc<SharedQueue>);

/// The number of a queue in its process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct SerialQueueId(pub(crate) u64);

struct SharedQueue {
    id: SerialQueueId,
    state: Mutex<State>,
}

struct State {
    current: Current,
    /// How many tickets were made.
    tickets: u64,
    /// The waiting tasks, by priority.
    waiting: [VecDeque<Entry>; PRIORITIES.len()],
}

/// The state of the strand.
enum Current {
    Idle,
    Chosen { number: u64, entry: Entry },
    Running,
}

/// A task, and who runs it once it is chosen.
struct Entry {
    task: Task,
    dispatcher: Arc<dyn TaskDispatcher>,
    /// When it came, in the dispatcher's time.
    since_us: Option<u32>,
}

impl Entry {
    /// Tells its dispatcher that it begins to wait, or does so no more. Not under the queue's lock.
    fn counts(&self, begins: bool) {
        let waiting = self.task.in_turn();
        if !waiting.counts() {
            return;
        }
        let counts = || match begins {
            true => self.dispatcher.begins_to_wait(waiting),
            false if self.task.leaves_queue() => self.dispatcher.waits_no_more(waiting),
            false => {}
        };
        if let Err(message) = crate::panics::guard(counts) {
            tracing::error!(
                message = &*message,
                "a dispatcher panicked while it counted what waits in a serial queue"
            );
        }
    }
}

/// From the least urgent on.
const PRIORITIES: [TaskPriority; 4] =
    [TaskPriority::Idle, TaskPriority::Speculative, TaskPriority::Lazy, TaskPriority::Demanded];

impl SerialQueue {
    /// A queue of which nothing runs.
    pub fn new() -> Self {
        let state = State { current: Current::Idle, tickets: 0, waiting: Default::default() };
        Self(Arc::new(SharedQueue { id: SerialQueueId(unique()), state: Mutex::new(state) }))
    }

    /// Has `dispatcher` run `task` once no other task of the queue runs and no more urgent one waits.
    ///
    /// For tasks of the embedder's own. Units and tasks that a session dispatches come here by themselves.
    ///
    /// # Errors
    /// Gives a task back if it could have started and the dispatcher no longer takes work. Drop it where no lock of the dispatcher is held.
    /// A task that had to wait and is refused later is run by the thread that hands over to it.
    pub fn dispatch(&self, dispatcher: &Arc<dyn TaskDispatcher>, task: Task) -> Result<(), Task> {
        // A clock that panics measures nothing.
        let since_us = crate::panics::guard(|| dispatcher.now_us()).unwrap_or(None);
        let entry = Entry { task: task.in_no_queue(), dispatcher: dispatcher.clone(), since_us };
        entry.counts(true);
        let chosen = self.0.state.lock().arrive(entry);
        chosen.map_or(Ok(()), |chosen| chosen.dispatch(self))
    }

    /// Takes the task that runs on this thread out of the strand, if it is a task of this queue: the next one starts, and the rest
    /// of this one runs beside it.
    ///
    /// For what needs the queue's thing no longer: a unit whose object is there need not keep others from their compiler
    /// while the object is linked. Says whether the task was in the strand.
    ///
    /// # Concurrency
    /// To be called on the thread that runs the task, not inside another task that it runs meanwhile.
    pub fn leave(&self) -> bool {
        InStrand::leave_innermost(self)
    }

    /// How many tasks wait: they neither run nor are on the way to a thread.
    pub fn waiting(&self) -> usize {
        self.0.state.lock().waiting.iter().map(VecDeque::len).sum()
    }

    pub(crate) fn id(&self) -> SerialQueueId {
        self.0.id
    }

    /// A task ends or leaves: chooses the next one and dispatches its ticket.
    fn hand_over(&self) -> HandedOver {
        if weakened("serial_queue::looks_before_it_ends") && self.waiting() == 0 {
            self.0.state.lock().current = Current::Idle;
            return HandedOver::default();
        }
        let chosen = self.0.state.lock().end();
        chosen.map(|chosen| chosen.hand_over(self)).unwrap_or_default()
    }
}

impl State {
    /// A task comes; gives the choice that is to be dispatched for it, if any.
    fn arrive(&mut self, entry: Entry) -> Option<Chosen> {
        match std::mem::replace(&mut self.current, Current::Running) {
            Current::Idle => Some(self.choose(entry)),
            Current::Running => {
                entry.task.waits_for_turn(true);
                self.waiting[entry.task.priority() as usize].push_back(entry);
                None
            }
            Current::Chosen { number, entry: chosen } if entry.task.priority() <= chosen.task.priority() => {
                entry.task.waits_for_turn(true);
                self.waiting[entry.task.priority() as usize].push_back(entry);
                self.current = Current::Chosen { number, entry: chosen };
                None
            }
            Current::Chosen { entry: chosen, .. } => {
                chosen.task.waits_for_turn(true);
                // It was the first of its priority.
                self.waiting[chosen.task.priority() as usize].push_front(chosen);
                Some(self.choose(entry))
            }
        }
    }

    /// The ticket of that number starts, or is dropped: its task, if it is still the one that was chosen.
    fn begin(&mut self, ticket: u64) -> Option<Entry> {
        match std::mem::replace(&mut self.current, Current::Running) {
            Current::Chosen { number, entry } if number == ticket => Some(entry),
            current => {
                self.current = current;
                None
            }
        }
    }

    /// Nothing runs any more: the most urgent task is chosen.
    fn end(&mut self) -> Option<Chosen> {
        match self.waiting.iter_mut().rev().find(|list| !list.is_empty()) {
            None => {
                self.current = Current::Idle;
                None
            }
            Some(list) => {
                let next = list.pop_front()?;
                next.task.waits_for_turn(false);
                if list.is_empty() {
                    // Many may have waited.
                    *list = VecDeque::new();
                }
                Some(self.choose(next))
            }
        }
    }

    fn choose(&mut self, entry: Entry) -> Chosen {
        self.tickets += 1;
        let number = self.tickets;
        let Entry { task, dispatcher, since_us } = &entry;
        let chosen = Chosen {
            number,
            label: task.keep_label(),
            priority: task.priority(),
            runs_when_refused: task.runs_when_refused(),
            hints: task.hints().turn(),
            dispatcher: dispatcher.clone(),
            since_us: *since_us,
        };
        self.current = Current::Chosen { number, entry };
        chosen
    }
}

/// The parts of a ticket.
#[must_use = "a choice without a ticket is a queue that stands still"]
struct Chosen {
    number: u64,
    label: TaskLabel,
    priority: TaskPriority,
    runs_when_refused: bool,
    hints: Hints,
    dispatcher: Arc<dyn TaskDispatcher>,
    since_us: Option<u32>,
}

impl Chosen {
    fn dispatch(self, queue: &SerialQueue) -> Result<(), Task> {
        let dispatcher = self.dispatcher.clone();
        dispatcher.dispatch(self.ticket(queue))
    }

    fn ticket(self, queue: &SerialQueue) -> Task {
        let Self { number, label, priority, runs_when_refused, hints, dispatcher: _, since_us } = self;
        let ticket = TurnTicket { queue: queue.clone(), number: Some(number), label, priority, since_us };
        let task = Task::of(priority, Box::new(ticket)).with_hints(hints);
        if runs_when_refused { task.run_when_refused() } else { task }
    }

    /// The same between two tasks, where no caller could be given an error.
    fn hand_over(self, queue: &SerialQueue) -> HandedOver {
        let dispatcher = self.dispatcher.clone();
        let refused = match crate::panics::guard(|| dispatcher.dispatch(self.ticket(queue).handed_over())) {
            Ok(Ok(())) => None,
            Ok(Err(mut refused)) => {
                let ticket = refused.work_mut().as_turn().and_then(TurnTicket::take);
                // It may be another task than was given.
                if ticket.is_none() {
                    crate::task::in_place::defer_refused(refused);
                }
                ticket
            }
            Err(message) => {
                tracing::error!(
                    message = &*message,
                    "a dispatcher panicked over a task that its serial queue had chosen"
                );
                None
            }
        };
        HandedOver { refused, dispatcher: Some(dispatcher) }
    }
}

/// The work left after the ticket of the next task was dispatched, for when this task has left the stack.
#[derive(Default)]
#[must_use = "the next task may be lost"]
struct HandedOver {
    /// It was refused.
    refused: Option<TurnTicket>,
    /// It was dispatched there.
    dispatcher: Option<Arc<dyn TaskDispatcher>>,
}

impl HandedOver {
    /// Lets a dispatcher without threads run the task, unless it is the one that runs this thread's tasks anyway; gives
    /// the ticket that was refused.
    fn finish(self, runs_here: &Arc<dyn TaskDispatcher>) -> Option<TurnTicket> {
        if let Some(dispatcher) = self.dispatcher.filter(|dispatcher| !Arc::ptr_eq(dispatcher, runs_here)) {
            dispatcher.run_ready();
        }
        self.refused
    }
}

/// The right of one task to run, on its way through a dispatcher.
pub(crate) struct TurnTicket {
    queue: SerialQueue,
    /// None once it has been used.
    number: Option<u64>,
    label: TaskLabel,
    priority: TaskPriority,
    /// Since when the task has waited, in its dispatcher's time.
    since_us: Option<u32>,
}

impl TurnTicket {
    /// The ticket itself, leaving a used one behind.
    fn take(&mut self) -> Option<Self> {
        let number = Some(self.number.take()?);
        Some(Self { queue: self.queue.clone(), label: self.label.clone(), number, ..*self })
    }

    /// Runs the chosen task in the strand; gives the ticket of the next one if its dispatcher has refused it.
    fn run_one(mut self, panicked: &mut Option<Box<dyn Any + Send>>) -> Option<Self> {
        let number = self.number.take()?;
        let entry = self.queue.0.state.lock().begin(number)?;
        entry.counts(false);
        let Entry { task, dispatcher, .. } = entry;
        let place = InStrand::enter(&self.queue);
        if let Err(payload) = crate::panics::catch(|| task.run_in_strand())
            && let Some(second) = panicked.replace(payload)
        {
            let _ = crate::panics::guard(|| drop(second));
        }
        InStrand::exit(place, &self.queue).finish(&dispatcher)
    }
}

impl Work for TurnTicket {
    /// The task itself does.
    fn marks_leaf(&self) -> bool {
        true
    }

    fn label(&self) -> &str {
        self.label.as_str()
    }

    fn keep_label(&self) -> TaskLabel {
        self.label.clone()
    }

    /// Runs the task. If the dispatcher refuses the next one, which it was promised before, that is run as well: this thread is
    /// one that runs tasks.
    fn run(&mut self) {
        let (mut next, mut panicked) = (self.take(), None);
        while let Some(ticket) = next {
            next = ticket.run_one(&mut panicked);
        }
        if let Some(payload) = panicked {
            resume_unwind(payload);
        }
    }

    fn waits_since_us(&self) -> Option<u32> {
        self.since_us
    }

    fn as_turn(&mut self) -> Option<&mut TurnTicket> {
        Some(self)
    }
}

impl Drop for TurnTicket {
    /// The task goes with its ticket, and the next is chosen; from this thread's outermost loop, for a dispatcher that lets
    /// go of a ticket may be in the middle of something.
    fn drop(&mut self) {
        let Some(number) = self.number.take() else { return };
        let Some(entry) = self.queue.0.state.lock().begin(number) else { return };
        let queue = self.queue.clone();
        let goes = Task::new(self.label.clone(), self.priority, move || {
            entry.counts(false);
            let handed_over = match weakened("serial_queue::dropped_ticket_hands_nothing_over") {
                true => HandedOver::default(),
                false => queue.hand_over(),
            };
            let refused = handed_over.finish(&entry.dispatcher);
            drop((entry, refused));
        });
        crate::task::in_place::defer(goes);
        crate::task::in_place::run_ready();
    }
}

impl Default for SerialQueue {
    fn default() -> Self {
        Self::new()
    }
}

impl PartialEq for SerialQueue {
    fn eq(&self, other: &Self) -> bool {
        self.0.id == other.0.id
    }
}

impl Eq for SerialQueue {}

impl fmt::Debug for SerialQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SerialQueue").field(&self.0.id.0).finish()
    }
}
