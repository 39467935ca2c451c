//! [`LoadedImages`]: the images of an engine, for those that were built on others.

use std::error::Error;

use uruk_core::sync::{Arc, Mutex};
use uruk_core::{JitDylib, Resource, ResourceTracker};
use uruk_pipeline::image::{ImageError, ImageReader, readable_id};

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
    /// [`ImageError::Below`] for the first one that is not.
    pub(crate) fn check_below(&self, dylib: &JitDylib, reader: &ImageReader) -> Result<(), ImageError> {
        if reader.below().len() == 0 {
            return Ok(());
        }
        let order = dylib.link_order();
        let known = self.known.lock();
        let is_in_order = |image: &&KnownImage| order.iter().any(|(dylib, _)| dylib.name() == &*image.dylib);
        for (name, id) in reader.below() {
            if known.iter().filter(is_in_order).any(|image| image.id == id) {
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
        Ok(())
    }

    /// Notes that an image is there, as long as `tracker` has its definitions.
    pub(crate) fn note(self: &Arc<Self>, tracker: &ResourceTracker, reader: &ImageReader) {
        let (dylib, id) = (tracker.dylib().name().into(), *reader.id());
        let resource = {
            let mut known = self.known.lock();
            let resource = known.last().map_or(0, |last| last.resource + 1);
            known.push(KnownImage { resource, dylib, file: file_name(reader), id });
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
