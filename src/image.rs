//! Images in a scope: programs that were compiled and linked ahead, as files that are mapped.

use std::fmt;
use std::path::Path;

use uruk_core::sync::Arc;
use uruk_core::{DefinitionGenerator, ExecutorAddr, ResourceTracker};
use uruk_pipeline::image::{ImageError, ImageFile, ImageReader, ImageSection, ImageSections, SymbolTraits};
use uruk_pipeline::linking::{ImageGenerator, image_units};
use uruk_pipeline::runtime::allocation;
use uruk_pipeline::tiers::ImageBody;

use crate::all_or_nothing::all_or_nothing;
use crate::archive::AddedArchive;
use crate::error::JitError;
use crate::image_options::ImageOptions;
use crate::image_unit::{FromImage, RedefinedUnits, UnitState};
use crate::loaded_images::RejectedUnits;
use crate::package::Package;
use crate::package_bodies::ImageBodyCounts;
use crate::scope::Scope;
use crate::units::FileUnits;

/// An image of a scope. It is a handle for questions: dropping it unloads nothing.
#[derive(Clone)]
pub struct LoadedImage {
    image: Loaded,
    sections: ImageSections,
}

#[derive(Clone)]
enum Loaded {
    Whole(Arc<ImageGenerator>),
    Package(Arc<Package>),
}

impl LoadedImage {
    /// The tables of its file: symbols, imports, files that it was made of.
    pub fn reader(&self) -> &ImageReader {
        match &self.image {
            Loaded::Whole(generator) => generator.reader(),
            Loaded::Package(package) => package.reader(),
        }
    }

    /// The name of the target whose code runs here.
    pub fn target(&self) -> Box<str> {
        // Loading has found one.
        self.reader().target_here().map_or_else(|_| Box::default(), |(_, target)| target.name.into())
    }

    /// The units of a package, and where each comes from. An image that is one whole has none.
    pub fn units(&self) -> Vec<(Box<str>, UnitState)> {
        match &self.image {
            Loaded::Whole(_) => Vec::new(),
            Loaded::Package(package) => package.units(),
        }
    }

    /// Says that `definition` is another one from now on: one of the host's, of another file, or of a unit of the package. Units of a package that contain
    /// its code, directly or by way of others, are rejected if they are not in use, and come from their sources. Those that are
    /// in use are named. [`Scope::redefine`] says it of each function to the packages that see its dylib.
    ///
    /// # Concurrency
    /// Beside first uses of units: each unit is named here or finds itself rejected. A host whose [keys](ImageOptions::definitions) change gives the new
    /// key before it calls this.
    ///
    /// # Cost
    /// Linear in the units that it concerns. The first time one probe of an index for each assumption of the package.
    pub fn redefined(&self, definition: &str) -> RedefinedUnits {
        match &self.image {
            Loaded::Whole(_) => RedefinedUnits::default(),
            Loaded::Package(package) => package.redefined(definition),
        }
    }

    /// The unit of a package that defines `symbol` for others, and where its code comes from. `None` if no unit does, or if the image is one
    /// whole. [`why`](uruk_core::ExecutionSession::why) says the same in a sentence.
    pub fn origin(&self, symbol: &str) -> Option<FromImage> {
        match &self.image {
            Loaded::Whole(_) => None,
            Loaded::Package(package) => package.origin(symbol),
        }
    }

    /// The functions of a package by where their bodies come from, where functions may get other ones: in an engine that compiles them when
    /// they are called. In tiers a function of a unit that is called often is compiled better from its [source](ImageOptions::source), if
    /// that is at hand and if the image was compiled at a lower level, or for less than this processor has.
    ///
    /// # Cost
    /// Linear in the functions of units that are in use.
    pub fn bodies(&self) -> ImageBodyCounts {
        match &self.image {
            Loaded::Whole(_) => ImageBodyCounts::default(),
            Loaded::Package(package) => package.bodies(),
        }
    }

    /// The body that a function of a package has by now. `None` if its unit is not in use, or in an engine whose functions keep their bodies.
    pub fn body(&self, function: &str) -> Option<ImageBody> {
        match &self.image {
            Loaded::Whole(_) => None,
            Loaded::Package(package) => package.body(function),
        }
    }

    /// A [section](crate::ImageBuilder::section) of the host: its bytes in the file, which are mapped read-only and begin at a multiple of 64.
    ///
    /// They stay as long as the answer or the handle is there, when the image was unloaded too. Loading has not compared them with what was
    /// written: `uruk image verify` and [`ImageFile::check_contents`] do, as for code.
    ///
    /// # Cost
    /// Compares the names of the sections. The bytes are read by the system when they are used.
    pub fn section(&self, name: &str) -> Option<ImageSection> {
        self.sections.get(self.reader(), name)
    }

    /// The name that stands for the whole image in lookups. The units of a package have names of their own.
    pub(crate) fn anchor(&self) -> Option<&str> {
        match &self.image {
            Loaded::Whole(generator) => Some(generator.anchor()),
            Loaded::Package(_) => None,
        }
    }

    /// Where a function of a whole image is, whose anchor was found Ready at `base`. Another image may have taken its place.
    pub(crate) fn function(&self, name: &str, base: ExecutorAddr) -> Option<ExecutorAddr> {
        match &self.image {
            Loaded::Whole(generator) => generator.function(name, base),
            Loaded::Package(_) => None,
        }
    }
}

