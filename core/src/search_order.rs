//! Search orders: the dylibs a lookup searches, and where each of them stands.
//!
//! Lookups of Ready symbols ask an order three things, each of which it answers without walking over its
//! dylibs: whether all of them belong to the session, where the first definition stands that it may see, and up
//! to which position no generator can come before (`record.rs`).

use std::fmt;
use std::ops::Deref;

use rustc_hash::FxHashMap;

use crate::protocol::ids::DylibId;
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
/// Source: ORC `JITDylibSearchOrder`.
#[doc(alias = "JITDylibSearchOrder")]
#[derive(Default)]
pub struct SearchOrder {
    dylibs: Vec<(JitDylib, JitDylibLookupFlags)>,
    /// Some of the dylibs belong to another session than the first.
    mixed: bool,
    /// Where each dylib stands, once there are more of them than are quickly walked over.
    places: Option<FxHashMap<DylibId, Place>>,
    /// See [`SearchOrder::certain_until`].
    known: AtomicU64,
}

/// Where a dylib stands first.
#[derive(Clone, Copy)]
struct Place {
    /// With any flags: there its exported symbols are seen.
    exported: usize,
    /// With all symbols matched: there its hidden symbols are seen, if anywhere.
    all: Option<usize>,
}

/// So many dylibs are walked over as fast as an index finds one.
const WALKED_MAX: usize = 8;

/// The low bits of what is known hold one more than the first generating position, or 0 if none generates; those
/// above hold the count of changes at which that was so. New orders hold 0: before the first change of all,
/// every dylib is there and none generates.
const POSITION_BITS: u32 = 24;

impl SearchOrder {
    /// An order of no dylibs, in which nothing is found.
    pub fn new() -> Self {
        Self::default()
    }

    /// A search of one dylib, its hidden symbols included.
    pub fn of(dylib: &JitDylib) -> Self {
        Self::from([(dylib.clone(), JitDylibLookupFlags::MatchAllSymbols)])
    }

    /// Appends a dylib.
    pub fn push(&mut self, dylib: JitDylib, flags: JitDylibLookupFlags) {
        self.mixed |= self.dylibs.first().is_some_and(|(first, _)| first.session() != dylib.session());
        // Relaxed: nobody else sees the order meanwhile.
        self.known.store(0, Ordering::Relaxed);
        self.dylibs.push((dylib, flags));
        match &mut self.places {
            Some(places) => note(places, self.dylibs.len() - 1, &self.dylibs),
            None if self.dylibs.len() > WALKED_MAX => {
                let mut places = FxHashMap::default();
                (0..self.dylibs.len()).for_each(|position| note(&mut places, position, &self.dylibs));
                self.places = Some(places);
            }
            None => {}
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

    /// The first position at which a definition in `dylib` is seen.
    ///
    /// # Cost
    /// One probe.
    #[inline]
    pub(crate) fn position_of(&self, dylib: DylibId, flags: SymbolFlags) -> Option<usize> {
        let exported = flags.contains(SymbolFlags::EXPORTED);
        if let Some(places) = &self.places {
            let place = places.get(&dylib)?;
            return if exported { Some(place.exported) } else { place.all };
        }
        let sees = |(candidate, flags): &(JitDylib, JitDylibLookupFlags)| {
            candidate.id() == dylib && (exported || *flags == JitDylibLookupFlags::MatchAllSymbols)
        };
        self.dylibs.iter().position(sees)
    }

    /// The first position that generates (or a larger one if none does), if it is known as of this count of
    /// changes of the session's dylibs: what is found no further is certain. None of the dylibs was removed then.
    pub(crate) fn certain_until(&self, changes: u64) -> Option<usize> {
        // Relaxed: one word holds a fact and the moment at which it was true; nothing else is read on its strength.
        let known = self.known.load(Ordering::Relaxed);
        if known >> POSITION_BITS != changes {
            return None;
        }
        let position = known & ((1 << POSITION_BITS) - 1);
        Some(if position == 0 { usize::MAX } else { position as usize - 1 })
    }

    /// Keeps what [`SearchOrder::certain_until`] tells.
    pub(crate) fn remember(&self, changes: u64, certain_until: usize) {
        let position = if certain_until == usize::MAX { 0 } else { certain_until as u64 + 1 };
        if position < 1 << POSITION_BITS {
            // Relaxed: see `certain_until`. Several lookups may store the same fact.
            self.known.store(changes << POSITION_BITS | position, Ordering::Relaxed);
        }
    }
}

/// Notes where the dylib at `position` stands, unless it stands further ahead as well.
fn note(places: &mut FxHashMap<DylibId, Place>, position: usize, dylibs: &[(JitDylib, JitDylibLookupFlags)]) {
    let (dylib, flags) = &dylibs[position];
    let place = places.entry(dylib.id()).or_insert(Place { exported: position, all: None });
    if *flags == JitDylibLookupFlags::MatchAllSymbols {
        place.all.get_or_insert(position);
    }
}

impl Deref for SearchOrder {
    type Target = [(JitDylib, JitDylibLookupFlags)];

    fn deref(&self) -> &Self::Target {
        &self.dylibs
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
