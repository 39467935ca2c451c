//! From an address to the object that contains it, for readers inside the unwinder.
//!
//! ```text
//!   top ──▶ [ first address of each leaf | pointer to each leaf ]      replaced when a leaf splits or empties
//!                                           │
//!                                           ▼
//!                                 [ up to 128 sorted entries ]         replaced by each insertion and removal
//! ```
//!
//! A reader does two binary searches. It never waits, locks, allocates, or touches a thread-local variable: it
//! runs while an exception is thrown, possibly out of a signal handler or a thread that is ending.
//!
//! # Reclamation
//! Leaves and tops are immutable once published (a top's leaf pointers excepted). A reader raises a counter before it loads `top` and
//! lowers it when it is done. A piece that a writer has unlinked is freed once each counter has been zero at some moment after the
//! unlinking: a reader that could still see it held its counter above zero all the time. Counters are striped, so that threads that throw
//! at once do not share a cache line.
//!
//! | atomic | written by | orderings |
//! |---|---|---|
//! | `top`, `Top::leaves` | the writer, under `writer` | `unwind-publish`: Release / Acquire |
//! | `lowest`, `highest` | the writer, under `writer` | Relaxed |
//! | `readers` | readers | `unwind-reader`: fence SeqCst on both sides; `unwind-done`: Release / Acquire |
//!
//! The model is `loom-tests/tests/unwind_index.rs`, for which this file needs nothing but `uruk_core`.
//!
//! # Fork
//! The writer's lock is held over a fork. Threads that were reading do not exist in the child, which no longer counts them.

use std::ptr;

use uruk_core::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering, fence};
use uruk_core::sync::{Followed, weakened};

/// A lock that forks find at rest; models do not fork.
#[cfg(uruk_loom)]
use uruk_core::sync::Mutex as WriterLock;

#[cfg(not(uruk_loom))]
use crate::memory::{HeldOverForks, StaticForkLock as WriterLock};

/// One registered object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct UnwindEntry {
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) eh_frame_hdr: u64,
}

/// The index. It is made for a static: dropping one leaves what it still refers to in place.
pub(super) struct UnwindIndex {
    /// Everything that was ever registered lies between these. Linked code lies together, so that a throw which
    /// never touches it is told so by two loads.
    lowest: AtomicU64,
    highest: AtomicU64,
    top: AtomicPtr<Top>,
    readers: [Stripe; STRIPES],
    writer: WriterLock<IndexChanges>,
}

/// Models have few of everything, so that a few steps come to all that can happen.
const IN_MODEL: bool = cfg!(uruk_loom);
const STRIPES: usize = if IN_MODEL { 2 } else { 16 };
const LEAF_ENTRIES_MAX: usize = if IN_MODEL { 2 } else { 40 };
/// Unlinked pieces are looked after in batches, so that the counters are not scanned at every change.
const RETIRED_BATCH: usize = if IN_MODEL { 1 } else { 32 };

/// A reader count on a cache line pair of its own.
#[repr(align(128))]
struct Stripe(AtomicUsize);

struct Top {
    /// `firsts[i]` is the lower bound of leaf `i`; the first one is zero.
    firsts: Box<[u64]>,
    leaves: Box<[AtomicPtr<Leaf>]>,
    reads: Followed,
}

struct Leaf {
    /// Sorted and disjoint.
    entries: Box<[UnwindEntry]>,
    reads: Followed,
}

/// State of the writer alone: pieces that are unlinked and not yet freed.
struct IndexChanges {
    len: usize,
    retired: Vec<RetiredPiece>,
    draining: Vec<RetiredPiece>,
    /// Models keep freed pieces here, so that a read of one is reported and does not crash.
    #[cfg(uruk_loom)]
    freed: Vec<RetiredPiece>,
    /// Stripes that have not been seen at zero since `draining` was unlinked.
    busy_stripes: u32,
}

