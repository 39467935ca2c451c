//! Guards: a thread that runs linked code holds a guard. Code that is removed meanwhile stays mapped until such threads have passed.
//!
//! A handle keeps one function and everything that the function refers to. A guard keeps everything that could be found when its thread
//! entered, for the price of a store. A runtime whose threads call many functions enters once and passes a
//! [`checkpoint`](Guard::checkpoint) where it holds no address of code: between two requests, at a loop's back edge, at a safepoint.
//!
//! ```text
//!   slots.rs     who is inside, what waits for them: the protocol
//!   barrier.rs   the order between a reader's store and a remover's look
//!   mod.rs       slots of threads, and what users see
//! ```

mod barrier;
mod slots;

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::fmt;
use std::rc::Rc;
use std::thread;

use uruk_core::RemovalNumber;
use uruk_core::sync::Arc;
use uruk_core::sync::atomic::{AtomicU64, Ordering};

use self::slots::{GuardReader, ReaderSlots};

/// The threads that run code of one engine, and the code that waits for them to pass.
///
/// Cloning it is cheap.
#[derive(Clone)]
pub struct GuardDomain(Arc<Domain>);

struct Domain {
    /// By which threads find their slots.
    number: u64,
    slots: ReaderSlots<Retired, RemovalNumber>,
}

/// A value that waits, and the memory that goes with it.
struct Retired {
    _what: Box<dyn Any + Send + Sync>,
    bytes: u64,
}

/// A thread that runs linked code: code that was there when it entered stays mapped until it has passed.
///
/// Guards of one thread nest; it has left when the last of them is dropped. One that is forgotten holds code back for ever.
///
/// ```compile_fail
/// fn is_sent<T: Send>() {}
/// is_sent::<uruk_pipeline::guard::Guard>(); // A guard belongs to its thread.
/// ```
#[derive(Debug)]
#[must_use = "code stays for as long as the guard is there"]
pub struct Guard {
    /// There until it is dropped.
    slot: Option<Rc<ThreadSlot>>,
}

/// Code that was removed and is still mapped, because threads are inside that may run it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PendingReclaim {
    /// Pieces of code.
    pub pieces: usize,
    /// Bytes of their memory.
    pub bytes: u64,
    /// The threads that hold them back, by their names, or their numbers if they have none.
    pub held_back_by: Vec<Box<str>>,
}

/// A thread's slot in one domain.
struct ThreadSlot {
    domain: Arc<Domain>,
    reader: GuardReader,
    /// How many guards it has.
    guards: Cell<usize>,
}

thread_local! {
    /// Slots of this thread. One that ends gives them back.
    static SLOTS: RefCell<Vec<Rc<ThreadSlot>>> = const { RefCell::new(Vec::new()) };
    /// The one that was left last, which is mostly the next to be entered.
    static LAST: Cell<Option<Rc<ThreadSlot>>> = const { Cell::new(None) };
}

impl GuardDomain {
    /// A domain with no thread inside.
    pub fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed); // the numbers only have to differ
        Self(Arc::new(Domain { number, slots: ReaderSlots::new() }))
    }

    /// Enters: this thread runs code until the guard is dropped.
    ///
    /// # Concurrency
    /// Never blocks, except that a thread's first call takes a lock for a moment.
    ///
    /// # Cost
    /// A thread-local variable and a store.
    #[inline]
    pub fn enter(&self) -> Guard {
        let last = LAST.try_with(Cell::take).ok().flatten();
        let slot = last.filter(|slot| slot.domain.number == self.0.number).unwrap_or_else(|| self.find());
        if slot.guards.replace(slot.guards.get() + 1) == 0 {
            self.0.slots.enter(&slot.reader);
        }
        Guard { slot: Some(slot) }
    }

    #[inline(never)]
    fn find(&self) -> Rc<ThreadSlot> {
        let found = SLOTS.try_with(|slots| {
            let slots = slots.try_borrow().ok()?;
            slots.iter().find(|slot| slot.domain.number == self.0.number).cloned()
        });
        found.ok().flatten().unwrap_or_else(|| self.register())
    }

    #[cold]
    fn register(&self) -> Rc<ThreadSlot> {
        let thread = thread::current();
        let name = thread.name().map_or_else(|| format!("{:?}", thread.id()), str::to_owned);
        let (domain, reader) = (self.0.clone(), self.0.slots.register(name.into()));
        let slot = Rc::new(ThreadSlot { domain, reader, guards: Cell::new(0) });
        // In a thread's last destructors the slot belongs to the guard alone.
        _ = SLOTS.try_with(|slots| {
            let mut slots = slots.try_borrow_mut().ok()?;
            slots.retain(|slot| Arc::strong_count(&slot.domain) > 1); // others are of engines that are gone
            slots.push(slot.clone());
            Some(())
        });
        slot
    }

    /// Drops `what` when every thread that is inside now has passed; at once if none is inside.
    ///
    /// # Concurrency
    /// Does not wait for other threads. A value that has to wait is dropped by the last thread that passes, or by a later `retire`.
    ///
    /// # Cost
    /// Nothing if no thread has ever entered; otherwise a system call of 1 to 2 microseconds (`membarrier`).
    pub fn retire(&self, what: impl Any + Send + Sync) {
        self.retire_with(what, 0, None);
    }

    /// Like [`retire`](Self::retire), for a value that is removed together with others: the kernel is asked only for the first of them.
    /// `bytes` of memory go with it.
    pub(crate) fn retire_with(
        &self,
        what: impl Any + Send + Sync,
        bytes: u64,
        removal: Option<RemovalNumber>,
    ) {
        self.0.slots.retire(what, removal, |what| Retired { _what: Box::new(what), bytes });
    }

    /// The values that wait, and the threads that they wait for.
    pub fn pending_reclaim(&self) -> PendingReclaim {
        let (pieces, bytes, threads) = self.0.slots.pending(|retired| retired.bytes);
        PendingReclaim {
            pieces,
            bytes,
            held_back_by: threads.iter().map(|slot| slot.thread.clone()).collect(),
        }
    }

    /// Whether this thread has a guard of the domain.
    pub fn is_inside(&self) -> bool {
        let is_inside = |slot: &Rc<ThreadSlot>| slot.domain.number == self.0.number && slot.guards.get() > 0;
        let found = SLOTS.try_with(|slots| slots.try_borrow().is_ok_and(|slots| slots.iter().any(is_inside)));
        found.unwrap_or(false)
    }
}

