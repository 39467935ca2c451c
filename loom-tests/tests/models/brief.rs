//! Brief: a thread that does not get a short lock at once queues, and the first of the queue looks again and again.
//!
//! ```text
//!  holder             first                               next
//!  take the word      taken: lock the queue               taken: lock the queue ─ asleep
//!   a moment          look: taken ─ rest ─ look              ⋮
//!  let it go          free: take the word ─ let the queue go ─▶ look: taken ─ rest ─ …
//! ```
//!
//! Proven, in every order with at most four preemptions: one thread at a time is inside, and sees the effects of those before
//! it; one waiting thread looks, and the others are asleep; every thread gets in. The word is the model's own. The word of
//! `core/src/sync/brief.rs` comes from a crate; it need only be taken with Acquire and let go with Release, as here.
//!
//! **Fails if** this step is changed:
//!
//! | weakening | in | caught by |
//! |---|---|---|
//! | `brief::everybody_looks`: the queue is let go before the first of it has the word | `core/src/sync/brief.rs` | `one_looks_and_everybody_gets_in` |
#![cfg(uruk_loom)]

use loom_tests::stage::model;
use uruk_core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use uruk_core::sync::{Arc, Patience, Queued, Word, thread};

loom_tests::catches_its_weakenings!();

/// A word, and how many look at it.
#[derive(Default)]
struct Flag {
    taken: AtomicBool,
    looking: AtomicUsize,
}

struct Taken<'a>(&'a Flag);

struct Looks<'a>(&'a Flag);

impl Word for Flag {
    type Guard<'a> = Taken<'a>;
    type Patience<'a> = Looks<'a>;

    fn try_take(&self) -> Option<Taken<'_>> {
        let taken = self.taken.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed);
        taken.is_ok().then(|| Taken(self))
    }

    fn is_taken(&self) -> bool {
        self.taken.load(Ordering::Relaxed)
    }

    fn look(&self) -> Looks<'_> {
        assert_eq!(self.looking.fetch_add(1, Ordering::Relaxed), 0, "one looks, and no other");
        Looks(self)
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        self.0.taken.store(false, Ordering::Release);
    }
}

impl Patience for Looks<'_> {
    fn rest(&mut self) {
        thread::yield_now();
    }
}

impl Drop for Looks<'_> {
    fn drop(&mut self) {
        self.0.looking.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A lock, and a count that is raised under it in two steps.
struct Guarded {
    lock: Queued<Flag>,
    count: AtomicUsize,
}

impl Guarded {
    fn count(&self) {
        let _inside = self.lock.lock();
        // Relaxed: the lock orders them.
        let before = self.count.load(Ordering::Relaxed);
        self.count.store(before + 1, Ordering::Relaxed);
    }
}

#[test]
fn one_looks_and_everybody_gets_in() {
    model(|| {
        let guarded = Arc::new(Guarded { lock: Queued::of(Flag::default()), count: AtomicUsize::new(0) });
        let threads = [(); 2].map(|()| {
            let guarded = guarded.clone();
            thread::spawn(move || guarded.count())
        });
        guarded.count();
        threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
        assert_eq!(guarded.count.load(Ordering::Relaxed), 3);
    });
}
