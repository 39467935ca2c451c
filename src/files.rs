//! How files become units of a dylib.

use std::collections::{HashMap, HashSet};
use std::fmt;

use uruk_core::sync::{Arc, Mutex};
use uruk_core::{DefineError, JitDylib, ResourceTracker, SharedError, TransactionError, WeakResourceTracker};
#[cfg(feature = "cache")]
use uruk_pipeline::cache::KeyBuilder;
#[cfg(any(feature = "cache", feature = "llvm"))]
use uruk_pipeline::image::ImageReader;
#[cfg(feature = "cache")]
use uruk_pipeline::image::UnitKey;
#[cfg(feature = "llvm")]
use uruk_pipeline::ir::OptimizationLevel;
#[cfg(feature = "cache")]
use uruk_pipeline::linking::CollectedSource;
use uruk_pipeline::object::{ArchiveIndex, FileKind, ObjectBuffer, StaticArchiveGenerator};
use uruk_pipeline::platform::{Declaration, Platform};
use uruk_pipeline::runtime::process::ProcessSymbols;

use crate::archive::AddedArchive;
#[cfg(feature = "cache")]
use crate::cache::OpenCache;
use crate::error::JitError;
use crate::loaded_images::LoadedImages;
#[cfg(feature = "llvm")]
use crate::modules::Modules;
use crate::objects::{Linking, Objects};
use crate::unit::LinkedUnit;
use crate::units::{FileFormat, FileUnits};

/// The formats of files, and the tables that files of one program share.
pub(crate) struct Files {
    pub(crate) platform: Arc<Platform>,
    pub(crate) process: Arc<ProcessSymbols>,
    pub(crate) linking: Arc<Linking>,
    pub(crate) images: Arc<LoadedImages>,
    pub(crate) objects: Objects,
    #[cfg(feature = "cache")]
    pub(crate) cache: OpenCache,
    #[cfg(feature = "llvm")]
    pub(crate) modules: Modules,
}

/// How many members of an archive are announced to the linker.
const ANNOUNCED_MEMBERS_MAX: usize = 32;

impl Files {
    /// Defines what a file promises, which is of this format.
    pub(crate) fn add(
        &self,
        format: &dyn FileFormat,
        tracker: &ResourceTracker,
        file: ObjectBuffer,
    ) -> Result<(), JitError> {
        self.note_source(&file);
        self.define(tracker, format.units(tracker, file)?)
    }

    /// The key of a file as a source of an image: of its contents, and of the options that it is compiled with here.
    #[cfg(feature = "cache")]
    pub(crate) fn key_of_source(&self, source: &ObjectBuffer) -> UnitKey {
        let key = match FileKind::of(source.bytes()) {
            FileKind::Object => {
                KeyBuilder::new("object in an image").bytes("object", source.bytes()).finish()
            }
            #[cfg(feature = "llvm")]
            _ => self.modules.layer.compiler().unit_key(source),
            #[cfg(not(feature = "llvm"))]
            _ => KeyBuilder::new("file in an image").bytes("file", source.bytes()).finish(),
        };
        *key.as_bytes()
    }

    /// The key of a source beside an image. In tiers it is that of the level that the image was compiled at: its code is a tier.
    #[cfg(feature = "cache")]
    pub(crate) fn key_of_source_in(&self, image: &ImageReader, source: &ObjectBuffer) -> UnitKey {
        #[cfg(feature = "llvm")]
        if let Some(level) = level_of(image)
            && self.modules.tiers.is_some()
            && FileKind::of(source.bytes()) != FileKind::Object
        {
            return *self.modules.layer.compiler().unit_key_at(source, level).as_bytes();
        }
        let _ = image;
        self.key_of_source(source)
    }

    /// The level that sources are compiled at, if that and the source say all of the code.
    #[cfg(all(feature = "llvm", feature = "cache"))]
    pub(crate) fn level(&self) -> Option<OptimizationLevel> {
        let compiler = self.modules.layer.compiler();
        let level = compiler.pipeline().optimization_level()?;
        let none = ObjectBuffer::new("<none>", Vec::new());
        (compiler.unit_key(&none) == compiler.unit_key_at(&none, level)).then_some(level)
    }

    /// The key of a file, and the definitions of others that it has copies of: for a unit of a package.
    ///
    /// # Cost
    /// One hash of the file, and a pass over it.
    #[cfg(feature = "cache")]
    pub(crate) fn about_source(&self, source: &ObjectBuffer) -> CollectedSource {
        // A file that cannot be read has failed when it was compiled, in better words.
        #[cfg(feature = "llvm")]
        let copies = uruk_pipeline::ir::copied_names(source).unwrap_or_default();
        #[cfg(not(feature = "llvm"))]
        let copies = Vec::new();
        CollectedSource { key: self.key_of_source(source), copies }
    }

    /// Notes a file, if an image is made of the program: a package needs its key.
    fn note_source(&self, source: &ObjectBuffer) {
        // Without a hash for keys no source has one.
        if let Some(collected) = self.linking.layer.collected().filter(|_| cfg!(feature = "cache")) {
            collected.note_source(source);
        }
    }

    /// Defines what a source promises: an object, bitcode or textual IR.
    pub(crate) fn add_source(&self, tracker: &ResourceTracker, source: ObjectBuffer) -> Result<(), JitError> {
        match FileKind::of(source.bytes()) {
            #[cfg(feature = "llvm")]
            FileKind::Bitcode | FileKind::TextualIr | FileKind::Other => {
                self.add(&self.modules, tracker, source)
            }
            _ => self.add(&self.objects, tracker, source),
        }
    }