#[cfg_attr(not(uruk_loom), expect(dead_code, reason = "the boxes are kept only to be freed later"))]
enum RetiredPiece {
    Leaf(Box<Leaf>),
    Top(Box<Top>),
}

impl UnwindIndex {
    /// An empty index.
    #[cfg(not(uruk_loom))]
    pub(super) const fn new() -> Self {
        Self {
            lowest: AtomicU64::new(u64::MAX),
            highest: AtomicU64::new(0),
            top: AtomicPtr::new(ptr::null_mut()),
            readers: [const { Stripe(AtomicUsize::new(0)) }; STRIPES],
            writer: WriterLock::new(IndexChanges {
                len: 0,
                retired: Vec::new(),
                draining: Vec::new(),
                busy_stripes: 0,
            }),
        }
    }

    /// The same in a model, where nothing can be made before that runs.
    #[cfg(uruk_loom)]
    pub(super) fn new() -> Self {
        let (retired, draining, freed) = (Vec::new(), Vec::new(), Vec::new());
        Self {
            lowest: AtomicU64::new(u64::MAX),
            highest: AtomicU64::new(0),
            top: AtomicPtr::new(ptr::null_mut()),
            readers: std::array::from_fn(|_| Stripe(AtomicUsize::new(0))),
            writer: WriterLock::new(IndexChanges { len: 0, retired, draining, freed, busy_stripes: 0 }),
        }
    }

    /// The entry that contains `address`.
    ///
    /// # Cost
    /// Two atomic increments on a line that few threads share, and two binary searches.
    pub(super) fn find(&self, address: u64) -> Option<UnwindEntry> {
        // Relaxed: a thread that has a frame in an object got that object's address after its registration, by
        // something that ordered both. Any other thread may as well have asked earlier.
        if address < self.lowest.load(Ordering::Relaxed) || address >= self.highest.load(Ordering::Relaxed) {
            return None;
        }
        let stripe = &self.readers[own_stripe()].0;
        // Relaxed: the fence below orders it.
        stripe.fetch_add(1, Ordering::Relaxed);
        // ordering[unwind-reader]: SeqCst fence. Pairs with the one in `IndexChanges::drain`: either the writer sees this
        // reader's count, or this reader sees what the writer published.
        if !weakened("unwind_index::enters_without_fence") {
            fence(Ordering::SeqCst);
        }
        // SAFETY: the count taken above keeps everything that is reachable from `top` from being freed.
        let found = unsafe { self.find_counted(address) };
        // ordering[unwind-done]: Release. Pairs with the Acquire in `IndexChanges::drain`: the reads above come before the
        // memory is freed.
        let release =
            if weakened("unwind_index::leaves_unordered") { Ordering::Relaxed } else { Ordering::Release };
        stripe.fetch_sub(1, release);
        found
    }

    /// Adds `entry`, or answers the entry it overlaps.
    pub(super) fn insert(&self, entry: UnwindEntry) -> Result<(), UnwindEntry> {
        let mut writer = self.writer.lock();
        // Relaxed: see `find`. The bounds only ever widen.
        self.lowest.fetch_min(entry.start, Ordering::Relaxed);
        self.highest.fetch_max(entry.end, Ordering::Relaxed);
        // SAFETY: the writer's lock is held, so no other thread unlinks or frees anything meanwhile.
        let Some(top) = (unsafe { self.current_top() }) else {
            self.publish_top(vec![0], vec![new_leaf(vec![entry])]);
            writer.len = 1;
            return Ok(());
        };
        let slot = top.slot_of(entry.start);
        let leaf = top.leaf(slot);
        let position = leaf.entries.partition_point(|known| known.start < entry.start);
        let before = match position {
            0 => slot.checked_sub(1).and_then(|slot| top.leaf(slot).entries.last()),
            _ => leaf.entries.get(position - 1),
        };
        let after = match leaf.entries.get(position) {
            None if slot + 1 < top.leaves.len() => top.leaf(slot + 1).entries.first(),
            known => known,
        };
        if let Some(known) = before.filter(|known| known.end > entry.start) {
            return Err(*known);
        }
        if let Some(known) = after.filter(|known| known.start < entry.end) {
            return Err(*known);
        }
        let mut entries = Vec::with_capacity(leaf.entries.len() + 1);
        entries.extend_from_slice(&leaf.entries[..position]);
        entries.push(entry);
        entries.extend_from_slice(&leaf.entries[position..]);
        if entries.len() <= LEAF_ENTRIES_MAX {
            self.replace_leaf(&mut writer, top, slot, entries);
        } else {
            let right = entries.split_off(entries.len() / 2);
            let (mut firsts, mut leaves) = top.parts();
            firsts.insert(slot + 1, right[0].start);
            let old = std::mem::replace(&mut leaves[slot], new_leaf(entries));
            leaves.insert(slot + 1, new_leaf(right));
            self.replace_top(&mut writer, firsts, leaves, old);
        }
        writer.len += 1;
        writer.drain(&self.readers);
        Ok(())
    }

