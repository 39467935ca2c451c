//! [`ImageBuilder`]: files go in, an image comes out.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Write as _};
use std::ops::Deref;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use uruk_core::sync::atomic::{AtomicBool, Ordering};
use uruk_core::sync::{Arc, Mutex};
use uruk_core::{LookupRequest, LookupSet, SymbolFlags};
use uruk_pipeline::arch::{ProcessorLevel, ProcessorTarget};
use uruk_pipeline::image::{
    BuiltImage, BuiltInstance, BuiltUnit, HostParts, ImageReader, UnitKey, link_image_in_order, package,
};
use uruk_pipeline::lazy::{CompileTrace, FunctionOfFile};
use uruk_pipeline::link::{CodeOrder, LinkError};
use uruk_pipeline::linking::CollectedObjects;
#[cfg(not(feature = "cache"))]
use uruk_pipeline::linking::CollectedSource;
use uruk_pipeline::object::{ObjectBuffer, ObjectInterface};

use crate::builder::JitBuilder;
use crate::error::JitError;
use crate::image_options::ImageOptions;
use crate::image_targets::ImageTargets;
use crate::jit::Jit;
use crate::loaded_images::file_name;

/// Compiles and links files ahead, into an [`Image`] that any engine [loads](crate::Scope::load_image).
///
/// It is the [`Jit`] of a program that never runs: files are added to it by the methods of that. All of them take part, and members of
/// archives if something refers to them.
///
/// # Examples
/// See [`Scope::load_image`](crate::Scope::load_image).
pub struct ImageBuilder {
    jit: Jit,
    collected: Arc<CollectedObjects>,
    /// The base comes first.
    targets: Vec<ProcessorTarget>,
    is_package: bool,
    order: Option<CodePlaces>,
    /// Whether it needs what any of its code uses.
    needs_all: bool,
    /// Members of archives that define these take part.
    wanted: Vec<Box<str>>,
    /// For each unit, definitions whose code it contains, with their keys.
    assumptions: Mutex<Vec<Assumption>>,
    host: Mutex<HostParts>,
}

/// Functions that come first in the code, and whether others go that they do not need.
struct CodePlaces {
    places: HashMap<FunctionOfFile, usize>,
    /// Whether the function of each place was found.
    found: Vec<AtomicBool>,
    is_whole: bool,
}

/// A unit, a definition whose code it contains, and the key of that.
type Assumption = (Box<str>, Box<str>, UnitKey);

/// A linked image in memory.
#[derive(Clone, Debug)]
pub struct Image {
    bytes: Vec<u8>,
    unplaced: usize,
}

impl ImageBuilder {
    /// An image for the processors of the last fifteen years, x86-64-v2. `jit` says how files are compiled, on how many threads, and with
    /// which cache.
    ///
    /// # Errors
    /// As [`JitBuilder::build`].
    pub fn new(jit: JitBuilder) -> Result<Self, JitError> {
        Self::for_processors(ProcessorLevel::default(), jit)
    }

    /// An image with code for several processors: `x86-64-v2;x86-64-v3,clone_hot`. When it is loaded, the best that the processor can run is
    /// chosen, by the instruction sets that the code uses. Functions of LLVM IR have a version for a target if it uses wider vectors there, or
    /// instruction sets that the base lacks; objects are for all targets.
    ///
    /// A target is a name of LLVM's, or `native`, and instruction sets to add and to take away (`+aes,-fma`). With `clone_all` every function has
    /// a version for it; `clone_hot` is what is done anyway. The base is the target whose instruction sets all others have. The order
    /// of targets means nothing.
    ///
    /// A function has one address, that of a jump to the version that was chosen. Calls from one function of a version to another are direct.
    ///
    /// # Errors
    /// [`JitError::Targets`] for a text that names no targets, or without a base; as [`JitBuilder::build`]. A file fails in
    /// [`build`](Self::build) if a function of it passes a vector of more than 128 bits, which targets do in different registers.
    ///
    /// # Cost
    /// Each further target costs as much as the first to compile.
    pub fn for_targets(targets: &str, jit: JitBuilder) -> Result<Self, JitError> {
        let targets = ImageTargets::parse(targets)?;
        #[cfg(feature = "llvm")]
        let jit = jit.target(targets.base()?).versions(targets.versions()?);
        let collected = Arc::<CollectedObjects>::default();
        let jit = jit.collect(collected.clone()).build()?;
        let targets = targets.into_list();
        Ok(Self {
            jit,
            collected,
            targets,
            is_package: false,
            order: None,
            needs_all: false,
            wanted: Vec::new(),
            assumptions: Mutex::default(),
            host: Mutex::default(),
        })
    }

