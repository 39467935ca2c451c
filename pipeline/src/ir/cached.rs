//! [`IrCache`]: what a layer that compiles modules asks before it calls LLVM.
//!
//! ```text
//!  add:    bytes of the source ─hash─▶ K1 ─get─▶ interface ─▶ defined        (missing: LLVM reads it; put)
//!  claim:  K1, options, what is left out ─hash─▶ K2 ─get─▶ object ─▶ linked  (missing: compile; put)
//! ```
//!
//! **Architecture Invariant:** from a source to its linked object LLVM is not called if both entries are found. It may not even be loaded.
//!
//! What a key covers is in `cache/key.rs`. What this machine is, it covers by `processor.rs`; which LLVM, by `llvm_build.rs`.

use std::fmt;
use std::sync::Arc;

use uruk_core::{ExecutionSession, SymbolName};

use super::compile::IrCompiler;
use super::error::CompileError;
use super::llvm_build::llvm_build;
use super::pending::PendingModule;
use super::processor::fingerprint;
use super::symbols::ModuleInterface;
use super::target::TargetOptions;
use crate::cache::{
    CacheEvent, CacheMode, CompileCache, CompileCacheStats, Counter, EntryKind, InterfaceIngredients, Key,
    Miss, ObjectCache as _, ObjectIngredients, Origin,
};
use crate::object::{FileKind, ObjectBuffer};

/// Told of each entry that was asked for, on the thread that did, without a lock.
pub type CacheObserver = dyn Fn(&CacheEvent) + Send + Sync;

/// Interfaces and objects of modules that were compiled before.
///
/// # Concurrency
/// Callable from any thread. Of all who want one object at a time, one compiles it; the others wait, declared to the session.
pub struct IrCache {
    store: Arc<CompileCache>,
    mode: CacheMode,
    /// Triple, processor and features, or what stands for them.
    machine: [String; 3],
    salt: Box<[u8]>,
    observer: Option<Arc<CacheObserver>>,
    counts: Counts,
}

#[derive(Debug, Default)]
struct Counts {
    interface_hits: Counter,
    interface_misses: Counter,
    object_hits: Counter,
    object_misses: Counter,
    uncacheable: Counter,
}

/// What a cache has been asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct IrCacheStats {
    /// Interfaces that were found.
    pub interface_hits: u64,
    /// Interfaces that were not.
    pub interface_misses: u64,
    /// Objects that were found, or made by another thread at the same time.
    pub object_hits: u64,
    /// Objects that were not found. In [`CacheMode::RequireHit`] each is an error; otherwise each was compiled.
    pub object_misses: u64,
    /// Those of them that have no key.
    pub uncacheable: u64,
    /// Where the entries came from.
    pub entries: CompileCacheStats,
}

impl IrCache {
    /// What is in `store`, for what `compiler` compiles.
    pub fn new(store: Arc<CompileCache>, mode: CacheMode, compiler: &IrCompiler) -> Self {
        let target = compiler.target();
        let machine = if target.is_host() {
            // Its names are made from these numbers and by this build of LLVM, and the triple by the latter alone.
            ["host".to_owned(), fingerprint(), String::new()]
        } else {
            let TargetOptions { triple, cpu, features, .. } = target.decided().clone();
            [triple, cpu, features]
        };
        Self { store, mode, machine, salt: Box::default(), observer: None, counts: Counts::default() }
    }

    /// The same with entries of its own: those made with another salt are not found.
    #[must_use]
    pub fn salted(mut self, salt: impl Into<Box<[u8]>>) -> Self {
        self.salt = salt.into();
        self
    }

    /// The same, telling `observer` of each entry that is asked for.
    #[must_use]
    pub fn observed(mut self, observer: Arc<CacheObserver>) -> Self {
        self.observer = Some(observer);
        self
    }

    /// Where the entries are.
    pub fn store(&self) -> &Arc<CompileCache> {
        &self.store
    }

    /// What may be done with it.
    pub fn mode(&self) -> CacheMode {
        self.mode
    }

    /// What it has been asked for by now.
    pub fn stats(&self) -> IrCacheStats {
        let Counts { interface_hits, interface_misses, object_hits, object_misses, uncacheable } =
            &self.counts;
        IrCacheStats {
            interface_hits: interface_hits.get(),
            interface_misses: interface_misses.get(),
            object_hits: object_hits.get(),
            object_misses: object_misses.get(),
            uncacheable: uncacheable.get(),
            entries: self.store.stats(),
        }
    }