    /// Removes the entry that starts at `start`; says whether there was one.
    pub(super) fn remove(&self, start: u64) -> bool {
        let mut writer = self.writer.lock();
        // SAFETY: the writer's lock is held, so no other thread unlinks or frees anything meanwhile.
        let Some(top) = (unsafe { self.current_top() }) else { return false };
        let slot = top.slot_of(start);
        let leaf = top.leaf(slot);
        let Ok(position) = leaf.entries.binary_search_by_key(&start, |known| known.start) else {
            return false;
        };
        let mut entries = leaf.entries.to_vec();
        entries.remove(position);
        if entries.is_empty() && top.leaves.len() > 1 {
            let (mut firsts, mut leaves) = top.parts();
            let old = leaves.remove(slot);
            firsts.remove(slot);
            firsts[0] = 0;
            self.replace_top(&mut writer, firsts, leaves, old);
        } else {
            self.replace_leaf(&mut writer, top, slot, entries);
        }
        writer.len -= 1;
        writer.drain(&self.readers);
        true
    }

    /// How many entries there are.
    pub(super) fn len(&self) -> usize {
        self.writer.lock().len
    }

    /// How many pieces are unlinked and not freed. For models.
    #[cfg(uruk_loom)]
    pub(super) fn unfreed(&self) -> usize {
        let writer = self.writer.lock();
        writer.retired.len() + writer.draining.len()
    }

    /// # Safety
    /// The caller holds a reader count, or the writer's lock.
    unsafe fn find_counted(&self, address: u64) -> Option<UnwindEntry> {
        // SAFETY: passed on to the caller.
        let top = unsafe { self.current_top() }?;
        let slot = top.slot_of(address);
        let leaf = top.leaf(slot);
        top.reads.note();
        leaf.reads.note();
        let entry = match leaf.entries.partition_point(|known| known.start <= address) {
            // An entry may reach beyond the lower bound of the next leaf.
            0 => top.leaf(slot.checked_sub(1)?).entries.last()?,
            position => &leaf.entries[position - 1],
        };
        (address < entry.end).then_some(*entry)
    }

    /// # Safety
    /// For as long as the reference is used the caller holds a reader count, or the writer's lock.
    unsafe fn current_top<'a>(&self) -> Option<&'a Top> {
        // ordering[unwind-publish]: Acquire. Pairs with the Release in `publish_top`; the arrays are complete.
        let top = self.top.load(Ordering::Acquire);
        // SAFETY: `top` is null or was published from a box that is freed only after `IndexChanges::drain` has seen that
        // no reader can hold it.
        unsafe { top.as_ref() }
    }

    fn publish_top(&self, firsts: Vec<u64>, leaves: Vec<*mut Leaf>) {
        let leaves = leaves.into_iter().map(AtomicPtr::new).collect();
        let top = Box::into_raw(Box::new(Top { firsts: firsts.into(), leaves, reads: Followed::new() }));
        // ordering[unwind-publish]: Release. Pairs with the Acquire in `current_top`.
        let release =
            if weakened("unwind_index::publishes_unordered") { Ordering::Relaxed } else { Ordering::Release };
        self.top.store(top, release);
    }

