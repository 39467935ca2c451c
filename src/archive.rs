//! The part of an archive that a session has, to be taken back with a tracker.

use std::error::Error;
use std::sync::Weak;

use uruk_core::sync::Arc;
use uruk_core::{GeneratorId, Resource, ResourceTracker, TrackerError, WeakResourceTracker};
use uruk_pipeline::object::SearchedArchive;

use crate::objects::Linking;

/// An archive that serves lookups of a dylib. Dropping it ends that.
///
/// Lies in the session, and so holds no handle of it.
pub(crate) struct AddedArchive {
    tracker: WeakResourceTracker,
    generator: Option<GeneratorId>,
    /// Where it is asked for the values of tentative definitions.
    searched: Option<SearchedArchive>,
    linking: Weak<Linking>,
}

impl AddedArchive {
    pub(crate) fn new(
        tracker: &ResourceTracker,
        generator: Option<GeneratorId>,
        linking: &Arc<Linking>,
    ) -> Self {
        Self { tracker: tracker.downgrade(), generator, searched: None, linking: Arc::downgrade(linking) }
    }

    /// Notes that the archive gives values to tentative definitions too.
    pub(crate) fn is_searched(&mut self, searched: SearchedArchive) {
        self.searched = Some(searched);
    }

    /// Lets the archive go with `tracker` if that owns it, and stay with its dylib otherwise. It ends at once if the tracker was removed.
    pub(crate) fn stay(mut self, tracker: &ResourceTracker, is_owned: bool) -> Result<(), TrackerError> {
        if is_owned {
            return tracker.add_resource(Box::new(self));
        }
        (self.generator, self.searched) = (None, None);
        Ok(())
    }
}

impl Drop for AddedArchive {
    fn drop(&mut self) {
        if let (Some(searched), Some(linking)) = (self.searched, self.linking.upgrade()) {
            linking.commons.stop_search(searched);
        }
        // A tracker whose last handle is gone has left all that it had to its dylib, and so the archive too.
        if let (Some(generator), Some(tracker)) = (self.generator, self.tracker.upgrade()) {
            tracker.dylib().remove_generator(generator);
        }
    }
}

impl Resource for AddedArchive {
    fn remove(self: Box<Self>) -> Result<(), Box<dyn Error + Send + Sync>> {
        Ok(())
    }
}
