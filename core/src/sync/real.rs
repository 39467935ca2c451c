//! The arm that programs run: `parking_lot` locks and the standard library's atomics and threads.

#![expect(clippy::disallowed_types, reason = "this is the door that the ban points to")]

pub use parking_lot::MutexGuard;
pub use std::hint;
pub use std::sync::atomic;
pub use std::thread;

use std::time::Duration;

/// Never: steps of a protocol are left out only where a model shows that it notices. Compiles to nothing.
#[inline(always)]
pub const fn weakened(_step: &str) -> bool {
    false
}

/// A mutual exclusion lock without poison; not recursive.
#[derive(Debug, Default)]
pub struct Mutex<T: ?Sized>(parking_lot::Mutex<T>);

impl<T> Mutex<T> {
    /// Creates an unlocked mutex.
    pub const fn new(value: T) -> Self {
        Self(parking_lot::Mutex::new(value))
    }

    /// Gives back the value; no other thread can hold the lock.
    pub fn into_inner(self) -> T {
        self.0.into_inner()
    }
}

impl<T: ?Sized> Mutex<T> {
    /// Waits for the lock.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock()
    }

    /// Takes the lock if it is free.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        self.0.try_lock()
    }

    /// Borrows the value; no other thread can hold the lock.
    pub fn get_mut(&mut self) -> &mut T {
        self.0.get_mut()
    }
}

/// A condition variable. The guard travels by value, which is the form both arms can offer.
#[derive(Debug, Default)]
pub struct Condvar(parking_lot::Condvar);

impl Condvar {
    /// Creates a condition variable without waiters.
    pub const fn new() -> Self {
        Self(parking_lot::Condvar::new())
    }

    /// Releases the guard's lock, sleeps until notified, and takes the lock again. May wake spuriously.
    pub fn wait<'a, T: ?Sized>(&self, mut guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        self.0.wait(&mut guard);
        guard
    }

    /// Like [`Condvar::wait`], but gives up after `limit`. The flag says whether the time ran out.
    pub fn wait_timeout<'a, T: ?Sized>(
        &self,
        mut guard: MutexGuard<'a, T>,
        limit: Duration,
    ) -> (MutexGuard<'a, T>, bool) {
        let timed_out = self.0.wait_for(&mut guard, limit).timed_out();
        (guard, timed_out)
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