    fn replace_top(
        &self,
        writer: &mut IndexChanges,
        firsts: Vec<u64>,
        leaves: Vec<*mut Leaf>,
        old_leaf: *mut Leaf,
    ) {
        // Relaxed: only the holder of the writer's lock stores it.
        let old = self.top.load(Ordering::Relaxed);
        self.publish_top(firsts, leaves);
        // SAFETY: both came out of `Box::into_raw` and have just been unlinked, once; `drain` delays the freeing.
        let retired =
            unsafe { [RetiredPiece::Top(Box::from_raw(old)), RetiredPiece::Leaf(Box::from_raw(old_leaf))] };
        writer.retired.extend(retired);
    }

    fn replace_leaf(&self, writer: &mut IndexChanges, top: &Top, slot: usize, entries: Vec<UnwindEntry>) {
        // ordering[unwind-publish]: AcqRel; the Release pairs with the Acquire in `Top::leaf`, the entries are complete.
        let order =
            if weakened("unwind_index::replaces_unordered") { Ordering::Relaxed } else { Ordering::AcqRel };
        let old = top.leaves[slot].swap(new_leaf(entries), order);
        // SAFETY: it came out of `Box::into_raw` and has just been unlinked, once; `drain` delays the freeing.
        writer.retired.push(RetiredPiece::Leaf(unsafe { Box::from_raw(old) }));
    }
}

#[cfg(not(uruk_loom))]
impl HeldOverForks for UnwindIndex {
    fn hold(&'static self) {
        self.writer.hold();
    }

    unsafe fn let_go(&'static self) {
        // SAFETY: passed on to the caller.
        unsafe { self.writer.let_go() };
    }

    unsafe fn renew(&'static self) {
        for stripe in &self.readers {
            stripe.0.store(0, Ordering::Relaxed); // Relaxed: there is one thread, and it is none of them
        }
        // SAFETY: passed on to the caller.
        unsafe { self.writer.renew() };
    }
}

impl Top {
    /// Which leaf has to do with `address`.
    fn slot_of(&self, address: u64) -> usize {
        self.firsts.partition_point(|first| *first <= address).saturating_sub(1)
    }

    fn leaf(&self, slot: usize) -> &Leaf {
        // ordering[unwind-publish]: Acquire. Pairs with the Release in `replace_leaf`; the entries are complete.
        let leaf = self.leaves[slot].load(Ordering::Acquire);
        // SAFETY: never null, and freed only after `IndexChanges::drain` has seen that no reader can hold it; the holder of a reference to this
        // top holds a reader count or the writer's lock.
        unsafe { &*leaf }
    }

    fn parts(&self) -> (Vec<u64>, Vec<*mut Leaf>) {
        // Relaxed: only the holder of the writer's lock stores them, and that is who calls this.
        let leaves = self.leaves.iter().map(|leaf| leaf.load(Ordering::Relaxed)).collect();
        (self.firsts.to_vec(), leaves)
    }
}

impl IndexChanges {
    /// Frees what no reader can see any more.
    fn drain(&mut self, readers: &[Stripe; STRIPES]) {
        if self.draining.is_empty() {
            if self.retired.len() < RETIRED_BATCH {
                return;
            }
            std::mem::swap(&mut self.draining, &mut self.retired);
            self.busy_stripes = (1 << STRIPES) - 1;
        }
        // ordering[unwind-reader]: SeqCst fence. Pairs with the one in `find`; everything in `draining` was unlinked
        // before it.
        fence(Ordering::SeqCst);
        for (stripe, readers) in readers.iter().enumerate() {
            // ordering[unwind-done]: Acquire. Pairs with the Release in `find`.
            if readers.0.load(Ordering::Acquire) == 0 || weakened("unwind_index::frees_beneath_readers") {
                self.busy_stripes &= !(1 << stripe);
            }
        }
        if self.busy_stripes == 0 {
            self.free_drained();
        }
    }

