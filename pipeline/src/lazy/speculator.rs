//! Functions that are compiled before they are called, by a thread in the background.
//!
//! ```text
//!   an order of calls ─────────────────┐
//!                                      ├─▶ queue ─▶ thread: compile, link ─▶ Ready: the first call only binds
//!   a function is called ─its callees──┘
//! ```
//!
//! The thread runs while functions wait. The child of a fork has no such thread, and compiles nothing ahead.
//!
//! **The lead.** The program and the thread go through the same functions, each compiling those it comes to. A program that has caught up
//! waits for the function that the thread has begun, and the two would go on in step, one of them always waiting. So the thread leaves the
//! next [`LEAD`] functions to the program, and comes back for them at the end.
//!
//! **The rank.** The thread has the rank of all others: a first call may wait for a function that the thread has begun, and at a lower rank
//! that would be a long wait on a busy machine. If the thread has to wait for a processor, other threads want it, perhaps the program
//! itself: the thread then rests for [`RESTS`] times as long.

use std::any::Any;
use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use uruk_core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use uruk_core::sync::{Arc, Mutex, Process, Weak};
use uruk_core::{ExecutorAddr, JitDylibLookupFlags, LookupRequest, LookupSet, SearchOrder};

use super::function::{LazyFunction, speculative};
use super::known::{KnownFunction, LazyUnit};
use super::order::{CallOrder, FunctionOfFile};
use super::trace_file::CompileTraceFile;
use crate::linking::ObjectLinkingLayer;
use crate::runtime::background::{BackgroundThread, Next, wait_for_rest};
use crate::runtime::call_through::{NamedCells, stub_at};
use crate::runtime::threads;

/// How many functions the thread leaves to a program that has caught up with it.
const LEAD: usize = 16;

/// How many times as long the thread rests as it had to wait for a processor.
const RESTS: u32 = 10;

/// How many called functions wait at most for their callees to be compiled. Others' callees are compiled when they are called.
const CALLED_MAX: usize = 1024;

/// Statistics of functions that were compiled ahead.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SpeculationStats {
    /// Functions that were compiled before they were called.
    pub ahead: u64,
    /// Those of them that have been called since.
    pub used: u64,
    /// How long compiling them took.
    pub time: Duration,
    /// Functions that could not be compiled: they say so when they are called.
    pub failed: u64,
    /// Functions of orders that no file has.
    pub unknown: u64,
}

/// Knows lazy functions by name, in which order they were called, and compiles some ahead.
///
/// # Concurrency
/// Cloning it is cheap; all clones are one.
///
/// ORC: `Speculator`, `ImplSymbolMap`.
#[derive(Clone)]
#[doc(alias = "ImplSymbolMap")]
pub struct Speculator(pub(super) Arc<SharedSpeculator>);

pub(super) struct SharedSpeculator {
    uses_pool: bool,
    process: Process,
    /// How many functions have been called.
    calls: AtomicU64,
    follows_calls: AtomicBool,
    units: Mutex<Vec<Weak<LazyUnit>>>,
    queue: Mutex<SpeculationQueue>,
    counts: SpeculationCounts,
    pub(super) trace: OnceLock<CompileTraceFile>,
    pub(super) compares_sources: AtomicBool,
}

/// Each is for people alone: nothing hangs on it.
#[derive(Default)]
struct SpeculationCounts {
    ahead: AtomicU64,
    time_ns: AtomicU64,
    failed: AtomicU64,
    unknown: AtomicU64,
}

#[derive(Default)]
struct SpeculationQueue {
    functions: VecDeque<WaitingFunction>,
    /// Linked code that was called for the first time, the latest last.
    called: Vec<(ObjectLinkingLayer, ExecutorAddr)>,
    thread: Option<Arc<BackgroundThread>>,
    is_stopped: bool,
}

/// A function by its number among those of its unit.
#[derive(Clone)]
struct WaitingFunction {
    unit: Weak<LazyUnit>,
    number: usize,
}

/// The thread's own state.
#[derive(Default)]
struct Worker {
    /// Whether the program has reached the function that was compiled last.
    has_caught_up: bool,
    rests_until: Option<Instant>,
}

enum AheadWork {
    Function(WaitingFunction),
    CalleesOf(ObjectLinkingLayer, ExecutorAddr),
}

impl Speculator {
    /// A speculator. If `uses_pool`, the workers of the session's dispatcher compile ahead, once they have nothing more urgent to do.
    /// Otherwise a thread does, which is started when it is needed.
    pub fn new(uses_pool: bool) -> Self {
        Self(Arc::new(SharedSpeculator {
            uses_pool,
            process: Process::current(),
            calls: AtomicU64::new(0),
            follows_calls: AtomicBool::new(false),
            units: Mutex::default(),
            queue: Mutex::default(),
            counts: SpeculationCounts::default(),
            trace: OnceLock::new(),
            compares_sources: AtomicBool::new(false),
        }))
    }

