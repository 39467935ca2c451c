//! Interned symbol names and the pool they live in.
//!
//! A name is one reference-counted piece of text (`text.rs`). The pool has each text once and gives out handles of it, so two
//! handles of one pool spell the same text exactly when they are the same pointer.
//!
//! - The pool is cut into shards by hash, each a small table under its own lock, so that threads meet
//!   only when they intern names of one shard at one moment. The lock is held for a probe.
//! - Interning an existing name and dropping it again takes two atomic steps: taking the shard's lock, and counting the
//!   dropped handle. The new handle is counted under the lock by a plain store, and another plain store frees the lock
//!   (`sync/brief.rs`). With four atomic steps, it takes half as long again.
//! - Threads that intern the same names pass two lines of the cache to each other: the shard's lock and the name's counts. The
//!   second is asked for once, to be written, before its text is compared (`text.rs`, `fetch_to_give`). Tables are only read.
//! - Cloning, comparing, hashing and dropping a [`SymbolName`] never touches the pool. Looking a name
//!   up by reference in a map touches not even its count.
//! - Names that only the pool still holds are **dead**. A shard that runs full sweeps them out before it
//!   grows, so interning pays for its own garbage; [`SymbolStringPool::released`] lets a caller that
//!   drops names in bulk pay for its own.
//!
//! # Why sweeping the dead cannot race
//!
//! The last handle may be dropped on one thread while another interns the same text. A handle comes
//! from another handle or from the pool. While the counts say that the pool holds the only reference,
//! there is no handle to clone, and the pool gives out new ones only under the shard's lock. The sweep
//! reads the counts under that lock, so what it finds dead stays dead until it is gone; what it finds
//! alive a moment before the last handle goes is left to the next sweep. Dropping a handle needs no
//! lock. Model: `loom-tests/tests/models/symbol_name.rs`.
//!
//! **Architecture Invariant:** no user code runs under a shard's lock, and a shard's lock is a leaf:
//! nothing else is locked while it is held.

use std::cmp::Ordering;
use std::ffi::CStr;
use std::fmt;
use std::hash::{Hash, Hasher};

use crossbeam_utils::CachePadded;

use super::hash::TextHasher;
use super::table::{NameSlot, NameTable};
use super::text::{Handle, Pooled};
use crate::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use crate::sync::{Arc, BriefMutex, weakened};

/// The interned name of a symbol: one pointer, compared and hashed by identity.
///
/// Equality and hashing look at the pointer and cost O(1); ordering and formatting look at the text.
/// Two names of one [`SymbolStringPool`] are equal exactly when their texts are. Names of different
/// pools are never equal, even with equal texts: their order is then that of
/// their addresses, so that `cmp` and `==` agree. Because hashing sees addresses, the iteration order
/// of a hash map of names differs from run to run; sort by name where order shows.
///
/// # Concurrency
/// Handles may be cloned, sent, shared and dropped anywhere; none of it takes a lock.
///
/// # Examples
/// ```
/// # use uruk_core::SymbolStringPool;
/// let pool = SymbolStringPool::new();
/// let main = pool.intern("main");
/// assert_eq!(main, pool.intern("main"));
/// assert_ne!(main, SymbolStringPool::new().intern("main"));
/// assert_eq!(main.as_str(), "main");
/// ```
///
/// ORC: `SymbolStringPtr`.
#[doc(alias = "SymbolStringPtr")]
#[derive(Clone)]
pub struct SymbolName(Handle);

impl SymbolName {
    /// The text.
    #[inline]
    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }

    /// The text as C has it: up to its first NUL. No other name of the pool has a text at that address, which stays the same as long as
    /// there is a handle, or the pool has the name.
    ///
    /// # Cost
    /// Linear in the text; nothing is copied.
    pub fn as_c_str(&self) -> &CStr {
        self.0.as_c_str()
    }

    /// How many handles there are, the pool's among them: a hint, as others may come and go meanwhile.
    pub(crate) fn handles(&self) -> u64 {
        self.0.owners()
    }

    /// Where the text lies: what makes the name itself.
    #[inline]
    pub(crate) fn identity(&self) -> usize {
        self.0.address()
    }
}

