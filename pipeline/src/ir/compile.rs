//! [`IrCompiler`]: module in, object out: normalize, optimize, generate code.

use std::sync::Arc;

use uruk_core::ExecutionSession;
use uruk_recorder::{Detail, Entry, Kind, is_asked_for};

use super::ThreadSafeContext;
use super::dump::Dump;
use super::error::CompileError;
use super::kept::{KeptIr, Onlookers, Watched};
use super::listing::Listing;
use super::machines::lose_machine;
use super::module::{LockedModule, ThreadSafeModule};
use super::normalize::normalize;
use super::optimize::{OptimizationLevel, OptimizationPipeline, Passes};
use super::part_cache::PartCache;
use super::partition::{Partition, PartitionPolicy, Parts};
use super::stages::Stage;
use super::target::JitTargetMachineBuilder;
use super::versions::{ModuleVersion, check_signatures, note_level, publish};
use crate::helpers::HelperPool;
use crate::object::{ObjectBuffer, buffers_of_parts, join_parts};

/// Compiles modules one after another, on as many threads as call it.
///
/// The passes over the IR and the level of code generation are chosen independently.
///
/// # Concurrency
/// Callable from any thread; each has a target machine of its own, kept from call to call.
///
/// ORC: `ConcurrentIRCompiler`.
#[derive(Clone, Debug)]
#[doc(alias = "ConcurrentIRCompiler")]
pub struct IrCompiler {
    pub(super) target: JitTargetMachineBuilder,
    pub(super) pipeline: OptimizationPipeline,
    pub(super) partition: Partition,
    pub(super) dump: Option<Dump>,
    pub(super) kept: KeptIr,
    pub(super) listing: Listing,
    pub(super) keeps_debug_info: bool,
    /// The processes that compile, in place of this one.
    pub(super) helpers: Option<Arc<HelperPool>>,
    /// The other processors that modules are compiled for.
    pub(super) versions: Arc<[ModuleVersion]>,
}

impl IrCompiler {
    /// Compiles for `target` after running `pipeline`.
    pub fn new(target: JitTargetMachineBuilder, pipeline: OptimizationPipeline) -> Self {
        let (partition, kept, listing) = (Partition::default(), KeptIr::default(), Listing::default());
        Self {
            target,
            pipeline,
            partition,
            dump: None,
            kept,
            listing,
            keeps_debug_info: false,
            helpers: None,
            versions: Arc::default(),
        }
    }

    /// Compiles for this machine at `level`, passes and code generation alike.
    ///
    /// # Errors
    /// As [`JitTargetMachineBuilder::host`].
    pub fn host(level: OptimizationLevel) -> Result<Self, CompileError> {
        let target = JitTargetMachineBuilder::host()?.with_codegen_level(level.into());
        Ok(Self::new(target, OptimizationPipeline::level(level)))
    }

    /// The same compiler with other passes.
    ///
    /// # Errors
    /// [`CompileError::NotContained`] if hooks run between the passes, and it compiles in [helpers](Self::with_helpers).
    pub fn with_pipeline(self, pipeline: OptimizationPipeline) -> Result<Self, CompileError> {
        let compiler = Self { pipeline, helpers: None, ..self };
        match self.helpers {
            Some(helpers) => compiler.with_helpers(helpers),
            None => Ok(compiler),
        }
    }

    /// The same compiler, which divides large modules.
    #[must_use]
    pub fn with_partition(self, partition: Partition) -> Self {
        Self { partition, ..self }
    }

    /// The same compiler, whose objects have code for further processors. Linked alone they are as they would be without; an image has all.
    ///
    /// # Cost
    /// Each module is compiled once more for each, and functions of it are not local to their objects.
    #[must_use]
    pub fn with_versions(self, versions: impl Into<Arc<[ModuleVersion]>>) -> Self {
        Self { versions: versions.into(), ..self }
    }

    /// The same compiler, which writes what it works on to a directory. The objects are the same.
    #[must_use]
    pub fn with_dump(self, dump: Dump) -> Self {
        Self { dump: Some(dump), ..self }
    }