impl Default for GuardDomain {
    fn default() -> Self {
        Self::new()
    }
}

impl Guard {
    /// Says that this thread holds no address of code at this moment: code that was removed before may go.
    ///
    /// Does nothing while the thread has another guard.
    ///
    /// # Cost
    /// A store, and a look at a variable that is seldom written.
    #[inline]
    pub fn checkpoint(&mut self) {
        if let Some(slot) = &self.slot
            && slot.guards.get() == 1
        {
            slot.domain.slots.checkpoint(&slot.reader);
        }
    }

    /// Whether it is of that domain.
    pub fn is_of(&self, domain: &GuardDomain) -> bool {
        self.slot.as_ref().is_some_and(|slot| slot.domain.number == domain.0.number)
    }
}

impl Drop for Guard {
    #[inline]
    fn drop(&mut self) {
        let Some(slot) = self.slot.take() else { return };
        let left = slot.guards.get() - 1;
        slot.guards.set(left);
        if left == 0 {
            slot.domain.slots.leave(&slot.reader);
        }
        _ = LAST.try_with(|last| last.set(Some(slot)));
    }
}

impl Drop for ThreadSlot {
    fn drop(&mut self) {
        self.domain.slots.unregister(&self.reader);
    }
}

impl fmt::Debug for ThreadSlot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ThreadSlot").field("reader", &self.reader).finish_non_exhaustive()
    }
}

impl fmt::Debug for GuardDomain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GuardDomain").field("pending", &self.pending_reclaim()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_retired_goes_when_everybody_has_passed_who_was_inside() {
        let domain = GuardDomain::new();
        let what = Arc::new(());
        let is_gone = || Arc::strong_count(&what) == 1;
        domain.retire(what.clone());
        assert!(is_gone(), "nobody was ever inside");

        let mut outer = domain.enter();
        let inner = domain.enter();
        domain.retire(what.clone());
        let name: Box<str> = thread::current().name().expect("a test has a name").into();
        assert_eq!(
            domain.pending_reclaim(),
            PendingReclaim { pieces: 1, bytes: 0, held_back_by: vec![name] }
        );
        outer.checkpoint();
        assert!(!is_gone(), "another guard may stand for an address");
        drop(inner);
        assert!(!is_gone() && domain.is_inside());
        outer.checkpoint();
        assert!(is_gone());
        domain.retire(what.clone());
        assert!(!is_gone());
        drop(outer);
        assert!(is_gone() && !domain.is_inside());
        assert_eq!(domain.pending_reclaim(), PendingReclaim::default());
    }

    /// A removal of a thousand functions asked the kernel two thousand times.
    #[test]
    fn what_is_removed_together_asks_the_kernel_once_and_once_more_if_it_waits() {
        const PIECES: usize = 10;
        let asked = || barrier::ASKED.get();
        let domain = GuardDomain::new();
        let what = Arc::new(());
        let retire_all =
            |removal| (0..PIECES).for_each(|_| domain.retire_with(what.clone(), 3, Some(removal)));
        let [first, second, third] = [(); 3].map(|()| RemovalNumber::new());
        drop(domain.enter());
        let before = asked();
        retire_all(first);
        assert_eq!((asked() - before, Arc::strong_count(&what)), (1, 1), "nobody is inside");
        let mut guard = domain.enter();
        let before = asked();
        retire_all(second);
        let pending = domain.pending_reclaim();
        assert_eq!((asked() - before, pending.pieces, pending.bytes), (2, PIECES, 3 * PIECES as u64));
        guard.checkpoint();
        assert_eq!(Arc::strong_count(&what), 1);
        retire_all(second);
        assert_eq!(Arc::strong_count(&what), 1, "it has passed since that was unpublished");
        retire_all(third);
        assert_eq!(domain.pending_reclaim().pieces, PIECES);
        drop(guard);
        assert_eq!(Arc::strong_count(&what), 1);
    }

    #[test]
    fn a_thread_that_entered_later_holds_nothing_back() {
        let domain = GuardDomain::new();
        let what = Arc::new(());
        let first = domain.enter();
        domain.retire(what.clone());
        thread::scope(|scope| {
            let later = || {
                let _guard = domain.enter();
                assert_eq!(domain.pending_reclaim().pieces, 1);
            };
            scope.spawn(later).join().expect("no panic");
        });
        assert_eq!(Arc::strong_count(&what), 2);
        drop(first);
        assert_eq!(Arc::strong_count(&what), 1);
    }

    #[test]
    fn a_thread_that_has_ended_holds_nothing_back_and_leaves_nothing() {
        let domain = GuardDomain::new();
        let what = Arc::new(());
        let run = {
            let (domain, what) = (domain.clone(), what.clone());
            move || {
                let _guard = domain.enter();
                domain.retire(what);
            }
        };
        thread::spawn(run).join().expect("no panic");
        assert_eq!((Arc::strong_count(&what), domain.pending_reclaim().pieces), (1, 0));
        // A thread is joined when its own variables have gone.
        assert_eq!(Arc::strong_count(&domain.0), 1);
    }
}