    /// The functions that have been called, in the order of their first calls. Those of units that were removed are not among them.
    ///
    /// A function that has several names is there under the least one. A function that a handler of signals may call counts as called when
    /// the handler is installed.
    ///
    /// # Cost
    /// A step for each lazy function, and a sort.
    pub fn first_calls(&self) -> CallOrder {
        let mut called = Vec::new();
        for unit in self.units() {
            for function in &unit.functions {
                let name = || unit.traced(function).map(|traced| traced.function);
                called.extend(function.first_call().and_then(|call| Some((call, name()?))));
            }
        }
        called.sort_unstable_by_key(|(call, _)| *call);
        CallOrder { functions: called.into_iter().map(|(_, name)| name).collect() }
    }

    /// Has functions compiled ahead, in this order, as far as they have been defined and not called. Several orders go one behind the
    /// other. Returns at once, with how many of the names are not known.
    ///
    /// Of a function that is being compiled ahead when it is called the call waits for the rest. One that cannot be compiled says so when
    /// it is called, as ever.
    ///
    /// # Concurrency
    /// As long as something waits there is a thread. A fork waits for the function that it compiles.
    ///
    /// # Cost
    /// A table of all lazy functions, while this runs.
    ///
    /// ORC: `Speculator::speculateFor`.
    #[doc(alias = "speculateFor")]
    pub fn speculate(&self, order: &CallOrder) -> usize {
        let mut known: HashMap<FunctionOfFile, Vec<WaitingFunction>> = HashMap::new();
        for unit in self.units() {
            for (number, function) in unit.functions.iter().enumerate() {
                let waiting = WaitingFunction { unit: Arc::downgrade(&unit), number };
                unit.names(function).for_each(|name| known.entry(name).or_default().push(waiting.clone()));
            }
        }
        let found = || order.functions.iter().filter_map(|name| known.get(name));
        let unknown = order.functions.len() - found().count();
        self.0.counts.unknown.fetch_add(unknown as u64, Ordering::Relaxed); // for people
        let mut queue = self.0.queue.lock();
        if !queue.is_stopped {
            queue.functions.extend(found().flatten().cloned());
            self.start(&mut queue);
        }
        unknown
    }

    /// Has the functions that a called one refers to compiled ahead, from now on. The functions that those refer to follow when those are
    /// called.
    ///
    /// # Cost
    /// Each first call wakes the thread, which stays. Functions that are never called are compiled too.
    pub fn speculate_callees(&self) {
        self.0.follows_calls.store(true, Ordering::Relaxed); // who is late is not followed
    }

    /// Compiles nothing more ahead; a running compile is finished.
    ///
    /// # Concurrency
    /// Callable from any thread. Does not wait for that.
    pub fn stop(&self) {
        self.0.follows_calls.store(false, Ordering::Relaxed); // as above
        // In a child the queue may have been taken when it was forked, and there is no thread.
        if !self.is_here() {
            return;
        }
        let mut queue = self.0.queue.lock();
        queue.is_stopped = true;
        let dropped = (std::mem::take(&mut queue.functions), std::mem::take(&mut queue.called));
        let thread = queue.thread.take();
        drop(queue);
        drop(dropped);
        if let Some(thread) = thread {
            thread.stop();
        }
    }

    /// The same, and waits for a running compile.
    ///
    /// # Concurrency
    /// Blocks for as long as one function takes. Not to be called by code that compiles.
    pub fn stop_and_wait(&self) {
        self.stop();
        wait_for_rest();
    }

    /// Statistics so far.
    pub fn stats(&self) -> SpeculationStats {
        let counts = &self.0.counts;
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed); // for people
        let is_used = |function: &&KnownFunction| function.was_ahead() && function.was_called();
        let used = self.units().into_iter().map(|unit| unit.functions.iter().filter(is_used).count() as u64);
        SpeculationStats {
            ahead: count(&counts.ahead),
            used: used.sum(),
            time: Duration::from_nanos(count(&counts.time_ns)),
            failed: count(&counts.failed),
            unknown: count(&counts.unknown),
        }
    }
}

impl Speculator {
    pub(super) fn add(&self, unit: &Arc<LazyUnit>) {
        let mut units = self.0.units.lock();
        units.retain(|unit| unit.strong_count() > 0);
        units.push(Arc::downgrade(unit));
    }

    /// Those that are there.
    pub(super) fn units(&self) -> Vec<Arc<LazyUnit>> {
        self.0.units.lock().iter().filter_map(Weak::upgrade).collect()
    }

    /// Takes note of a call, which may be the first of its function.
    pub(super) fn note_call(&self, function: &KnownFunction) {
        if !function.was_called() {
            function.note_call(self.0.calls.fetch_add(1, Ordering::Relaxed) + 1); // the number alone counts
        }
    }

    /// Takes note of the code of a function that was called for the first time.
    pub(super) fn note_code(&self, layer: &ObjectLinkingLayer, code: ExecutorAddr) {
        // Relaxed: as in `speculate_callees`.
        if !self.0.follows_calls.load(Ordering::Relaxed) || !self.is_here() {
            return;
        }
        // The caller does not wait. If the queue is busy, these callees are compiled when they are called.
        let Some(mut queue) = self.0.queue.try_lock() else { return };
        if queue.is_stopped || queue.called.len() == CALLED_MAX {
            return;
        }
        queue.called.push((layer.clone(), code));
        self.start(&mut queue);
        let thread = queue.thread.clone();
        drop(queue);
        if let Some(thread) = thread.as_ref().and_then(|thread| thread.thread()) {
            thread.unpark();
        }
    }