impl PartialEq for SymbolName {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        self.identity() == other.identity()
    }
}

impl Eq for SymbolName {}

impl Hash for SymbolName {
    #[inline]
    fn hash<H: Hasher>(&self, state: &mut H) {
        // A model replays its orders, and the order of a hash map must not follow addresses then.
        if cfg!(any(uruk_loom, uruk_shuttle)) {
            self.as_str().hash(state);
        } else {
            state.write_usize(self.identity());
        }
    }
}

impl Ord for SymbolName {
    fn cmp(&self, other: &Self) -> Ordering {
        if self == other {
            return Ordering::Equal;
        }
        self.as_str().cmp(other.as_str()).then_with(|| self.identity().cmp(&other.identity()))
    }
}

impl PartialOrd for SymbolName {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl AsRef<str> for SymbolName {
    fn as_ref(&self) -> &str {
        self.as_str()
    }
}

impl fmt::Debug for SymbolName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

impl fmt::Display for SymbolName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self.as_str(), f)
    }
}

/// Where the names of one or several sessions are interned. Clones are handles of the same pool.
///
/// # Concurrency
/// Every method may be called from any thread. Each locks one shard at a time, for a probe, or for a
/// sweep of that shard when it is full.
///
/// # Cost
/// A 33-character name takes one 64-byte heap block and 15 to 16 bytes of table; a pool without names takes 16 KiB.
///
/// # Examples
/// ```
/// use uruk_core::{ExecutionSession, SymbolStringPool};
///
/// let pool = SymbolStringPool::new();
/// let [first, second] = [0, 1].map(|_| ExecutionSession::builder().symbol_string_pool(pool.clone()).build());
/// assert_eq!(first.intern("main"), second.intern("main"));
/// ```
///
/// ORC: `SymbolStringPool`.
#[derive(Clone)]
pub struct SymbolStringPool(Arc<PoolState>);

struct PoolState {
    hasher: TextHasher,
    shards: Box<[CachePadded<BriefMutex<NameTable>>]>,
    /// Names whose release was announced since the last full sweep.
    released: AtomicUsize,
    /// How many of those make it worth while to ask whether to sweep again.
    sweep_at: AtomicUsize,
}

/// How many names may be announced as released before a sweep looks for them, at least.
const RELEASED_BEFORE_SWEEP_MIN: usize = 1024;

impl SymbolStringPool {
    /// Creates an empty pool.
    pub fn new() -> Self {
        let shards = (0..SHARDS).map(|_| CachePadded::new(BriefMutex::new(NameTable::default()))).collect();
        Self(Arc::new(PoolState {
            hasher: TextHasher::new(),
            shards,
            released: AtomicUsize::new(0),
            sweep_at: AtomicUsize::new(RELEASED_BEFORE_SWEEP_MIN),
        }))
    }

    /// Gives the one name that spells `text`, making it if it does not exist yet.
    ///
    /// # Concurrency
    /// Callable from any thread; locks the part of the table that the text belongs to, and nothing else.
    ///
    /// # Panics
    /// If the text takes 4 GiB or more.
    ///
    /// ORC: `SymbolStringPool::intern`.
    pub fn intern(&self, text: &str) -> SymbolName {
        let (place, tag) = self.0.place_of(text);
        let mut shard = self.0.shards[place].lock();
        match shard.find(tag, text) {
            NameSlot::Held(index) => {
                if weakened("symbol_name::found_and_taken_in_two_steps") {
                    drop(shard);
                    shard = self.0.shards[place].lock();
                }
                SymbolName(shard.name(index).give())
            }
            NameSlot::Vacant(index) => insert(&mut shard, index, tag, text),
        }
    }

    /// Gives the name that spells `text` if the pool has it, and leaves the pool as it is.
    pub fn get(&self, text: &str) -> Option<SymbolName> {
        let (shard, tag) = self.0.place_of(text);
        let mut shard = self.0.shards[shard].lock();
        match shard.find(tag, text) {
            NameSlot::Held(index) => Some(SymbolName(shard.name(index).give())),
            NameSlot::Vacant(_) => None,
        }
    }

