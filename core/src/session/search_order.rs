//! Search orders: the dylibs a lookup searches, and where each of them stands.
//!
//! Lookups of Ready symbols ask an order three things, each of which it answers without walking over its
//! dylibs: whether all of them belong to the session, where the first definition stands that it may see, and up
//! to which position no generator can come before (`ready_index.rs`).

use std::fmt;

use crate::ids::{DylibId, Id};
use crate::ready_index::DylibOrder;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::{ExecutionSession, JitDylib, JitDylibLookupFlags, SymbolFlags};

/// The dylibs a lookup searches, in order, and what it may see of each.
///
/// Reads as the slice it holds. Make it once and use it for many lookups: what it learns about its dylibs it
/// keeps. A dylib may stand in it twice.
///
/// # Examples
/// ```
/// # use uruk_core::{ExecutionSession, JitDylibLookupFlags, SearchOrder};
/// # let session = ExecutionSession::new();
/// # let (main, library) = (session.create_jit_dylib("main")?, session.create_jit_dylib("library")?);
/// let mut order = SearchOrder::of(&main);
/// order.push(library, JitDylibLookupFlags::MatchExportedSymbolsOnly);
/// assert_eq!(order.len(), 2);
/// # Ok::<(), uruk_core::DylibError>(())
/// ```
///
/// ORC: `JITDylibSearchOrder`.
#[doc(alias = "JITDylibSearchOrder")]
#[derive(Default)]
pub struct SearchOrder {
    dylibs: Vec<(JitDylib, JitDylibLookupFlags)>,
    /// Some of the dylibs belong to another session than the first.
    mixed: bool,
    /// Where each dylib stands, once there are more of them than are quickly walked over.
    places: Option<DylibPlaces>,
    /// See [`DylibOrder::certain_until`].
    known: AtomicU64,
}

/// So many dylibs are walked over as fast as an index finds one.
const WALKED_MAX: usize = 4;

/// The low bits of what is known hold one more than the first generating position, or 0 if none generates; those
/// above hold the count of changes at which that was so. New orders hold 0: before the first change of all,
/// every dylib is there and none generates.
const POSITION_BITS: u32 = 24;

impl SearchOrder {
    /// An order of no dylibs, in which nothing is found.
    pub fn new() -> Self {
        Self::default()
    }

    /// The dylibs, with what of each is searched, first to last.
    pub fn iter(&self) -> std::slice::Iter<'_, (JitDylib, JitDylibLookupFlags)> {
        self.dylibs.iter()
    }

    /// How many dylibs are searched.
    pub fn len(&self) -> usize {
        self.dylibs.len()
    }

    /// Whether no dylib is searched.
    pub fn is_empty(&self) -> bool {
        self.dylibs.is_empty()
    }

    /// A search of one dylib, its hidden symbols included.
    pub fn of(dylib: &JitDylib) -> Self {
        Self::from([(dylib.clone(), JitDylibLookupFlags::MatchAllSymbols)])
    }

    /// The same order behind `first`, whose hidden symbols are seen too; as it is, if it begins with `first` already.
    ///
    /// So a dylib finds its own symbols before those of others: `main.set_link_order(order.behind(&main))`. Where else `first`
    /// stands it stays, and nothing more is found there.
    ///
    /// # Examples
    /// ```
    /// # use uruk_core::{ExecutionSession, JitDylibLookupFlags, SearchOrder};
    /// # let session = ExecutionSession::new();
    /// # let (main, library) = (session.create_jit_dylib("main")?, session.create_jit_dylib("library")?);
    /// let order = SearchOrder::from([(library, JitDylibLookupFlags::MatchExportedSymbolsOnly)]);
    /// main.set_link_order(order.behind(&main))?;
    /// assert_eq!(main.link_order().as_slice()[0].0, main);
    /// # Ok::<(), uruk_core::DylibError>(())
    /// ```
    ///
    /// ORC: `JITDylib::setLinkOrder`, whose `LinkAgainstThisJITDylibFirst` does the same.
    #[doc(alias = "LinkAgainstThisJITDylibFirst")]
    #[must_use]
    pub fn behind(self, first: &JitDylib) -> Self {
        if self.dylibs.first().is_some_and(|(dylib, _)| dylib == first) {
            return self;
        }
        let mut order = Self::of(first);
        order.extend(self);
        order
    }

    /// Appends a dylib.
    pub fn push(&mut self, dylib: JitDylib, flags: JitDylibLookupFlags) {
        self.mixed |= self.dylibs.first().is_some_and(|(first, _)| first.session() != dylib.session());
        // Relaxed: no other thread sees the order meanwhile.
        self.known.store(0, Ordering::Relaxed);
        self.dylibs.push((dylib, flags));
        match &mut self.places {
            Some(places) if places.has_room_for(self.dylibs.len()) => {
                places.note(self.dylibs.len() - 1, &self.dylibs);
            }
            None if self.dylibs.len() <= WALKED_MAX => {}
            _ => self.places = Some(DylibPlaces::of(&self.dylibs)),
        }
    }

    /// The dylibs, as a slice.
    pub fn as_slice(&self) -> &[(JitDylib, JitDylibLookupFlags)] {
        &self.dylibs
    }

    /// Whether there are dylibs and all of them belong to `session`.
    pub(crate) fn is_of(&self, session: &ExecutionSession) -> bool {
        !self.mixed && self.dylibs.first().is_some_and(|(first, _)| first.session() == session)
    }
}