    /// The key of the interface of a file of bitcode or text. The name of a file of text gets into its object.
    pub fn source_key(&self, source: &ObjectBuffer) -> Key {
        let [triple, cpu, features] = &self.machine;
        let is_bitcode = FileKind::of(source.bytes()) == FileKind::Bitcode;
        let ingredients = InterfaceIngredients {
            source: source.bytes(),
            text_name: (!is_bitcode).then_some(source.name()),
            triple,
            cpu,
            features,
            compiler_build: llvm_build(),
            salt: &self.salt,
        };
        ingredients.key()
    }

    /// Whether a file would be found if it was added now and compiled by `compiler`, without the definitions that `discards`
    /// says. Nothing is counted or told.
    ///
    /// # Errors
    /// [`Miss`] of what is missing first.
    pub fn would_hit(
        &self,
        compiler: &IrCompiler,
        verified: bool,
        source: &ObjectBuffer,
        discards: impl FnOnce(&ModuleInterface) -> Vec<Box<str>>,
    ) -> Result<(), Miss> {
        let key = self.source_key(source);
        let interface = self.read_interface(&key)?;
        let discards = discards(&interface);
        let mut discards: Vec<&str> = discards.iter().map(|name| &**name).collect();
        let mut kept: Vec<&str> = interface.kept_symbols().collect();
        let key = object_key(compiler, verified, key, &mut kept, &mut discards);
        if self.store.contains(&key) { Ok(()) } else { Err(Miss::NotStored) }
    }

    /// The interface of the file with this key.
    ///
    /// # Errors
    /// Whether LLVM is to read it: [`CompileError::NotCached`] if it must not. Otherwise what `read` says.
    pub(super) fn interface_or(
        &self,
        key: &Key,
        name: &Arc<str>,
        read: impl FnOnce() -> Result<ModuleInterface, CompileError>,
    ) -> Result<ModuleInterface, CompileError> {
        match self.interface(key, name)? {
            Some(interface) => Ok(interface),
            None => {
                let interface = read()?;
                self.put_interface(key, name, &interface);
                Ok(interface)
            }
        }
    }

    /// The interface of the file with this key, if it is there.
    ///
    /// # Errors
    /// [`CompileError::NotCached`] if it has to be.
    pub(super) fn interface(
        &self,
        key: &Key,
        name: &Arc<str>,
    ) -> Result<Option<ModuleInterface>, CompileError> {
        let found = self.read_interface(key);
        let (hits, misses) = (&self.counts.interface_hits, &self.counts.interface_misses);
        if found.is_ok() {
            hits.add(1)
        } else {
            misses.add(1)
        }
        let outcome = found.as_ref().map(|_| ()).map_err(Miss::clone);
        self.tell(CacheEvent::new(name.clone(), EntryKind::Interface, Some(*key), outcome));
        match found {
            Ok(interface) => Ok(Some(interface)),
            Err(why) => self.may_compile(name, EntryKind::Interface, &why).map(|()| None),
        }
    }

    pub(super) fn put_interface(&self, key: &Key, name: &Arc<str>, interface: &ModuleInterface) {
        self.store.put(key, &ObjectBuffer::new(name.clone(), interface.to_bytes()));
    }

    fn read_interface(&self, key: &Key) -> Result<ModuleInterface, Miss> {
        let entry = self.store.get(key)?;
        ModuleInterface::from_bytes(entry.bytes()).map_err(|why| Miss::BadEntry { why })
    }

