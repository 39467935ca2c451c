//! The thread that compiles better, and the queue before it.

use std::collections::VecDeque;

use uruk_core::sync::{Arc, Mutex, thread};

use super::{Promote, Tiers};
use crate::runtime::background::{BackgroundThread, Next};
use crate::runtime::call_through;

/// Queue limit. A function that finds no room is counted again.
const QUEUED_MAX: usize = 1024;

pub(super) struct Promoter {
    uses_pool: bool,
    /// Tried, never waited for. Signals are blocked while it is held.
    queue: Mutex<VecDeque<Arc<dyn Promote>>>,
    thread: Arc<BackgroundThread>,
}

impl Promoter {
    pub(super) fn new(uses_pool: bool) -> Self {
        Self {
            uses_pool,
            queue: Mutex::new(VecDeque::with_capacity(QUEUED_MAX)),
            // Its own work would take half a processor from a program that starts on a busy machine.
            thread: Arc::new(BackgroundThread::new("uruk-tiers", true)),
        }
    }

    pub(super) fn uses_pool(&self) -> bool {
        self.uses_pool
    }

    /// Whether this is the process that the thread is in, or will be.
    pub(super) fn is_here(&self) -> bool {
        self.thread.is_here()
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
        match self.thread.thread() {
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
        if self.thread.thread().is_none() && (!is_of_process || call_through::has_handlers() || waits()) {
            self.start(tiers);
        }
    }

    fn start(&self, tiers: &Tiers) {
        let tiers = tiers.clone();
        BackgroundThread::start(&self.thread, move || tiers.0.promoter.step(&tiers));
    }

    pub(super) fn stop(&self) {
        self.thread.stop();
    }

    fn step(&self, tiers: &Tiers) -> Next {
        let quiet = tiers.until_quiet();
        let Some(mut queue) = self.queue.try_lock() else {
            thread::yield_now(); // Somebody pushes.
            return Next::Step;
        };
        let next = if quiet.is_zero() { queue.pop_front() } else { None };
        let is_empty = queue.is_empty();
        drop(queue);
        match next {
            Some(function) => tiers.promote(&*function),
            None => return Next::Rest((!is_empty).then_some(quiet)),
        }
        Next::Step
    }
}
