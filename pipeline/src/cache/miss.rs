//! [`Miss`]: why a cache has nothing for a key, in one line.

use std::borrow::Cow;

use rustix::io::Errno;

/// Why there is no entry.
///
/// An evicted entry looks like one that never existed: no record of it is kept.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Miss {
    /// There is no such entry.
    #[error("not stored")]
    NotStored,
    /// There is one, and its bytes have changed. It counts as not stored, and is written again.
    #[error("the stored entry is damaged: {why}")]
    BadEntry {
        /// The damage.
        why: Damage,
    },
    /// The object to be stored has no key.
    #[error("not cacheable: {why}")]
    Uncacheable {
        /// Why it has none.
        why: Cow<'static, str>,
    },
    /// There is no cache.
    #[error("no cache is in use")]
    Disabled,
    /// The module was to be known by its shape, and has none: it is known by its bitcode.
    #[error("it has no shape: {why}")]
    NoShape {
        /// The part of it that shapes do not have, and where it is.
        why: String,
    },
}

impl Miss {
    /// As notes have it; 0 is a hit.
    pub(crate) fn noted(&self) -> u8 {
        match self {
            Self::NotStored => 1,
            Self::BadEntry { .. } => 2,
            Self::Uncacheable { .. } => 3,
            Self::Disabled => 4,
            Self::NoShape { .. } => 5,
        }
    }
}

/// The damage of a stored entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Damage {
    /// The system could not read it.
    #[error("it cannot be read: {0}")]
    Unreadable(Errno),
    /// The file ends before it does.
    #[error("it is cut off")]
    CutOff,
    /// Its length in the index is none that an entry has.
    #[error("the index gives it an impossible length")]
    Length,
    /// It does not begin as entries do.
    #[error("its header is damaged")]
    Header,
    /// It is the entry of another key.
    #[error("it belongs to another key")]
    OtherKey,
    /// Its bytes are not those that were written.
    #[error("its checksum is wrong")]
    Checksum,
    /// Its bytes have another form than the requested one.
    #[error("it has another form than this version writes")]
    Form,
    /// There is no memory for it.
    #[error("there is no memory for its {0} bytes")]
    NoMemory(u64),
}