    /// The same compiler, which keeps IR together with others.
    #[must_use]
    pub fn with_kept(self, kept: KeptIr) -> Self {
        Self { kept, ..self }
    }

    /// The IR that it keeps, while that is wanted.
    pub fn kept(&self) -> &KeptIr {
        &self.kept
    }

    /// The modules that it lists, if that is wanted.
    pub fn listing(&self) -> &Listing {
        &self.listing
    }

    /// The same compiler, with this answer to whether functions that are compiled by themselves ([`LazyModule`](super::LazyModule)) keep their
    /// debug information. They do not, unless told otherwise. Modules that are compiled as a whole always keep theirs.
    ///
    /// # Cost
    /// The object of each function has a copy of the types that the function refers to.
    #[must_use]
    pub fn with_debug_info(self, keeps_debug_info: bool) -> Self {
        Self { keeps_debug_info, ..self }
    }

    /// How large modules are divided.
    pub fn partition(&self) -> Partition {
        self.partition
    }

    /// The target that code is generated for.
    pub fn target(&self) -> &JitTargetMachineBuilder {
        &self.target
    }

    /// The passes that run before code is generated.
    pub fn pipeline(&self) -> &OptimizationPipeline {
        &self.pipeline
    }

    /// Finds out whether LLVM understands the pipeline, before any module is compiled.
    ///
    /// # Errors
    /// [`CompileError::Optimize`] with LLVM's message.
    ///
    /// # Cost
    /// Nothing for a level as it is; otherwise 2 ms to run the pipeline over nothing.
    pub fn check_pipeline(&self) -> Result<(), CompileError> {
        if self.pipeline.is_known_good() {
            return Ok(());
        }
        if let Some(helpers) = &self.helpers {
            return self.check_apart(helpers);
        }
        for (place, passes) in self.pipeline.foreign() {
            if let Some(message) = self.target.with_machine(|machine| machine.check_passes(&passes))? {
                let module = place.into();
                return Err(CompileError::Optimize { module, passes, message });
            }
        }
        let empty = ThreadSafeModule::new(&ThreadSafeContext::try_new()?, "the pipeline");
        // Without hooks, which have nothing to look at here.
        let passes = Passes { hooks: [].into(), ..self.pipeline.expanded(&self.target, false)? };
        run_passes(&empty.lock()?, &self.target, &passes)
    }

    /// The passes of each stage of the pipeline's level, as LLVM has it. A stage that is empty runs nothing.
    ///
    /// # Errors
    /// [`CompileError::Optimize`] if the pipeline is no level.
    pub fn stages(&self) -> Result<Vec<(Stage, String)>, CompileError> {
        let level = self.pipeline.optimization_level().ok_or_else(|| CompileError::Optimize {
            module: "the pipeline".into(),
            passes: self.pipeline.text(),
            message: "a pipeline that is no level has no stages".to_owned(),
        })?;
        let stages = self.pipeline.cut(level, &self.target)?;
        Ok(Stage::ALL.map(|stage| (stage, stages.passes(stage).to_owned())).into())
    }

    /// Runs the pipeline over `module`, and generates no code.
    ///
    /// # Errors
    /// As [`Self::compile`].
    pub fn optimize(&self, module: &ThreadSafeModule) -> Result<(), CompileError> {
        let locked = module.lock()?;
        normalize(&locked, &self.target)?;
        let target = self.target.for_module(&locked);
        run_passes(&locked, &target, &self.pipeline.expanded(&target, are_passes_watched())?)
    }

    /// Turns `module` into an object of the same name. The module is gone when this returns.
    ///
    /// # Errors
    /// [`CompileError`]: every error that LLVM reports, even where LLVM goes on after it. After [`CompileError::Fatal`] everything else in
    /// the module's context is lost too.
    ///
    /// # Cost
    /// Code generation dominates: 6 s for SQLite at the default level, 0.7 s without.
    pub fn compile(&self, module: ThreadSafeModule) -> Result<ObjectBuffer, CompileError> {
        self.compile_beside(module, None, None)
    }

