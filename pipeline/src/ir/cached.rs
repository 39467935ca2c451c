//! [`IrCache`]: the cache that a layer asks before it calls LLVM.
//!
//! ```text
//!  add:    bytes of the source ─hash─▶ K1 ─get─▶ interface ─▶ defined        (missing: LLVM reads it; put)
//!  claim:  K1, options, what is left out ─hash─▶ K2 ─get─▶ object ─▶ linked  (missing: compile; put)
//! ```
//!
//! **Architecture Invariant:** from a source to its linked object LLVM is not called if both entries are found. It may not even be loaded.
//!
//! `cache/key.rs` lists the ingredients of a key. `processor.rs` identifies this machine, and `llvm_build.rs` the LLVM library.

use std::fmt;
use std::sync::Arc;

use uruk_core::{ExecutionSession, SymbolName};

use super::compile::IrCompiler;
use super::error::CompileError;
use super::llvm_build::llvm_build;
use super::optimize::{OptimizationLevel, OptimizationPipeline};
use super::outline::Outline;
use super::part_cache::{PartCache, PartCounts};
use super::partition::PartitionPolicy;
use super::pending::PendingModule;
use super::processor::fingerprint;
use super::symbols::ModuleInterface;
use super::target::TargetOptions;
use super::versions::ModuleVersion;
use crate::cache::{
    CacheEvent, CacheMode, CacheObserver, CompileCache, CompileCacheStats, Counter, EntryKind,
    InterfaceIngredients, Key, KeyBuilder, Miss, ObjectCache as _, ObjectIngredients, Origin,
    UnitIngredients,
};
use crate::object::{FileKind, ObjectBuffer};

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
    counts: CachedCounts,
}

#[derive(Debug, Default)]
struct CachedCounts {
    interface_hits: Counter,
    interface_misses: Counter,
    object_hits: Counter,
    object_misses: Counter,
    uncacheable: Counter,
    parts: Arc<PartCounts>,
}

/// Counts of requests to the cache.
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
    /// Parts of modules that were found, of modules that were not.
    pub part_hits: u64,
    /// Parts that were not, and were compiled.
    pub part_misses: u64,
    /// Where the entries came from.
    pub entries: CompileCacheStats,
}

