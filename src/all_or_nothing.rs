//! [`all_or_nothing`]: several additions to a tracker, of which all count or none.

use uruk_core::{DefineError, ResourceTracker};

use crate::error::JitError;

/// Adds to a tracker of its own, whose contents go to `tracker` if all went well. Otherwise they are removed.
///
/// Better bodies of functions that are compiled in tiers go with the dylib afterwards: what makes them knows the tracker that it began with.
pub(crate) fn all_or_nothing<T>(
    tracker: &ResourceTracker,
    add: impl FnOnce(&ResourceTracker) -> Result<T, JitError>,
) -> Result<T, JitError> {
    let staging = tracker.dylib().create_tracker();
    let added = add(&staging).and_then(|added| match staging.transfer_to(tracker) {
        Ok(()) => Ok(added),
        Err(_) => {
            let dylib = tracker.dylib();
            let (unit, dylib) = (dylib.session().intern("<package>"), dylib.name().into());
            Err(DefineError::TrackerDefunct { unit, dylib }.into())
        }
    });
    if added.is_err() {
        // Refused if another thread has found a definition meanwhile, and uses it: then the dylib keeps what is there.
        let _ = staging.remove();
    }
    added
}
