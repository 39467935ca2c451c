//! Linked code and its keepers: the trackers of its objects, and the holders of code that runs there.
//!
//! ```text
//!   share of a ─▶ owned ─▶ code ◀── held code (a function's handle)
//!   share of b ─▶   ┘       ▲
//!                       ranges: which code is where
//! ```
//!
//! Stubs that are bound when they are first called refer to nothing before that. A holder of stubs also holds the code that they lead on to
//! from then on: [`StubTargets`] knows its holders, without keeping them.
//!
//! Code is unmapped when it has no keeper left, and no thread is inside that was inside when the code was removed. The last of them unmaps
//! it. Trackers release their code when they are removed. A holder of a function holds all code that the function may reach by references,
//! directly or through other code: the addresses that code refers to are noted when it is linked. Code that is reached in another way, by a
//! pointer that was handed over at run time, is not seen.
//!
//! The model of holding stubs while they are bound is `loom-tests/tests/call_through.rs`, for which this file needs little around it.
//!
//! **Holds.** Code is found by its addresses from before its symbols are Ready until its memory goes, so two pieces of code are never
//! found at one address.

use std::any::Any;
use std::fmt;
use std::ops::Range;

use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::{SmallVec, smallvec};
use uruk_core::sync::{Arc, Mutex, Weak, weakened};
use uruk_core::{ExecutorAddr, RemovalNumber};
use uruk_recorder::{Entry, Kind};

use super::share::LinkedCode;
use crate::code_ranges::{CodeRanges, give_back};
use crate::executor::CodeNumber;
use crate::guard::GuardDomain;
use crate::runtime::call_through::KeepsCode;
use crate::runtime::endings::{self, CodeKeeper};

/// A value that is dropped after the code.
pub type KeepAlive = Arc<dyn Any + Send + Sync>;

/// The code of one link.
pub(super) struct Code {
    /// The number under which `endings` knows it.
    number: Option<CodeNumber>,
    ranges: Arc<[Range<u64>]>,
    /// Addresses outside of it that it refers to, in memory of ours or not.
    refers_to: Box<[ExecutorAddr]>,
    known: Arc<CodeMap>,
    stubs: Option<Stubs>,
    mapped: Mutex<Option<LinkedCode>>,
    after: Mutex<Vec<KeepAlive>>, // Last: these go when all else has gone.
}

/// Code by its addresses.
///
/// # Concurrency
/// One lock, held for map operations. Code is not dropped under it.
#[derive(Default)]
pub(super) struct CodeMap {
    by_address: Mutex<KnownCode>,
    /// Threads that run some of it.
    pub(super) guards: GuardDomain,
}

struct KnownCode {
    ranges: CodeRanges<Weak<Code>>,
    /// The length of all ranges.
    bytes: u64,
    /// How often anything came or went.
    changes: u64,
    /// By address: the code there, and all that it refers to, as it was found since the last change. Not where there are stubs.
    held_at: FxHashMap<u64, Box<[Weak<Code>]>>,
    /// How many pieces these are together.
    held_pieces: usize,
}

/// Code that stays mapped while this is held, and all that it refers to, directly or through other code.
///
/// Cloning it is cheap. It outlives trackers, dylibs and sessions.
#[derive(Clone)]
pub struct HeldCode(Arc<Holder>);

/// The code that one holder keeps.
struct Holder {
    code: Mutex<Pieces>,
}

/// Pieces of code, mostly few.
type Pieces = SmallVec<[Arc<Code>; 6]>;

/// Data of stubs besides their code.
pub(crate) struct Stubs {
    pub(crate) targets: Arc<StubTargets>,
    /// Dropped after the code.
    pub(crate) cells: KeepAlive,
}

/// The targets of stubs that have been called.
///
/// # Concurrency
/// A thread that begins to hold the stubs and a thread that binds one of them meet under one lock: either the first finds the bound target,
/// or the second finds the holder.
#[derive(Default)]
pub(crate) struct StubTargets(Mutex<Bound>);