    #[cfg(not(uruk_loom))]
    fn free_drained(&mut self) {
        self.draining.clear();
    }

    #[cfg(uruk_loom)]
    fn free_drained(&mut self) {
        for retired in &mut self.draining {
            match retired {
                RetiredPiece::Leaf(leaf) => leaf.reads.end(),
                RetiredPiece::Top(top) => top.reads.end(),
            }
        }
        self.freed.append(&mut self.draining);
    }
}

fn new_leaf(entries: Vec<UnwindEntry>) -> *mut Leaf {
    Box::into_raw(Box::new(Leaf { entries: entries.into(), reads: Followed::new() }))
}

/// Models have to find the same number each time they run the same order.
#[cfg(uruk_loom)]
fn own_stripe() -> usize {
    let id = format!("{:?}", uruk_core::sync::thread::current().id());
    id.bytes().filter(u8::is_ascii_digit).map(usize::from).sum::<usize>() % STRIPES
}

/// A number that differs between most threads: the unwinder may not touch thread-locals, but stacks lie apart.
#[cfg(not(uruk_loom))]
fn own_stripe() -> usize {
    let marker = 0_u8;
    let page = (&raw const marker).addr() >> 14;
    (page.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 60) % STRIPES
}

#[cfg(all(test, not(uruk_loom)))]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use uruk_core::sync::{Arc, thread};

    fn entry(start: u64, len: u64) -> UnwindEntry {
        UnwindEntry { start, end: start + len, eh_frame_hdr: start * 3 }
    }

    #[test]
    fn agrees_with_an_ordered_map_over_many_changes() {
        let index = UnwindIndex::new();
        let mut model = BTreeMap::new();
        let mut seed = 0x1234_5678_u64;
        for _ in 0..20_000 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let start = (seed >> 40) % 4000 * 16;
            if seed & (1 << 20) == 0 {
                let fresh = entry(start, 16 + (seed >> 33) % 2 * 8);
                let collides = model
                    .range(..fresh.end)
                    .next_back()
                    .is_some_and(|(_, known): (_, &UnwindEntry)| known.end > fresh.start);
                assert_eq!(index.insert(fresh).is_err(), collides);
                if !collides {
                    model.insert(start, fresh);
                }
            } else {
                assert_eq!(index.remove(start), model.remove(&start).is_some());
            }
            let probe = (seed >> 12) % 64_000;
            let expected =
                model.range(..=probe).next_back().map(|(_, known)| *known).filter(|known| probe < known.end);
            assert_eq!(index.find(probe), expected);
        }
        assert_eq!(index.len(), model.len());
        for start in model.keys() {
            assert!(index.remove(*start));
        }
        assert_eq!(index.find(16), None);
    }

    #[test]
    fn readers_never_miss_what_stays_while_neighbours_come_and_go() {
        let index = Arc::new(UnwindIndex::new());
        for slot in 0..1000 {
            index.insert(entry(slot * 64, 16)).unwrap();
        }
        let readers: Vec<_> = (0..2)
            .map(|_| {
                let index = Arc::clone(&index);
                thread::spawn(move || {
                    (0..200_000_u64).all(|round| {
                        let start = round * 7 % 1000 * 64;
                        index.find(start + 5) == Some(entry(start, 16))
                    })
                })
            })
            .collect();
        let come_and_go = |rounds| {
            for round in 0..rounds {
                let start = round * 13 % 1000 * 64 + 32;
                index.insert(entry(start, 16)).unwrap();
                assert!(index.remove(start));
            }
        };
        come_and_go(20_000);
        assert!(readers.into_iter().all(|reader| reader.join().unwrap()));
        // Even after readers were kept from going on, and pieces from being freed: without readers all pieces go.
        come_and_go(4 * RETIRED_BATCH as u64);
        let writer = index.writer.lock();
        assert!(writer.retired.len() + writer.draining.len() <= 2 * RETIRED_BATCH);
    }
}
