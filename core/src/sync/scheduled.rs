//! The arm of `--cfg uruk_shuttle`: shuttle's locks, atomics and threads behind the surface of `real.rs`.
//!
//! Shuttle runs one thread at a time and decides at each lock, atomic access and wait which thread goes on; its
//! decisions follow from a seed. Every atomic access is sequentially consistent here, with any ordering: orderings
//! are for loom (`model.rs`), large scenarios for shuttle.

pub use shuttle::sync::atomic;
pub use shuttle::{hint, thread};

use std::sync::OnceLock;
use std::time::Duration;

/// Whether this run leaves out `step`, which the environment's `URUK_WEAKEN` names; see `model.rs`.
pub fn weakened(step: &str) -> bool {
    static LEFT_OUT: OnceLock<Option<String>> = OnceLock::new();
    LEFT_OUT.get_or_init(|| std::env::var("URUK_WEAKEN").ok()).as_deref() == Some(step)
}

/// The guard of [`Mutex`].
pub type MutexGuard<'a, T> = shuttle::sync::MutexGuard<'a, T>;

/// A scheduled lock; shuttle's poison is unwrapped because a panic ends the run anyway.
#[derive(Debug, Default)]
pub struct Mutex<T: ?Sized>(shuttle::sync::Mutex<T>);

impl<T> Mutex<T> {
    /// Creates an unlocked mutex.
    pub const fn new(value: T) -> Self {
        Self(shuttle::sync::Mutex::new(value))
    }

    /// Gives back the value.
    pub fn into_inner(self) -> T {
        self.0.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl<T: ?Sized> Mutex<T> {
    /// Waits for the lock.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        // A thread that unwinds may still lock in its drops; the panic it came from is the finding.
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Takes the lock if it is free.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        self.0.try_lock().ok()
    }

    /// Borrows the value.
    pub fn get_mut(&mut self) -> &mut T {
        self.0.get_mut().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

/// A scheduled condition variable.
#[derive(Debug, Default)]
pub struct Condvar(shuttle::sync::Condvar);

impl Condvar {
    /// Creates a condition variable without waiters.
    pub const fn new() -> Self {
        Self(shuttle::sync::Condvar::new())
    }

    /// Releases the lock, sleeps until notified, takes the lock again.
    pub fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        self.0.wait(guard).unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// A schedule has no clock: waits without a limit and never reports a time-out.
    pub fn wait_timeout<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        _limit: Duration,
    ) -> (MutexGuard<'a, T>, bool) {
        (self.wait(guard), false)
    }

    /// Wakes one waiter.
    pub fn notify_one(&self) {
        self.0.notify_one();
    }

    /// Wakes every waiter.
    pub fn notify_all(&self) {
        self.0.notify_all();
    }
}
