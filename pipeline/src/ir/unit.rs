//! [`IrMaterializationUnit`]: the symbols of one module, compiled when the first of them is wanted.
//!
//! While it waits, a unit holds bitcode and nothing of LLVM's. The symbols of a file of bitcode are read without function bodies when the unit
//! is made, and the module is read whole, in a context of its own, by the worker that materializes it. So adding many files is quick, and
//! reading them is shared out. Textual IR, and a module that has a context to itself, are written as bitcode: a small module takes 18 KB
//! with its context, and 2 as bitcode. Only a module whose context others use too waits as it is.

use std::fmt;
use std::sync::Arc;

use rustc_hash::FxHashMap;
use uruk_core::{
    ExecutionSession, JitDylib, MaterializationInterface, MaterializationResponsibility, MaterializationUnit,
    ResourceTracker, SerialQueue, SharedError, SymbolName,
};

use super::error::CompileError;
use super::ir_layer::IrLayer;
use super::lazy_module::LazyModule;
use super::linker_info::LinkerInfo;
use super::pending::{PendingModule, Source};
use super::source::SourceKind;
use super::symbols::ModuleInterface;
use super::{JitTargetMachineBuilder, ThreadSafeModule};
use crate::cache::Key;
use crate::lazy::FileStubs;
use crate::object::{
    CommonError, CommonExtent, CommonSymbols, CompiledOnCall, ObjectBuffer, References, UnitTraits,
    intern_interface, references,
};

/// A module of LLVM IR waiting to be compiled. It is named after its file.
///
/// ORC: `IRMaterializationUnit`.
#[doc(alias = "IRMaterializationUnit")]
pub struct IrMaterializationUnit {
    source: Source,
    layer: Arc<dyn IrLayer>,
    /// The key by which its interface was looked up in the layer's cache.
    key: Option<Key>,
    interface: MaterializationInterface,
    /// Definitions that optimization must keep.
    linkonce: Vec<SymbolName>,
    commons: Vec<(SymbolName, CommonExtent)>,
    traits: UnitTraits,
    discarded: Vec<SymbolName>,
    /// The module's names of symbols that have another name in the program.
    names_in_module: FxHashMap<SymbolName, SymbolName>,
    verified: bool,
}

impl IrMaterializationUnit {
    /// Promises the symbols of a module that is in memory; `layer` is to compile it for `target`.
    ///
    /// # Errors
    /// [`CompileError`] if its module-level assembly cannot be assembled or its context is lost.
    pub fn from_module(
        session: &ExecutionSession,
        layer: Arc<dyn IrLayer>,
        target: &JitTargetMachineBuilder,
        module: ThreadSafeModule,
    ) -> Result<Self, CompileError> {
        let interface = ModuleInterface::of_module(&module, target)?;
        let source = Source::waiting(module)?;
        // A module in memory is its owner's to verify.
        Ok(Self { verified: false, ..Self::promise(session, layer, &interface, source) })
    }

    /// Promises the symbols of a file of bitcode or textual IR; `layer` is to compile it for `target`.
    ///
    /// # Errors
    /// [`CompileError`] if the file is not LLVM IR, or is damaged where its symbols are. Damage further on
    /// fails the symbols when they are wanted.
    ///
    /// # Cost
    /// If the layer's [cache](IrLayer::cache) has the interface: hashing the source, 4 to 6 µs for 20 KB. Otherwise for bitcode:
    /// see [`ModuleInterface::of_bitcode`]. Text has to be read whole.
    pub fn from_source(
        session: &ExecutionSession,
        layer: Arc<dyn IrLayer>,
        target: &JitTargetMachineBuilder,
        source: ObjectBuffer,
    ) -> Result<Self, CompileError> {
        let (kind, file) = (SourceKind::of(&source)?, source);
        let key = layer.cache().map(|cache| cache.source_key(&file));
        let asked = layer.cache().zip(key);
        let known = asked.map(|(cache, key)| cache.interface(&key, file.name())).transpose()?.flatten();
        let (interface, source) = match known {
            Some(interface) => (interface, Source::Unread(file)),
            None => {
                let apart = layer.interface_apart(&file);
                let name = file.name().clone();
                let read = match apart {
                    Some(interface) => (interface?, Source::Unread(file)),
                    None => Self::read(kind, file, target)?,
                };
                if let Some((cache, key)) = asked {
                    cache.put_interface(&key, &name, &read.0);
                }
                read
            }
        };
        let unit = Self::promise(session, layer, &interface, source);
        Ok(Self { key, ..unit })
    }