#[derive(Default)]
struct Bound {
    /// By the stub's number.
    addresses: FxHashMap<u32, ExecutorAddr>,
    holders: Vec<Weak<Holder>>,
}

/// How a removal treats code that is held.
#[derive(Clone, Copy, Debug)]
pub enum CodeRemoval<'a> {
    /// It stays mapped until it has no holder, and every thread with a [`Guard`](crate::guard::Guard) has passed. A clone of this is
    /// dropped then; at once, if there is none.
    WhenReleased(&'a KeepAlive),
    /// It is unmapped, even if it is held.
    AtOnce,
}

impl Code {
    /// Makes code known at its addresses.
    pub(super) fn new(
        mapped: LinkedCode,
        ranges: Arc<[Range<u64>]>,
        refers_to: Box<[ExecutorAddr]>,
        stubs: Option<Stubs>,
        known: &Arc<CodeMap>,
    ) -> Arc<Self> {
        let number = mapped.published.number();
        let (mapped, after) = (Mutex::new(Some(mapped)), Mutex::default());
        let code = Arc::new(Self { number, ranges, refers_to, known: known.clone(), stubs, mapped, after });
        let mut map = known.by_address.lock();
        map.change();
        map.ranges.add(&code.ranges, Arc::downgrade(&code));
        map.bytes += code.range_bytes();
        known.note(&map);
        drop(map);
        code
    }

    /// Has the code end when `shares` trackers have released it. Gives its number then, and `None` if it is there until the process ends.
    pub(super) fn ends_with(self: &Arc<Self>, shares: usize) -> Option<CodeNumber> {
        let kept: Weak<Self> = Arc::downgrade(self);
        endings::kept_by(self.number?, kept, shares);
        self.number
    }

    /// Drops a clone of `what` after the code.
    pub(super) fn keep(&self, what: &KeepAlive) {
        self.after.lock().push(what.clone());
    }

    /// The last of its trackers lets it go.
    pub(super) fn let_go(&self, removal: CodeRemoval<'_>) {
        match removal {
            CodeRemoval::WhenReleased(after) => self.keep(after),
            CodeRemoval::AtOnce => self.unmap(),
        }
    }

    /// Keeps it for the threads that are inside now. They cannot find other code of the same `removal` either.
    pub(super) fn retire(self: &Arc<Self>, removal: Option<RemovalNumber>) {
        self.known.guards.retire_with(self.clone(), self.bytes(), removal);
    }

    /// Bytes of its memory; none once it is unmapped.
    pub(super) fn bytes(&self) -> u64 {
        self.mapped.lock().as_ref().map_or(0, |mapped| mapped.bytes)
    }

    fn range_bytes(&self) -> u64 {
        self.ranges.iter().map(|range| range.end - range.start).sum()
    }

    /// Forgets where the code is before its memory goes: code that is linked next may lie there.
    fn unmap(&self) {
        let mut map = self.known.by_address.lock();
        map.change();
        if map.ranges.remove(&self.ranges, |code| std::ptr::eq(code.as_ptr(), self)) {
            map.bytes -= self.range_bytes();
        }
        self.known.note(&map);
        drop(map);
        let mapped = self.mapped.lock().take();
        drop(mapped);
    }
}

impl CodeKeeper for Code {
    fn hold_all(&self) -> Box<dyn Any + Send + Sync> {
        let start = self.ranges.first().map(|range| ExecutorAddr::new(range.start));
        Box::new(start.and_then(|start| self.known.hold(start)))
    }
}

impl Drop for Code {
    fn drop(&mut self) {
        self.unmap();
    }
}