impl DylibOrder for SearchOrder {
    fn dylibs(&self) -> impl Iterator<Item = (DylibId, JitDylibLookupFlags)> {
        self.dylibs.iter().map(|(dylib, flags)| (dylib.id(), *flags))
    }

    #[inline]
    fn is_single(&self) -> bool {
        self.dylibs.len() == 1
    }

    /// # Cost
    /// One probe.
    #[inline]
    fn position_of(&self, dylib: DylibId, flags: SymbolFlags) -> Option<usize> {
        let exported = flags.contains(SymbolFlags::EXPORTED);
        if let Some(places) = &self.places {
            return places.find(dylib, exported);
        }
        let sees = |(candidate, flags): &(JitDylib, JitDylibLookupFlags)| {
            candidate.id() == dylib && (exported || *flags == JitDylibLookupFlags::MatchAllSymbols)
        };
        self.dylibs.iter().position(sees)
    }

    fn certain_until(&self, changes: u64) -> Option<usize> {
        // Relaxed: one word holds a fact and the moment at which it was true; nothing else is read on its strength.
        let known = self.known.load(Ordering::Relaxed);
        if known >> POSITION_BITS != changes {
            return None;
        }
        let position = known & ((1 << POSITION_BITS) - 1);
        Some(if position == 0 { usize::MAX } else { position as usize - 1 })
    }

    fn remember(&self, changes: u64, certain_until: usize) {
        let position = if certain_until == usize::MAX { 0 } else { certain_until as u64 + 1 };
        if position < 1 << POSITION_BITS {
            // Relaxed: see `certain_until`. Several lookups may store the same fact.
            self.known.store(changes << POSITION_BITS | position, Ordering::Relaxed);
        }
    }
}

/// Where each dylib of an order stands: open addressing by its index in the session, at most half full.
#[derive(Clone)]
struct DylibPlaces {
    /// A power of two of them.
    entries: Box<[DylibPlace]>,
    /// By so many bits a hash is too long.
    shift: u32,
}

/// Where a dylib stands first.
#[derive(Clone, Copy)]
struct DylibPlace {
    dylib: DylibId,
    /// With any flags: there its exported symbols are seen. In an entry that is vacant, [`NOWHERE`].
    exported: u32,
    /// With all symbols matched: there its hidden symbols are seen, if anywhere.
    all: u32,
}

const NOWHERE: u32 = u32::MAX;

impl DylibPlaces {
    fn of(dylibs: &[(JitDylib, JitDylibLookupFlags)]) -> Self {
        // Twice as many may come before it is made anew.
        let bits = (4 * dylibs.len()).next_power_of_two().ilog2();
        let vacant = DylibPlace { dylib: DylibId::new(0, 0), exported: NOWHERE, all: NOWHERE };
        let entries = vec![vacant; 1 << bits].into_boxed_slice();
        let mut places = Self { entries, shift: u32::BITS.saturating_sub(bits) };
        (0..dylibs.len()).for_each(|position| places.note(position, dylibs));
        places
    }

    fn has_room_for(&self, dylibs: usize) -> bool {
        2 * dylibs <= self.entries.len()
    }

    /// The first position at which the dylib's symbols are seen.
    #[inline]
    fn find(&self, dylib: DylibId, exported: bool) -> Option<usize> {
        let place = &self.entries[self.entry_of(dylib)];
        let position = if exported { place.exported } else { place.all };
        (position != NOWHERE).then_some(position as usize)
    }

    /// Notes where the dylib at `position` stands, unless it stands further ahead as well.
    fn note(&mut self, position: usize, dylibs: &[(JitDylib, JitDylibLookupFlags)]) {
        let (dylib, flags) = &dylibs[position];
        // One that stands further back than can be said is not found here, so lookups that need it take the lock.
        let Some(here) = u32::try_from(position).ok().filter(|here| *here != NOWHERE) else { return };
        let entry = self.entry_of(dylib.id());
        let place = &mut self.entries[entry];
        place.dylib = dylib.id();
        place.exported = place.exported.min(here);
        if *flags == JitDylibLookupFlags::MatchAllSymbols {
            place.all = place.all.min(here);
        }
    }

