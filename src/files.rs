//! How files become units of a dylib.

use std::collections::{HashMap, HashSet};
use std::fmt;

use uruk_core::sync::{Arc, Mutex};
use uruk_core::{
    DefineError, JitDylib, MaterializationUnit, ResourceTracker, SharedError, SymbolFlags, TransactionError,
    WeakResourceTracker,
};
#[cfg(feature = "llvm")]
use uruk_pipeline::cache::{CacheOpenError, DiskCache};
#[cfg(feature = "llvm")]
use uruk_pipeline::ir::{
    IrCompileLayer, IrCompiler, IrLayer, IrMaterializationUnit, JitTargetMachineBuilder, LazyModule,
    LazyUnits, LinkerInfo, ModuleInterface, ThreadSafeModule,
};
use uruk_pipeline::lazy::{FileLayer, FileStubs, LazyCallThroughManager};
use uruk_pipeline::link::ObjectLinkingLayer;
use uruk_pipeline::link::elf::CloseReferences;
#[cfg(feature = "llvm")]
use uruk_pipeline::object::FileKind;
use uruk_pipeline::object::{
    ArchiveIndex, CommonSymbols, ObjectBuffer, ObjectInterface, ObjectLayer, ObjectMaterializationUnit,
    ObjectSymbol, StaticArchiveGenerator, UnitTraits,
};
use uruk_pipeline::platform::{Declaration, Platform};
use uruk_pipeline::runtime::allocation;
use uruk_pipeline::runtime::process::ProcessSymbols;
#[cfg(feature = "llvm")]
use uruk_pipeline::tiers::Tiers;

use crate::archive::AddedArchive;
use crate::error::JitError;
use crate::lazy::OnCall;
use crate::unit::LinkedUnit;

/// The layers a file goes through, and what files of one program share.
pub(crate) struct Files {
    pub(crate) platform: Arc<Platform>,
    pub(crate) process: Arc<ProcessSymbols>,
    pub(crate) commons: CommonSymbols,
    pub(crate) object_layer: Arc<ObjectLinkingLayer>,
    pub(crate) lazy: LazyCallThroughManager,
    /// What is compiled when functions are called, if anything.
    pub(crate) on_call: Option<OnCall>,
    /// How functions are compiled that are called for the first time, and who decides when they are compiled better.
    #[cfg(feature = "llvm")]
    pub(crate) tiers: Option<(IrCompiler, Tiers)>,
    #[cfg(feature = "llvm")]
    pub(crate) ir_layer: Arc<IrCompileLayer>,
    #[cfg(feature = "llvm")]
    pub(crate) target: JitTargetMachineBuilder,
    /// Whether LLVM's verifier runs over what is read.
    #[cfg(feature = "llvm")]
    pub(crate) verifies_ir: bool,
    /// What lies below the layer's cache.
    #[cfg(feature = "llvm")]
    pub(crate) disk_cache: Option<Arc<DiskCache>>,
    /// Why the cache that was asked for is not in use.
    #[cfg(feature = "llvm")]
    pub(crate) cache_refused: Option<Box<CacheOpenError>>,
}

/// How many members of an archive are announced to the linker.
const ANNOUNCED_MEMBERS_MAX: usize = 32;

impl Files {
    /// Defines what a module of LLVM IR promises.
    #[cfg(feature = "llvm")]
    pub(crate) fn add_ir(&self, tracker: &ResourceTracker, source: ObjectBuffer) -> Result<(), JitError> {
        let mut takes_part = false;
        if let Some(on_call) = self.on_call
            && let Some(module) = self.lazy_module(&source)?
        {
            match on_call {
                OnCall::Function => return self.define_lazily(tracker, &module),
                OnCall::Module if !module.interface().is_passive() => (),
                OnCall::Module => match module.stubs_of_file() {
                    Some(stubs) => return self.define_lazy_file(tracker, source, &module, stubs),
                    // What refers to it may not be linked before the program runs.
                    None => takes_part = true,
                },
            }
        }
        let layer: Arc<dyn IrLayer> = self.ir_layer.clone();
        let work_bytes = source.size_bytes();
        let mut unit =
            IrMaterializationUnit::from_source(tracker.dylib().session(), layer, &self.target, source)?;
        if takes_part {
            unit.always_link();
        }
        self.define_ir(tracker, None, unit, work_bytes)
    }