impl CodeMap {
    /// Notes how much code there is: under the lock, so that the last note is right.
    fn note(&self, known: &KnownCode) {
        uruk_recorder::note(|| {
            let name = uruk_recorder::write_name("linked code");
            Entry::new(Kind::Bytes).named(name).with(std::ptr::from_ref(self).addr() as u64, known.bytes)
        });
    }

    /// The code at an address, and all that it refers to; `None` if the address is not in linked code.
    ///
    /// # Cost
    /// Linear in the held code: a step for each piece of code; and for each of its references, the first time since code came or went.
    pub(super) fn hold(&self, address: ExecutorAddr) -> Option<HeldCode> {
        self.hold_all(address, None)
    }

    /// The same, without the code behind stubs that lead on by `stubs`. A holder of those stubs holds that code already, and there may be
    /// very much of it.
    pub(super) fn hold_before(&self, address: ExecutorAddr, stubs: &StubTargets) -> Option<HeldCode> {
        self.hold_all(address, Some(stubs))
    }

    fn hold_all(&self, address: ExecutorAddr, before: Option<&StubTargets>) -> Option<HeldCode> {
        let mut map = self.by_address.lock();
        if let Some(known) = map.held_at.get(&address.value()) {
            let mut code: Pieces = smallvec![known.first()?.upgrade()?];
            code.extend(known[1..].iter().filter_map(Weak::upgrade));
            drop(map);
            return Some(HeldCode::new(code));
        }
        let (code, changes) = (map.ranges.at(address.value())?.upgrade()?, map.changes);
        drop(map);
        let held = HeldCode::new(smallvec![code]);
        let mut code = held.0.code.lock();
        held.0.follow(&mut code, 0, before);
        if code.iter().all(|code| code.stubs.is_none()) {
            self.by_address.lock().note_held(address, changes, &code);
        }
        drop(code);
        Some(held)
    }

    /// The code at an address, without the code that it refers to.
    pub(super) fn hold_alone(&self, address: ExecutorAddr) -> Option<HeldCode> {
        self.find_one(address).map(|code| HeldCode::new(smallvec![code]))
    }

    /// The addresses that the code at `address` refers to.
    pub(super) fn references_of(&self, address: ExecutorAddr) -> Vec<ExecutorAddr> {
        self.find_one(address).map_or_else(Vec::new, |code| code.refers_to.to_vec())
    }

    /// The cells of the stubs at `address`, if there are stubs.
    pub(super) fn cells_at(&self, address: ExecutorAddr) -> Option<KeepAlive> {
        let code = self.find_one(address)?;
        code.stubs.as_ref().map(|stubs| stubs.cells.clone())
    }

    fn find_one(&self, address: ExecutorAddr) -> Option<Arc<Code>> {
        self.by_address.lock().ranges.at(address.value())?.upgrade()
    }

    /// Adds the code at `addresses` to `found`, which is what has been `seen`.
    fn find(&self, addresses: &[ExecutorAddr], found: &mut Pieces, seen: &mut Seen) {
        if addresses.is_empty() {
            return;
        }
        let mut map = self.by_address.lock();
        for address in addresses {
            // Each is counted once: one that was counted twice might be dropped here, under the lock.
            let code = map.ranges.at(address.value());
            if let Some(code) = code.filter(|code| seen.is_first(code.as_ptr(), found)) {
                found.extend(code.upgrade());
            }
        }
    }
}

impl Default for KnownCode {
    fn default() -> Self {
        Self {
            ranges: CodeRanges::new(),
            bytes: 0,
            changes: 0,
            held_at: FxHashMap::default(),
            held_pieces: 0,
        }
    }
}

impl KnownCode {
    /// Half a megabyte. Functions that all lead to each other would take the square of their number.
    const HELD_PIECES_MAX: usize = 1 << 16;

    fn change(&mut self) {
        self.changes += 1;
        self.held_at.clear();
        self.held_pieces = 0;
        give_back(&mut self.held_at);
    }