    fn is_here(&self) -> bool {
        Process::current() == self.0.process
    }

    fn start(&self, queue: &mut SpeculationQueue) {
        let thread = queue.thread.get_or_insert_with(|| Arc::new(BackgroundThread::new("uruk-ahead", false)));
        let (this, mut worker) = (self.clone(), Worker::default());
        BackgroundThread::start(thread, move || this.step(&mut worker));
    }

    fn step(&self, worker: &mut Worker) -> Next {
        let rest = worker.rests_until.map(|end| end.saturating_duration_since(Instant::now()));
        if let Some(rest) = rest.filter(|rest| !rest.is_zero()) {
            return Next::Rest(Some(rest));
        }
        let mut queue = self.0.queue.lock();
        match queue.next(&mut worker.has_caught_up) {
            Some(work) => {
                drop(queue);
                let (begun, on_processor) = (Instant::now(), threads::time_on_processor());
                // A panic is a defect of ours, and the function is compiled when it is called.
                _ = catch_unwind(AssertUnwindSafe(|| match work {
                    AheadWork::Function(function) => worker.has_caught_up = self.compile(&function),
                    AheadWork::CalleesOf(layer, code) => self.compile_callees(&layer, code),
                }));
                if !self.0.uses_pool {
                    worker.rest_after(
                        begun.elapsed(),
                        threads::time_on_processor().saturating_sub(on_processor),
                    );
                }
                Next::Step
            }
            // It is woken by the next call.
            None if self.0.follows_calls.load(Ordering::Relaxed) => Next::Rest(None), // as in `speculate_callees`
            None => {
                queue.thread = None;
                Next::End
            }
        }
    }

    /// Says whether the program has called it meanwhile.
    fn compile(&self, waiting: &WaitingFunction) -> bool {
        let begun = Instant::now();
        let Some(unit) = waiting.unit.upgrade() else { return false };
        let (function, dylib) = (&unit.functions[waiting.number], unit.dylib.upgrade());
        let Some(dylib) = dylib.filter(|_| !function.was_called()) else { return true };
        let order = SearchOrder::from([(dylib.clone(), JitDylibLookupFlags::MatchAllSymbols)]);
        let request = LookupRequest::new(order, LookupSet::required([function.body.clone()]));
        let is_ready = speculative(dylib.session(), request, self.0.uses_pool).is_ok();
        if is_ready {
            function.note_ahead();
        }
        let counts = &self.0.counts;
        let time = u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
        counts.time_ns.fetch_add(time, Ordering::Relaxed); // for people
        let counter = if is_ready { &counts.ahead } else { &counts.failed };
        counter.fetch_add(1, Ordering::Relaxed); // for people
        function.was_called()
    }

    fn compile_callees(&self, layer: &ObjectLinkingLayer, code: ExecutorAddr) {
        if layer.executor.stubs_there().is_some() {
            return; // The stubs of another process do not tell their numbers here.
        }
        for callee in layer.references_of(code) {
            let Some((held, cells)) = layer.hold_stubs(callee) else { continue };
            let (Some((number, _)), Ok(cells)) = (stub_at(callee, &held), cells.downcast::<NamedCells>())
            else {
                continue;
            };
            let cell = cells.get(number as usize).map(|cell| -> &dyn Any { &**cell });
            let Some(function) = cell.and_then(|cell| cell.downcast_ref::<LazyFunction>()) else { continue };
            let (unit, number) = function.known();
            if !unit.functions[number].was_ahead() {
                self.compile(&WaitingFunction { unit: Arc::downgrade(unit), number });
            }
        }
    }
}

impl Worker {
    /// Has the thread rest if it had a processor for less than half of the time.
    fn rest_after(&mut self, time: Duration, on_processor: Duration) {
        let waited = time.saturating_sub(on_processor);
        self.rests_until = (waited > on_processor).then(|| Instant::now() + waited * RESTS);
    }
}

impl SpeculationQueue {
    fn next(&mut self, has_caught_up: &mut bool) -> Option<AheadWork> {
        // Functions that a program may call next come before those that it may call later.
        if let Some((layer, code)) = self.called.pop() {
            return Some(AheadWork::CalleesOf(layer, code));
        }
        loop {
            let WaitingFunction { unit, number } = self.functions.front()?;
            let is_uncalled = |unit: Arc<LazyUnit>| !unit.functions[*number].was_called();
            if !unit.upgrade().is_some_and(is_uncalled) {
                *has_caught_up = true;
                self.functions.pop_front();
            } else if std::mem::take(has_caught_up) && self.functions.len() > LEAD {
                self.functions.rotate_left(LEAD);
            } else {
                return self.functions.pop_front().map(AheadWork::Function);
            }
        }
    }
}

impl fmt::Debug for Speculator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Speculator").field("stats", &self.stats()).finish_non_exhaustive()
    }
}
