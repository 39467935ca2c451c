//! The thread that compiles better, and the queue before it.

use std::collections::VecDeque;
use std::sync::OnceLock;

use uruk_core::sync::atomic::{AtomicBool, Ordering};
use uruk_core::sync::thread::{self, Thread};
use uruk_core::sync::{Arc, Mutex, Process};

use super::{Promote, Tiers};
use crate::memory::StaticForkLock;
use crate::runtime::tls::SignalsBlocked;
use crate::runtime::{call_through, forks, threads};

/// How many functions wait at most. What finds no room is counted again.
const QUEUED_MAX: usize = 1024;

/// Held while something is promoted. A fork takes it before all other locks of the runtime.
pub(crate) static AT_REST: StaticForkLock<()> = StaticForkLock::new(());

pub(super) struct Promoter {
    uses_pool: bool,
    process: Process,
    /// Tried, never waited for. Signals are blocked while it is held.
    queue: Mutex<VecDeque<Arc<dyn Promote>>>,
    is_started: AtomicBool,
    is_stopped: AtomicBool,
    thread: OnceLock<Thread>,
}

pub(super) fn wait_for_rest() {
    drop(AT_REST.lock());
}

impl Promoter {
    pub(super) fn new(uses_pool: bool) -> Self {
        Self {
            uses_pool,
            process: Process::current(),
            queue: Mutex::new(VecDeque::with_capacity(QUEUED_MAX)),
            is_started: AtomicBool::new(false),
            is_stopped: AtomicBool::new(false),
            thread: OnceLock::new(),
        }
    }

    pub(super) fn uses_pool(&self) -> bool {
        self.uses_pool
    }

    /// Whether this is the process that the thread is in, or will be.
    pub(super) fn is_here(&self) -> bool {
        Process::current() == self.process
    }

    /// Puts a function last in the queue, unless that is busy or full. Signals are blocked meanwhile, so that no handler finds the queue taken
    /// beneath it.
    pub(super) fn push(&self, tiers: &Tiers, function: Arc<dyn Promote>) -> bool {
        let _blocked = call_through::BlockedSignals::begin();
        let Some(mut queue) = self.queue.try_lock() else { return false };
        if queue.len() == QUEUED_MAX {
            return false;
        }
        queue.push_back(function);
        drop(queue);
        match self.thread.get() {
            Some(thread) => thread.unpark(),
            // Where handlers of signals are installed, this may be one, and have interrupted the allocator: the next first call starts it.
            None if call_through::has_handlers() => {}
            None => call_through::on_spare_stack(&mut || self.start(tiers)),
        }
        true
    }

    /// Starts the thread if something waits; or if `push` may not start it, or need not put it off, and this may be the last first call.
    pub(super) fn start_if_wanted(&self, tiers: &Tiers, is_of_process: bool) {
        let waits = || self.queue.try_lock().is_some_and(|queue| !queue.is_empty());
        if self.thread.get().is_none() && (!is_of_process || call_through::has_handlers() || waits()) {
            self.start(tiers);
        }
    }

    /// Once; if the system refuses, another time.
    fn start(&self, tiers: &Tiers) {
        // Relaxed: one of those who try wins, and nothing hangs on it.
        if self.is_started.swap(true, Ordering::Relaxed) {
            return;
        }
        let tiers = tiers.clone();
        let run = move || tiers.0.promoter.run(&tiers);
        let spawn = || thread::Builder::new().name("uruk-tiers".to_owned()).spawn(run).ok();
        match forks::watch().ok().and_then(|()| spawn()) {
            // Who has pushed meanwhile knew no thread.
            Some(thread) => self.thread.get_or_init(|| thread.thread().clone()).unpark(),
            None => self.is_started.store(false, Ordering::Relaxed), // as above
        }
    }

    pub(super) fn stop(&self) {
        // ordering[promoter-stops]: Release. Pairs with the Acquire in `run`: what was done before the stop is seen by what ends.
        self.is_stopped.store(true, Ordering::Release);
        if let Some(thread) = self.thread.get().filter(|_| self.is_here()) {
            thread.unpark();
        }
    }

    fn run(&self, tiers: &Tiers) {
        let _signals = SignalsBlocked::now();
        // Its own work would take half a processor from a program that starts on a busy machine.
        threads::stand_back();
        loop {
            let rest = AT_REST.lock();
            // ordering[promoter-stops]: Acquire.
            if self.is_stopped.load(Ordering::Acquire) {
                return;
            }
            let quiet = tiers.until_quiet();
            let Some(mut queue) = self.queue.try_lock() else {
                thread::yield_now(); // Somebody pushes.
                continue;
            };
            let next = if quiet.is_zero() { queue.pop_front() } else { None };
            let is_empty = queue.is_empty();
            drop(queue);
            match next {
                Some(function) => tiers.promote(&*function),
                None => {
                    drop(rest);
                    if is_empty { thread::park() } else { thread::park_timeout(quiet) }
                }
            }
        }
    }
}