    /// The same, and the parts of a module that is [divided](Self::with_partition) are compiled on the session's other threads too. The
    /// object is the same.
    ///
    /// # Errors
    /// As there.
    ///
    /// # Concurrency
    /// Waits for its helpers, which wait for no other thread.
    pub fn compile_in(
        &self,
        session: &ExecutionSession,
        module: ThreadSafeModule,
    ) -> Result<ObjectBuffer, CompileError> {
        self.compile_beside(module, Some(session), None)
    }

    /// The same, and parts that `cache` knows are not compiled.
    pub(super) fn compile_cached(
        &self,
        session: &ExecutionSession,
        module: ThreadSafeModule,
        cache: Option<PartCache>,
    ) -> Result<ObjectBuffer, CompileError> {
        self.compile_beside(module, Some(session), cache)
    }

    fn compile_beside(
        &self,
        module: ThreadSafeModule,
        session: Option<&ExecutionSession>,
        cache: Option<PartCache>,
    ) -> Result<ObjectBuffer, CompileError> {
        if let Some(helpers) = &self.helpers {
            return self.compile_apart(helpers, module, session);
        }
        let locked = module.lock()?;
        note_level(&locked, &self.target)?;
        let versions = self.versions_of(&locked)?;
        let compiled = match versions.is_empty() {
            true => self.compile_locked(&locked),
            // Linking must be able to leave a function out.
            false => self.in_sections(self.target.clone()).compile_locked(&locked),
        };
        drop(locked);
        // Modules are large: this one goes before anybody looks at the object.
        drop(module);
        let base = match compiled? {
            CompiledModule::Whole(object) => object,
            CompiledModule::Divided(parts) => parts.compile(session, cache.clone())?,
        };
        if versions.is_empty() {
            return Ok(base);
        }
        let broken = |error: object::read::Error| CompileError::Codegen {
            module: base.name().clone(),
            message: error.to_string(),
        };
        let mut objects = buffers_of_parts(&base).map_err(broken)?;
        for (target, module) in versions {
            let compiler = Self { versions: Arc::default(), ..self.in_sections(target) };
            let object = compiler.compile_beside(module, session, cache.clone())?;
            objects.extend(buffers_of_parts(&object).map_err(broken)?);
        }
        Ok(join_parts(base.name(), &objects))
    }

    /// The same compiler for a target, with a section for each function and variable.
    fn in_sections(&self, target: JitTargetMachineBuilder) -> Self {
        Self { target: target.with_sections(true, true), ..self.clone() }
    }

    /// The versions of a module, each with its target.
    fn versions_of(
        &self,
        module: &LockedModule<'_>,
    ) -> Result<Vec<(JitTargetMachineBuilder, ThreadSafeModule)>, CompileError> {
        if self.versions.is_empty() {
            return Ok(Vec::new());
        }
        normalize(module, &self.target)?;
        if !publish(module)? {
            return Ok(Vec::new());
        }
        self.versions.iter().map(|version| Ok((version.target.clone(), version.of(module)?))).collect()
    }

    /// A copy of `module` in a context of its own, as [`IrCompiler::compile`] has it before it optimizes. The copy's bitcode
    /// depends on the module alone, and not on what else lives in its context: a cache key may be made from it.
    ///
    /// # Errors
    /// [`CompileError::Target`] if the module is for another machine; [`CompileError::ContextLost`], [`CompileError::Fatal`].
    ///
    /// # Cost
    /// Writing the module as bitcode and reading it again, and 5 to 10 µs for the context.
    pub fn canonical(&self, module: &ThreadSafeModule) -> Result<ThreadSafeModule, CompileError> {
        let copy = module.lock()?.to_canonical()?;
        normalize(&copy.lock()?, &self.target)?;
        Ok(copy)
    }

