//! Images in a scope: programs that were compiled and linked ahead, as files that are mapped.

use std::fmt;
use std::path::Path;

use uruk_core::sync::Arc;
use uruk_pipeline::image::{ImageFile, ImageReader};
use uruk_pipeline::linking::{ImageGenerator, image_units};
use uruk_pipeline::runtime::allocation;

use crate::archive::AddedArchive;
use crate::error::JitError;
use crate::scope::Scope;
use crate::units::FileUnits;

/// Decisions about an image that is loaded.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct ImageOptions {}

impl ImageOptions {
    /// The image is taken as it is.
    pub fn new() -> Self {
        Self::default()
    }
}

/// An image of a scope. It is a handle for questions: dropping it unloads nothing.
#[derive(Clone)]
pub struct LoadedImage {
    generator: Arc<ImageGenerator>,
}

impl LoadedImage {
    /// The tables of its file: symbols, imports, files that it was made of.
    pub fn reader(&self) -> &ImageReader {
        self.generator.reader()
    }
}

impl Scope {
    /// Loads an image that [`ImageBuilder`](crate::ImageBuilder) or `uruk image build` has made: its definitions are there for lookups, and
    /// nothing is compiled.
    ///
    /// References of the image are looked up in the scope's link order, when one of its symbols is asked for. Its own parts refer to each other directly,
    /// so a definition that another file has too changes nothing inside of it. It goes with the scope's tracker, and its functions may be held by
    /// handles, as those of objects. Two engines may load one file: each has variables of its own.
    ///
    /// # Errors
    /// [`JitError::Image`] if the file is no image, if it is damaged, if others may write to it, or if it was made for another processor;
    /// [`JitError::Define`] if it is loaded there already.
    ///
    /// # Cost
    /// A few system calls, and a pass over the tables. Code is read by the system when it runs.
    ///
    /// # Examples
    /// ```
    /// # fn main() -> Result<(), uruk::JitError> {
    /// # #[cfg(feature = "llvm")] {
    /// use uruk::{ImageBuilder, ImageOptions, Jit};
    ///
    /// # let path = std::env::temp_dir().join(format!("uruk-example-{}.uim", std::process::id()));
    /// let builder = ImageBuilder::new(Jit::builder().threads(1))?;
    /// builder.add_ir_text("next.ll", "define i64 @next(i64 %x) { %y = add i64 %x, 1 ret i64 %y }")?;
    /// builder.build()?.write(&path)?;
    ///
    /// let jit = Jit::builder().threads(1).build()?;
    /// jit.load_image(&path, ImageOptions::new())?;
    /// // SAFETY: that is the function's signature.
    /// let next = unsafe { jit.get::<extern "C" fn(i64) -> i64>("next") }?;
    /// assert_eq!(next(41), 42);
    /// # std::fs::remove_file(&path).expect("it is there");
    /// # }
    /// # Ok(())
    /// # }
    /// ```
    pub fn load_image(&self, path: impl AsRef<Path>, options: ImageOptions) -> Result<LoadedImage, JitError> {
        let ImageOptions {} = options;
        self.check_open()?;
        let (files, tracker, dylib) = (&*self.engine.files, self.tracker(), self.dylib());
        let owner = self.is_of_tracker().then(|| tracker.downgrade());
        let image = ImageFile::open(path.as_ref())?;
        let (unit, traits, generator) = image_units(image, dylib, &files.linking.layer, owner)?;
        files.define(&tracker, FileUnits::alone(Box::new(unit), traits))?;
        if files.platform.is_of_process() {
            // Libraries ask for these by the dylib's table, without a lookup.
            let references = files.process.references_to_program();
            let mut names: Vec<&str> = allocation::function_names().collect();
            names.extend(references.optional.iter().chain(&references.required).map(|name| &**name));
            generator.define(dylib, names.into_iter())?;
        }
        let generator = Arc::new(generator);
        let id = dylib.add_generator(generator.clone());
        if self.is_of_tracker() {
            let added = AddedArchive::new(&tracker, id, &files.linking);
            // A tracker that was removed meanwhile drops it, and so the generator.
            let _ = tracker.add_resource(Box::new(added));
        }
        Ok(LoadedImage { generator })
    }
}

impl fmt::Debug for LoadedImage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LoadedImage").field("file", &self.reader().path()).finish_non_exhaustive()
    }
}