    /// An image for processors of a level. It runs on others too, if they have the instruction sets that its code uses.
    ///
    /// # Errors
    /// As [`JitBuilder::build`].
    pub fn for_processors(level: ProcessorLevel, jit: JitBuilder) -> Result<Self, JitError> {
        Self::for_targets(level.name(), jit)
    }

    /// The name of the base: what its sources are to be compiled for.
    pub fn base_target(&self) -> &str {
        &self.targets[0].name
    }

    /// Makes the image a package: each file is a unit of its own, with the key of its source, and can be [rejected](crate::ImageOptions::source) or
    /// replaced without the others. Files that share named sections are one unit, and so are
    /// files whose code refers to each other by distances, as hidden definitions have it.
    ///
    /// # Cost
    /// A package has one target: [`build`](Self::build) refuses more. Each unit begins a page of the file for its code, its constants and its data. Calls between units go by way of a slot.
    #[must_use]
    pub fn package(mut self) -> Self {
        self.is_package = true;
        self
    }

    /// Has the functions of a trace come first in the code, in its order: what is called one after the other lies together, and few pages are
    /// read at start. Functions move alone if they have [sections of their own](JitBuilder::function_sections), and otherwise with
    /// all code of their file.
    #[must_use]
    pub fn order(mut self, trace: &CompileTrace) -> Self {
        self.order = Some(CodePlaces::of(trace, false));
        self
    }

    /// The same, and takes these functions alone, with what they refer to, and what runs at start and end. A [package](Self::package) takes
    /// all all the same.
    ///
    /// # Errors
    /// A function that was left out is missing for files that refer to it: a program that goes other ways than those that the trace was made of
    /// needs its files.
    #[must_use]
    pub fn only(mut self, trace: &CompileTrace) -> Self {
        self.order = Some(CodePlaces::of(trace, true));
        self
    }

    /// Has the image refused by processors that lack an instruction set that any of its code uses. Without this, code counts as far as its
    /// [target](Self::for_targets) has the instruction sets, and LLVM IR as far as its file was compiled for a processor. Functions that ask for more
    /// (`target("avx2")`), objects and assembly are the program's affair, which asks the processor before it runs them.
    #[must_use]
    pub fn needing_all(mut self) -> Self {
        self.needs_all = true;
        self
    }

    /// Takes what defines `symbols` besides, if something does: members of archives too, though nothing refers to them. A program whose `main` is
    /// in an archive wants that.
    #[must_use]
    pub fn wanted<S: Into<Box<str>>>(mut self, symbols: impl IntoIterator<Item = S>) -> Self {
        self.wanted.extend(symbols.into_iter().map(Into::into));
        self
    }

    /// Notes that the code of a unit of the package contains code of a definition: the host's compiler has inlined it, or has
    /// relied on it. Inline functions, and copies that LLVM IR has of another unit's definitions (`available_externally`), are noted without that. If the definition is in another unit, the two are right together or not at all. Otherwise `key` is compared with [what the
    /// host says](crate::ImageOptions::definitions) when the image is loaded.
    pub fn assume(&self, unit: impl Into<Box<str>>, definition: impl Into<Box<str>>, key: UnitKey) {
        self.assumptions.lock().push((unit.into(), definition.into(), key));
    }

    /// Adds bytes of the host to the image, for [`LoadedImage::section`](crate::LoadedImage::section): tables of types, results of a
    /// parser. They lie in the file as they are, so positions in them are better relative ones.
    ///
    /// # Errors
    /// [`JitError::ImagePart`]: there is a section of that name, it is longer than 2 GiB, or its name is empty or has a zero byte in it.
    pub fn section(&self, name: impl Into<Box<str>>, bytes: impl Into<Vec<u8>>) -> Result<(), JitError> {
        // Made before the lock is taken: it is the host's code.
        let (name, bytes) = (name.into(), bytes.into());
        Ok(self.host.lock().add_section(name, bytes)?)
    }