impl IrCache {
    /// The cache over `store`, for modules that `compiler` compiles.
    pub fn new(store: Arc<CompileCache>, mode: CacheMode, compiler: &IrCompiler) -> Self {
        let target = compiler.target();
        let machine = if target.is_host() {
            // Its names are made from these numbers and by this build of LLVM, and the triple by the latter alone.
            ["host".to_owned(), fingerprint(), String::new()]
        } else {
            let TargetOptions { triple, cpu, features, .. } = target.decided().clone();
            [triple, cpu, features]
        };
        Self { store, mode, machine, salt: Box::default(), observer: None, counts: CachedCounts::default() }
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

    /// The allowed uses of the cache.
    pub fn mode(&self) -> CacheMode {
        self.mode
    }

    /// Statistics so far.
    pub fn stats(&self) -> IrCacheStats {
        let CachedCounts { interface_hits, interface_misses, object_hits, object_misses, uncacheable, parts } =
            &self.counts;
        IrCacheStats {
            interface_hits: interface_hits.get(),
            interface_misses: interface_misses.get(),
            object_hits: object_hits.get(),
            object_misses: object_misses.get(),
            uncacheable: uncacheable.get(),
            part_hits: parts.hits.get(),
            part_misses: parts.misses.get(),
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
    /// [`Miss`] of the first missing entry.
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

    /// The interface and the outline of a module whose functions are compiled one at a time.
    ///
    /// # Errors
    /// As [`interface_or`](Self::interface_or).
    pub(super) fn outline_or(
        &self,
        module: &ObjectBuffer,
        read: impl FnOnce() -> Result<(ModuleInterface, Outline), CompileError>,
    ) -> Result<(ModuleInterface, Outline), CompileError> {
        let mut key = KeyBuilder::new("outline");
        key.bytes("module", self.source_key(module).as_bytes());
        let key = key.finish();
        let find =
            |entry: ObjectBuffer| Outline::from_bytes(entry.bytes()).map_err(|why| Miss::BadEntry { why });
        if let Some(found) = self.found(&key, module.name(), self.store.get(&key).and_then(find))? {
            return Ok(found);
        }
        let (interface, outline) = read()?;
        self.store.put(&key, &ObjectBuffer::new(module.name().clone(), outline.to_bytes(&interface)));
        Ok((interface, outline))
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
        self.found(key, name, self.read_interface(key))
    }

    /// Reports and counts the result of a lookup of an interface.
    fn found<T>(
        &self,
        key: &Key,
        name: &Arc<str>,
        found: Result<T, Miss>,
    ) -> Result<Option<T>, CompileError> {
        let CachedCounts { interface_hits: hits, interface_misses: misses, .. } = &self.counts;
        if found.is_ok() { hits } else { misses }.add(1);
        let outcome = found.as_ref().map(|_| ()).map_err(Miss::clone);
        self.tell(&CacheEvent::new(name.clone(), EntryKind::Interface, Some(*key), outcome));
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
        let tell = |key, outcome| self.tell_of_object(&name, key, outcome);
        let key = match pending.interface_key(self, compiler) {
            Ok(interface) => pending.object_key(compiler, interface),
            Err(why) => {
                self.counts.uncacheable.add(1);
                tell(None, Err(why.clone()));
                self.may_compile(&name, EntryKind::Object, &why)?;
                return compiler.compile_pending(session, pending, None);
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
        let verified = pending.verified;
        let blocking = |wait: &mut dyn FnMut()| session.blocking(&mut *wait).is_ok();
        let make = || compiler.compile_pending(session, pending, self.parts(compiler, verified));
        let obtained = self.store.get_or_make(&key, &blocking, make)?;
        let outcome = match obtained.origin {
            Origin::Stored | Origin::Shared => Ok(()),
            Origin::Made(why) => Err(why),
        };
        tell(Some(key), outcome);
        // It may have been made under another name, and errors of the linker say whose object it is.
        Ok(obtained.object.renamed(name.clone()))
    }

    /// Where parts are looked for that a change elsewhere in their module leaves as they were.
    fn parts(&self, compiler: &IrCompiler, verified: bool) -> Option<PartCache> {
        let is_early = compiler.partition().policy() == PartitionPolicy::Early;
        is_early.then(|| {
            let nothing = self.source_key(&ObjectBuffer::new("nothing", Vec::new()));
            let options = object_key(compiler, verified, nothing, &mut [], &mut []);
            self.parts_of(options)
        })
    }

    fn parts_of(&self, options: Key) -> PartCache {
        let Self { store, mode, observer, counts, .. } = self;
        let (store, counts, observer) = (store.clone(), counts.parts.clone(), observer.clone());
        PartCache { store, mode: *mode, options, counts, observer }
    }

    /// Where functions of `module` are looked for that `compiler` compiles one at a time; if it `inlines`, with copies of those they call.
    pub(super) fn functions(
        &self,
        compiler: &IrCompiler,
        verified: bool,
        module: &ObjectBuffer,
        inlines: bool,
    ) -> PartCache {
        let mut key = KeyBuilder::new("functions");
        let whole = object_key(compiler, verified, self.source_key(module), &mut [], &mut []);
        key.bytes("module", whole.as_bytes()).number("inlines", inlines.into());
        self.parts_of(key.finish())
    }

    /// The key of the interface of what is left of a module whose functions are compiled one at a time.
    pub(super) fn data_key(&self, module: &ObjectBuffer) -> Key {
        let mut key = KeyBuilder::new("data");
        key.bytes("module", self.source_key(module).as_bytes());
        key.finish()
    }

    fn may_compile(&self, module: &Arc<str>, kind: EntryKind, why: &Miss) -> Result<(), CompileError> {
        match self.mode {
            CacheMode::ReadWrite | CacheMode::ReadOnly => Ok(()),
            CacheMode::RequireHit => {
                Err(CompileError::NotCached { module: module.clone(), kind, why: why.clone() })
            }
        }
    }

    /// Counts and reports the result of a lookup of an object.
    pub(super) fn tell_of_object(&self, name: &Arc<str>, key: Option<Key>, outcome: Result<(), Miss>) {
        let CachedCounts { object_hits: hits, object_misses: misses, .. } = &self.counts;
        if outcome.is_ok() { hits } else { misses }.add(1);
        self.tell(&CacheEvent::new(name.clone(), EntryKind::Object, key, outcome));
    }

    /// Reports that a module is not known by its shape, and goes by its bitcode.
    pub(super) fn tell_of_no_shape(&self, name: &Arc<str>, why: Miss) {
        self.tell(&CacheEvent::new(name.clone(), EntryKind::Interface, None, Err(why)));
    }

    fn tell(&self, event: &CacheEvent) {
        event.tell(self.observer.as_deref());
    }
}

impl PendingModule {
    fn object_key(&self, compiler: &IrCompiler, interface: Key) -> Key {
        let names = |symbols: &'_ [SymbolName]| -> Vec<String> {
            symbols.iter().map(|symbol| symbol.as_str().to_owned()).collect()
        };
        let Self { source: _, verified, kept, discarded, key: _ } = self;
        let (kept, discarded) = (names(kept), names(discarded));
        let mut kept: Vec<&str> = kept.iter().map(|name| &**name).collect();
        let mut discarded: Vec<&str> = discarded.iter().map(|name| &**name).collect();
        object_key(compiler, *verified, interface, &mut kept, &mut discarded)
    }
}

/// The key of the object that `compiler` makes of a module with this interface.
pub(super) fn object_key(
    compiler: &IrCompiler,
    verified: bool,
    interface: Key,
    kept: &mut [&str],
    discards: &mut [&str],
) -> Key {
    let IrCompiler {
        target,
        pipeline,
        partition,
        keeps_debug_info,
        dump: _,
        kept: _,
        listing: _,
        helpers: _,
        versions,
    } = compiler;
    let mut options = target.decided().numbers();
    // A module that was compiled without the verifier is no hit for a compiler that verifies.
    options.extend([("verified", u64::from(verified)), ("debug information", u64::from(*keeps_debug_info))]);
    options.extend(partition.ingredients());
    let (mut passes, hooks) = (pipeline.text(), pipeline.hook_ids());
    for ModuleVersion { name, target, vector_bits, base } in &**versions {
        // In no name of a pass there is a line's end.
        let TargetOptions { cpu, features, .. } = target.decided();
        let (base, base_bits) = base;
        passes.push_str(&format!("\nfor {name}: {cpu} {features} {vector_bits} beside {base} {base_bits}"));
    }
    let ingredients =
        ObjectIngredients { interface, options: &options, passes: &passes, hooks: &hooks, kept, discards };
    ingredients.key()
}

impl IrCompiler {
    /// The key of a source and of the options that it is compiled with here: on every machine, by every build of LLVM and in every directory the
    /// same. The division into parts does not count, nor does debug information.
    ///
    /// # Cost
    /// That of [`InterfaceIngredients::key`].
    pub fn unit_key(&self, source: &ObjectBuffer) -> Key {
        let Self {
            target,
            pipeline,
            partition: _,
            keeps_debug_info: _,
            dump: _,
            kept: _,
            listing: _,
            helpers: _,
            versions: _,
        } = self;
        let (passes, hooks) = (pipeline.text(), pipeline.hook_ids());
        let options = target.decided().numbers();
        UnitIngredients { source: source.bytes(), options: &options, passes: &passes, hooks: &hooks }.key()
    }

    /// The key that a source has where it is compiled at `level`, and with no passes or hooks of the host's.
    pub fn unit_key_at(&self, source: &ObjectBuffer, level: OptimizationLevel) -> Key {
        let target = self.target.clone().with_codegen_level(level.into());
        Self::new(target, OptimizationPipeline::level(level)).unit_key(source)
    }
}

impl fmt::Debug for IrCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IrCache")
            .field("mode", &self.mode)
            .field("store", &self.store)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;
    use crate::cache::changed_one_at_a_time;
    use crate::ir::{
        CodeModel, CodegenLevel, ExtensionPoint, JitTargetMachineBuilder, OptimizationLevel,
        OptimizationPipeline, Partition, PartitionPolicy, PassHook, Stage,
    };

    /// The keys that a compiler has for a file. All other ingredients are the same for all.
    fn keys(compiler: &IrCompiler) -> [Key; 2] {
        let store = Arc::new(CompileCache::new(0, None));
        let source = ObjectBuffer::new("answer.ll", b"define void @answer() { ret void }".to_vec());
        let interface = IrCache::new(store, CacheMode::ReadWrite, compiler).source_key(&source);
        [interface, object_key(compiler, true, interface, &mut [], &mut [])]
    }

    /// Holds that no two objects have one key.
    #[track_caller]
    fn assert_apart(changed: impl IntoIterator<Item = (String, Key)>) {
        let mut seen = HashMap::new();
        for (what, key) in changed {
            if let Some(other) = seen.insert(key, what.clone()) {
                panic!("`{what}` and `{other}` have one key");
            }
        }
    }

    #[test]
    fn every_option_of_a_target_changes_the_key() {
        let host = JitTargetMachineBuilder::host().expect("host target").options().clone();
        let changed = changed_one_at_a_time!(
            host,
            TargetOptions {
                triple: ["x86_64-unknown-none-elf".to_owned()],
                cpu: ["x86-64".to_owned(), "x86-64-v2".to_owned()],
                features: ["+sse4.2".to_owned(), "-sse4.2".to_owned()],
                codegen_level: [CodegenLevel::None, CodegenLevel::Less, CodegenLevel::Aggressive],
                code_model: [CodeModel::Medium, CodeModel::Large],
                large_data_threshold_bytes: [1],
                function_sections: [true],
                data_sections: [true],
            }
        );
        let object_of = |options: &TargetOptions| {
            let target = JitTargetMachineBuilder::new(options.clone()).expect("LLVM knows it");
            keys(&IrCompiler::new(target, OptimizationPipeline::none()))[1]
        };
        let described =
            changed.iter().map(|(field, options)| (format!("{field}: {options:?}"), object_of(options)));
        assert_apart(described.chain([("the host's".to_owned(), object_of(&host))]));
    }

    #[test]
    fn every_part_of_a_compiler_changes_the_key() {
        use OptimizationLevel::{O0, O1, O2, O3, Os, Oz};
        use PartitionPolicy::{Early, Late};
        let whole = IrCompiler::host(O2).expect("host target");
        let named = JitTargetMachineBuilder::new(whole.target().options().clone()).expect("this machine");
        let (none, level) = (OptimizationPipeline::none, OptimizationPipeline::level);
        let version = |cpu: &str, features: &str| -> Arc<[ModuleVersion]> {
            let options = whole.target().options().clone();
            let options = TargetOptions { cpu: cpu.into(), features: features.into(), ..options };
            let target = JitTargetMachineBuilder::new(options).expect("LLVM knows it");
            let (name, base) = (cpu.into(), ("x86-64".into(), 128));
            [ModuleVersion { name, target, vector_bits: 256, base }].into()
        };
        let hook = |id: &str| PassHook::new(id, |_| Ok::<_, String>(()));
        let (early, passes) = (Stage::EarlySimplification, OptimizationPipeline::passes("mem2reg"));
        let changed = changed_one_at_a_time!(
            whole,
            IrCompiler {
                target: [named],
                pipeline: [
                    none(),
                    level(O0),
                    level(O1),
                    level(O3),
                    level(Os),
                    level(Oz),
                    passes,
                    level(O2).at_start("sroa"),
                    level(O2).at_end("sroa"),
                    level(O2).at_end("gvn"),
                    level(O2).before(early, "sroa"),
                    level(O2).after(early, "sroa"),
                    level(O2).replace(early, "sroa"),
                    level(O2).up_to(early),
                    level(O2).inliner_threshold(512),
                    level(O2).inliner_threshold(225),
                    level(O2).hook_before(early, hook("1")),
                    level(O2).hook_before(early, hook("2")),
                    level(O2).hook_at(ExtensionPoint::Peephole, hook("1")),
                ],
                partition: [
                    Partition::new(Late, 2),
                    Partition::new(Early, 2),
                    Partition::new(Late, 3),
                    Partition::new(Late, 2).of_all_modules(),
                ],
                dump: [], // Objects are the same with it.
                kept: [],
                listing: [], // As with a dump.
                keeps_debug_info: [true],
                helpers: [],
                versions: [version("x86-64-v3", ""), version("x86-64-v3", "+aes"), version("x86-64-v4", "")],
            }
        );
        let described = changed.iter().map(|(field, compiler)| {
            let IrCompiler {
                target: _,
                pipeline,
                partition,
                keeps_debug_info,
                dump: _,
                kept: _,
                listing: _,
                helpers: _,
                versions,
            } = compiler;
            let described = format!("{field}: {pipeline:?} {partition:?} {keeps_debug_info} {versions:?}");
            (described, keys(compiler)[1])
        });
        assert_apart(described.chain([("unchanged".to_owned(), keys(&whole)[1])]));
    }

    #[test]
    fn what_is_done_to_a_module_changes_the_key() {
        let compiler = IrCompiler::host(OptimizationLevel::O1).expect("host target");
        let [interface, whole] = keys(&compiler);
        let key = |verified, kept: &mut [&str], discards: &mut [&str]| {
            object_key(&compiler, verified, interface, kept, discards)
        };
        let other = Key::from_bytes([1; Key::SIZE_BYTES]);
        let changed = [
            ("unchanged", whole),
            ("another interface", object_key(&compiler, true, other, &mut [], &mut [])),
            ("not verified", key(false, &mut [], &mut [])),
            ("a definition is kept", key(true, &mut ["answer"], &mut [])),
            ("a definition is left out", key(true, &mut [], &mut ["answer"])),
        ];
        assert_apart(changed.map(|(what, key)| (what.to_owned(), key)));
        // One module on every thread, in every order: one key.
        assert_eq!(keys(&compiler), [interface, whole]);
    }

    #[test]
    fn source_name_and_salt_change_the_key() {
        let compiler = IrCompiler::host(OptimizationLevel::O1).expect("host target");
        let key = |name: &str, source: &[u8], salt: &[u8]| {
            let store = Arc::new(CompileCache::new(0, None));
            let cache = IrCache::new(store, CacheMode::ReadWrite, &compiler).salted(salt);
            cache.source_key(&ObjectBuffer::new(name, source.to_vec()))
        };
        let (text, bitcode) = (b"define void @f() { ret void }", b"BC\xc0\xde and so on");
        let changed = [
            ("text", key("f.ll", text, b"")),
            ("other text", key("f.ll", b"", b"")),
            ("another name", key("g.ll", text, b"")),
            ("another salt", key("f.ll", text, b"salt")),
            ("bitcode", key("f.bc", bitcode, b"")),
        ];
        assert_apart(changed.map(|(what, key)| (what.to_owned(), key)));
        assert_eq!(key("f.bc", bitcode, b""), key("g.bc", bitcode, b""), "bitcode has its own name");
    }
}