    /// The module of a file if its functions can be compiled one at a time.
    #[cfg(feature = "llvm")]
    fn lazy_module(&self, source: &ObjectBuffer) -> Result<Option<LazyModule>, JitError> {
        let written;
        let bitcode = if FileKind::of(source.bytes()) == FileKind::Bitcode {
            source
        } else {
            written = ThreadSafeModule::parse_assembly(source)?.to_bitcode()?;
            &written
        };
        let (compiler, layer) = (self.ir_layer.compiler(), ObjectLinkingLayer::clone(&self.object_layer));
        let cache = self.ir_layer.ir_cache();
        let module = match &self.tiers {
            Some((soon, tiers)) => LazyModule::read(bitcode, soon, layer, self.verifies_ir, cache)?
                .map(|module| module.with_tiers(compiler, tiers.clone())),
            None => LazyModule::read(bitcode, compiler, layer, self.verifies_ir, cache)?,
        };
        let names =
            |module: &LazyModule| allocates(module.interface().symbols.iter().map(|symbol| &*symbol.name));
        Ok(module.filter(|module| !names(module)))
    }

    /// Defines stubs for the functions of a module that is compiled as a whole.
    #[cfg(feature = "llvm")]
    fn define_lazy_file(
        &self,
        tracker: &ResourceTracker,
        source: ObjectBuffer,
        module: &LazyModule,
        stubs: FileStubs,
    ) -> Result<(), JitError> {
        let (dylib, stubs) = (tracker.dylib(), Arc::new(stubs));
        let session = dylib.session();
        let objects = ObjectLinkingLayer::clone(&self.object_layer);
        let layer: Arc<dyn IrLayer> = Arc::new(self.ir_layer.with_stubs(objects, stubs.clone()));
        let work_bytes = source.size_bytes();
        let unit = IrMaterializationUnit::from_interface(session, layer, module.interface(), source);
        let unit = unit.with_stubs(session, &stubs);
        self.define_ir(tracker, Some(self.lazy.lazy_file(dylib, &stubs)), unit, work_bytes)
    }

    /// Defines stubs for the functions of a module, and its variables.
    #[cfg(feature = "llvm")]
    fn define_lazily(&self, tracker: &ResourceTracker, module: &LazyModule) -> Result<(), JitError> {
        let LazyUnits { mut data, stubs, bodies } = module.units(tracker, &self.lazy);
        data.share_commons(tracker, &self.commons)?;
        let traits = data.take_traits();
        self.define_with(tracker, [stubs].into_iter().chain(bodies), Box::new(data), traits)
    }

    /// Defines what `interface` says that a module of LLVM IR promises.
    #[cfg(feature = "llvm")]
    pub(crate) fn add_ir_with_interface(
        &self,
        tracker: &ResourceTracker,
        source: ObjectBuffer,
        interface: &ModuleInterface,
    ) -> Result<(), JitError> {
        let layer: Arc<dyn IrLayer> = self.ir_layer.clone();
        let work_bytes = source.size_bytes();
        let unit = IrMaterializationUnit::from_interface(tracker.dylib().session(), layer, interface, source);
        self.define_ir(tracker, None, unit, work_bytes)
    }

    /// Defines what a module of LLVM IR promises by the names that `info` gives them.
    #[cfg(feature = "llvm")]
    pub(crate) fn add_translation_unit(
        &self,
        tracker: &ResourceTracker,
        source: ObjectBuffer,
        info: LinkerInfo,
    ) -> Result<(), JitError> {
        let (session, info) = (tracker.dylib().session(), Arc::new(info));
        let objects = ObjectLinkingLayer::clone(&self.object_layer);
        let layer: Arc<dyn IrLayer> = Arc::new(self.ir_layer.with_meanings(objects, info.clone()));
        let work_bytes = source.size_bytes();
        let unit = IrMaterializationUnit::from_source(session, layer, &self.target, source)?;
        self.define_ir(tracker, None, unit.with_meanings(session, &info), work_bytes)
    }

    /// Defines what a module in memory promises.
    #[cfg(feature = "llvm")]
    pub(crate) fn add_module(
        &self,
        tracker: &ResourceTracker,
        module: ThreadSafeModule,
    ) -> Result<(), JitError> {
        let layer: Arc<dyn IrLayer> = self.ir_layer.clone();
        let unit =
            IrMaterializationUnit::from_module(tracker.dylib().session(), layer, &self.target, module)?;
        self.define_ir(tracker, None, unit, UnitTraits::default().work_bytes)
    }

    #[cfg(feature = "llvm")]
    fn define_ir(
        &self,
        tracker: &ResourceTracker,
        stubs: Option<Box<dyn MaterializationUnit>>,
        mut unit: IrMaterializationUnit,
        work_bytes: usize,
    ) -> Result<(), JitError> {
        if !self.verifies_ir {
            unit.skip_verifier();
        }
        unit.share_commons(tracker, &self.commons)?;
        let traits = UnitTraits { work_bytes, ..unit.take_traits() };
        self.define_with(tracker, stubs, Box::new(unit), traits)
    }