    /// Notes the code that was found for a holder, unless anything has changed since, or there is much already.
    fn note_held(&mut self, address: ExecutorAddr, since: u64, code: &[Arc<Code>]) {
        let pieces = self.held_pieces + code.len();
        if self.changes == since && pieces <= Self::HELD_PIECES_MAX {
            self.held_pieces = pieces;
            self.held_at.insert(address.value(), code.iter().map(Arc::downgrade).collect());
        }
    }
}

/// The code that a search has found already. A table if it is much: most functions lead to a few pieces of code.
#[derive(Default)]
struct Seen(FxHashSet<*const Code>);

impl Seen {
    const FEW: usize = 16;

    fn is_first(&mut self, code: *const Code, found: &[Arc<Code>]) -> bool {
        if found.len() <= Self::FEW {
            return !found.iter().any(|known| Arc::as_ptr(known) == code);
        }
        if self.0.is_empty() {
            self.0.extend(found.iter().map(Arc::as_ptr));
        }
        self.0.insert(code)
    }
}

impl KeepsCode for HeldCode {
    fn contains(&self, address: ExecutorAddr) -> bool {
        let is_in = |code: &Arc<Code>| code.ranges.iter().any(|range| range.contains(&address.value()));
        self.0.code.lock().iter().any(is_in)
    }
}

impl HeldCode {
    /// Of one piece of code at least.
    fn new(code: Pieces) -> Self {
        Self(Arc::new(Holder { code: Mutex::new(code) }))
    }
}

impl Holder {
    /// Holds the code at `address` too, and all that it refers to.
    fn add(self: &Arc<Self>, address: ExecutorAddr) {
        let mut code = self.code.lock();
        let next = code.len();
        let Some(known) = code.first().map(|code| code.known.clone()) else { return };
        known.find(&[address], &mut code, &mut Seen::default());
        self.follow(&mut code, next, None);
    }

    /// Holds all code that the pieces refer to, from number `next` on, without what is behind the stubs `before`.
    fn follow(self: &Arc<Self>, code: &mut Pieces, mut next: usize, before: Option<&StubTargets>) {
        let mut seen = Seen::default();
        while let Some(found) = code.get(next).cloned() {
            found.known.find(&found.refers_to, code, &mut seen);
            if let Some(stubs) = &found.stubs
                && !before.is_some_and(|before| std::ptr::eq(before, &*stubs.targets))
            {
                found.known.find(&stubs.targets.held_by(self), code, &mut seen);
            }
            next += 1;
        }
    }
}

impl StubTargets {
    /// Stub `number` leads to `address` from now on. Every holder of the stubs, now and later, holds the code there too. `held` keeps the
    /// code until then; there is nothing to keep if the address is not in linked code.
    ///
    /// The caller drops the result without a lock: code may go with it.
    pub(crate) fn lead_on_to(
        &self,
        number: u32,
        address: ExecutorAddr,
        held: Option<HeldCode>,
    ) -> Vec<HeldCode> {
        let held = held.filter(|_| !weakened("call_through::lets_go_before_it_tells"));
        let mut bound = self.0.lock();
        if weakened("call_through::looks_before_it_notes") {
            let holders = bound.holders();
            drop(bound);
            holders.iter().for_each(|holder| holder.0.add(address));
            self.0.lock().addresses.insert(number, address);
            return holders;
        }
        bound.addresses.insert(number, address);
        let mut holders = bound.holders();
        drop(bound);
        holders.iter().for_each(|holder| holder.0.add(address));
        holders.extend(held);
        holders
    }

    /// A later holder of the stubs holds nothing for stub `number`, until it leads on again.
    pub(crate) fn lead_nowhere(&self, number: u32) {
        self.0.lock().addresses.remove(&number);
    }

    fn held_by(&self, holder: &Arc<Holder>) -> Vec<ExecutorAddr> {
        let mut bound = self.0.lock();
        if weakened("call_through::looks_before_it_holds") {
            let addresses = bound.addresses();
            drop(bound);
            self.0.lock().add(holder);
            return addresses;
        }
        bound.add(holder);
        bound.addresses()
    }
}

