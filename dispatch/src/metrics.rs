//! The counters of the pool.
//!
//! Counters are striped over slots, so that counting costs what adding to a number of one's own does; a snapshot adds them up.
//! Nothing depends on them: they order nothing, and a snapshot taken while tasks run may be a few tasks
//! off. Model builds leave them out.

mod waits;

use std::fmt;
use std::ops::Index;

use crossbeam_utils::CachePadded;
use uruk_core::TaskPriority;

use crate::queues::PRIORITIES;

pub use waits::WaitHistogram;
pub(crate) use waits::{Clock, Queued, Stamp, Stopwatch, WaitCounters};

/// A snapshot of the pool's counters.
///
/// Gauges (`threads`, `blocked`, `surplus`, `parked`, `running`, `queued`) say how it is now; the others count since the pool was
/// built. A snapshot is not one moment: counters are read one after another. But they change and are read in such an order that
/// it never shows more `threads` than `workers`, `blocked` and `surplus` together, as there never are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Metrics {
    /// Slots: how many tasks may run at once, blocked ones not counted.
    pub workers: usize,
    /// Threads that run tasks, look for some, are parked or blocked: all but those at their very end.
    pub threads: usize,
    /// Threads blocked in a wait inside a task.
    pub blocked: usize,
    /// Threads that go on after a wait while other threads have taken all slots; they retire when their task ends or get a slot that
    /// is vacant by then.
    pub surplus: usize,
    /// Threads asleep for want of work.
    pub parked: usize,
    /// Tasks being run, those that are blocked included.
    pub running: PerPriority<usize>,
    /// Tasks waiting to be run.
    pub queued: PerPriority<usize>,
    /// Tasks that ended, those that panicked included.
    pub finished: u64,
    /// Tasks that ended in a panic.
    pub panicked: u64,
    /// Tasks that went before all others because they were turns of serial queues, [handed over](uruk_core::Task::is_handed_over) and
    /// demanded.
    pub turns: u64,
    /// Tasks taken from another worker's queue. All were demanded: others wait in shared queues.
    pub stolen: u64,
    /// Times that a thread went to sleep for want of work.
    pub slept: u64,
    /// Times that a thread yielded its processor, between a demanded task and background work.
    pub yielded: u64,
    /// Times that another thread took the slot of a blocked one, by the priority of the blocked task.
    pub replaced: PerPriority<u64>,
    /// How long tasks waited between their dispatch and their start, in microseconds; empty unless
    /// [measured](crate::WorkStealingTaskDispatcherBuilder::measure_waits). A unit that becomes demanded is dispatched again then, so
    /// those of demanded tasks are the times from demand to start, what a task waits for its turn in a serial queue included.
    pub waits: PerPriority<WaitHistogram>,
    /// Threads started.
    pub started_threads: u64,
    /// Threads that the operating system refused to start.
    pub refused_threads: u64,
}

/// One value for each [`TaskPriority`].
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct PerPriority<T>(pub(crate) [T; PRIORITIES]);

impl<T: Copy + std::iter::Sum> PerPriority<T> {
    /// Over all priorities.
    pub fn total(&self) -> T {
        self.0.into_iter().sum()
    }
}

impl<T> Index<TaskPriority> for PerPriority<T> {
    type Output = T;

    fn index(&self, priority: TaskPriority) -> &T {
        &self.0[priority as usize]
    }
}

impl<T: fmt::Debug> fmt::Debug for PerPriority<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [idle, speculative, lazy, demanded] = &self.0;
        f.debug_struct("PerPriority")
            .field("demanded", demanded)
            .field("lazy", lazy)
            .field("speculative", speculative)
            .field("idle", idle)
            .finish()
    }
}

