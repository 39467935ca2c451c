//! [`CacheEvent`]: a layer's request to a cache and its outcome, in one line.

use std::fmt;
use std::sync::Arc;

use uruk_recorder::{Entry, Kind};

use super::{Key, Miss};

/// The kinds of entries that a module has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EntryKind {
    /// Its interface: its definitions and references.
    Interface,
    /// Its object.
    Object,
    /// The object of a part of it, if it was divided early, or of one of its functions.
    Part,
}

/// Told of each entry that was asked for, on the thread that did, without a lock.
pub type CacheObserver = dyn Fn(&CacheEvent) + Send + Sync;

/// A layer has asked for an entry.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct CacheEvent {
    /// The module.
    pub unit: Arc<str>,
    /// The kind of the entry.
    pub kind: EntryKind,
    /// By which key, if it has one.
    pub key: Option<Key>,
    /// Why it was not found, unless it was.
    pub found: Result<(), Miss>,
}

impl CacheEvent {
    /// A lookup of an entry of `unit`.
    pub fn new(unit: Arc<str>, kind: EntryKind, key: Option<Key>, found: Result<(), Miss>) -> Self {
        Self { unit, kind, key, found }
    }

    /// Tells the trace, the recorder, and `observer`.
    pub fn tell(&self, observer: Option<&CacheObserver>) {
        let Self { unit, kind, key, found } = self;
        uruk_recorder::note(|| {
            let (hit, cause) = (u64::from(found.is_ok()), found.as_ref().err().map_or(0, Miss::noted));
            Entry::new(Kind::CacheAsked).named(uruk_recorder::write_name(unit)).with(hit, cause)
        });
        let key = key.map(tracing::field::display);
        match found {
            Ok(()) => tracing::debug!(%unit, entry = %kind, key, "cache hit"),
            Err(cause) => tracing::debug!(%unit, entry = %kind, key, %cause, "cache miss"),
        }
        if let Some(observer) = observer {
            observer(self);
        }
    }
}

impl fmt::Display for EntryKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Interface => "interface",
            Self::Object => "object",
            Self::Part => "object of a part",
        })
    }
}

impl fmt::Display for CacheEvent {
    /// `a.ll: no object: not stored`, or `a.ll: object`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { unit, kind, .. } = self;
        match &self.found {
            Ok(()) => write!(f, "{unit}: {kind}"),
            Err(miss) => write!(f, "{unit}: no {kind}: {miss}"),
        }
    }
}