    /// The interface of a file, and the file, or the bitcode of the module that it had to be read into.
    fn read(
        kind: SourceKind,
        source: ObjectBuffer,
        target: &JitTargetMachineBuilder,
    ) -> Result<(ModuleInterface, Source), CompileError> {
        match kind {
            SourceKind::Bitcode => {
                Ok((ModuleInterface::of_bitcode(&source, target)?, Source::Unread(source)))
            }
            SourceKind::Assembly => {
                let module = ThreadSafeModule::parse_assembly(&source)?;
                let interface = ModuleInterface::of_module(&module, target)?;
                Ok((interface, Source::waiting(module)?))
            }
        }
    }

    /// Promises what `interface` says that a file of bitcode or textual IR defines. The file is not looked at before
    /// something of it is wanted.
    ///
    /// An interface that says too much fails the symbols then.
    pub fn from_interface(
        session: &ExecutionSession,
        layer: Arc<dyn IrLayer>,
        interface: &ModuleInterface,
        source: ObjectBuffer,
    ) -> Self {
        Self::promise(session, layer, interface, Source::Unread(source))
    }

    /// Promises what `interface` says, of a source that the layer's cache knows by `key`.
    pub(super) fn known(
        session: &ExecutionSession,
        layer: Arc<dyn IrLayer>,
        interface: &ModuleInterface,
        source: Source,
        key: Key,
    ) -> Self {
        Self { key: Some(key), ..Self::promise(session, layer, interface, source) }
    }

    /// Promises the same symbols by the names that `info` gives them, and refers to others by those. Its layer must have the same
    /// [meanings](super::IrCompileLayer::with_meanings).
    #[must_use]
    pub fn with_meanings(mut self, session: &ExecutionSession, info: &LinkerInfo) -> Self {
        let in_program = |name: &SymbolName| match info.name_in_program(name.as_str()) {
            Some(renamed) => session.intern(&renamed),
            None => name.clone(),
        };
        let flags = std::mem::take(&mut self.interface.symbols);
        for (name, flags) in flags {
            self.names_in_module.insert(in_program(&name), name.clone());
            self.interface.symbols.insert(in_program(&name), flags);
        }
        self.commons.iter_mut().for_each(|(name, _)| *name = in_program(name));
        let References { defined, undefined } = &mut self.traits.references;
        let is_looked_up = |name: &&SymbolName| !info.is_placed(name.as_str());
        *defined = defined.iter().map(in_program).collect();
        *undefined = undefined.iter().filter(is_looked_up).map(in_program).collect();
        self
    }

    /// Promises the functions of `stubs` by the names of their bodies: the stubs are what others refer to. Its layer must have the
    /// [same](super::IrCompileLayer::with_stubs).
    #[must_use]
    pub fn with_stubs(mut self, session: &ExecutionSession, stubs: &FileStubs) -> Self {
        let Self { interface, names_in_module, .. } = &mut self;
        stubs.rename_bodies(session, interface, |body, name| {
            names_in_module.insert(body.clone(), name);
        });
        stubs.leave_out(&mut self.traits.references);
        self
    }

    /// Has the module take part in every program, even without a reference to it.
    pub fn always_link(&mut self) {
        self.traits.is_passive = false;
    }

    /// Leaves out LLVM's verifier when the unit is materialized; see [`ThreadSafeModule::parse_unverified`].
    pub fn skip_verifier(&mut self) {
        self.verified = false;
    }