impl Bound {
    /// Removes holders that have gone before it takes more room. Otherwise they might stay for ever.
    fn add(&mut self, holder: &Arc<Holder>) {
        if self.holders.len() == self.holders.capacity() {
            self.holders.retain(|holder| holder.strong_count() > 0);
            self.holders.reserve(self.holders.len() + 1); // The next look comes after as many as there are.
        }
        self.holders.push(Arc::downgrade(holder));
    }

    /// The holders that still exist.
    fn holders(&mut self) -> Vec<HeldCode> {
        self.holders.retain(|holder| holder.strong_count() > 0);
        self.holders.iter().filter_map(Weak::upgrade).map(HeldCode).collect()
    }

    fn addresses(&self) -> Vec<ExecutorAddr> {
        self.addresses.values().copied().collect()
    }
}

impl fmt::Debug for HeldCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HeldCode").field("pieces", &self.0.code.lock().len()).finish()
    }
}

#[cfg(all(test, not(uruk_loom)))]
mod tests {
    use super::*;
    use crate::executor::Published;

    struct Nothing;

    impl Published for Nothing {
        fn number(&self) -> Option<CodeNumber> {
            None
        }

        fn address(&self, _: usize) -> ExecutorAddr {
            ExecutorAddr::NULL
        }
    }

    fn code(known: &Arc<CodeMap>, ranges: &[(u64, u64)], refers_to: &[u64]) -> Arc<Code> {
        let ranges = ranges.iter().map(|&(start, end)| start..end).collect();
        let refers_to = refers_to.iter().map(|&address| ExecutorAddr::new(address)).collect();
        let nothing =
            LinkedCode { published: Box::new(Nothing), bytes: 0, _tls: None, _low_entries: Vec::new() };
        Code::new(nothing, ranges, refers_to, None, known)
    }

    fn held(known: &Arc<CodeMap>, address: u64) -> usize {
        known.hold(ExecutorAddr::new(address)).map_or(0, |held| held.0.code.lock().len())
    }

    #[test]
    fn who_holds_code_holds_what_it_refers_to() {
        let known = Arc::new(CodeMap::default());
        let _first = code(&known, &[(0x1000, 0x1100), (0x9000, 0x9010)], &[0x2004, 0x5000]);
        let _second = code(&known, &[(0x2000, 0x2010)], &[0x3000, 0x2008, 0x1000]);
        let _third = code(&known, &[(0x3000, 0x3010)], &[]);
        let held = |address| held(&known, address);
        assert_eq!([held(0x1000), held(0x10ff), held(0x9008), held(0x2000), held(0x3000)], [3, 3, 3, 3, 1]);
        assert_eq!([held(0xfff), held(0x1100), held(0x5000)], [0, 0, 0]);
    }

    #[test]
    fn code_is_searched_once_between_two_changes() {
        let known = Arc::new(CodeMap::default());
        let _first = code(&known, &[(0x1000, 0x1100)], &[0x2000]);
        let second = code(&known, &[(0x2000, 0x2010)], &[0x3000, 0x1000]);
        let holder = known.hold(ExecutorAddr::new(0x1008));
        assert_eq!([held(&known, 0x1008), known.by_address.lock().held_at.len()], [2, 1]);
        let third = code(&known, &[(0x3000, 0x3010)], &[]);
        assert_eq!([held(&known, 0x1008), held(&known, 0x1008), held(&known, 0x3000)], [3, 3, 1]);
        drop((holder, second));
        assert_eq!([held(&known, 0x1008), held(&known, 0x1008)], [1, 1]);
        third.let_go(CodeRemoval::AtOnce);
        assert_eq!(held(&known, 0x3000), 0, "though it is held elsewhere");
    }