    /// The object of a module. `session` is told of waits for others who compile the same.
    ///
    /// # Errors
    /// What `compiler` says, or [`CompileError::NotCached`].
    pub(super) fn object(
        &self,
        compiler: &IrCompiler,
        mut pending: PendingModule,
        session: &ExecutionSession,
    ) -> Result<ObjectBuffer, CompileError> {
        let name = pending.name().clone();
        let tell = |key, outcome: Result<(), Miss>| {
            let (hits, misses) = (&self.counts.object_hits, &self.counts.object_misses);
            if outcome.is_ok() {
                hits.add(1)
            } else {
                misses.add(1)
            }
            self.tell(CacheEvent::new(name.clone(), EntryKind::Object, key, outcome));
        };
        let key = match pending.interface_key(self, compiler) {
            Ok(interface) => pending.object_key(compiler, interface),
            Err(why) => {
                self.counts.uncacheable.add(1);
                tell(None, Err(why.clone()));
                self.may_compile(&name, EntryKind::Object, &why)?;
                return compiler.compile_in(session, pending.prepare()?);
            }
        };
        if self.mode == CacheMode::RequireHit {
            let found = self.store.get(&key);
            tell(Some(key), found.as_ref().map(|_| ()).map_err(Miss::clone));
            return found.map(|object| object.renamed(name.clone())).map_err(|why| CompileError::NotCached {
                module: name.clone(),
                kind: EntryKind::Object,
                why,
            });
        }
        let blocking = |wait: &mut dyn FnMut()| session.blocking(&mut *wait).is_ok();
        let make = || {
            let module = pending.prepare()?;
            compiler.compile_in(session, module)
        };
        let obtained = self.store.get_or_make(&key, &blocking, make)?;
        let outcome = match obtained.origin {
            Origin::Stored | Origin::Shared => Ok(()),
            Origin::Made(why) => Err(why),
        };
        tell(Some(key), outcome);
        // It may have been made under another name, and errors of the linker say whose object it is.
        Ok(obtained.object.renamed(name.clone()))
    }

    fn may_compile(&self, module: &Arc<str>, kind: EntryKind, why: &Miss) -> Result<(), CompileError> {
        match self.mode {
            CacheMode::ReadWrite | CacheMode::ReadOnly => Ok(()),
            CacheMode::RequireHit => {
                Err(CompileError::NotCached { module: module.clone(), kind, why: why.clone() })
            }
        }
    }

    #[expect(clippy::needless_pass_by_value, reason = "an event is made for this one call")]
    fn tell(&self, event: CacheEvent) {
        let CacheEvent { unit, kind, key, found } = &event;
        let key = key.map(tracing::field::display);
        match found {
            Ok(()) => tracing::debug!(%unit, entry = %kind, key, "cache hit"),
            Err(cause) => tracing::debug!(%unit, entry = %kind, key, %cause, "cache miss"),
        }
        if let Some(observer) = &self.observer {
            observer(&event);
        }
    }
}

impl PendingModule {
    fn object_key(&self, compiler: &IrCompiler, interface: Key) -> Key {
        let names = |symbols: &'_ [SymbolName]| -> Vec<String> {
            symbols.iter().map(|symbol| symbol.as_str().to_owned()).collect()
        };
        let (kept, discarded) = (names(&self.kept), names(&self.discarded));
        let mut kept: Vec<&str> = kept.iter().map(|name| &**name).collect();
        let mut discarded: Vec<&str> = discarded.iter().map(|name| &**name).collect();
        object_key(compiler, self.verified, interface, &mut kept, &mut discarded)
    }
}

/// The key of the object that `compiler` makes of a module with this interface.
fn object_key(
    compiler: &IrCompiler,
    verified: bool,
    interface: Key,
    kept: &mut [&str],
    discards: &mut [&str],
) -> Key {
    let TargetOptions {
        triple: _,
        cpu: _,
        features: _,
        codegen_level,
        code_model,
        large_data_threshold_bytes,
        function_sections,
        data_sections,
    } = compiler.target().decided();
    let mut options = vec![
        ("codegen level", *codegen_level as u64),
        ("code model", *code_model as u64),
        ("large data from", *large_data_threshold_bytes),
        ("function sections", u64::from(*function_sections)),
        ("data sections", u64::from(*data_sections)),
        // What was compiled without the verifier is not for those who want it.
        ("verified", u64::from(verified)),
    ];
    options.extend(compiler.partition().ingredients());
    let (passes, hooks) = (compiler.pipeline().text(), compiler.pipeline().hook_ids());
    let ingredients =
        ObjectIngredients { interface, options: &options, passes: &passes, hooks: &hooks, kept, discards };
    ingredients.key()
}

impl fmt::Debug for IrCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IrCache")
            .field("mode", &self.mode)
            .field("store", &self.store)
            .finish_non_exhaustive()
    }
}
