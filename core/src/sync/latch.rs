//! A one-way gate: closed, then open for ever.

use std::time::{Duration, Instant};

use super::atomic::{AtomicBool, Ordering};
use super::{Condvar, Mutex, weakened};

/// Opens once; threads that wait on it go on, and later ones do not wait at all.
///
/// Built on a lock and a condition variable rather than on parked threads, so that the waiter may be
/// any thread and a model can follow it.
///
/// # Concurrency
/// Every method may be called from any thread. A task that waits on one goes through its dispatcher
/// ([`TaskDispatcher::wait`](crate::TaskDispatcher::wait)), which has others do its work meanwhile.
#[derive(Debug, Default)]
pub struct Latch {
    open: Mutex<bool>,
    opened: Condvar,
    /// True once `open` is: most of those who look come when it is, or have other work until then, and need no lock.
    is_open: AtomicBool,
    /// The looks that the waiting thread takes now and then.
    looks: Option<Looks>,
}

/// Something that a thread does now and then while it sleeps.
#[derive(Debug)]
struct Looks {
    /// Says when to look again.
    look: fn() -> Duration,
    /// When the next look is due.
    due: Mutex<Instant>,
}

impl Latch {
    /// Creates a closed latch.
    pub fn new() -> Self {
        Self::default()
    }

    /// The same for a thread that runs `look` after `pause`, and again after the pause that it gives, for as long as it waits.
    pub(crate) fn looking(pause: Duration, look: fn() -> Duration) -> Self {
        let looks = Looks { look, due: Mutex::new(Instant::now() + pause) };
        Self { looks: Some(looks), ..Self::default() }
    }

    /// Opens the latch and wakes every waiter. Opening twice is harmless.
    pub fn open(&self) {
        let mut open = self.open.lock();
        *open = true;
        // ordering[latch-open]: Release. Pairs with the Acquire in `is_open`; a thread that sees the latch open sees what
        // was done before it was opened.
        self.is_open.store(true, Ordering::Release);
        self.opened.notify_all();
    }

    /// Whether the latch has been opened.
    pub fn is_open(&self) -> bool {
        // ordering[latch-open]: Acquire. Pairs with the Release in `open`. Model: loom-tests/tests/models/lodge.rs.
        self.is_open.load(Ordering::Acquire)
    }

    /// Blocks until the latch is open.
    pub fn wait(&self) {
        while !self.sleep(None) {}
    }

    /// Blocks until the latch is open or `left` says that no time is left; says whether it is open.
    pub fn wait_while(&self, left: &dyn Fn() -> Duration) -> bool {
        loop {
            let limit = left();
            if limit.is_zero() {
                return self.is_open();
            }
            if self.sleep(Some(limit)) {
                return true;
            }
        }
    }

    /// Blocks until the latch is open or at most about `limit` has passed; says whether it is open.
    pub fn wait_timeout(&self, limit: Duration) -> bool {
        self.sleep(Some(limit))
    }

    /// Sleeps until the latch is open, `limit` has passed or a look is due; says whether it is open.
    fn sleep(&self, limit: Option<Duration>) -> bool {
        let until_look = self.looks.as_ref().and_then(Looks::run_if_due);
        let mut open = self.open.lock();
        if *open {
            return true;
        }
        if weakened("lodge::looks_before_it_locks") {
            drop(open);
            open = self.open.lock();
        }
        match limit.into_iter().chain(until_look).min() {
            None => *self.opened.wait(open),
            Some(limit) => *self.opened.wait_timeout(open, limit).0,
        }
    }
}

impl Looks {
    /// Looks if it is time. Gives the time until the next look.
    ///
    /// Models have no clock: there a thread looks whenever it is about to sleep, and sleeps without a limit.
    fn run_if_due(&self) -> Option<Duration> {
        if cfg!(any(uruk_loom, uruk_shuttle)) {
            (self.look)();
            return None;
        }
        let left = self.due.lock().saturating_duration_since(Instant::now());
        if !left.is_zero() {
            return Some(left);
        }
        let pause = (self.look)();
        *self.due.lock() = Instant::now() + pause;
        Some(pause)
    }
}

#[cfg(all(test, not(uruk_loom)))]
mod tests {
    use super::*;
    use crate::sync::{Arc, thread};

    #[test]
    fn a_waiter_goes_on_when_the_latch_opens() {
        let latch = Arc::new(Latch::new());
        let waiter = thread::spawn({
            let latch = latch.clone();
            move || latch.wait()
        });
        latch.open();
        waiter.join().unwrap();
        assert!(latch.is_open());
    }
}
