//! The threads that are inside, and the values that wait until those threads have left.
//!
//! ```text
//!  reader                                        remover
//!    sequence: odd                                 unpublish
//!    light barrier                                 heavy barrier
//!    read what is published, run it                who is odd? note them, with their sequences
//!    sequence: even, or the next odd one           none: free it
//!    light barrier                                 note: something waits
//!    does something wait? look whether it may go   heavy barrier, and look once oneself
//! ```
//!
//! The remover sees a reader that entered before the heavy barrier; a reader that enters after it finds nothing that was unpublished. The
//! same holds in the other direction: either the leaving reader sees that something waits, or the remover sees that the reader has left.
//!
//! The model is `loom-tests/tests/guard.rs`, which compiles this file.
//!
//! **Holds.** A value that waits is freed by the first look after the last of its threads has passed: those that were inside when it was
//! retired.

use std::cell::Cell;

use uruk_core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use uruk_core::sync::{Arc, Mutex, weakened};

use super::barrier;

/// A thread that may be inside, as it knows itself.
#[derive(Debug)]
pub(super) struct GuardReader {
    slot: Arc<ReaderSlot>,
    /// A copy of the slot's sequence.
    sequence: Cell<u64>,
}

/// A thread that may be inside, as others see it.
#[derive(Debug)]
pub(super) struct ReaderSlot {
    /// Odd while it is inside.
    sequence: AtomicU64,
    /// For messages.
    pub(super) thread: Box<str>,
}

#[derive(Debug)]
pub(super) struct ReaderSlots<T, B> {
    registered: Mutex<Vec<Arc<ReaderSlot>>>,
    /// The last batch of which something was retired.
    batch: Mutex<Option<(B, InsideThreads)>>,
    retired: Mutex<Vec<RetiredValue<T>>>,
    /// Whether there are some.
    any_retired: AtomicBool,
}

#[derive(Debug)]
struct RetiredValue<T> {
    what: T,
    /// The threads that were inside at `retire` and had not passed at the last look.
    waits_for: InsideThreads,
}

/// Threads that are inside, each with the sequence by which it is.
type InsideThreads = Vec<(Arc<ReaderSlot>, u64)>;

impl GuardReader {
    fn step(&self, steps: u64, order: Ordering) {
        self.sequence.set(self.sequence.get() + steps);
        self.slot.sequence.store(self.sequence.get(), order);
    }
}

impl ReaderSlot {
    /// Whether it is inside: by which sequence.
    fn inside(&self) -> Option<u64> {
        // ordering[guard-leave]: Acquire. Pairs with the Release in `pass`: the thread's work inside is over when its code goes.
        let sequence = self.sequence.load(Ordering::Acquire);
        (sequence % 2 == 1).then_some(sequence)
    }
}

impl<T, B: Copy + PartialEq> ReaderSlots<T, B> {
    pub(super) fn new() -> Self {
        Self {
            registered: Mutex::default(),
            batch: Mutex::default(),
            retired: Mutex::default(),
            any_retired: AtomicBool::new(false),
        }
    }

    pub(super) fn register(&self, thread: Box<str>) -> GuardReader {
        let slot = Arc::new(ReaderSlot { sequence: AtomicU64::new(0), thread });
        self.registered.lock().push(slot.clone());
        GuardReader { slot, sequence: Cell::new(0) }
    }

    /// A thread that has left and ends.
    pub(super) fn unregister(&self, reader: &GuardReader) {
        self.registered.lock().retain(|slot| !Arc::ptr_eq(slot, &reader.slot));
    }

    pub(super) fn enter(&self, reader: &GuardReader) {
        reader.step(1, Ordering::Relaxed); // the barrier orders it
        if !weakened("guard::enters_without_a_barrier") {
            barrier::light();
        }
    }

    pub(super) fn leave(&self, reader: &GuardReader) {
        self.pass(reader, 1);
    }

