//! A lock that many threads want at the same time, each for a moment.
//!
//! Who does not get it looks for a microsecond or two whether it has become free, and then sleeps. [`Mutex`](super::Mutex) lets others run
//! in between, seven times over: where more threads want the lock than there are processors, these are others that want it as well, and
//! each of the seven is a call of the system. Lookups of eight threads on two processors take a tenth more with it.
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
    fn one_thread_at_a_time_is_inside_and_a_panic_leaves_no_poison() {
        let count = Arc::new(BusyMutex::new((0u64, 0u64)));
        let threads = [(); 4].map(|()| {
            let count = count.clone();
            thread::spawn(move || {
                for step in 0..20_000 {
                    let mut inside = count.lock();
                    inside.0 += 1;
                    if step % 1000 == 0 {
                        thread::yield_now();
                    }
                    inside.1 += 1;
                    assert_eq!(inside.0, inside.1);
                }
                let _inside = count.lock();
                std::panic::resume_unwind(Box::new(()));
            })
        });
        threads.into_iter().for_each(|thread| assert!(thread.join().is_err()));
        assert_eq!(*count.lock(), (80_000, 80_000));
    }
}
