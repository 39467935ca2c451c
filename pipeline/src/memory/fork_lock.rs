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

    /// Takes the lock if it is free: for signal handlers.
    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        // SAFETY: as in `lock`.
        unsafe { &*self.0.get() }.try_lock()
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
        // SAFETY: the value is moved out of the old mutex and into the new one, and the old one is overwritten without being dropped. No
        // other thread looks at either.
        unsafe {
            let value = ptr::read(&raw const **guard);
            ptr::write(self.0.get(), Mutex::new(value));
        }
    }
}

/// A [`ForkLock`] of the process's, and the hold on it of the thread that forks, from before the fork to after it.
pub(crate) struct StaticForkLock<T: 'static> {
    lock: ForkLock<T>,
    held: UnsafeCell<Option<MutexGuard<'static, T>>>,
}

// SAFETY: the cell is touched by the handlers of forks alone, and only while they hold the lock.
unsafe impl<T: Send> Sync for StaticForkLock<T> {}
// SAFETY: the held value is borrowed for ever, and moves no more.
unsafe impl<T: Send> Send for StaticForkLock<T> {}

impl<T> StaticForkLock<T> {
    /// Creates an unlocked lock.
    pub(crate) const fn new(value: T) -> Self {
        Self { lock: ForkLock::new(value), held: UnsafeCell::new(None) }
    }

    /// Waits for the lock.
    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        self.lock.lock()
    }

    /// Takes the lock if it is free: for signal handlers.
    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        self.lock.try_lock()
    }

    /// After a fork, in the child: lets `change` the value, and makes the lock anew.
    ///
    /// # Safety
    /// As for [`HeldOverForks::let_go`], and the process has one thread.
    pub(crate) unsafe fn renew_with(&'static self, change: impl FnOnce(&mut T)) {
        // SAFETY: the lock is held, by the cell.
        let Some(mut held) = (unsafe { (*self.held.get()).take() }) else { return };
        change(&mut held);
        // SAFETY: the guard is of this lock, and the process has one thread.
        unsafe { self.lock.renew(held) };
    }
}

/// Locks that are held from before a fork to after it.
pub(crate) trait HeldOverForks: Sync {
    /// Before a fork.
    fn hold(&'static self);

    /// After a fork, in the parent.
    ///
    /// # Safety
    /// The calling thread has called [`hold`](Self::hold).
    unsafe fn let_go(&'static self);

    /// After a fork, in the child.
    ///
    /// # Safety
    /// As for [`let_go`](Self::let_go), and the process has one thread.
    unsafe fn renew(&'static self);
}

impl<T: Send> HeldOverForks for StaticForkLock<T> {
    fn hold(&'static self) {
        // SAFETY: the lock is a static, which outlives the guard; while it is held the cell is ours.
        unsafe { *self.held.get() = Some(self.lock.lock_for_long()) };
    }

    unsafe fn let_go(&'static self) {
        // SAFETY: the lock is held, by the cell.
        drop(unsafe { (*self.held.get()).take() });
    }

    unsafe fn renew(&'static self) {
        // SAFETY: passed on to the caller.
        unsafe { self.renew_with(|_| ()) };
    }
}