    /// Leaves and enters.
    pub(super) fn checkpoint(&self, reader: &GuardReader) {
        self.pass(reader, 2);
    }

    fn pass(&self, reader: &GuardReader, steps: u64) {
        // ordering[guard-leave]: Release. Pairs with the Acquire in `ReaderSlot::inside`.
        let order = if weakened("guard::leaves_relaxed") { Ordering::Relaxed } else { Ordering::Release };
        reader.step(steps, order);
        barrier::light();
        if self.any_retired.load(Ordering::Relaxed) {
            self.reclaim(); // the lock there orders the rest
        }
    }

    /// Drops `what` when every thread that is inside now has passed; at once if none is inside.
    ///
    /// The caller has unpublished `what`, so a thread that enters later does not find it. Of a `batch`, everything was unpublished before
    /// the first of it is retired.
    pub(super) fn retire<W>(&self, what: W, batch: Option<B>, wrap: impl FnOnce(W) -> T) {
        // A thread that registers after this look takes the lock later, and so finds nothing that was unpublished before.
        if self.registered.lock().is_empty() {
            return;
        }
        let waits_for = match batch {
            Some(batch) => self.inside_at_batch(batch),
            None => self.inside(),
        };
        if waits_for.is_empty() {
            return;
        }
        let mut retired = self.retired.lock();
        // The thread that made the list non-empty looks at everything that waits, after a barrier that may be still to come.
        let is_known = !retired.is_empty();
        retired.push(RetiredValue { what: wrap(what), waits_for });
        self.any_retired.store(true, Ordering::Relaxed); // the barrier orders it
        drop(retired);
        if !weakened("guard::does_not_look_again") {
            if !is_known {
                barrier::heavy();
            }
            self.reclaim();
        }
    }

    /// The threads that are inside now, and may have found the value before it was unpublished.
    fn inside(&self) -> InsideThreads {
        barrier::heavy();
        let inside = |slot: &Arc<ReaderSlot>| Some((slot.clone(), slot.inside()?));
        self.registered.lock().iter().filter_map(inside).collect()
    }

    /// The threads that were inside when the first of the batch was retired, and have not passed: the kernel is asked once a batch.
    fn inside_at_batch(&self, batch: B) -> InsideThreads {
        let mut last = self.batch.lock();
        match &mut *last {
            Some((known, inside)) if *known == batch || weakened("guard::takes_another_batch_for_this") => {
                inside.retain(|(slot, sequence)| slot.inside() == Some(*sequence));
                inside.clone()
            }
            _ => last.insert((batch, self.inside())).1.clone(),
        }
    }

    /// Drops the values for which no thread is inside any more.
    pub(super) fn reclaim(&self) {
        let mut retired = self.retired.lock();
        let passed = |retired: &mut RetiredValue<T>| {
            retired.waits_for.retain(|(slot, sequence)| slot.inside() == Some(*sequence));
            retired.waits_for.is_empty()
        };
        let free: Vec<_> = retired.extract_if(.., passed).collect();
        self.any_retired.store(!retired.is_empty(), Ordering::Relaxed); // under the lock, as every store of it
        drop(retired);
        drop(free); // Its end may run code that comes back here.
    }

    /// How many values wait, their size, and for whom: each thread once.
    pub(super) fn pending(&self, size: impl Fn(&T) -> u64) -> (usize, u64, Vec<Arc<ReaderSlot>>) {
        let retired = self.retired.lock();
        let mut threads: Vec<Arc<ReaderSlot>> = Vec::new();
        for (slot, sequence) in retired.iter().flat_map(|retired| &retired.waits_for) {
            let is_new = !threads.iter().any(|thread| Arc::ptr_eq(thread, slot));
            if is_new && slot.inside() == Some(*sequence) {
                threads.push(slot.clone());
            }
        }
        (retired.len(), retired.iter().map(|retired| size(&retired.what)).sum(), threads)
    }
}
