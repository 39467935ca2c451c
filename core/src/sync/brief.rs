//! A lock for moments: taken by one atomic step, let go by a plain store.
//!
//! [`Mutex`](super::Mutex) must look, when it is released, whether a thread sleeps on it. That is a second atomic step, which
//! takes as long as the probe of a table under the lock. No thread sleeps on this one. A thread that does not get it at once
//! queues on a second lock, and the first of that queue looks at this one again and again.
//!
//! ```text
//!   word free? ──take it──▶ a moment ──store──▶ free
//!        └─no─▶ queue: lock ─▶ first: look, then let others run, then sleep a little ─▶ take the word, let the queue go
//! ```
//!
//! **Architecture Invariant:** a thread that waits here takes no processor from the holder: one of them looks, in between lets
//! others run and at last sleeps for 50 microseconds at a time, and the others are asleep.
//!
//! It is not fair, and has to be free most of the time. A newcomer takes it before the queue, and if others hold it in turns without a
//! pause, the first of the queue finds it free only by luck. A lock held for long, or by many, should be a [`Mutex`](super::Mutex).
//!
//! The word is a crate's, and no model can look into that. Our own part, the queue and the looks, is written for any word, and explored
//! with one that a model follows (`loom-tests/tests/models/brief.rs`). All other models have a [`Mutex`](super::Mutex) here.

#[cfg(any(uruk_loom, uruk_shuttle))]
pub use model::BriefMutex;
#[cfg(not(any(uruk_loom, uruk_shuttle)))]
pub use real::BriefMutex;

#[cfg(uruk_loom)]
pub use queued::{Patience, Queued, Word};

#[cfg(not(uruk_shuttle))]
mod queued {
    use crate::sync::{Mutex, weakened};

    /// A word that is taken by one atomic step, and is free again when its guard goes.
    pub trait Word {
        /// Has it.
        type Guard<'a>
        where
            Self: 'a;
        /// Of one who looks.
        type Patience<'a>: Patience
        where
            Self: 'a;

        /// Takes it if it is free.
        fn try_take(&self) -> Option<Self::Guard<'_>>;

        /// Whether it is taken, without a step that others would feel.
        fn is_taken(&self) -> bool;

        /// A thread begins to look whether it is free.
        fn look(&self) -> Self::Patience<'_>;
    }

    /// The pause between two looks.
    pub trait Patience {
        /// Lets others run.
        fn rest(&mut self);
    }

    /// A word, and the queue of those who did not get it at once.
    #[derive(Debug, Default)]
    pub struct Queued<W> {
        word: W,
        /// Held by the one waiter that looks whether the word is free.
        queue: Mutex<()>,
    }

    impl<W> Queued<W> {
        /// With a word that is free.
        #[cfg(not(uruk_loom))]
        pub const fn of(word: W) -> Self {
            Self { word, queue: Mutex::new(()) }
        }

        /// With a word that is free.
        #[cfg(uruk_loom)]
        pub fn of(word: W) -> Self {
            Self { word, queue: Mutex::new(()) }
        }
    }

    impl<W: Word> Queued<W> {
        /// Waits for the lock.
        #[inline]
        pub fn lock(&self) -> W::Guard<'_> {
            match self.word.try_take() {
                Some(guard) => guard,
                None => self.wait(),
            }
        }

        #[cold]
        fn wait(&self) -> W::Guard<'_> {
            let mut first = Some(self.queue.lock());
            if weakened("brief::everybody_looks") {
                first = None;
            }
            let mut patience = self.word.look();
            let guard = loop {
                if !self.word.is_taken()
                    && let Some(guard) = self.word.try_take()
                {
                    break guard;
                }
                patience.rest();
            };
            // The queue moves on when no thread looks any more.
            drop(patience);
            drop(first);
            guard
        }
    }
}

#[cfg(not(any(uruk_loom, uruk_shuttle)))]
mod real {
    use std::time::Duration;

    use crossbeam_utils::Backoff;
    use spin::mutex::{SpinMutex, SpinMutexGuard};

    use super::queued::{Patience, Queued, Word};

    /// A mutual exclusion lock for what takes a moment; without poison, not recursive.
    pub type BriefMutex<T> = Queued<SpinMutex<T>>;

    /// How long a waiter sleeps between two looks when letting others run did not help: they may be less urgent than it is.
    const NAP: Duration = Duration::from_micros(50);

    impl<T> BriefMutex<T> {
        /// Creates an unlocked lock.
        pub const fn new(value: T) -> Self {
            Self::of(SpinMutex::new(value))
        }
    }

    impl<T> Word for SpinMutex<T> {
        type Guard<'a>
            = SpinMutexGuard<'a, T>
        where
            T: 'a;
        type Patience<'a>
            = Backoff
        where
            T: 'a;

        #[inline]
        fn try_take(&self) -> Option<SpinMutexGuard<'_, T>> {
            self.try_lock()
        }

        fn is_taken(&self) -> bool {
            self.is_locked()
        }

        fn look(&self) -> Backoff {
            Backoff::new()
        }
    }

    impl Patience for Backoff {
        fn rest(&mut self) {
            if self.is_completed() {
                nap();
            } else {
                self.snooze();
            }
        }
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "nobody wakes who waits here; parking would take a wake from others"
    )]
    fn nap() {
        std::thread::sleep(NAP);
    }
}

#[cfg(any(uruk_loom, uruk_shuttle))]
mod model {
    use crate::sync::{Mutex, MutexGuard};

    /// A model's view of it: a lock.
    #[derive(Debug, Default)]
    pub struct BriefMutex<T>(Mutex<T>);

    impl<T> BriefMutex<T> {
        /// Creates an unlocked lock.
        pub fn new(value: T) -> Self {
            Self(Mutex::new(value))
        }

        /// Waits for the lock.
        pub fn lock(&self) -> MutexGuard<'_, T> {
            self.0.lock()
        }
    }
}

#[cfg(all(test, not(any(uruk_loom, uruk_shuttle))))]
mod tests {
    use super::*;
    use crate::sync::{Arc, thread};

    #[test]
    fn one_thread_at_a_time_is_inside() {
        let count = Arc::new(BriefMutex::new((0u64, 0u64)));
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
            })
        });
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(*count.lock(), (80_000, 80_000));
    }

    #[test]
    fn who_comes_while_it_is_held_for_long_gets_it_in_the_end() {
        let lock = Arc::new(BriefMutex::new(()));
        let held = lock.lock();
        let waiters = [(); 3].map(|()| {
            let lock = lock.clone();
            thread::spawn(move || drop(lock.lock()))
        });
        let patience = std::time::Instant::now() + std::time::Duration::from_millis(5);
        while std::time::Instant::now() < patience {
            thread::yield_now();
        }
        drop(held);
        waiters.into_iter().for_each(|waiter| waiter.join().unwrap());
    }
}