impl Scope {
    /// Loads an image that [`ImageBuilder`](crate::ImageBuilder) or `uruk image build` has made: its definitions are there for lookups, and
    /// nothing is compiled.
    ///
    /// References of the image are looked up in the scope's link order, when one of its symbols is asked for. It goes with the scope's tracker, and its
    /// functions may be held by handles, as those of objects. Two engines may load one file: each has variables of its own.
    ///
    /// An image is one whole or a [package](crate::ImageBuilder::package) of units. The parts of a whole refer to each other directly, so a definition
    /// that another file has too changes nothing inside of it. The units of a package refer to each other as files do. Each is
    /// validated when it is first used: it is right while its [source](ImageOptions::source), if that is at hand, is the one that it was compiled
    /// from, and while the same holds of the units whose code it contains. A unit that is not right is compiled from its source,
    /// as if the image had never had it. Units that run code at start are brought when the image is loaded. A package that cannot be loaded leaves
    /// nothing in the dylib.
    ///
    /// # Errors
    /// [`JitError::Image`] if the file is no image, if it is damaged, if others may write to it, if it was made for another processor, if an image
    /// that it was [built on](crate::ImageBuilder::on) is not there or has rejected units, whose code it may contain, or if it is a whole and there are options for units; [`JitError::ImageNotFirst`] for a [system](ImageOptions::system) that comes too late;
    /// [`JitError::Define`] if it is loaded there already. A lookup of a unit that was rejected and has no source fails with
    /// [`JitError::UnitRejected`].
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
        self.check_open()?;
        self.engine.check_here("loading an image")?;
        let (files, tracker, dylib) = (&self.engine.files, self.tracker(), self.dylib());
        let owner = self.is_of_tracker().then(|| tracker.downgrade());
        let image = ImageFile::open(path.as_ref())?;
        if options.is_system {
            self.check_first(image.reader())?;
        }
        files.images.check_below(dylib, image.reader())?;
        let sections = image.map_sections()?;
        if image.reader().is_package() {
            let package = self.load_package(image, options)?;
            let units: Arc<dyn RejectedUnits> = package.clone();
            files.images.note(&tracker, package.reader(), Some(Arc::downgrade(&units)));
            return Ok(LoadedImage { image: Loaded::Package(package), sections });
        }
        if options.is_of_units() {
            return Err(ImageError::Whole { path: path.as_ref().to_owned() }.into());
        }
        let (unit, traits, generator) = image_units(image, dylib, &files.linking.layer, owner)?;
        files.define(&tracker, FileUnits::alone(Box::new(unit), traits))?;
        generator.define(dylib, self.names_for_process().iter().map(|name| &**name))?;
        let generator = Arc::new(generator);
        // A tracker that was removed meanwhile drops it, and so the generator.
        let _ = self.serve(&tracker, generator.clone()).stay(&tracker, self.is_of_tracker());
        files.images.note(&tracker, generator.reader(), None);
        Ok(LoadedImage { image: Loaded::Whole(generator), sections })
    }

    /// Loads a package: all that it adds to the dylib, or nothing.
    fn load_package(&self, image: ImageFile, options: ImageOptions) -> Result<Arc<Package>, JitError> {
        let (files, tracker, is_owned) = (&self.engine.files, self.tracker(), self.is_of_tracker());
        let (package, added) = all_or_nothing(&tracker, |staging| {
            let owner = is_owned.then(|| tracker.downgrade());
            let (package, archives) = Package::load(image, options, files, staging, owner)?;
            let package = Arc::new(package);
            package.bring_all(staging, self.names_for_process().iter().map(|name| &**name))?;
            // Members of archives come when a name is missing: behind the names of the package.
            let mut added = vec![self.serve(&tracker, package.clone())];
            for index in archives {
                added.push(files.search_archive(&tracker, index, is_owned)?);
            }
            Ok((package, added))
        })?;
        for generator in added {
            // A tracker that was removed meanwhile drops it.
            let _ = generator.stay(&tracker, is_owned);
        }
        self.engine.redefinitions.tell(&package);
        Ok(package)
    }

    /// Has lookups of the dylib find what `generator` has, until what is given is dropped.
    fn serve(&self, tracker: &ResourceTracker, generator: Arc<dyn DefinitionGenerator>) -> AddedArchive {
        let id = self.dylib().add_generator(generator);
        AddedArchive::new(tracker, id, &self.engine.files.linking)
    }

    /// The names that libraries of a program want of it. They ask for these by the dylib's table, without a lookup.
    fn names_for_process(&self) -> Vec<Box<str>> {
        let files = &self.engine.files;
        if !files.platform.is_of_process() {
            return Vec::new();
        }
        let references = files.process.references_to_program();
        let wanted = references.optional.iter().chain(&references.required).cloned();
        allocation::function_names().map(Box::from).chain(wanted).collect()
    }

    /// Holds that the dylib has none of an image's definitions.
    fn check_first(&self, reader: &ImageReader) -> Result<(), JitError> {
        let global = reader.symbols().filter(|symbol| symbol.traits.contains(SymbolTraits::GLOBAL));
        let there = self.dylib().flags(global.map(|symbol| self.intern(symbol.name)));
        let Some((symbol, _)) = there.first() else { return Ok(()) };
        let (path, dylib) = (reader.path().to_owned(), self.dylib().name().into());
        Err(JitError::ImageNotFirst { path, symbol: symbol.as_str().into(), dylib })
    }
}

impl fmt::Debug for LoadedImage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LoadedImage").field("file", &self.reader().path()).finish_non_exhaustive()
    }
}