/// The counters of the pool.
#[derive(Debug)]
pub(crate) struct Counters {
    /// One per slot, and a last one for threads that are not workers.
    stripes: Box<[CachePadded<Stripe>]>,
    pub(crate) begun_threads: Counter,
    pub(crate) ended_threads: Counter,
    /// Times that a thread began to block; that its wait was over; that it had a slot again or no task any more. All but the outermost
    /// of nested blocks are left out.
    pub(crate) blocks_begun: Counter,
    pub(crate) blocks_ended: Counter,
    pub(crate) blocks_over: Counter,
    pub(crate) replaced: [Counter; PRIORITIES],
    pub(crate) started_threads: Counter,
    pub(crate) refused_threads: Counter,
}

/// A stripe, and whether the running thread is its only writer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tally<'a> {
    stripe: &'a Stripe,
    is_own: bool,
}

impl Tally<'_> {
    /// Adds one to a counter.
    pub(crate) fn count(self, of: impl FnOnce(&Stripe) -> &Counter) {
        of(self.stripe).add(1, self.is_own);
    }

    /// Counts so many tasks of each priority that are about to be queued.
    pub(crate) fn count_queued(self, tasks: [u64; PRIORITIES]) {
        for (counter, count) in self.stripe.queued.iter().zip(tasks) {
            if count > 0 {
                counter.add(count, self.is_own);
            }
        }
    }

    /// Takes one from a counter.
    pub(crate) fn discount(self, of: impl FnOnce(&Stripe) -> &Counter) {
        of(self.stripe).decrement();
    }

    /// Counts how long a task waited.
    pub(crate) fn count_wait(self, priority: TaskPriority, wait_us: u32) {
        self.stripe.waits[priority as usize].count(wait_us);
    }
}

/// The counters of one slot, written by its holder alone; or of no slot.
#[derive(Debug, Default)]
pub(crate) struct Stripe {
    pub(crate) queued: [Counter; PRIORITIES],
    pub(crate) started: [Counter; PRIORITIES],
    pub(crate) finished: [Counter; PRIORITIES],
    pub(crate) panicked: Counter,
    pub(crate) turns: Counter,
    pub(crate) stolen: Counter,
    pub(crate) slept: Counter,
    pub(crate) yielded: Counter,
    pub(crate) waits: [WaitCounters; PRIORITIES],
}

impl Counters {
    pub(crate) fn new(slots: usize) -> Self {
        Self {
            stripes: (0..=slots).map(|_| CachePadded::default()).collect(),
            begun_threads: Counter::default(),
            ended_threads: Counter::default(),
            blocks_begun: Counter::default(),
            blocks_ended: Counter::default(),
            blocks_over: Counter::default(),
            replaced: Default::default(),
            started_threads: Counter::default(),
            refused_threads: Counter::default(),
        }
    }

