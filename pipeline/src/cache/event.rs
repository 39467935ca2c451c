//! [`CacheEvent`]: a layer's request to a cache and its outcome, in one line.

use std::fmt;
use std::sync::Arc;

use uruk_recorder::{CacheEntry, Name};

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
            let (cause, why) = match found {
                Ok(()) => (0, Name::NONE),
                Err(miss) => (miss.noted(), uruk_recorder::write_name(&miss.to_string())),
            };
            kind.noted().entry(found.is_ok(), cause, why).named(uruk_recorder::write_name(unit))
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

impl EntryKind {
    fn noted(self) -> CacheEntry {
        match self {
            Self::Interface => CacheEntry::Interface,
            Self::Object => CacheEntry::Object,
            Self::Part => CacheEntry::Part,
        }
    }
}

impl fmt::Display for EntryKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.noted().text())
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