    /// Defines what an object promises.
    pub(crate) fn add_object(&self, tracker: &ResourceTracker, object: ObjectBuffer) -> Result<(), JitError> {
        let dylib = tracker.dylib();
        let session = dylib.session();
        let stubs = if self.on_call.is_some() { Stubs::of(&object)? } else { Stubs::NotPutOff };
        let (takes_part, stubs) = (matches!(stubs, Stubs::BeforeStart), stubs.into_file().map(Arc::new));
        let layer: Arc<dyn ObjectLayer> = match &stubs {
            Some(stubs) => {
                Arc::new(FileLayer::new(ObjectLinkingLayer::clone(&self.object_layer), stubs.clone()))
            }
            None => self.object_layer.clone(),
        };
        let mut unit = ObjectMaterializationUnit::new(session, layer, object)?;
        if let Some(stubs) = &stubs {
            stubs.stand_before(session, &mut unit);
        }
        unit.share_commons(tracker, &self.commons)?;
        let mut traits = unit.take_traits();
        traits.is_passive &= !takes_part;
        let stubs = stubs.map(|stubs| self.lazy.lazy_file(dylib, &stubs));
        self.define_with(tracker, stubs, Box::new(unit), traits)
    }

    /// Serves the members of an archive to lookups. What they define belongs to `tracker` as long as somebody has a handle of that,
    /// and to the dylib's own tracker otherwise.
    pub(crate) fn archive(
        self: &Arc<Self>,
        archive: &ObjectBuffer,
        tracker: Option<WeakResourceTracker>,
    ) -> Result<StaticArchiveGenerator, JitError> {
        let index = ArchiveIndex::read_with(archive, |member| self.bitcode_symbols(member))?;
        // Where objects are placed depends on what is linked beside them, so members are announced before they are
        // needed. They are mostly built alike: the first speak for all, and a large archive costs no more than a small one.
        for member in index.members().iter().take(ANNOUNCED_MEMBERS_MAX) {
            self.object_layer.announce(member.contents());
        }
        let files = self.clone();
        let define = move |dylib: &JitDylib, member: ObjectBuffer| {
            let own = tracker.as_ref().and_then(WeakResourceTracker::upgrade);
            let (is_own, tracker) = match own {
                Some(own) => (true, own),
                None => (false, dylib.default_tracker()),
            };
            match files.add_member(&tracker, member) {
                // The archive is being removed, so it has nothing any more.
                Err(error) if is_own && error.is_of_removed_tracker() => Ok(()),
                added => added.map_err(|error| Arc::new(error) as SharedError),
            }
        };
        Ok(StaticArchiveGenerator::new(index, define))
    }

    /// Defines a unit, in its place in the order of initialisation.
    pub(crate) fn define(
        &self,
        tracker: &ResourceTracker,
        unit: Box<dyn MaterializationUnit>,
        traits: UnitTraits,
    ) -> Result<(), JitError> {
        self.define_with(tracker, [], unit, traits)
    }

    /// The same, with others that have no place there: all of them, or none.
    fn define_with(
        &self,
        tracker: &ResourceTracker,
        others: impl IntoIterator<Item = Box<dyn MaterializationUnit>>,
        unit: Box<dyn MaterializationUnit>,
        traits: UnitTraits,
    ) -> Result<(), JitError> {
        let dylib = tracker.dylib();
        let symbol = self.platform.declare(dylib, unit.name(), traits);
        let mut unit = LinkedUnit::new(unit, Declaration::new(self.platform.clone(), symbol));
        unit.yield_to_libraries(dylib, &self.process);
        let mut changes = dylib.session().transaction();
        for other in others {
            changes = changes.define_with_tracker(other, tracker);
        }
        changes.define_with_tracker(Box::new(unit), tracker).commit().map_err(|refused| match refused.error {
            TransactionError::Define { source, .. } => source.into(),
            error => unreachable!("a transaction that only defines was refused: {error}"),
        })
    }

