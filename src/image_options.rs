//! [`ImageOptions`]: decisions about an image that is loaded.

use std::fmt;

use uruk_core::sync::Arc;
use uruk_pipeline::image::UnitKey;
use uruk_pipeline::object::ObjectBuffer;

use crate::image_unit::ImageEvent;

/// The keys of definitions that are in no unit of an image.
pub(crate) type DefinitionKeys = dyn Fn(&str) -> Option<UnitKey> + Send + Sync;

/// Called for each unit that is rejected.
pub(crate) type RejectObserver = dyn Fn(&ImageEvent) + Send + Sync;

/// Decisions about an image that is loaded.
#[derive(Clone, Default)]
#[non_exhaustive]
pub struct ImageOptions {
    pub(crate) is_system: bool,
    pub(crate) validates_all: bool,
    pub(crate) sources: Vec<ObjectBuffer>,
    pub(crate) left_out: Vec<Box<str>>,
    pub(crate) on_reject: Option<Arc<RejectObserver>>,
    pub(crate) definitions: Option<Arc<DefinitionKeys>>,
}

impl ImageOptions {
    /// The image is taken as it is.
    pub fn new() -> Self {
        Self::default()
    }

    /// The image is what the dylib begins with: it is refused if the dylib has one of its definitions already, which would count in other
    /// files and not in the image.
    #[must_use]
    pub fn system(mut self) -> Self {
        self.is_system = true;
        self
    }

    /// A source of the program: bitcode, textual IR, an object, or an archive of these. The [package](crate::ImageBuilder::package) that is loaded has a unit that was
    /// compiled from the same bytes with the same options, under whichever name; then nothing of `source` is read. Otherwise the source
    /// counts, and a unit that was compiled from another source of that name does not.
    ///
    /// Each member of an archive is such a source, except that it counts when something needs it, as in [`Scope::add_archive`](crate::Scope::add_archive).
    ///
    /// # Cost
    /// One hash of the source when the image is loaded.
    #[must_use]
    pub fn source(mut self, source: ObjectBuffer) -> Self {
        self.sources.push(source);
        self
    }

    /// The unit with this name is compiled from its source.
    #[must_use]
    pub fn without(mut self, unit: impl Into<Box<str>>) -> Self {
        self.left_out.push(unit.into());
        self
    }

    /// Validates all units of a package when it is loaded. Without that, each is validated when it is first used.
    #[must_use]
    pub fn validate_all(mut self) -> Self {
        self.validates_all = true;
        self
    }

    /// Has `observer` told of each unit that is rejected, once: on the thread that has found out, without a lock.
    #[must_use]
    pub fn on_reject(mut self, observer: impl Fn(&ImageEvent) + Send + Sync + 'static) -> Self {
        self.on_reject = Some(Arc::new(observer));
        self
    }

    /// Has `key_of` say which key a definition has here whose code units [contain](crate::ImageBuilder::assume), and that no unit of the image
    /// defines. A unit with a definition that has no key, or another one, is rejected. It is asked when such a unit is first used, without a lock.
    #[must_use]
    pub fn definitions(mut self, key_of: impl Fn(&str) -> Option<UnitKey> + Send + Sync + 'static) -> Self {
        self.definitions = Some(Arc::new(key_of));
        self
    }

    /// Whether something is decided that concerns units.
    pub(crate) fn is_of_units(&self) -> bool {
        !self.sources.is_empty() || !self.left_out.is_empty()
    }
}

impl fmt::Debug for ImageOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sources: Vec<_> = self.sources.iter().map(ObjectBuffer::name).collect();
        f.debug_struct("ImageOptions").field("sources", &sources).finish_non_exhaustive()
    }
}