    fn promise(
        session: &ExecutionSession,
        layer: Arc<dyn IrLayer>,
        module: &ModuleInterface,
        source: Source,
    ) -> Self {
        let symbols = module.symbols.iter().map(|symbol| (&*symbol.name, symbol.flags));
        let runs_code = module.has_initializers || module.has_finalizers;
        let interface = intern_interface(session, source.name(), symbols, runs_code);
        let linkonce = module.symbols.iter().filter(|symbol| symbol.linkonce);
        let linkonce = linkonce.map(|symbol| session.intern(&symbol.name)).collect();
        let commons = module.symbols.iter();
        let commons =
            commons.filter_map(|symbol| Some((session.intern(&symbol.name), symbol.common?))).collect();
        let traits = UnitTraits {
            shares_sections: module.shares_sections,
            is_passive: module.is_passive(),
            runs_at_start: module.has_initializers,
            references: references(session, &interface, module.undefined.iter().map(|name| &**name)),
            ..UnitTraits::default()
        };
        Self {
            source,
            layer,
            key: None,
            interface,
            linkonce,
            commons,
            traits,
            discarded: Vec::new(),
            names_in_module: FxHashMap::default(),
            verified: true,
        }
    }

    /// Promises what `own` says: the data of `module`, which as a whole has the interface `whole`, and functions that are compiled `on_call`.
    pub(super) fn data_of(
        session: &ExecutionSession,
        layer: Arc<dyn IrLayer>,
        own: &ModuleInterface,
        whole: &ModuleInterface,
        module: LazyModule,
        on_call: CompiledOnCall,
    ) -> Self {
        let symbols = whole.symbols.iter().map(|symbol| (session.intern(&symbol.name), symbol.flags));
        let defined = MaterializationInterface::new(symbols.collect());
        let undefined = whole.undefined.iter().map(|name| &**name);
        let references = references(session, &defined, undefined);
        let unit = Self::promise(session, layer, own, Source::Data(module));
        Self { traits: UnitTraits { references, compiled_on_call: Some(on_call), ..unit.traits }, ..unit }
    }

    /// The unit's traits for a platform. Its references are given once.
    pub fn take_traits(&mut self) -> UnitTraits {
        let references = std::mem::take(&mut self.traits.references);
        UnitTraits { references, ..self.traits.clone() }
    }

    /// Hands the module's tentative definitions to `commons`, where those of other files meet them. To be
    /// called before the unit is defined; left out, the first file's size is everybody's.
    ///
    /// # Errors
    /// [`CommonError`].
    pub fn share_commons(
        &mut self,
        tracker: &ResourceTracker,
        commons: &CommonSymbols,
    ) -> Result<(), CommonError> {
        for (symbol, extent) in std::mem::take(&mut self.commons) {
            let flags = self.interface.symbols.get(&symbol).copied().unwrap_or_default();
            commons.add(tracker, self.source.name(), &symbol, flags, extent)?;
            self.discard(tracker.dylib(), &symbol);
        }
        Ok(())
    }
}

impl MaterializationUnit for IrMaterializationUnit {
    fn name(&self) -> &str {
        self.source.name()
    }

    fn interface(&self) -> MaterializationInterface {
        self.interface.clone()
    }

    fn serial_queue(&self) -> Option<SerialQueue> {
        self.source.serial_queue()
    }

    fn materialize(self: Box<Self>, responsibility: MaterializationResponsibility) {
        let Self { source, verified, layer, key, linkonce, discarded, .. } = *self;
        let pending = PendingModule { source, verified, kept: linkonce, discarded, key };
        layer.emit_pending(responsibility, pending);
    }

