//! [`LoadedImages`]: the images of an engine, for those that were built on others.

use std::error::Error;
use std::sync::Weak;

use uruk_core::sync::{Arc, Mutex};
use uruk_core::{JitDylib, Resource, ResourceTracker};
use uruk_pipeline::image::{ImageError, ImageReader, Rejection, readable_id};

/// The images that an engine has.
#[derive(Debug, Default)]
pub(crate) struct LoadedImages {
    known: Mutex<Vec<KnownImage>>,
}

#[derive(Debug)]
struct KnownImage {
    /// Tells two loads of one image apart.
    resource: u64,
    dylib: Box<str>,
    file: Box<str>,
    id: [u8; 16],
    /// If it is a package.
    units: Option<Weak<dyn RejectedUnits>>,
}

/// An image whose units may be rejected.
pub(crate) trait RejectedUnits: Send + Sync {
    /// The first unit that is not used, and the reason.
    fn first_rejected(&self) -> Option<(Box<str>, Rejection)>;
}

/// Lies with the definitions of an image. Dropping it says that they are gone.
struct LoadedHere {
    images: Arc<LoadedImages>,
    resource: u64,
}

impl LoadedImages {
    /// Checks that the images are there that an image of `dylib` was built on: in the dylib, or in one behind it in its link order.
    ///
    /// # Errors
    /// [`ImageError::Below`] for the first one that is not. [`ImageError::BelowRejected`] for one that is a package and has rejected units: the code
    /// of these may be in the image.
    pub(crate) fn check_below(&self, dylib: &JitDylib, reader: &ImageReader) -> Result<(), ImageError> {
        if reader.below().len() == 0 {
            return Ok(());
        }
        let order = dylib.link_order();
        let known = self.known.lock();
        let is_in_order = |image: &&KnownImage| order.iter().any(|(dylib, _)| dylib.name() == &*image.dylib);
        let mut packages = Vec::new();
        for (name, id) in reader.below() {
            if let Some(image) = known.iter().filter(is_in_order).find(|image| image.id == id) {
                packages.extend(image.units.as_ref().and_then(Weak::upgrade).map(|units| (name, units)));
                continue;
            }
            let same_name = known.iter().filter(is_in_order).find(|image| &*image.file == name);
            let found = match same_name {
                Some(other) => format!("the {name} that is loaded is {}", readable_id(&other.id)),
                None => "no image with that id is loaded in its link order".to_owned(),
            };
            return Err(ImageError::Below {
                path: reader.path().to_owned(),
                below: name.into(),
                wanted: readable_id(&id).into(),
                found: found.into(),
            });
        }
        drop(known);
        let rejected = |(below, units): (&str, Arc<dyn RejectedUnits>)| {
            let (unit, reason) = units.first_rejected()?;
            let (path, below, reason) = (reader.path().to_owned(), below.into(), reason.to_string().into());
            Some(ImageError::BelowRejected { path, below, unit, reason })
        };
        packages.into_iter().find_map(rejected).map_or(Ok(()), Err)
    }

    /// Notes that an image is there, as long as `tracker` has its definitions.
    pub(crate) fn note(
        self: &Arc<Self>,
        tracker: &ResourceTracker,
        reader: &ImageReader,
        units: Option<Weak<dyn RejectedUnits>>,
    ) {
        let (dylib, id) = (tracker.dylib().name().into(), *reader.id());
        let resource = {
            let mut known = self.known.lock();
            let resource = known.last().map_or(0, |last| last.resource + 1);
            known.push(KnownImage { resource, dylib, file: file_name(reader), id, units });
            resource
        };
        // A tracker that was removed meanwhile drops it.
        let _ = tracker.add_resource(Box::new(LoadedHere { images: self.clone(), resource }));
    }
}

impl Drop for LoadedHere {
    fn drop(&mut self) {
        self.images.known.lock().retain(|image| image.resource != self.resource);
    }
}

impl Resource for LoadedHere {
    fn remove(self: Box<Self>) -> Result<(), Box<dyn Error + Send + Sync>> {
        Ok(())
    }
}

/// The name of an image in messages, wherever it lies.
pub(crate) fn file_name(reader: &ImageReader) -> Box<str> {
    let name = reader.path().file_name().unwrap_or_default();
    name.to_string_lossy().into()
}
