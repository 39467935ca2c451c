//! [`OwnedTracker`]: what was added with it goes when it does.

use std::error::Error;
use std::fmt;
use std::ops::Deref;

use crate::{RemoveError, ResourceTracker, SessionError};

/// A tracker whose owner decides how long its symbols live: dropping it removes them.
///
/// For code that comes and goes: a query, a plugin, a cell of a notebook. Dropping a plain [`ResourceTracker`] leaves its
/// symbols to the dylib instead; [`OwnedTracker::into_inner`] gives that plain tracker.
///
/// A removal may be refused, because others need the symbols of a dylib that [keeps
/// dependants](crate::ExecutionSession::create_jit_dylib_keeping_dependants). [`OwnedTracker::remove`] gives the tracker back then. After
/// a refused drop the dylib has the tracker's symbols.
///
/// # Examples
/// ```
/// # use uruk_core::{ExecutionSession, ExecutorAddr, ExecutorSymbolDef, OwnedTracker, SymbolFlags, absolute_symbols};
/// # let session = ExecutionSession::new();
/// # let main = session.create_jit_dylib("main")?;
/// # let name = session.intern("query");
/// # let address = ExecutorSymbolDef::new(ExecutorAddr::new(1), SymbolFlags::EXPORTED);
/// # let unit = absolute_symbols([(name.clone(), address)].into_iter().collect());
/// let tracker = OwnedTracker::new(main.create_tracker());
/// main.define_with_tracker(unit, &tracker)?;
/// session.lookup_symbol(&main.link_order(), &name)?;
/// drop(tracker);
/// assert!(session.lookup_symbol(&main.link_order(), &name).is_err());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "dropping it removes everything that was added with it"]
pub struct OwnedTracker(Option<ResourceTracker>);

impl OwnedTracker {
    /// Makes a tracker one that removes when it is dropped. There may be other handles of it.
    pub fn new(tracker: ResourceTracker) -> Self {
        Self(Some(tracker))
    }

    /// Removes the tracker, as [`ResourceTracker::remove`] does, and tells what its resources had to say.
    ///
    /// # Errors
    /// As [`ResourceTracker::remove`]. A tracker whose removal was refused comes back with the refusal, still owned.
    pub fn remove(self) -> Result<(), RefusedRemoval> {
        let tracker = self.into_inner();
        tracker.remove().map_err(|error| {
            let is_removed = matches!(error, RemoveError::Resources { .. });
            RefusedRemoval { tracker: (!is_removed).then(|| Self::new(tracker)), error }
        })
    }

    /// Gives up ownership: nothing is removed.
    pub fn into_inner(mut self) -> ResourceTracker {
        self.0.take().expect("only what consumes it takes it")
    }
}

/// Why an owned tracker was not removed, or not as it should be, with the tracker.
///
/// Drop it, and the tracker is removed again, as by any drop of it; or ask once more when the reason is gone.
#[derive(Debug)]
pub struct RefusedRemoval {
    /// The tracker with all that it has, and its owner decides anew. None if it is gone, and only its resources have complained.
    pub tracker: Option<OwnedTracker>,
    /// The reason.
    pub error: RemoveError,
}

impl fmt::Display for RefusedRemoval {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl Error for RefusedRemoval {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.error.source()
    }
}

impl From<RefusedRemoval> for RemoveError {
    fn from(refused: RefusedRemoval) -> Self {
        refused.error
    }
}

impl Deref for OwnedTracker {
    type Target = ResourceTracker;

    fn deref(&self) -> &ResourceTracker {
        self.0.as_ref().expect("only what consumes it takes it")
    }
}

impl From<ResourceTracker> for OwnedTracker {
    fn from(tracker: ResourceTracker) -> Self {
        Self::new(tracker)
    }
}

impl Drop for OwnedTracker {
    /// Removes the tracker. Why it was refused, or what resources had to say, goes to the session's error reporter.
    fn drop(&mut self) {
        if let Some(tracker) = self.0.take()
            && let Err(error) = tracker.remove()
        {
            tracker.dylib().session().report(SessionError::Remove(error));
        }
    }
}

impl fmt::Debug for OwnedTracker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("OwnedTracker").field(&self.0).finish()
    }
}