    /// A module whose context others use too is used up when it is compiled: it has none.
    fn spare(&self) -> Option<Box<dyn MaterializationUnit>> {
        let source = match &self.source {
            Source::Unread(source) => Source::Unread(source.clone()),
            Source::Data(module) => Source::Data(module.clone()),
            Source::Compiled(object) => Source::Compiled(object.clone()),
            Source::Module(_) => return None,
        };
        Some(Box::new(Self {
            source,
            layer: self.layer.clone(),
            key: self.key,
            interface: self.interface.clone(),
            linkonce: self.linkonce.clone(),
            commons: Vec::new(),
            traits: UnitTraits::default(),
            discarded: self.discarded.clone(),
            names_in_module: self.names_in_module.clone(),
            verified: self.verified,
        }))
    }

    fn discard(&mut self, _dylib: &JitDylib, symbol: &SymbolName) {
        self.interface.symbols.remove(symbol);
        self.discarded.push(self.names_in_module.get(symbol).unwrap_or(symbol).clone());
    }
}

impl fmt::Debug for IrMaterializationUnit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IrMaterializationUnit")
            .field("name", self.source.name())
            .field("discarded", &self.discarded)
            .finish_non_exhaustive()
    }
}

/// Defines the symbols of a file of bitcode or textual IR in `dylib`.
///
/// # Errors
/// [`CompileError`] if it cannot be read, `DefineError` if the dylib refuses its symbols.
pub fn define_ir(
    dylib: &JitDylib,
    layer: &Arc<dyn IrLayer>,
    target: &JitTargetMachineBuilder,
    source: ObjectBuffer,
) -> Result<(), SharedError> {
    let unit = IrMaterializationUnit::from_source(dylib.session(), Arc::clone(layer), target, source)
        .map_err(|error| -> SharedError { Arc::new(error) })?;
    dylib.define(Box::new(unit)).map_err(|error| -> SharedError { Arc::new(error) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::{IrCompiler, OptimizationLevel, OptimizationPipeline, ThreadSafeContext};
    use crate::object::ObjectInterface;
    use uruk_core::SymbolStringPool;

    const SOURCE: &str = "
        $group = comdat any
        @variable = weak global i32 1
        @table = linkonce_odr constant i32 2, comdat($group)
        @slot = linkonce_odr thread_local global i32 3
        @other_variable = weak alias i32, ptr @variable
        @named = weak ifunc i32 (), ptr @choose
        @llvm.global_ctors = appending global [1 x { i32, ptr, ptr }] [{ i32, ptr, ptr } { i32 65535, ptr @start, ptr @guarded }]
        @guarded = linkonce_odr global i32 0, comdat
        $guarded = comdat any
        define internal void @start() { store volatile i32 1, ptr @guarded ret void }
        define internal ptr @choose() { ret ptr @strong }
        define linkonce_odr i32 @same() comdat($group) { ret i32 1 }
        define weak i32 @different() { ret i32 2 }
        define i32 @grouped() comdat($group) { ret i32 3 }
        define i32 @strong() {
          %a = call i32 @same()
          %b = call i32 @different()
          %c = call i32 @named()
          %d = load volatile i32, ptr @variable
          %e = load volatile i32, ptr @other_variable
          %f = load volatile i32, ptr @table
          %s = call ptr @llvm.threadlocal.address.p0(ptr @slot)
          %g = load volatile i32, ptr %s
          %h = call i32 @grouped()
          %i = add i32 %a, %b
          ret i32 %i
        }
        declare ptr @llvm.threadlocal.address.p0(ptr)
        define linkonce_odr i32 @nobody_needs_me() { ret i32 4 }";

    /// Compiles the source without `discarded`; answers the names the object defines and needs.
    fn compile(discarded: &[&str], level: Option<OptimizationLevel>) -> (Vec<String>, Vec<String>, bool) {
        let target = JitTargetMachineBuilder::host().expect("host target");
        let module = ThreadSafeModule::parse(&ObjectBuffer::new("unit.ll", SOURCE.as_bytes().to_vec()));
        let module = module.expect("valid IR");
        let interface = ModuleInterface::of_module(&module, &target).expect("valid");
        let pool = SymbolStringPool::new();
        let intern = |names: Vec<&str>| names.into_iter().map(|name| pool.intern(name)).collect::<Vec<_>>();
        let linkonce = interface.symbols.iter().filter(|symbol| symbol.linkonce).map(|symbol| &*symbol.name);
        let pending = PendingModule {
            source: Source::Module(module),
            verified: true,
            kept: intern(linkonce.collect()),
            discarded: intern(discarded.to_vec()),
            key: None,
        };
        let module = pending.prepare().expect("prepares");
        module.verify().unwrap_or_else(|error| panic!("without {discarded:?}: {error}"));
        let pipeline = level.map_or_else(OptimizationPipeline::none, OptimizationPipeline::level);
        let object = IrCompiler::new(target, pipeline).compile(module);
        let object = object.unwrap_or_else(|error| panic!("without {discarded:?}: {error}"));
        let read = ObjectInterface::read(&object).expect("an object");
        let defined = read.defined.iter().map(|symbol| symbol.name.to_owned()).collect();
        let undefined = read.undefined.iter().map(|symbol| symbol.name.to_owned()).collect();
        (defined, undefined, read.has_initializers)
    }

    #[test]
    fn a_module_that_waits_is_bitcode_unless_others_use_its_context() {
        let target = JitTargetMachineBuilder::host().expect("host target");
        let text = "define i32 @f(i32 %x) { %y = add i32 %x, 1 ret i32 %y }";
        let buffer = ObjectBuffer::new("small.ll", text.as_bytes());
        let (_, source) =
            IrMaterializationUnit::read(SourceKind::Assembly, buffer.clone(), &target).expect("valid");
        assert!(matches!(&source, Source::Unread(bitcode) if bitcode.size_bytes() < 3000), "{source:?}");
        let context = ThreadSafeContext::new();
        let module = || ThreadSafeModule::parse_in(&context, &buffer).expect("valid");
        assert!(matches!(Source::waiting(module()), Ok(Source::Module(_))));
        let module = module();
        drop(context);
        assert!(matches!(Source::waiting(module), Ok(Source::Unread(_))));
    }

    const ALL: [&str; 10] = [
        "variable",
        "table",
        "slot",
        "other_variable",
        "named",
        "guarded",
        "same",
        "different",
        "grouped",
        "nobody_needs_me",
    ];

    #[test]
    fn what_was_promised_is_defined_even_if_nobody_needs_it() {
        for level in [None, Some(OptimizationLevel::O2)] {
            let (defined, undefined, initializers) = compile(&[], level);
            for name in ALL.iter().chain(&["strong"]) {
                assert!(defined.iter().any(|found| found == name), "{name} in {defined:?}");
            }
            assert!(!undefined.iter().any(|name| ALL.contains(&name.as_str())), "{undefined:?}");
            assert!(initializers);
        }
    }

    #[test]
    fn each_definition_given_up_becomes_a_reference() {
        for level in [None, Some(OptimizationLevel::O1)] {
            for name in ALL {
                let (defined, undefined, initializers) = compile(&[name], level);
                assert!(!defined.iter().any(|found| found == name), "{name} in {defined:?}");
                // The optimizer may know enough of a copy that is the same everywhere.
                let used = !["guarded", "nobody_needs_me"].contains(&name);
                if used && level.is_none() {
                    assert!(undefined.iter().any(|found| found == name), "{name} in {undefined:?}");
                }
                // The initializer of a variable goes with it: the module that defines the variable initializes it.
                assert_eq!(initializers, name != "guarded", "{name}");
                for other in ALL.iter().filter(|other| **other != name) {
                    assert!(defined.iter().any(|found| found == other), "{other} without {name}");
                }
            }
        }
    }

    #[test]
    fn all_that_can_be_given_up_can_be_given_up_together() {
        let (defined, _, initializers) = compile(&ALL, None);
        assert_eq!(defined, ["strong"]);
        assert!(!initializers);
    }

    #[test]
    fn names_unknown_or_not_to_be_given_up_are_left_alone() {
        let (defined, _, _) = compile(&["unheard_of", "choose"], None);
        assert!(defined.iter().any(|name| name == "strong"));
    }
}
