//! Ids of the state's entities: an index into a slab and the generation of what stands there.

use std::fmt;

use crate::sync::unique;

/// The number of a session in its process. Unlike an address it never comes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(test, derive(Default))]
pub(crate) struct SessionTag(u64);

impl SessionTag {
    /// One that no session has had.
    pub(crate) fn new() -> Self {
        Self(unique())
    }

    /// As notes have it: short, and not 0.
    pub(crate) fn noted(self) -> u16 {
        (self.0 as u16).max(1)
    }
}

/// An index with a generation: stale ids are recognized, never confused with their successors.
pub(crate) trait Id: Copy {
    fn new(index: u32, generation: u32) -> Self;
    fn index(self) -> u32;
    fn generation(self) -> u32;

    /// As notes have it: 0 is none.
    fn noted(self) -> u64 {
        (u64::from(self.generation()) << 32 | u64::from(self.index())).wrapping_add(1)
    }
}

macro_rules! ids {
    ($($(#[$doc:meta])* $visibility:vis $name:ident, $letter:literal;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        $visibility struct $name {
            index: u32,
            generation: u32,
        }

        impl Id for $name {
            fn new(index: u32, generation: u32) -> Self {
                Self { index, generation }
            }

            fn index(self) -> u32 {
                self.index
            }

            fn generation(self) -> u32 {
                self.generation
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($letter, "{}.{}"), self.index, self.generation)
            }
        }
    )*};
}

ids! {
    /// A dylib.
    pub(crate) DylibId, "d";
    /// One definition of a symbol in a dylib.
    pub(crate) RowId, "r";
    /// A unit that waits in its rows.
    pub(crate) UnitId, "u";
    /// A responsibility's side of the state.
    pub(crate) ClaimId, "c";
    /// A lookup that has not ended.
    pub(crate) QueryId, "q";
    /// A resource tracker.
    pub(crate) TrackerId, "t";
    /// A definition generator that was added to a dylib.
    pub(crate) GeneratorId, "g";
    /// A lookup in which a thread is blocked.
    pub(crate) WaitId, "w";
    /// The unit's product that the rows of one claim share.
    pub(crate) ProductId, "o";
    /// Rows that were emitted together, and that need rows of dylibs that keep dependants.
    pub(crate) EmissionId, "e";
    /// Rows of an emission need a row.
    pub(crate) NeedId, "n";
    /// The record of a failure.
    pub(crate) FailureId, "f";
}
