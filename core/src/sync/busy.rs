//! A lock that many threads want at the same time, each for a moment.
//!
//! A thread that does not get it looks for a microsecond or two whether it has become free, and then sleeps. [`Mutex`](super::Mutex) lets
//! others run in between, seven times over: where more threads want the lock than there are processors, these are others that want it as
//! well, and each of the seven is a call of the system.
//!
//! Models have a [`Mutex`](super::Mutex) here: how a thread waits is nothing they could see.

#[cfg(any(uruk_loom, uruk_shuttle))]
pub use super::Mutex as BusyMutex;
#[cfg(not(any(uruk_loom, uruk_shuttle)))]
pub use real::BusyMutex;

#[cfg(not(any(uruk_loom, uruk_shuttle)))]
mod real {
    #![expect(clippy::disallowed_types, reason = "this is one of the doors that the ban points to")]

    use std::sync::{MutexGuard, PoisonError};

    /// A mutual exclusion lock for what many threads want; without poison, not recursive.
    #[derive(Debug, Default)]
    pub struct BusyMutex<T>(std::sync::Mutex<T>);

    impl<T> BusyMutex<T> {
        /// Creates an unlocked lock.
        pub const fn new(value: T) -> Self {
            Self(std::sync::Mutex::new(value))
        }

        /// Waits for the lock.
        #[inline]
        pub fn lock(&self) -> MutexGuard<'_, T> {
            self.0.lock().unwrap_or_else(PoisonError::into_inner)
        }
    }
}

#[cfg(all(test, not(any(uruk_loom, uruk_shuttle))))]
mod tests {
    use super::*;
    use crate::sync::{Arc, thread};

    #[test]
    fn a_panic_inside_leaves_no_poison() {
        let count = Arc::new(BusyMutex::new(0));
        let panics = count.clone();
        let thread = thread::spawn(move || {
            *panics.lock() += 1;
            let _inside = panics.lock();
            std::panic::resume_unwind(Box::new(()));
        });
        assert!(thread.join().is_err());
        assert_eq!(*count.lock(), 1);
    }
}