    /// How many names the pool has, the dead ones that no sweep has met yet included.
    ///
    /// # Cost
    /// Locks every shard in turn.
    pub fn len(&self) -> usize {
        self.0.shards.iter().map(|shard| shard.lock().len()).sum()
    }

    /// Whether the pool has no names.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Says that about `count` names have just been let go; now and then this sweeps the pool.
    ///
    /// With it, dead names stay below half of all (or 1,024) even when nothing is interned any more.
    /// Without it they go when their shard next runs full.
    ///
    /// # Cost
    /// Amortized O(`count`). No lock of the caller's should be held: a sweep visits the whole pool.
    pub fn released(&self, count: usize) {
        // Relaxed, here and in `reclaim`: hints that decide when to sweep; two threads that both sweep, or
        // one that sweeps late, do no harm.
        let released = self.0.released.fetch_add(count, Relaxed).saturating_add(count);
        if released < self.0.sweep_at.load(Relaxed) {
            return;
        }
        let worthwhile = self.len() / 2;
        if released < worthwhile {
            self.0.sweep_at.store(worthwhile, Relaxed);
        } else {
            self.reclaim();
        }
    }

    /// Frees every dead name and gives back the room they took; says how many there were.
    ///
    /// ORC: `SymbolStringPool::clearDeadEntries`.
    #[doc(alias = "clearDeadEntries")]
    pub fn reclaim(&self) -> usize {
        self.0.released.store(0, Relaxed);
        self.0.sweep_at.store(RELEASED_BEFORE_SWEEP_MIN, Relaxed);
        let mut freed = 0;
        for shard in &self.0.shards {
            freed += sweep(&mut shard.lock());
        }
        freed
    }
}

impl Default for SymbolStringPool {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for SymbolStringPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SymbolStringPool").field("names", &self.len()).finish_non_exhaustive()
    }
}

impl PoolState {
    /// Where a text belongs: the low half of its hash chooses the shard, the high half is the tag.
    #[inline]
    fn place_of(&self, text: &str) -> (usize, u32) {
        let hash = self.hasher.hash(text);
        // 0 marks a hole in the table.
        (hash as usize % SHARDS, ((hash >> 32) as u32).max(1))
    }
}

/// Makes a name that the shard does not have.
#[inline(never)]
fn insert(shard: &mut NameTable, mut index: usize, tag: u32, text: &str) -> SymbolName {
    if shard.is_full() {
        make_room(shard, tag);
        let NameSlot::Vacant(moved) = shard.find(tag, text) else { unreachable!("making room adds no name") };
        index = moved;
    }
    let mut name = Pooled::new(text);
    let handle = name.give();
    shard.insert(index, tag, name);
    SymbolName(handle)
}

/// Makes room in a shard that is full: sweeps it if many of its names are dead, grows it otherwise.
///
/// Counts lie beside the texts, so that sweeping costs a cache miss a name. A sample of the table, which
/// is in random order, says whether that is worth it. `tag` is of the name that comes.
#[cold]
#[inline(never)]
fn make_room(shard: &mut NameTable, tag: u32) {
    const SAMPLE: usize = 32;
    let sampled = shard.len().min(SAMPLE);
    let dead = shard.iter().take(SAMPLE).filter(|name| name.is_dead()).count();
    if dead * 4 > sampled {
        sweep(shard);
    } else {
        // First sizes differ, so that the tables grow one after another and not all at once.
        let first = HOMES_MIN + tag as usize % 8;
        shard.rebuild(NameTable::homes_for(shard.len()).max(first), |_| true);
    }
}

/// Frees the names that only the pool holds. The caller holds the shard's lock, see the module's head.
fn sweep(shard: &mut NameTable) -> usize {
    let before = shard.len();
    // Never any names, or all of them swept, which made the table small.
    if before == 0 {
        return 0;
    }
    let live = shard.iter().filter(|name| !name.is_dead()).count();
    shard.rebuild(NameTable::homes_for(live).max(HOMES_MIN), |name| !name.is_dead());
    before - shard.len()
}

