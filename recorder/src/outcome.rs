//! Outcomes that notes have as numbers: a cache's answers, and the ends of functions in the tiers.

use crate::names::Name;
use crate::note::{Entry, Kind, Note};

/// The kinds of entries that a cache has of a module, in a note of [`Kind::CacheAsked`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CacheEntry {
    /// Its interface.
    Interface = 1,
    /// Its object.
    Object = 2,
    /// The object of a part of it, or of one of its functions.
    Part = 3,
}

impl CacheEntry {
    /// A question for it. `cause` and `why` are the cause of a miss, by number and as a text.
    pub fn entry(self, is_found: bool, cause: u8, why: Name) -> Entry {
        let kind = (self as u64) << 8;
        Entry::new(Kind::CacheAsked)
            .with(u64::from(is_found), u64::from(why.number()) << 32 | kind | u64::from(cause))
    }

    pub(crate) fn of_note(note: &Note) -> Option<Self> {
        [Self::Interface, Self::Object, Self::Part]
            .into_iter()
            .find(|entry| *entry as u64 == note.b >> 8 & 0xff)
    }

    /// Its name.
    pub fn text(self) -> &'static str {
        match self {
            Self::Interface => "interface",
            Self::Object => "object",
            Self::Part => "object of a part",
        }
    }
}

/// The ends of a function in the tiers, in a note of [`Kind::Tiered`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TierEnd {
    /// It began in the lower tier.
    Lower = 0,
    /// It began in the upper tier.
    Upper = 1,
    /// It went up.
    Promoted = 2,
    /// It could not be compiled better.
    Failed = 3,
    /// The budget did not allow it.
    OverBudget = 4,
    /// It had gone before it was compiled better.
    Gone = 5,
}

impl TierEnd {
    /// Every end, by its number.
    pub const ALL: [Self; 6] =
        [Self::Lower, Self::Upper, Self::Promoted, Self::Failed, Self::OverBudget, Self::Gone];
}