    /// The counters of the slot that the running thread holds, or of all threads that hold none.
    pub(crate) fn of(&self, slot: Option<usize>) -> Tally<'_> {
        let stripe = &self.stripes[slot.unwrap_or(self.stripes.len() - 1)];
        Tally { stripe, is_own: slot.is_some() }
    }

    /// Adds up what is striped; the caller fills in the gauges that live elsewhere.
    pub(crate) fn snapshot(&self) -> Metrics {
        // Later stages are read before earlier ones, so that a task in flight is rather seen queued or running
        // twice than never.
        let finished: [u64; PRIORITIES] = std::array::from_fn(|p| self.sum(|stripe| &stripe.finished[p]));
        let started: [u64; PRIORITIES] = std::array::from_fn(|p| self.sum(|stripe| &stripe.started[p]));
        let running = std::array::from_fn(|p| started[p].saturating_sub(finished[p]) as usize);
        let mut waits = [WaitHistogram::default(); PRIORITIES];
        for stripe in &self.stripes {
            stripe.waits.iter().zip(&mut waits).for_each(|(counters, sum)| counters.add_to(sum));
        }
        let queued =
            std::array::from_fn(|p| self.sum(|stripe| &stripe.queued[p]).saturating_sub(started[p]) as usize);
        // Begun threads and ended blocks first, ended threads and begun blocks last: events in between can only make the first
        // side of `threads <= workers + blocked + surplus` too small, and the second too large.
        let (begun_threads, over) = (self.begun_threads.get(), self.blocks_over.get());
        let blocks_ended = self.blocks_ended.get();
        let (blocks_begun, ended_threads) = (self.blocks_begun.get(), self.ended_threads.get());
        Metrics {
            threads: begun_threads.saturating_sub(ended_threads) as usize,
            blocked: blocks_begun.saturating_sub(blocks_ended) as usize,
            surplus: blocks_ended.saturating_sub(over) as usize,
            running: PerPriority(running),
            queued: PerPriority(queued),
            waits: PerPriority(waits),
            finished: finished.iter().sum(),
            panicked: self.sum(|stripe| &stripe.panicked),
            turns: self.sum(|stripe| &stripe.turns),
            stolen: self.sum(|stripe| &stripe.stolen),
            slept: self.sum(|stripe| &stripe.slept),
            yielded: self.sum(|stripe| &stripe.yielded),
            replaced: PerPriority(std::array::from_fn(|p| self.replaced[p].get())),
            started_threads: self.started_threads.get(),
            refused_threads: self.refused_threads.get(),
            ..Metrics::default()
        }
    }

    fn sum(&self, counter: impl Fn(&Stripe) -> &Counter) -> u64 {
        // Wrapping: what was added to one stripe may have been taken from another. That is the last one, to which those count who hold
        // no slot; it is read first. A task that is queued and given up in between then counts as queued: read the other way it would
        // be taken from a sum to which it was never added, and that wraps to an absurd number.
        self.stripes.iter().rev().fold(0, |sum, stripe| sum.wrapping_add(counter(stripe).get()))
    }
}

/// A number that threads add to and none waits for.
#[derive(Debug, Default)]
pub(crate) struct Counter {
    #[cfg(not(any(uruk_loom, uruk_shuttle)))]
    value: uruk_core::sync::atomic::AtomicU64,
}

#[cfg(not(any(uruk_loom, uruk_shuttle)))]
impl Counter {
    pub(crate) fn increment(&self) {
        // Relaxed: see the module; nothing hangs on a count.
        self.value.fetch_add(1, uruk_core::sync::atomic::Ordering::Relaxed);
    }

    /// The same many times. By the only thread that writes to it that costs no locked instruction, of which a task would take several.
    fn add(&self, count: u64, alone: bool) {
        use uruk_core::sync::atomic::Ordering;
        if alone {
            // Relaxed: as above. The previous writer has handed us its slot, or its board, through a lock.
            let before = self.value.load(Ordering::Relaxed);
            self.value.store(before.wrapping_add(count), Ordering::Relaxed);
        } else {
            // Relaxed: as above.
            self.value.fetch_add(count, Ordering::Relaxed);
        }
    }

    /// Adds, by the only thread that may write now.
    #[cfg(feature = "rayon")]
    pub(crate) fn plus(&self, count: u64) {
        self.add(count, true);
    }

    /// Takes away, by the only thread that may write now.
    #[cfg(feature = "rayon")]
    pub(crate) fn minus(&self, count: u64) {
        self.add(count.wrapping_neg(), true);
    }

    pub(crate) fn decrement(&self) {
        // Relaxed: as above. Wraps within a stripe, not in the sum.
        self.value.fetch_sub(1, uruk_core::sync::atomic::Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        // Relaxed: as above.
        self.value.load(uruk_core::sync::atomic::Ordering::Relaxed)
    }
}

/// Models explore every order of every atomic access; these would multiply the orders and prove nothing.
#[cfg(any(uruk_loom, uruk_shuttle))]
impl Counter {
    pub(crate) fn increment(&self) {}

    fn add(&self, _count: u64, _alone: bool) {}

    pub(crate) fn decrement(&self) {}

    pub(crate) fn get(&self) -> u64 {
        0
    }
}