/// A model follows every lock, so it gets few; programs get enough that threads rarely meet: a shard is held for as long as the text's
/// line takes from the other processor. Of two threads that intern the same names, each takes 18 ns with 128 shards, 20 with 64 and
/// 17 with 256, which weigh 32 KiB before there is a name and cost one thread a nanosecond.
const SHARDS: usize = if cfg!(any(uruk_loom, uruk_shuttle)) { 2 } else { 128 };

#[cfg(all(target_pointer_width = "64", not(any(uruk_loom, uruk_shuttle))))]
const _: () =
    assert!(SHARDS * size_of::<CachePadded<BriefMutex<NameTable>>>() == 16 << 10, "see SymbolStringPool");

/// The smallest table of a shard.
const HOMES_MIN: usize = 8;

#[cfg(all(test, not(uruk_loom)))]
mod tests {
    use std::hash::BuildHasher;

    use rustc_hash::FxBuildHasher;

    use super::*;
    use crate::sync::thread;

    #[test]
    fn one_text_is_one_name() {
        let pool = SymbolStringPool::new();
        let (first, second) = (pool.intern("f"), pool.intern("f"));
        assert_eq!(first, second);
        assert_eq!(hash(&first), hash(&second));
        assert_ne!(first, pool.intern("g"));
        assert_eq!(pool.get("f"), Some(first));
        assert_eq!(pool.get("h"), None);
        assert_eq!(pool.len(), 2);
    }

    #[test]
    fn names_of_different_pools_differ_and_still_order() {
        let (here, there) = (SymbolStringPool::new().intern("f"), SymbolStringPool::new().intern("f"));
        assert_ne!(here, there);
        assert_ne!(here.cmp(&there), Ordering::Equal);
        assert_eq!(here.cmp(&there), there.cmp(&here).reverse());
    }

    #[test]
    fn c_reads_the_text_in_place_and_up_to_a_nul() {
        let pool = SymbolStringPool::new();
        let names =
            ["", "main", "a 33-character name fills a block", "cut\0off"].map(|text| pool.intern(text));
        let texts = names.each_ref().map(|name| name.as_c_str().to_str().expect("UTF-8"));
        assert_eq!(texts, ["", "main", "a 33-character name fills a block", "cut"]);
        assert_eq!(names[1].as_c_str().as_ptr(), pool.intern("main").as_c_str().as_ptr());
        assert_eq!(names[1].as_c_str().as_ptr().addr(), names[1].as_str().as_ptr().addr());
    }