    /// Builds on an image that is in a file: its definitions are there for what is added, and stay in it. The image that is built has to be loaded
    /// where that very image is loaded already: in the same dylib, or in one behind it in the link order.
    ///
    /// An image that was itself built on others is added after these. Nothing of them runs.
    ///
    /// # Errors
    /// As [`Scope::load_image`](crate::Scope::load_image): the processor here has to have what its code needs.
    pub fn on(&self, image: impl AsRef<Path>) -> Result<(), JitError> {
        let loaded = self.jit.load_image(image, ImageOptions::new())?;
        let reader = loaded.reader();
        self.host.lock().add_below(file_name(reader), *reader.id());
        Ok(())
    }

    /// Adds a code instance to the image: a specialization that was compiled with the files that are added, and the definitions that its code
    /// assumes. [`Scope::restore_instance`](crate::Scope::restore_instance) finds it by its method and specialization.
    ///
    /// # Errors
    /// [`JitError::ImagePart`]: there is one for that method and specialization, or one of its ids is longer than 64 KiB. That nothing defines
    /// its functions is an error of [`build`](Self::build).
    pub fn instance(&self, instance: BuiltInstance) -> Result<(), JitError> {
        Ok(self.host.lock().add_instance(instance)?)
    }

    /// Compiles what was added, and links it as one. Nothing of it runs.
    ///
    /// # Errors
    /// [`JitError::Lookup`] for the first thing that is missing or fails, [`JitError::LinkImage`] for files that have to lie where they were
    /// built to lie, [`JitError::ImagePart`] for a code instance with a function that nothing defines.
    pub fn build(self) -> Result<Image, JitError> {
        self.link_all()?;
        let order = self.jit.dylib().link_order();
        let import = |name: &str| -> Option<SymbolFlags> {
            let wanted = LookupSet::one(self.jit.intern(name));
            let found = self.jit.session().lookup_flags(LookupRequest::new(&order, wanted)).ok()?;
            found.into_iter().next().map(|(_, flags)| flags)
        };
        if self.is_package && self.targets.len() > 1 {
            let message = "packages have one target; build one for each, or leave out the package".to_owned();
            return Err(JitError::Targets { targets: names(&self.targets), message });
        }
        let built = if self.is_package {
            self.build_package(&import)
        } else {
            let (objects, discarded) = self.collected.take();
            let place = |file: &str, function: &str| self.place(file, function);
            let order = self.order.as_ref();
            let order = order.map(|order| CodeOrder { place: &place, is_whole: order.is_whole });
            link_image_in_order(&objects, &|name| discarded.contains(name), &import, &self.targets, 0, order)
        };
        let host = std::mem::take(&mut *self.host.lock());
        let mut built = built.map_err(JitError::LinkImage)?;
        if self.needs_all && !self.is_package {
            built.need_all();
        }
        #[cfg(feature = "llvm")]
        let built = built.with_level(self.jit.engine.files.level().map(|level| level as u8));
        let built = built.with_host(host, |name| import(name).is_some())?;
        let unplaced = self.order.as_ref().map_or(0, CodePlaces::missing);
        Ok(Image { bytes: built.to_bytes(), unplaced })
    }

    /// Compiles what was added. The objects are in link order.
    #[cfg(feature = "llvm")]
    pub(crate) fn link_and_take(&self) -> Result<Vec<ObjectBuffer>, JitError> {
        if self.targets.len() > 1 {
            let message = "an output for other tools has one target".to_owned();
            return Err(JitError::Targets { targets: names(&self.targets), message });
        }
        self.link_all()?;
        Ok(self.collected.take().0)
    }

    fn build_package(&self, import: &dyn Fn(&str) -> Option<SymbolFlags>) -> Result<BuiltImage, LinkError> {
        let assumptions = std::mem::take(&mut *self.assumptions.lock());
        #[cfg(feature = "cache")]
        let about = |source: &_| self.jit.engine.files.about_source(source);
        #[cfg(not(feature = "cache"))]
        let about = |_: &_| CollectedSource::default();
        let units = self.collected.take_units(about)?.into_iter().map(|link| {
            let discarded = link.discarded();
            let is_discarded = |name: &str| discarded.contains(name);
            let place = |file: &str, function: &str| self.place(file, function);
            let order = self.order.is_some().then_some(CodeOrder { place: &place, is_whole: false });
            let mut image =
                link_image_in_order(&link.objects(), &is_discarded, import, &self.targets, 0, order)?;
            if self.needs_all {
                image.need_all();
            }
            image.promise(|name| link.promised.contains(name));
            // Tables of parts are read when they are linked, and no earlier.
            let is_plain = |object: &ObjectBuffer| {
                ObjectInterface::read(object).is_ok_and(|interface| !interface.is_beyond_stubs(object))
            };
            if link.objects().iter().all(is_plain) {
                image.allow_stubs();
            }
            let name: Box<str> = link.name().into();
            let left_out = discarded.into_iter().chain(link.copies).collect();
            let mut unit = BuiltUnit::new(name.clone(), &image, link.sources, left_out);
            for (_, definition, key) in assumptions.iter().filter(|(of, ..)| *of == name) {
                unit.assume(definition.clone(), *key);
            }
            Ok(unit)
        });
        Ok(package(units.collect::<Result<_, _>>()?, &self.targets[0]))
    }
}

