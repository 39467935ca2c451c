//! [`LazyModule`]: a module whose functions are compiled one at a time, each when it is first called.
//!
//! ```text
//!   bitcode ─read without bodies─▶ shell ─┬─ take f ─▶ part: f ─optimize, codegen─▶ object: uruk.body.f ─link─▶ body of f
//!                                         └─ take g ─▶ …                       (its stub is f)
//!   bitcode ─read without bodies─▶ its variables ─optimize, codegen─▶ object ─link─▶ the module's data
//! ```
//!
//! | of a module | becomes |
//! |---|---|
//! | a function | a stub under its name, and a unit of its body |
//! | an alias of a function | another name of its stub |
//! | a variable, an ifunc with its resolver, functions that are more than their code (`README.md`) | part of one unit of data |
//! | a table of a function's blocks | part of the function's unit |
//!
//! A value that is local to the module keeps its name in objects, so that a part does not depend on the rest of a program. The linker gets
//! the value's name in the program from [`LazyModule::name_in_program`].
//!
//! A shell is used by one thread at a time. Several threads that call first have a shell each. `functions.cpp` takes functions out of a
//! shell.
//!
//! **Holds.** All readings of one bitcode number its values alike. A function leaves a shell once; a thread that needs it again takes it
//! from another shell.

use std::collections::{HashMap, HashSet};
use std::fmt;

use rustc_hash::FxHashMap;
use uruk_core::sync::Arc;
use uruk_core::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use uruk_core::{
    AliasMap, AliasTarget, ExecutionSession, JitDylib, MaterializationInterface,
    MaterializationResponsibility, MaterializationUnit, ResourceTracker, SymbolFlags, body_name,
};

use super::better_bodies::BetterBodies;
use super::cached::IrCache;
use super::compile::IrCompiler;
use super::error::CompileError;
use super::ffi::symbol_bits;
use super::function_compiler::FunctionCompiler;
use super::ir_layer::IrLayer;
use super::lazy_body::BodyInModule;
use super::module::ThreadSafeModule;
use super::outline::{Outline, OutlinedValue, ValuePart};
use super::partition::Partition;
use super::pending::PendingModule;
use super::shell::Shell;
use super::symbols::{ModuleInterface, ModuleSymbol};
use super::unit::IrMaterializationUnit;
use super::whole_file::StaysWhole;
use crate::lazy::{FileOfUnit, LazyCallThroughManager};
use crate::linking::ObjectLinkingLayer;
use crate::object::{CompiledOnCall, ObjectBuffer, is_bound_by_linker};
use crate::platform::WaitingObject;
use crate::tiers::{FirstTier, Tier, Tiers};

/// `functions.cpp` has the same.
pub(super) const BODY_PREFIX: &str = "uruk.body.";

/// A module of bitcode whose functions are compiled when they are first called.
///
/// # Concurrency
/// Cloning it is cheap. Functions are compiled on the threads that materialize their units, several at a time.
#[derive(Clone)]
pub struct LazyModule {
    inner: Arc<SharedModule>,
    upper: Option<Arc<Upper>>,
}

struct SharedModule {
    source: ObjectBuffer,
    compiler: FunctionCompiler,
    cache: Option<Arc<IrCache>>,
    layer: ObjectLinkingLayer,
    interface: ModuleInterface,
    outline: Outline,
    /// Tells it from other modules of the process.
    title: Box<str>,
}

/// How functions are compiled better.
struct Upper {
    compiler: FunctionCompiler,
    tiers: Tiers,
    /// By number, of the functions that were compiled in the lower tier first: [`BELOW`], or [`BELOW_FOR_SHORT`].
    began_below: Box<[AtomicU8]>,
}

const BELOW: u8 = 1;
const BELOW_FOR_SHORT: u8 = 2;

/// The units of a module, to be defined together.
#[expect(missing_debug_implementations, reason = "units have none")]
pub struct LazyUnits {
    /// Of its variables, and of what runs at start and end.
    pub data: IrMaterializationUnit,
    /// Of what is called.
    pub stubs: Box<dyn MaterializationUnit>,
    /// Of what the stubs lead to.
    pub bodies: Vec<Box<dyn MaterializationUnit>>,
}