    #[test]
    fn names_order_by_text_and_print_it() {
        let pool = SymbolStringPool::new();
        let mut names = ["m", "", "zz", "a\"b"].map(|text| pool.intern(text));
        names.sort();
        assert_eq!(names.each_ref().map(SymbolName::as_str), ["", "a\"b", "m", "zz"]);
        assert_eq!(format!("{} {:?}", names[1], names[1]), r#"a"b "a\"b""#);
    }

    #[test]
    fn a_held_name_survives_sweeps_and_a_dead_one_does_not() {
        let pool = SymbolStringPool::new();
        let held = pool.intern("held");
        drop(pool.intern("dead"));
        assert_eq!(pool.reclaim(), 1);
        assert_eq!(pool.get("dead"), None);
        assert_eq!(pool.get("held"), Some(held.clone()));
        assert_eq!(pool.intern("held"), held);
    }

    #[test]
    fn a_pool_without_names_has_none_to_give_or_to_sweep() {
        let pool = SymbolStringPool::new();
        assert_eq!((pool.get("f"), pool.reclaim()), (None, 0));
        assert!(pool.is_empty());
        drop(pool.intern("f"));
        assert_eq!((pool.reclaim(), pool.reclaim()), (1, 0));
        assert_eq!(pool.get("f"), None);
        assert_eq!(pool.intern("f").as_str(), "f");
    }

    #[test]
    fn a_name_outlives_its_pool() {
        let name = SymbolStringPool::new().intern("orphan");
        assert_eq!(name.as_str(), "orphan");
    }

    #[test]
    fn interning_alone_sweeps_what_died() {
        let pool = SymbolStringPool::new();
        for index in 0..200_000 {
            pool.intern(&format!("short lived {index}"));
        }
        assert!(pool.len() < SHARDS * 2 * HOMES_MIN * 2, "{} dead names stay", pool.len());
    }

    #[test]
    fn announced_names_are_freed_without_further_interning() {
        let pool = SymbolStringPool::new();
        for round in 0..4 {
            let names: Vec<_> = (0..50_000).map(|index| pool.intern(&format!("{round}.{index}"))).collect();
            let count = names.len();
            drop(names);
            pool.released(count);
            assert_eq!(pool.len(), 0);
        }
    }

    #[test]
    fn threads_that_intern_and_drop_agree_on_identity() {
        let pool = SymbolStringPool::new();
        let workers: Vec<_> = (0..4)
            .map(|_| {
                let pool = pool.clone();
                thread::spawn(move || {
                    for round in 0..2_000 {
                        let text = format!("n{}", round % 7);
                        let (first, second) = (pool.intern(&text), pool.intern(&text));
                        assert_eq!(first, second);
                        assert_eq!(first.as_str(), text);
                        if round % 16 == 0 {
                            pool.reclaim();
                        }
                    }
                })
            })
            .collect();
        workers.into_iter().for_each(|worker| worker.join().unwrap());
        assert_eq!(pool.len() - pool.reclaim(), 0);
    }

    /// The pool hashed with public constants, as `rustc_hash` does. All these names, valid in C, have one hash there: the product of
    /// their first block is a word that their third begins with. So one factor of that block's product is 0, and the other does not
    /// matter. Interning n of them took n * n / 2 comparisons of texts.
    #[test]
    fn names_chosen_to_collide_are_found_in_few_steps() {
        let is_in_names =
            |bytes: &[u8]| bytes.iter().all(|byte| *byte == b'_' || byte.is_ascii_alphanumeric());
        let (first, product) = (0_u64..)
            .map(|number| format!("f{number:015}"))
            .map(|block| (multiplied(&block).to_le_bytes(), block))
            .find_map(|(product, block)| is_in_names(&product).then_some((block, product)))
            .expect("one in some 75,000 has such a product");
        let third = str::from_utf8(&product).expect("letters and digits");
        let names: Vec<String> =
            (0..4_000).map(|number| format!("{first}{:_<16}{third}{number:08}{:_<16}", "", "")).collect();
        assert!(names.iter().all(|name| FxBuildHasher.hash_one(name) == FxBuildHasher.hash_one(&names[0])));
        assert_found_in_few_steps(&names);
    }

    /// A secret that does not go into the products leaves names that collide in one pool to collide in each.
    #[test]
    fn names_that_collide_in_one_pool_are_spread_in_another() {
        let candidates: Vec<String> = (0..500_000).map(|number| format!("f{number:x}")).collect();
        let pool = SymbolStringPool::new();
        let region = |text: &str| {
            let (shard, tag) = pool.0.place_of(text);
            (shard, tag >> 28)
        };
        let chosen = region(&candidates[0]);
        let names: Vec<_> = candidates.into_iter().filter(|text| region(text) == chosen).collect();
        assert!(names.len() > 100, "{} names fill a sixteenth of a shard", names.len());
        assert_found_in_few_steps(&names);
    }

    /// Looks at the tables and not at the time: in a pool of their own, names take two steps each, and here and there some more.
    fn assert_found_in_few_steps(names: &[String]) {
        let pool = SymbolStringPool::new();
        let held: Vec<_> = names.iter().map(|name| pool.intern(name)).collect();
        let steps: usize = pool.0.shards.iter().map(|shard| shard.lock().steps()).sum();
        assert!(steps < 5 * held.len(), "{} names are found in {steps} steps", held.len());
    }

    /// The result of `rustc_hash` for the first block of a longer text.
    fn multiplied(block: &str) -> u64 {
        let words = u128::from_le_bytes(block.as_bytes().try_into().expect("a block"));
        let factors = (words as u64 ^ 0x243f_6a88_85a3_08d3, (words >> 64) as u64 ^ 0xa409_3822_299f_31d0);
        let product = u128::from(factors.0) * u128::from(factors.1);
        product as u64 ^ (product >> 64) as u64
    }

    fn hash(name: &SymbolName) -> u64 {
        FxBuildHasher.hash_one(name)
    }
}