impl ImageBuilder {
    fn link_all(&self) -> Result<(), JitError> {
        let wanted: Vec<&str> = self.wanted.iter().map(|symbol| &**symbol).collect();
        self.jit.link_all(&wanted)
    }

    fn place(&self, file: &str, function: &str) -> Option<u32> {
        let order = self.order.as_ref()?;
        let place = *order.places.get(&FunctionOfFile::new(file, function))?;
        order.found[place].store(true, Ordering::Relaxed); // read behind the link, on this thread
        u32::try_from(place).ok()
    }
}

impl CodePlaces {
    fn of(trace: &CompileTrace, is_whole: bool) -> Self {
        let functions = trace.order().functions;
        let found = functions.iter().map(|_| AtomicBool::new(false)).collect();
        Self { places: functions.into_iter().zip(0..).collect(), found, is_whole }
    }

    /// How many functions were not found.
    fn missing(&self) -> usize {
        self.found.iter().filter(|found| !found.load(Ordering::Relaxed)).count() // as in `place`
    }
}

impl Image {
    /// How many functions of its [order](ImageBuilder::order) have no code of their own here: no file has them any more, or they were inlined
    /// wherever they are called.
    pub fn unplaced(&self) -> usize {
        self.unplaced
    }

    /// The bytes of its file.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Writes it to a file, which is the old one or the new one at every moment. It is readable as the `umask` says, and its owner alone may
    /// write to it.
    ///
    /// # Errors
    /// [`JitError::WriteImage`].
    pub fn write(&self, path: impl AsRef<Path>) -> Result<(), JitError> {
        write(path.as_ref(), &self.bytes)
    }

    /// Its tables.
    ///
    /// # Errors
    /// [`JitError::Image`], which no image that was built here has.
    pub fn reader(&self) -> Result<ImageReader, JitError> {
        Ok(ImageReader::of_bytes(Path::new("image"), &self.bytes)?)
    }
}

fn names(targets: &[ProcessorTarget]) -> Box<str> {
    targets.iter().map(|target| &*target.name).collect::<Vec<_>>().join(";").into()
}

/// Writes a file, which is the old one or the new one at every moment.
pub(crate) fn write(path: &Path, bytes: &[u8]) -> Result<(), JitError> {
    replace(path, bytes)
        .map_err(|source| JitError::WriteImage { path: path.to_owned(), source: Arc::new(source) })
}

/// Writes a file under another name, and gives it its own when it is whole.
fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let name = path.file_name().ok_or(io::ErrorKind::IsADirectory)?;
    let mut number = 0_u32;
    let (new, mut file) = loop {
        let mut other = name.to_owned();
        other.push(format!(".{}.{number}.new", std::process::id()));
        let new = path.with_file_name(other);
        match File::options().write(true).create_new(true).mode(0o644).open(&new) {
            Ok(file) => break (new, file),
            // Another writes it, or was killed while it wrote.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => number += 1,
            Err(error) => return Err(error),
        }
    };
    let written =
        file.write_all(bytes).and_then(|()| file.sync_data()).and_then(|()| std::fs::rename(&new, path));
    if written.is_err() {
        // The first error is the one that counts.
        let _ = std::fs::remove_file(&new);
    }
    written
}

impl Deref for ImageBuilder {
    type Target = Jit;

    /// The engine that files are added to.
    fn deref(&self) -> &Jit {
        &self.jit
    }
}

impl std::fmt::Debug for ImageBuilder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ImageBuilder").field("targets", &self.targets).finish_non_exhaustive()
    }
}
