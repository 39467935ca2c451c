//! The observer of a cache of compiled modules and their parts.

use crate::cache::CacheEvent;

/// Told of each entry that was asked for, on the thread that did, without a lock.
pub type CacheObserver = dyn Fn(&CacheEvent) + Send + Sync;

pub(super) fn tell(observer: Option<&CacheObserver>, event: &CacheEvent) {
    let CacheEvent { unit, kind, key, found } = event;
    let key = key.map(tracing::field::display);
    match found {
        Ok(()) => tracing::debug!(%unit, entry = %kind, key, "cache hit"),
        Err(cause) => tracing::debug!(%unit, entry = %kind, key, %cause, "cache miss"),
    }
    if let Some(observer) = observer {
        observer(event);
    }
}