    /// Adds an archive to the dylib of `tracker`: its members join when something is missing, or defined tentatively alone. Who
    /// `owns` it takes it along when the tracker is removed; without an owner it stays with the dylib.
    pub(crate) fn add_archive(
        self: &Arc<Self>,
        tracker: &ResourceTracker,
        archive: &ObjectBuffer,
        is_owned: bool,
    ) -> Result<(), JitError> {
        let dylib = tracker.dylib();
        let generator = Arc::new(self.archive(archive, is_owned.then(|| tracker.downgrade()))?);
        let id = dylib.add_generator(generator.clone());
        // Both hold what is to hold this.
        let (files, generator) = (Arc::downgrade(self), Arc::downgrade(&generator));
        let mut added = AddedArchive::new(tracker, id, &files);
        // By position: a member that defines many such variables is read once.
        let values = Mutex::new(HashMap::<usize, Arc<HashSet<Box<str>>>>::new());
        let searched = self.commons.search(dylib, move |dylib, symbol| {
            let (Some(files), Some(generator)) = (files.upgrade(), generator.upgrade()) else {
                return Ok(());
            };
            generator.add_member_if(dylib, symbol.as_str(), |position, member| {
                let known = values.lock().get(&position).cloned();
                let known = known.unwrap_or_else(|| {
                    let read = Arc::new(files.values_of(member));
                    values.lock().entry(position).or_insert(read).clone()
                });
                known.contains(symbol.as_str())
            })
        })?;
        added.is_searched(searched);
        if !is_owned {
            added.keep();
            return Ok(());
        }
        let (unit, dylib) = (dylib.session().intern(archive.name()), dylib.name().into());
        let refused = |_| DefineError::TrackerDefunct { unit, dylib };
        Ok(tracker.add_resource(Box::new(added)).map_err(refused)?)
    }

    /// The variables to which a member gives a value that every tentative definition yields to.
    fn values_of(&self, member: &ObjectBuffer) -> HashSet<Box<str>> {
        let is_value = |flags: SymbolFlags| {
            !flags.intersects(SymbolFlags::WEAK | SymbolFlags::COMMON | SymbolFlags::CALLABLE)
        };
        #[cfg(feature = "llvm")]
        if FileKind::of(member.bytes()) == FileKind::Bitcode {
            let module = self.ir_layer.interface_of(member);
            return module.map_or_else(|_| HashSet::new(), |module| module.names_where(is_value).collect());
        }
        let Ok(object) = ObjectInterface::read(member) else { return HashSet::new() };
        let values = object.defined.iter().filter(|symbol| is_value(symbol.flags));
        values.map(|symbol| symbol.name.into()).collect()
    }

    fn add_member(&self, tracker: &ResourceTracker, member: ObjectBuffer) -> Result<(), JitError> {
        #[cfg(feature = "llvm")]
        if FileKind::of(member.bytes()) == FileKind::Bitcode {
            return self.add_ir(tracker, member);
        }
        self.add_object(tracker, member)
    }

    #[cfg(feature = "llvm")]
    fn bitcode_symbols(&self, member: &ObjectBuffer) -> Result<Vec<Box<str>>, JitError> {
        Ok(self.ir_layer.interface_of(member)?.into_names())
    }

    /// Without LLVM a member of bitcode defines nothing.
    #[cfg(not(feature = "llvm"))]
    fn bitcode_symbols(&self, _member: &ObjectBuffer) -> Result<Vec<Box<str>>, JitError> {
        Ok(Vec::new())
    }
}

/// When an object is linked, if functions wait until they are called.
enum Stubs {
    /// When one of these is called, or something refers to its data.
    File(FileStubs),
    /// As ever.
    NotPutOff,
    /// Before the program runs: it has functions that choose their implementation, or whose kind it does not say, or that are more than a
    /// stub can stand for.
    BeforeStart,
}

impl Stubs {
    fn of(object: &ObjectBuffer) -> Result<Self, JitError> {
        let interface = ObjectInterface::read(object)?;
        let is_function = |symbol: &ObjectSymbol<'_>| symbol.flags.contains(SymbolFlags::CALLABLE);
        if interface.defined.iter().any(|symbol| is_function(symbol) && symbol.code.is_none())
            || interface.is_beyond_stubs(object)
        {
            return Ok(Self::BeforeStart);
        }
        // One that holds addresses in 32 bits is placed by what it refers to.
        let is_placed = CloseReferences::read(object).needs_low_addresses;
        if is_placed
            || !interface.is_passive()
            || allocates(interface.defined.iter().map(|symbol| symbol.name))
        {
            return Ok(Self::NotPutOff);
        }
        let stubs = FileStubs::of_object(object, &interface);
        Ok(if stubs.is_empty() { Self::NotPutOff } else { Self::File(stubs) })
    }

    fn into_file(self) -> Option<FileStubs> {
        match self {
            Self::File(stubs) => Some(stubs),
            Self::NotPutOff | Self::BeforeStart => None,
        }
    }
}

/// Whether there are functions that the engine itself calls when it compiles: what replaces these must be there before.
fn allocates<'n>(mut names: impl Iterator<Item = &'n str>) -> bool {
    let own: HashSet<&str> = allocation::function_names().collect();
    names.any(|name| own.contains(name))
}

impl fmt::Debug for Files {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Files").field("platform", &self.platform).finish_non_exhaustive()
    }
}