impl LazyModule {
    /// Reads `source`, bitcode, without its functions' bodies, or says why the module has to be compiled as a whole. Entries of `cache` are
    /// neither read nor compiled.
    ///
    /// # Errors
    /// As [`ModuleInterface::of_bitcode`]. Damage in the body of a function fails that function when it is called.
    ///
    /// # Cost
    /// 10 ms for SQLite, 3,364 functions in 2 MB.
    pub fn read(
        source: &ObjectBuffer,
        compiler: &IrCompiler,
        layer: ObjectLinkingLayer,
        verified: bool,
        cache: Option<&Arc<IrCache>>,
    ) -> Result<Result<Self, StaysWhole>, CompileError> {
        Self::read_for(source, compiler, layer, cache, |compiler| {
            let compiler = FunctionCompiler::new(compiler, Tier::Lower, verified);
            compiler.with_cache(cache.map(|cache| &**cache), source)
        })
    }

    /// The same, with the compiler of its functions that `with` makes.
    pub(super) fn read_for(
        source: &ObjectBuffer,
        compiler: &IrCompiler,
        layer: ObjectLinkingLayer,
        cache: Option<&Arc<IrCache>>,
        with: impl FnOnce(IrCompiler) -> FunctionCompiler,
    ) -> Result<Result<Self, StaysWhole>, CompileError> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let mut shell = None;
        let mut read = || {
            let shell = shell.insert(Shell::read(source, compiler)?);
            let mut interface = ModuleInterface::of_locked(&shell.module.lock()?, compiler.target())?;
            let outline = shell.outline(compiler.target())?;
            let undefined = outline.values.iter().filter(|value| value.bits & symbol_bits::UNDEFINED != 0);
            let undefined: HashSet<&str> = undefined.map(|value| &*value.name).collect();
            interface.undefined.retain(|name| undefined.contains(&**name) && !is_bound_by_linker(name));
            Ok((interface, outline))
        };
        let (interface, outline) = match cache {
            Some(cache) => cache.outline_or(source, read)?,
            None => read()?,
        };
        if let Some(why) = StaysWhole::of(&interface, &outline) {
            return Ok(Err(why));
        }
        // Relaxed: the numbers only have to differ.
        let title = format!("{} #{}", source.name(), NEXT.fetch_add(1, Ordering::Relaxed)).into();
        let (source, compiler) =
            (source.clone(), with(compiler.clone().with_partition(Partition::default())));
        shell.into_iter().for_each(|shell| compiler.keep(shell));
        let cache = cache.cloned();
        let inner = Arc::new(SharedModule { source, compiler, cache, layer, interface, outline, title });
        Ok(Ok(Self { inner, upper: None }))
    }

    /// The same module, whose functions are compiled by `upper` once `tiers` says that they are called often. Functions that they call and
    /// that are small are inlined then: those that a program may replace never are.
    #[must_use]
    pub fn with_tiers(self, upper: &IrCompiler, tiers: Tiers) -> Self {
        let compiler = upper.clone().with_partition(Partition::default());
        let SharedModule { source, cache, compiler: lower, .. } = &*self.inner;
        let compiler = FunctionCompiler::new(compiler, Tier::Upper, lower.verifies());
        let compiler = compiler.with_cache(cache.as_deref(), source);
        let began_below = self.inner.outline.values.iter().map(|_| AtomicU8::new(0)).collect();
        Self { upper: Some(Arc::new(Upper { compiler, tiers, began_below })), ..self }
    }

    pub(super) fn source(&self) -> &ObjectBuffer {
        &self.inner.source
    }

    pub(super) fn outline(&self) -> &Outline {
        &self.inner.outline
    }

    /// The module's name in messages.
    pub fn name(&self) -> &Arc<str> {
        self.inner.source.name()
    }

    /// The interface of the module as a whole.
    pub fn interface(&self) -> &ModuleInterface {
        &self.inner.interface
    }

    /// The name in the program of a value in an object of this module. `None` if it is the same.
    pub fn name_in_program(&self, name: &str) -> Option<Box<str>> {
        let SharedModule { outline, title, .. } = &*self.inner;
        if let Some(function) = name.strip_prefix(BODY_PREFIX) {
            return Some(body_name(function, title).into());
        }
        outline.locals.contains(name).then(|| self.in_program(name).into())
    }

    /// The name of a local value.
    fn in_program(&self, name: &str) -> String {
        format!("{name} in {}", self.inner.title)
    }

    /// The units of the module for `tracker`, with stubs of `manager`. Later, better bodies belong to the tracker too.
    pub fn units(&self, tracker: &ResourceTracker, manager: &LazyCallThroughManager) -> LazyUnits {
        let (dylib, symbols) = (tracker.dylib(), &self.inner.interface.symbols);
        let session = dylib.session();
        let flags = symbols.iter().map(|symbol| (&*symbol.name, symbol.flags)).collect();
        let better = self.upper.as_ref().map(|upper| BetterBodies::of(&upper.tiers, self, tracker));
        let functions = self.functions_of(session, &flags);
        let wants_source = manager.speculator().wants_sources();
        let file = FileOfUnit::of(&self.inner.source, self.in_program(""), wants_source);
        let stubs = manager.lazy_functions(file, dylib, functions, better);
        let mut bodies: FxHashMap<u32, BodyInModule> = FxHashMap::default();
        for (number, value) in (0..).zip(&self.inner.outline.values) {
            let (of, flags) = match value.kind {
                ValuePart::OnCall => (number, SymbolFlags::CALLABLE),
                ValuePart::WithFunction => (value.of, SymbolFlags::empty()),
                _ => continue,
            };
            let body = bodies.entry(of).or_insert_with(|| BodyInModule {
                module: self.clone(),
                function: of,
                attempt: 0,
                interface: MaterializationInterface::default(),
            });
            let name = if of == number { self.body_of(number) } else { self.called(value) };
            body.interface.symbols.insert(session.intern(&name), flags);
        }
        let mut bodies: Vec<_> = bodies.into_values().collect();
        bodies.sort_unstable_by_key(|body| body.function); // of one module they are compiled alike every time
        let bodies = bodies.into_iter().map(|body| Box::new(body) as Box<dyn MaterializationUnit>).collect();
        LazyUnits { data: self.data_unit(dylib), stubs, bodies }
    }

    /// The functions, each with the body that it stands for.
    fn functions_of(&self, session: &ExecutionSession, flags: &HashMap<&str, SymbolFlags>) -> AliasMap {
        let mut functions = AliasMap::default();
        for (number, value) in (0..).zip(&self.inner.outline.values) {
            let of = match value.kind {
                ValuePart::OnCall => number,
                ValuePart::OtherName => value.of,
                _ => continue,
            };
            let source = session.intern(&self.body_of(of));
            let flags = flags.get(&*value.name).copied().filter(|_| !value.is_local());
            let flags = flags.unwrap_or(SymbolFlags::CALLABLE);
            functions.insert(session.intern(&self.called(value)), AliasTarget { source, flags });
        }
        functions
    }

    fn data_unit(&self, dylib: &JitDylib) -> IrMaterializationUnit {
        let session = dylib.session();
        let SharedModule { interface, outline, .. } = &*self.inner;
        let elsewhere =
            outline.values.iter().filter(|value| value.kind != ValuePart::InData && !value.is_local());
        let elsewhere: HashSet<&str> = elsewhere.map(|value| &*value.name).collect();
        let mut own = interface.clone();
        own.symbols.retain(|symbol| !elsewhere.contains(&*symbol.name));
        let locals =
            outline.values.iter().filter(|value| value.kind == ValuePart::InData && value.is_local());
        own.symbols.extend(locals.map(|value| ModuleSymbol::local(&self.called(value), value.bits)));
        let layer: Arc<dyn IrLayer> = Arc::new(LazyLayer(self.clone()));
        let mut unit = IrMaterializationUnit::data_of(
            session,
            layer,
            &own,
            interface,
            self.clone(),
            self.on_call(dylib),
        );
        if !self.inner.compiler.verifies() {
            unit.skip_verifier();
        }
        unit
    }

    /// The bodies of what a program has of the module when it is compiled as a whole.
    fn on_call(&self, dylib: &JitDylib) -> CompiledOnCall {
        // Weak references: both own, through others, the value that owns this closure.
        let (module, dylib) = (Arc::downgrade(&self.inner), dylib.downgrade());
        CompiledOnCall::new(move || {
            let Some((inner, dylib)) = module.upgrade().zip(dylib.upgrade()) else { return Vec::new() };
            let module = Self { inner, upper: None };
            let functions = module.remaining().into_iter();
            functions.map(|function| dylib.session().intern(&module.body_of(function))).collect()
        })
    }

    /// The functions that the pipeline would leave in the module. Of one that cannot be read it is all: compiling them says why.
    fn remaining(&self) -> Vec<u32> {
        let SharedModule { source, compiler, .. } = &*self.inner;
        let reached = || Shell::read(source, compiler.compiler())?.reached();
        if compiler.compiler().pipeline().drops_unused()
            && let Ok(reached) = reached()
        {
            return reached;
        }
        self.functions_on_call().collect()
    }

    pub(super) fn body_of(&self, function: u32) -> String {
        body_name(&self.inner.outline.values[function as usize].name, &self.inner.title)
    }

    /// The name of a body that is compiled in the upper tier later.
    pub(super) fn better_body_of(&self, function: u32, attempt: u32) -> String {
        better(&self.body_of(function), attempt)
    }

    /// The numbers of the functions that are compiled when they are called.
    pub(super) fn functions_on_call(&self) -> impl Iterator<Item = u32> {
        let values = (0..).zip(&self.inner.outline.values);
        values.filter(|(_, value)| value.kind == ValuePart::OnCall).map(|(number, _)| number)
    }

    /// Whether a function was compiled in the lower tier first.
    pub(super) fn began_below(&self, function: u32) -> bool {
        self.beginning(function) != 0
    }

    /// Whether it was, and is to be compiled in the upper one at once.
    pub(super) fn began_below_for_short(&self, function: u32) -> bool {
        self.beginning(function) == BELOW_FOR_SHORT
    }

    fn beginning(&self, function: u32) -> u8 {
        let began = self.upper.as_ref().and_then(|upper| upper.began_below.get(function as usize));
        // Relaxed: asked by who has found the body that was compiled, after that.
        began.map_or(0, |began| began.load(Ordering::Relaxed))
    }

    /// The name of a value in the program.
    pub(super) fn called(&self, value: &OutlinedValue) -> String {
        if value.is_local() { self.in_program(&value.name) } else { (*value.name).to_owned() }
    }

    /// A module of the variables.
    pub(super) fn data(&self) -> Result<ThreadSafeModule, CompileError> {
        Shell::read(&self.inner.source, self.inner.compiler.compiler())?.into_data()
    }

    /// An object of a function: that is called for the first time, or after so many attempts in the upper tier.
    pub(super) fn compile(&self, function: u32, attempt: u32) -> Result<ObjectBuffer, CompileError> {
        let SharedModule { source, compiler, outline, .. } = &*self.inner;
        let name = format!("{}: {}", self.name(), outline.values[function as usize].name).into();
        let Some(Upper { compiler: upper, tiers, began_below }) = self.upper.as_deref() else {
            return compiler.compile(source, function, &name);
        };
        if attempt > 0 {
            return upper.compile(source, function, &name);
        }
        let only_upper = !tiers.is_on() || outline.compiled_once.contains(&function) || upper.has(function);
        let first = if only_upper {
            FirstTier::Upper
        } else {
            tiers.policy().first(compiler.shape(source, function)?)
        };
        let (tier, beginning) = match first {
            FirstTier::Lower => (compiler, BELOW),
            FirstTier::LowerThenUpper => (compiler, BELOW_FOR_SHORT),
            FirstTier::Upper => (upper, 0),
        };
        began_below[function as usize].store(beginning, Ordering::Relaxed); // as in `beginning`
        tiers.first(tier.tier(), || tier.compile(source, function, &name))
    }

    pub(super) fn emit(
        &self,
        responsibility: MaterializationResponsibility,
        compiled: Result<ObjectBuffer, CompileError>,
        attempt: u32,
    ) {
        let name_in_program = |name: &str| match self.name_in_program(name) {
            Some(body) if attempt > 0 && name.starts_with(BODY_PREFIX) => Some(better(&body, attempt).into()),
            name => name,
        };
        match compiled {
            Ok(object) => {
                self.inner
                    .layer
                    .emit_changed(responsibility, &object, None, |graph| graph.rename(&name_in_program));
            }
            Err(error) => responsibility.fail(Arc::new(error)),
        }
    }

    fn emit_data(
        &self,
        responsibility: MaterializationResponsibility,
        data: Result<ObjectBuffer, CompileError>,
    ) {
        let module = self.clone();
        let names = Arc::new(move |name: &str| module.name_in_program(name));
        match data {
            Ok(object) => {
                self.inner.layer.emit_waiting(responsibility, WaitingObject { object, names: Some(names) })
            }
            Err(error) => responsibility.fail(Arc::new(error)),
        }
    }
}

impl fmt::Debug for LazyModule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("LazyModule").field(&self.inner.title).finish()
    }
}

fn better(body: &str, attempt: u32) -> String {
    format!("{body}, better ({attempt})")
}

/// Compiles the data of a module.
struct LazyLayer(LazyModule);

impl IrLayer for LazyLayer {
    fn emit(&self, responsibility: MaterializationResponsibility, module: ThreadSafeModule) {
        self.0.emit_data(responsibility, self.0.inner.compiler.compiler().compile(module));
    }

    fn emit_pending(&self, responsibility: MaterializationResponsibility, pending: PendingModule) {
        let SharedModule { compiler, cache, .. } = &*self.0.inner;
        let (may_look, compiler) = (compiler.may_look(), compiler.compiler());
        let compiled = match cache {
            Some(cache) if may_look => cache.object(compiler, pending, responsibility.session()),
            _ => pending.prepare().and_then(|module| compiler.compile(module)),
        };
        self.0.emit_data(responsibility, compiled);
    }
}
