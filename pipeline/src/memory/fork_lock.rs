//! A lock that the child of a fork can make anew.
//!
//! A lock that is held over a fork is free of the parent's other threads, but not of their traces: some may have been
//! waiting for it, and to unlock it in the child would go and wake them, through queues that lie on stacks which
//! are not there any more. So the child does not unlock; it makes the lock anew around the same value.

use std::cell::UnsafeCell;
use std::mem::{self, ManuallyDrop};
use std::ptr;

use uruk_core::sync::{Mutex, MutexGuard};

/// A [`Mutex`] that can be held over a fork.
pub(crate) struct ForkLock<T>(UnsafeCell<Mutex<T>>);

// SAFETY: all access goes through the mutex, but for `renew`, which demands to be alone.
unsafe impl<T: Send> Sync for ForkLock<T> {}

impl<T> ForkLock<T> {
    /// Creates an unlocked lock.
    pub(crate) const fn new(value: T) -> Self {
        Self(UnsafeCell::new(Mutex::new(value)))
    }

    /// Waits for the lock.
    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        // SAFETY: the mutex is replaced in `renew` alone, while no other thread exists.
        unsafe { &*self.0.get() }.lock()
    }

    /// Waits for the lock; the guard is not tied to the borrow.
    ///
    /// # Safety
    /// The guard is gone before `self` is, and before `self` moves.
    pub(crate) unsafe fn lock_for_long(&self) -> MutexGuard<'static, T>
    where
        T: 'static,
    {
        // SAFETY: the lifetime alone changes, and the caller takes care of it.
        unsafe { mem::transmute::<MutexGuard<'_, T>, MutexGuard<'static, T>>(self.lock()) }
    }

    /// Ends the hold of `guard` on this lock.
    ///
    /// # Safety
    /// `guard` is of this lock, and the process has one thread.
    pub(crate) unsafe fn renew(&self, guard: MutexGuard<'_, T>) {
        let guard = ManuallyDrop::new(guard);
        // SAFETY: the value is moved out of the old mutex and into the new one, and the old one is overwritten without
        // being dropped. Nobody else looks at either.
        unsafe {
            let value = ptr::read(&raw const **guard);
            ptr::write(self.0.get(), Mutex::new(value));
        }
    }
}