    #[test]
    fn much_code_that_refers_to_each_other_is_held_once() {
        let known = Arc::new(CodeMap::default());
        let start = |piece: u64| 0x1000 + 0x100 * (piece % 100);
        let pieces: Vec<_> = (0..100)
            .map(|piece| {
                let refers_to: Vec<u64> = (1..30).map(|step| start(piece + step)).collect();
                code(&known, &[(start(piece), start(piece) + 16)], &refers_to)
            })
            .collect();
        assert_eq!(held(&known, 0x1000), pieces.len());
    }

    #[test]
    fn code_that_goes_is_found_no_more_and_takes_nobody_elses_place() {
        let known = Arc::new(CodeMap::default());
        let first = code(&known, &[(0x1000, 0x1100)], &[]);
        let after: KeepAlive = Arc::new(());
        let holder = known.hold(ExecutorAddr::new(0x1000));
        first.let_go(CodeRemoval::WhenReleased(&after));
        drop(first);
        assert_eq!((held(&known, 0x1000), Arc::strong_count(&after)), (1, 2));
        drop(holder);
        assert_eq!((held(&known, 0x1000), Arc::strong_count(&after)), (0, 1));

        let unmapped = code(&known, &[(0x1000, 0x1100)], &[]);
        let holder = known.hold(ExecutorAddr::new(0x1000));
        unmapped.let_go(CodeRemoval::AtOnce);
        assert_eq!(held(&known, 0x1000), 0);
        let _next = code(&known, &[(0x1000, 0x1100)], &[]);
        drop(holder);
        assert_eq!(held(&known, 0x1000), 1);
    }

    /// Code that has stubs, at 0x1000.
    fn stubs(known: &Arc<CodeMap>, targets: &Arc<StubTargets>) -> Arc<Code> {
        let stubs = code(known, &[(0x1000, 0x1100)], &[]);
        let mut stubs = Arc::into_inner(stubs).expect("nobody holds it");
        stubs.stubs = Some(Stubs { targets: targets.clone(), cells: Arc::new(()) });
        let stubs = Arc::new(stubs);
        known.by_address.lock().ranges.add(&stubs.ranges, Arc::downgrade(&stubs));
        stubs
    }

    #[test]
    fn those_who_held_stubs_are_forgotten_though_no_stub_is_bound() {
        let (known, targets) = (Arc::new(CodeMap::default()), Arc::new(StubTargets::default()));
        let _stubs = stubs(&known, &targets);
        let hold = || known.hold(ExecutorAddr::new(0x1000)).expect("it is there");
        let kept: Vec<_> = (0..20).map(|_| hold()).collect();
        for _ in 0..1_000 {
            drop(hold());
        }
        assert!(targets.0.lock().holders.len() < 100);
        assert_eq!(targets.0.lock().holders().len(), kept.len());
    }

    #[test]
    fn who_holds_stubs_holds_what_they_come_to_lead_to() {
        let (known, targets) = (Arc::new(CodeMap::default()), Arc::new(StubTargets::default()));
        let _stubs = stubs(&known, &targets);
        let (body, helper) =
            (code(&known, &[(0x2000, 0x2010)], &[0x3000]), code(&known, &[(0x3000, 0x3010)], &[0x1000]));
        let gone = [&body, &helper].map(Arc::downgrade);
        let are_there = || gone.iter().filter(|code| code.strong_count() > 0).count();

        let before = known.hold(ExecutorAddr::new(0x1000));
        drop(targets.lead_on_to(0, ExecutorAddr::new(0x2000), known.hold(ExecutorAddr::new(0x2000))));
        let after = known.hold(ExecutorAddr::new(0x1000));
        drop((body, helper));
        drop(after);
        assert_eq!(are_there(), 2, "the one that began before the call holds them");
        drop(before);
        assert_eq!(are_there(), 0, "and nobody else does, though they refer to each other");
    }
}
