//! Notes: one thing that happened, in four words.
//!
//! ```text
//!  word 0   time: ticks in a ring, nanoseconds for a reader
//!  word 1   bits 0..16 kind, 16..32 session, 32..64 name
//!  word 2   a
//!  word 3   b
//! ```

use crate::names::Name;

/// The size of a note in words.
pub(crate) const NOTE_WORDS: usize = 4;

macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident = $number:literal,)*) => {
        /// The kinds of notes. A number stays with its kind: files have it.
        ///
        /// Ids of rows, claims, queries, units and dylibs are those of one session: a generation in the upper half, an index in the lower.
        /// 0 is none. The *acting* claim of a note is the one that asked, resolved, emitted or failed in that hold of the lock.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u16)]
        #[non_exhaustive]
        pub enum Kind {
            $($(#[$doc])* $kind = $number,)*
        }

        impl Kind {
            /// Every kind.
            pub const ALL: &'static [Self] = &[$(Self::$kind),*];

            /// The kind of a number, if it is known here.
            pub fn from_number(number: u16) -> Option<Self> {
                match number {
                    $($number => Some(Self::$kind),)*
                    _ => None,
                }
            }

            /// Its name, as it stands in code.
            pub fn text(self) -> &'static str {
                match self {
                    $(Self::$kind => stringify!($kind),)*
                }
            }
        }
    };
}

kinds! {
    /// A thread takes a ring. `a`: its [`ThreadId`]; `b`: its number in the system; name: the thread's.
    ThreadNamed = 1,
    /// Ties ticks to time. `a`: nanoseconds of the monotonic clock. Readers use it and pass it on to no one.
    Clock = 2,

    /// A dylib was made. `a`: dylib; name: the dylib's.
    Dylib = 10,
    /// A unit was defined. `a`: dylib; `b`: symbols; name: the unit's.
    Defined = 11,
    /// A lookup waits; noted again when generators have answered. `a`: query; `b`: the claim on whose behalf it asks; name: the first symbol
    /// it wants.
    Lodged = 12,
    /// A unit was claimed. `a`: claim; `b`: the acting claim, which wants it; name: the unit's.
    Claimed = 13,
    /// A claim became more urgent. `a`: claim; `b`: its priority: 0 idle, 1 speculative, 2 lazy, 3 demanded.
    Prioritized = 14,
    /// A thread begins to materialize a unit. `a`: claim.
    Begun = 15,
    /// The thread has left the unit. `a`: claim; `b`: 1 if the unit panicked.
    Ended = 16,
    /// A thread is blocked. `a`: query, 0 in a declared wait; name: the purpose of a declared wait.
    Blocked = 17,
    /// The thread goes on. `a`: as in `Blocked`.
    Unblocked = 18,
    /// A claim's symbols have addresses. `a`: claim; `b`: symbols; name: the unit's.
    Resolved = 19,
    /// A claim's code and data are in place. `a`: claim; `b`: symbols; name: the unit's.
    Emitted = 20,
    /// A symbol is safe to run. `a`: row; `b`: the acting claim, whose emission was the last it needed; name: the
    /// symbol.
    Ready = 21,
    /// A symbol failed. `a`: row; `b`: the acting claim; name: the symbol.
    Failed = 22,
    /// A symbol is no longer defined. `a`: row; `b`: the acting claim; name: the symbol.
    Removed = 23,
    /// A claimed unit was put back before it began. `a`: claim; name: the unit's.
    Returned = 24,
    /// A query has its answer. `a`: query; `b`: the acting claim, whose step was the last it needed.
    Completed = 25,
    /// A query ended with an error. `a`: query; `b`: the acting claim.
    QueryFailed = 26,
    /// A query was given up. `a`: query.
    Withdrawn = 27,

    /// A phase begins on this thread, inside those that have begun. Name: the phase, `ir.optimize`.
    PhaseBegun = 40,
    /// The innermost phase of this thread ends. Name: the phase.
    PhaseEnded = 41,
    /// The cache was asked. `a`: 1 for a hit; `b`: in the lowest byte 0, or the cause of a miss: 1 not stored, 2 damaged, 3 no key, 4 no
    /// cache, 5 no shape; in the byte above it the [`CacheEntry`](crate::CacheEntry); in the upper half the name of the cause's text. Name: the module.
    CacheAsked = 42,
    /// A function got a better body. `a`: its tier, from 0; name: the function.
    Promoted = 43,
    /// Resident bytes. `a`: their owner, an engine's linked code for one; `b`: bytes now; name: the owner's.
    Bytes = 44,
    /// A mark of the embedder's own. Numbers and name are the embedder's.
    Mark = 45,
    /// A pass has run over a module: noted only if a reader [asked](crate::ask_for). `a`: nanoseconds; `b`: how often; name: `stage/pass`.
    Pass = 46,
    /// A module was divided. `a`: parts; name: the module.
    Divided = 47,
    /// Functions of a module have come to a step: noted only if a reader [asked](crate::ask_for). `a`: how many in the lower half, and in the
    /// upper half how many there are beside those of earlier notes; `b`: 0 simplified, 1 optimized, 2 compiled; name: the module.
    Functions = 48,
    /// A function was compiled in a tier, or was to be. `a`: the [`TierEnd`](crate::TierEnd); `b`: nanoseconds.
    Tiered = 49,
}