    /// The entry of a dylib, or the one that it would get.
    #[inline]
    fn entry_of(&self, dylib: DylibId) -> usize {
        // Dylibs that were created one after the other, or at equal distances, lie apart then.
        let home = dylib.index().wrapping_mul(0x9E37_79B9) >> self.shift;
        let mask = self.entries.len() - 1;
        let mut entry = home as usize & mask;
        loop {
            let place = &self.entries[entry];
            if place.dylib == dylib || place.exported == NOWHERE {
                return entry;
            }
            entry = (entry + 1) & mask;
        }
    }
}

impl Clone for SearchOrder {
    fn clone(&self) -> Self {
        Self {
            dylibs: self.dylibs.clone(),
            mixed: self.mixed,
            places: self.places.clone(),
            // Relaxed: see `certain_until`.
            known: AtomicU64::new(self.known.load(Ordering::Relaxed)),
        }
    }
}

/// Orders are equal if they search the same dylibs in the same way.
impl PartialEq for SearchOrder {
    fn eq(&self, other: &Self) -> bool {
        self.dylibs == other.dylibs
    }
}

impl Eq for SearchOrder {}

impl fmt::Debug for SearchOrder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.dylibs).finish()
    }
}

impl Extend<(JitDylib, JitDylibLookupFlags)> for SearchOrder {
    fn extend<I: IntoIterator<Item = (JitDylib, JitDylibLookupFlags)>>(&mut self, dylibs: I) {
        dylibs.into_iter().for_each(|(dylib, flags)| self.push(dylib, flags));
    }
}

impl FromIterator<(JitDylib, JitDylibLookupFlags)> for SearchOrder {
    fn from_iter<I: IntoIterator<Item = (JitDylib, JitDylibLookupFlags)>>(dylibs: I) -> Self {
        let mut order = Self::new();
        order.extend(dylibs);
        order
    }
}

impl From<&SearchOrder> for SearchOrder {
    fn from(order: &SearchOrder) -> Self {
        order.clone()
    }
}

impl From<Vec<(JitDylib, JitDylibLookupFlags)>> for SearchOrder {
    fn from(dylibs: Vec<(JitDylib, JitDylibLookupFlags)>) -> Self {
        dylibs.into_iter().collect()
    }
}

impl<const N: usize> From<[(JitDylib, JitDylibLookupFlags); N]> for SearchOrder {
    fn from(dylibs: [(JitDylib, JitDylibLookupFlags); N]) -> Self {
        dylibs.into_iter().collect()
    }
}

impl IntoIterator for SearchOrder {
    type Item = (JitDylib, JitDylibLookupFlags);
    type IntoIter = std::vec::IntoIter<Self::Item>;

    fn into_iter(self) -> Self::IntoIter {
        self.dylibs.into_iter()
    }
}

impl<'a> IntoIterator for &'a SearchOrder {
    type Item = &'a (JitDylib, JitDylibLookupFlags);
    type IntoIter = std::slice::Iter<'a, (JitDylib, JitDylibLookupFlags)>;

    fn into_iter(self) -> Self::IntoIter {
        self.dylibs.iter()
    }
}

#[cfg(all(test, not(any(uruk_loom, uruk_shuttle))))]
mod tests {
    use super::*;

    const DYLIBS: usize = 2_000;

    /// The result of [`SearchOrder::position_of`], by a walk.
    fn walked(order: &SearchOrder, dylib: DylibId, flags: SymbolFlags) -> Option<usize> {
        order.iter().position(|(candidate, sees)| {
            candidate.id() == dylib
                && (flags.contains(SymbolFlags::EXPORTED) || *sees == JitDylibLookupFlags::MatchAllSymbols)
        })
    }

    /// Orders of all lengths, of dylibs that were created one after the other, far apart, or in any order and twice.
    #[test]
    fn dylibs_are_found_where_a_walk_finds_them() {
        let session = ExecutionSession::new();
        let dylib = |number| session.create_jit_dylib(&format!("d{number}")).expect("it is new");
        let dylibs: Vec<JitDylib> = (0..DYLIBS).map(dylib).collect();
        let mut random = 5u64;
        let mut next = move |below: usize| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) as usize % below
        };
        for len in [0, 1, WALKED_MAX, WALKED_MAX + 1, 9, 17, 100, 600] {
            for stride in [Some(1), Some(3), Some(16), Some(64), Some(512), None] {
                let mut order = SearchOrder::new();
                for position in 0..len {
                    let number = stride.map_or_else(|| next(DYLIBS), |stride| position * stride % DYLIBS);
                    let flags = match next(2) {
                        0 => JitDylibLookupFlags::MatchExportedSymbolsOnly,
                        _ => JitDylibLookupFlags::MatchAllSymbols,
                    };
                    order.push(dylibs[number].clone(), flags);
                }
                for (dylib, flags) in dylibs.iter().flat_map(|dylib| {
                    [SymbolFlags::EXPORTED, SymbolFlags::empty()].map(|flags| (dylib.id(), flags))
                }) {
                    assert_eq!(order.position_of(dylib, flags), walked(&order, dylib, flags));
                }
            }
        }
    }
}