    fn compile_locked(&self, module: &LockedModule<'_>) -> Result<CompiledModule, CompileError> {
        normalize(module, &self.target)?;
        let target = self.target.for_module(module);
        let (dump, kept, listing) = (self.dump.clone(), self.kept.clone(), self.listing.clone());
        let onlookers = Onlookers { dump, kept, listing, level: self.level_name() };
        let watched = onlookers.begin(module, None);
        let (before, after) = match self.partition.policy_for(module) {
            PartitionPolicy::Whole => {
                run_passes(module, &target, &self.pipeline.expanded(&target, are_passes_watched())?)?;
                return generate(module, &target, watched).map(CompiledModule::Whole);
            }
            PartitionPolicy::Late => self.pipeline.halves(&target)?,
            PartitionPolicy::Early => (Passes::none(), self.pipeline.expanded(&target, false)?),
        };
        run_passes(module, &target, &before)?;
        if let Some(parts) = self.partition.divide(module, after.clone(), &target, &onlookers)? {
            return Ok(CompiledModule::Divided(parts));
        }
        run_passes(module, &target, &after)?;
        generate(module, &target, watched).map(CompiledModule::Whole)
    }

    /// The passes in the name of a file.
    fn level_name(&self) -> String {
        self.pipeline.optimization_level().map_or_else(|| "passes".to_owned(), |level| level.to_string())
    }
}

/// How far a module has come when its context is let go.
enum CompiledModule {
    Whole(ObjectBuffer),
    Divided(Parts),
}

/// Whether a subscriber or a reader of notes wants the times of passes. Measuring costs the passes time.
fn are_passes_watched() -> bool {
    tracing::enabled!(target: PASS_TIMES, tracing::Level::TRACE) || is_asked_for(Detail::Passes)
}

/// The target of events that say how long a pass took.
const PASS_TIMES: &str = "uruk::passes";

/// Runs `passes` over `module`.
pub(super) fn run_passes(
    module: &LockedModule<'_>,
    target: &JitTargetMachineBuilder,
    passes: &Passes,
) -> Result<(), CompileError> {
    if passes.text.is_empty() {
        return Ok(());
    }
    let phase = uruk_core::phase!("ir.optimize", unit = %module.name(), level = %passes.text);
    let _inside = uruk_core::inside(phase);
    let measured = are_passes_watched();
    let result = target.with_machine(|machine| machine.run_passes(module, passes, measured))?;
    for (stage, pass, nanoseconds, runs) in forget_machine_after(result, target)? {
        let stage = Stage::ALL.get(stage as usize).map_or("", |stage| stage.name());
        tracing::trace!(target: PASS_TIMES, unit = %module.name(), stage, pass, nanoseconds, runs, "pass");
        if is_asked_for(Detail::Passes) {
            let name = uruk_recorder::write_name(&format!("{stage}/{pass}"));
            uruk_recorder::note(|| Entry::new(Kind::Pass).named(name).with(nanoseconds, runs));
        }
    }
    Ok(())
}

/// Generates code from `module`, which has been optimized.
pub(super) fn generate(
    module: &LockedModule<'_>,
    target: &JitTargetMachineBuilder,
    mut watched: Watched,
) -> Result<ObjectBuffer, CompileError> {
    watched.optimized(module, target);
    check_signatures(module)?;
    let phase = uruk_core::phase!(
        "ir.codegen",
        unit = %module.name(),
        level = ?target.options().codegen_level,
        size_bytes = tracing::field::Empty,
    );
    let inside = uruk_core::inside(phase);
    let result = target.with_machine(|machine| machine.emit_object(module))?;
    let object = forget_machine_after(result, target)?;
    if let Some(span) = inside.span() {
        span.record("size_bytes", object.size_bytes());
    }
    watched.object(&object);
    Ok(object)
}

fn forget_machine_after<R>(
    result: Result<R, CompileError>,
    target: &JitTargetMachineBuilder,
) -> Result<R, CompileError> {
    if matches!(result, Err(CompileError::Fatal { .. })) {
        lose_machine(target.options());
    }
    result
}
