//! The arm that models run: loom's locks, atomics and threads behind the surface of `real.rs`.

pub use loom::sync::atomic;
pub use loom::thread;

use std::sync::OnceLock;
use std::time::Duration;

/// Whether this run of a model leaves out `step`, which the environment's `URUK_WEAKEN` names: `model::what_is_left_out`,
/// where `model` is the file in `loom-tests/tests` that must then fail.
pub fn weakened(step: &str) -> bool {
    // Not a modelled cell: it has one value from before the first model to after the last.
    static LEFT_OUT: OnceLock<Option<String>> = OnceLock::new();
    LEFT_OUT.get_or_init(|| std::env::var("URUK_WEAKEN").ok()).as_deref() == Some(step)
}

/// Loom's scheduler is not fair: a spinning thread must yield or the model never ends.
pub mod hint {
    /// Lets another modelled thread run.
    pub fn spin_loop() {
        loom::thread::yield_now();
    }
}

/// The guard of [`Mutex`].
pub type MutexGuard<'a, T> = loom::sync::MutexGuard<'a, T>;

/// A modelled lock; loom's poison is unwrapped because a panic ends the model anyway.
#[derive(Debug, Default)]
pub struct Mutex<T>(loom::sync::Mutex<T>);

impl<T> Mutex<T> {
    /// Creates an unlocked mutex. Not `const`: loom registers it with the running model.
    pub fn new(value: T) -> Self {
        Self(loom::sync::Mutex::new(value))
    }

    /// Gives back the value.
    pub fn into_inner(self) -> T {
        self.0.into_inner().expect("a modelled lock is never poisoned")
    }

    /// Waits for the lock.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().expect("a modelled lock is never poisoned")
    }

    /// Takes the lock if it is free.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        self.0.try_lock().ok()
    }

    /// Borrows the value.
    pub fn get_mut(&mut self) -> &mut T {
        self.0.get_mut().expect("a modelled lock is never poisoned")
    }
}

/// A modelled condition variable.
#[derive(Debug, Default)]
pub struct Condvar(loom::sync::Condvar);

impl Condvar {
    /// Creates a condition variable without waiters.
    pub fn new() -> Self {
        Self(loom::sync::Condvar::new())
    }

    /// Releases the lock, sleeps until notified, takes the lock again.
    pub fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        self.0.wait(guard).expect("a modelled lock is never poisoned")
    }

    /// Models have no clock: waits without a limit and never reports a time-out.
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