    /// Defines the units of a file, in its place in the order of initialisation: all of them, or none.
    pub(crate) fn define(&self, tracker: &ResourceTracker, units: FileUnits) -> Result<(), JitError> {
        let FileUnits { unit, traits, others } = units;
        let dylib = tracker.dylib();
        // One that shares sections would be linked without the others. A program that has the process for itself ends when it misses
        // something.
        let leaves_spare = !traits.shares_sections && !self.platform.is_of_process();
        let symbol = self.platform.declare(dylib, unit.name(), traits);
        let declaration = Declaration::new(self.platform.clone(), symbol);
        let mut unit = LinkedUnit::new(unit, declaration, leaves_spare);
        unit.yield_to_libraries(dylib, &self.process);
        if others.is_empty() {
            return Ok(dylib.define_with_tracker(Box::new(unit), tracker)?);
        }
        let mut changes = dylib.session().transaction();
        for other in others {
            changes = changes.define_with_tracker(other, tracker);
        }
        changes.define_with_tracker(Box::new(unit), tracker).commit().map_err(|refused| match refused.error {
            TransactionError::Define { source, .. } => source.into(),
            error => unreachable!("a transaction that only defines was refused: {error}"),
        })
    }

    /// The definitions of the members of an archive.
    pub(crate) fn archive_index(&self, archive: &ObjectBuffer) -> Result<ArchiveIndex, JitError> {
        ArchiveIndex::read_with(archive, |member| self.format_of(member).names(member))
    }

    /// Serves the members of an archive to lookups. Their definitions belong to `tracker` as long as there is a handle of that,
    /// and to the dylib's own tracker otherwise.
    pub(crate) fn archive(
        self: &Arc<Self>,
        index: ArchiveIndex,
        tracker: Option<WeakResourceTracker>,
    ) -> StaticArchiveGenerator {
        // Where objects are placed depends on what is linked beside them, so members are announced before they are
        // needed. They are mostly built alike: the first speak for all, and a large archive costs no more than a small one.
        for member in index.members().iter().take(ANNOUNCED_MEMBERS_MAX) {
            self.linking.announce(member.contents());
        }
        let files = self.clone();
        let define = move |dylib: &JitDylib, member: ObjectBuffer| {
            let own = tracker.as_ref().and_then(WeakResourceTracker::upgrade);
            let (is_own, tracker) = match own {
                Some(own) => (true, own),
                None => (false, dylib.default_tracker()),
            };
            match files.add(files.format_of(&member), &tracker, member) {
                // The archive is being removed, so it has nothing any more.
                Err(error) if is_own && error.is_of_removed_tracker() => Ok(()),
                added => added.map_err(|error| Arc::new(error) as SharedError),
            }
        };
        StaticArchiveGenerator::new(index, define)
    }

    /// Adds an archive to the dylib of `tracker`: its members join when something is missing, or defined tentatively alone. Who
    /// `owns` it takes it along when the tracker is removed; without an owner it stays with the dylib.
    pub(crate) fn add_archive(
        self: &Arc<Self>,
        tracker: &ResourceTracker,
        archive: &ObjectBuffer,
        is_owned: bool,
    ) -> Result<(), JitError> {
        let added = self.search_archive(tracker, self.archive_index(archive)?, is_owned)?;
        let (unit, dylib) = (tracker.dylib().session().intern(archive.name()), tracker.dylib().name().into());
        let refused = |_| DefineError::TrackerDefunct { unit, dylib };
        Ok(added.stay(tracker, is_owned).map_err(refused)?)
    }

    /// Has lookups of the dylib of `tracker` search an archive, until what is given is dropped.
    pub(crate) fn search_archive(
        self: &Arc<Self>,
        tracker: &ResourceTracker,
        index: ArchiveIndex,
        is_owned: bool,
    ) -> Result<AddedArchive, JitError> {
        let dylib = tracker.dylib();
        let generator = Arc::new(self.archive(index, is_owned.then(|| tracker.downgrade())));
        let id = dylib.add_generator(generator.clone());
        // Both hold what is to hold this.
        let (files, generator) = (Arc::downgrade(self), Arc::downgrade(&generator));
        let mut added = AddedArchive::new(tracker, id, &self.linking);
        // By position: a member that defines many such variables is read once.
        let values = Mutex::new(HashMap::<usize, Arc<HashSet<Box<str>>>>::new());
        let searched = self.linking.commons.search(dylib, move |dylib, symbol| {
            let (Some(files), Some(generator)) = (files.upgrade(), generator.upgrade()) else {
                return Ok(());
            };
            generator.add_member_if(dylib, symbol.as_str(), |position, member| {
                let known = values.lock().get(&position).cloned();
                let known = known.unwrap_or_else(|| {
                    let read = Arc::new(files.format_of(member).values(member));
                    values.lock().entry(position).or_insert(read).clone()
                });
                known.contains(symbol.as_str())
            })
        })?;
        added.is_searched(searched);
        Ok(added)
    }

    /// The format of a member of an archive.
    fn format_of(&self, member: &ObjectBuffer) -> &dyn FileFormat {
        match FileKind::of(member.bytes()) {
            #[cfg(feature = "llvm")]
            FileKind::Bitcode => &self.modules,
            _ => &self.objects,
        }
    }
}

/// The level that the code of an image was compiled at.
#[cfg(feature = "llvm")]
pub(crate) fn level_of(image: &ImageReader) -> Option<OptimizationLevel> {
    OptimizationLevel::ALL.get(usize::from(image.level()?)).copied()
}

impl fmt::Debug for Files {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Files").field("platform", &self.platform).finish_non_exhaustive()
    }
}
