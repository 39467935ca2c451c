//! Starts: the thread that starts a home, the threads that wait for it, and whether there is anything left to start.
//!
//! ```text
//!   start_all ─▶ another thread is at it? ──yes──▶ wait until it is done ─┐
//!                      │ no  ◀─────────────────────────────────────────────┘
//!                      ▼
//!                 take what is Ready ──nothing──▶ done
//!                      │ ▲
//!                      ▼ │
//!                  run it, without the lock
//! ```
//!
//! A thread inside an initialiser waits neither for itself nor for a thread that waits for it: it finds their work unfinished, like code
//! that calls back into a static initialiser.
//!
//! Needs core alone, so that `loom-tests/tests/starts.rs` runs what programs run.

use rustc_hash::FxHashMap;
use uruk_core::sync::atomic::{AtomicBool, Ordering};
use uruk_core::sync::thread::{self, ThreadId};
use uruk_core::sync::{Arc, Latch, Mutex, weakened};

/// The homes that are being started.
#[derive(Debug)]
pub(super) struct Starts<H> {
    running: Vec<DylibStart<H>>,
    /// For whom each thread waits.
    waiting: FxHashMap<ThreadId, ThreadId>,
}

/// A thread that starts a home.
#[derive(Debug)]
struct DylibStart<H> {
    home: H,
    thread: ThreadId,
    is_over: Arc<Latch>,
}

impl<H> Default for Starts<H> {
    fn default() -> Self {
        Self { running: Vec::new(), waiting: FxHashMap::default() }
    }
}

impl<H: PartialEq> Starts<H> {
    /// Finds the start that `thread` has to wait for before it starts `home`, and notes that it does.
    fn wait_for(&mut self, home: &H, thread: ThreadId) -> Option<Arc<Latch>> {
        if weakened("starts::waits_for_nobody") {
            return None;
        }
        let mut others = self.running.iter().filter(|start| start.home == *home && start.thread != thread);
        let other = others.find(|start| !self.leads_to(start.thread, thread))?;
        let (whom, is_over) = (other.thread, other.is_over.clone());
        self.waiting.insert(thread, whom);
        Some(is_over)
    }

    /// Whether `from` waits for `thread`, directly or through other threads.
    fn leads_to(&self, from: ThreadId, thread: ThreadId) -> bool {
        if weakened("starts::waits_in_a_cycle") {
            return false;
        }
        std::iter::successors(Some(from), |at| self.waiting.get(at).copied()).any(|at| at == thread)
    }

    fn begin(&mut self, home: H, thread: ThreadId) -> Arc<Latch> {
        let is_over = Arc::new(Latch::new());
        self.running.push(DylibStart { home, thread, is_over: is_over.clone() });
        is_over
    }

    fn end(&mut self, is_over: &Arc<Latch>) {
        self.running.retain(|start| !Arc::ptr_eq(&start.is_over, is_over));
    }
}

/// The value behind the lock: starts, and the threads that do them.
pub(super) trait Startable<H> {
    /// The threads that start some of it.
    fn starts(&mut self) -> &mut Starts<H>;

    /// Whether there is anything left of which no start has begun.
    fn has_unstarted(&self) -> bool;
}

/// Whether there may be anything to start. Written under the lock of the state.
///
/// | becomes | when |
/// |---|---|
/// | true | something to start is noted, before it is Ready |
/// | false | a thread is done with a home, and nothing of any home is left or being run |
#[derive(Debug, Default)]
pub(super) struct Unstarted(AtomicBool);

impl Unstarted {
    /// Notes that there is something to start. Under the lock, and before it can be found Ready.
    pub(super) fn note(&self) {
        // Relaxed: a thread that finds it Ready sees earlier writes, and reads this one or a later one.
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether there may be anything to start. `false` says that everything has run that was Ready before the call.
    pub(super) fn may_be_there(&self) -> bool {
        // ordering[all-started]: Acquire. Pairs with the Release in `settle`: a thread that sees that nothing is left sees the
        // initializers' writes.
        self.0.load(match weakened("starts::looks_relaxed") {
            true => Ordering::Relaxed,
            false => Ordering::Acquire,
        })
    }

    /// Notes that nothing is left, if that is so. Under the lock.
    fn settle<H>(&self, state: &mut impl Startable<H>) {
        let is_over = state.starts().running.is_empty() || weakened("starts::settles_beside_a_start");
        if is_over && !state.has_unstarted() {
            // ordering[all-started]: Release. Pairs with the Acquire in `may_be_there`.
            self.0.store(false, Ordering::Release);
        }
    }
}

/// Starts everything of a home on this thread, until nothing is left.
///
/// `find` gives the home and the units that may be taken; it and `run` are called without the lock. `take` takes the units that this thread
/// runs.
///
/// # Errors
/// Those of `wait`.
pub(super) fn start_all<H: PartialEq, S: Startable<H>, F, U, E>(
    state: &Mutex<S>,
    unstarted: &Unstarted,
    mut find: impl FnMut() -> Option<(H, F)>,
    mut take: impl FnMut(&mut S, F) -> Vec<U>,
    wait: impl Fn(&Latch) -> Result<(), E>,
    mut run: impl FnMut(Vec<U>),
) -> Result<(), E> {
    let thread = thread::current().id();
    loop {
        let Some((home, found)) = find() else { break };
        let mut locked = state.lock();
        if let Some(is_over) = locked.starts().wait_for(&home, thread) {
            drop(locked);
            let waited = wait(&is_over);
            state.lock().starts().waiting.remove(&thread);
            waited?;
            continue;
        }
        let units = take(&mut locked, found);
        if units.is_empty() {
            break;
        }
        let is_over = locked.starts().begin(home, thread);
        drop(locked);
        run(units);
        state.lock().starts().end(&is_over);
        is_over.open();
    }
    unstarted.settle(&mut *state.lock());
    Ok(())
}