/// The number of a thread in a recording, from 1. Unlike the system's numbers it never comes back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ThreadId(pub u32);

/// A note without its time: what a writer says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// What happened.
    pub kind: Kind,
    /// The session's number in its process; 0 is none.
    pub session: u16,
    /// See the kind.
    pub name: Name,
    /// See the kind.
    pub a: u64,
    /// See the kind.
    pub b: u64,
}

impl Entry {
    /// An entry of a kind, with no session, name and numbers yet.
    #[inline]
    pub const fn new(kind: Kind) -> Self {
        Self { kind, session: 0, name: Name::NONE, a: 0, b: 0 }
    }

    /// The same in a session.
    #[inline]
    pub const fn of(mut self, session: u16) -> Self {
        self.session = session;
        self
    }

    /// The same with a name.
    #[inline]
    pub const fn named(mut self, name: Name) -> Self {
        self.name = name;
        self
    }

    /// The same with its numbers.
    #[inline]
    pub const fn with(mut self, a: u64, b: u64) -> Self {
        (self.a, self.b) = (a, b);
        self
    }

    #[inline]
    pub(crate) fn words(self, time: u64) -> [u64; NOTE_WORDS] {
        let kind = u64::from(self.kind as u16);
        [time, kind | u64::from(self.session) << 16 | u64::from(self.name.number()) << 32, self.a, self.b]
    }
}

/// A note as readers have it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Note {
    /// Nanoseconds since the recording began.
    pub time: u64,
    /// What happened.
    pub kind: Kind,
    /// The session's number in its process; 0 is none.
    pub session: u16,
    /// See the kind.
    pub name: Name,
    /// See the kind.
    pub a: u64,
    /// See the kind.
    pub b: u64,
}

impl Note {
    /// A note of these words, if its kind is known. Its time is still in ticks.
    pub(crate) fn from_words([time, head, a, b]: [u64; NOTE_WORDS]) -> Option<Self> {
        let kind = Kind::from_number(head as u16)?;
        Some(Self {
            time,
            kind,
            session: (head >> 16) as u16,
            name: Name::of_number((head >> 32) as u32),
            a,
            b,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_comes_back_as_it_went() {
        for &kind in Kind::ALL {
            let entry = Entry::new(kind).of(7).named(Name::of_number(u32::MAX)).with(u64::MAX, 5);
            let note = Note::from_words(entry.words(3)).unwrap();
            let expected = Note { time: 3, kind, session: 7, name: entry.name, a: u64::MAX, b: 5 };
            assert_eq!(note, expected);
        }
        assert_eq!(size_of::<Note>(), 32);
    }

    #[test]
    fn a_kind_that_is_not_known_is_no_note() {
        assert_eq!(Note::from_words([1, 0xffff, 2, 3]), None);
    }
}
