//! How a [`Jit`] is set up.

#[cfg(feature = "llvm")]
mod after_fork;
#[cfg(feature = "llvm")]
mod compile;
mod engine;
#[cfg(feature = "llvm")]
mod executor;
mod forks;
#[cfg(feature = "llvm")]
mod helpers;
mod outputs;
mod run;

use uruk_core::sync::Arc;
use uruk_core::{ExecutorAddr, SessionError, SessionEvent, TaskDispatcher};
use uruk_pipeline::debug::PerfFormat;
#[cfg(feature = "llvm")]
use uruk_pipeline::ir::{
    JitTargetMachineBuilder, ModuleVersion, OptimizationLevel, OptimizationPipeline, Partition,
};
use uruk_pipeline::lazy::LazyCallFailure;
use uruk_pipeline::linking::CollectedObjects;
use uruk_pipeline::memory::MemoryManager;
use uruk_pipeline::runtime::process::ProcessSymbols;
#[cfg(feature = "llvm")]
use uruk_pipeline::tiers::TierPolicy;

#[cfg(feature = "llvm")]
use self::compile::CompileOptions;
use self::engine::EngineOptions;
use self::run::RunOptions;
#[cfg(feature = "cache")]
use crate::cache::CacheOptions;
use crate::dylibs::{create_dylib, create_searched, process_libraries};
use crate::engine::Engine;
use crate::error::JitError;
use crate::files::Files;
use crate::jit::Jit;
use crate::objects::{Objects, OnCall};
use crate::ready::Ready;
use crate::redefinitions::Redefinitions;

/// Decides how a [`Jit`] compiles, where, and what it finds in the process.
///
/// # Examples
/// ```
/// use uruk::prelude::*;
///
/// # fn main() -> Result<(), JitError> {
/// let jit = Jit::builder().threads(2);
/// # #[cfg(feature = "llvm")]
/// let jit = jit.optimization(uruk::pipeline::ir::OptimizationLevel::O1);
/// let jit = jit.initialize_on_lookup(true).build()?;
/// assert!(jit.lookup("getpid").is_ok());
/// # Ok(())
/// # }
/// ```
///
/// ORC: `LLJITBuilder`.
#[doc(alias = "LLJITBuilder")]
pub struct JitBuilder {
    engine: EngineOptions,
    #[cfg(feature = "llvm")]
    compile: CompileOptions,
    #[cfg(feature = "cache")]
    cache: Option<CacheOptions>,
    run: RunOptions,
}

impl JitBuilder {
    /// One compile thread a core, `-O2`, and the symbols of the C and C++ libraries.
    pub fn new() -> Self {
        Self {
            engine: EngineOptions::new(),
            #[cfg(feature = "llvm")]
            compile: CompileOptions::new(),
            #[cfg(feature = "cache")]
            cache: None,
            run: RunOptions::default(),
        }
    }

    /// How many threads compile and link; zero compiles on the thread that looks symbols up.
    #[must_use]
    pub fn threads(mut self, threads: usize) -> Self {
        self.engine.threads = Some(threads);
        self
    }

    /// Where tasks run, in place of a pool of [`JitBuilder::threads`].
    #[must_use]
    pub fn dispatcher(mut self, dispatcher: Arc<dyn TaskDispatcher>) -> Self {
        self.engine.dispatcher = Some(dispatcher);
        self
    }

    /// How many of the threads may run work at once that no lookup waits for: [requests](crate::Scope::request) that are speculative or idle, and
    /// better code of [tiers](Self::tiers). All but one unless said otherwise. A [dispatcher](Self::dispatcher) of the host has a limit of its
    /// own.
    #[must_use]
    pub fn background_workers(mut self, workers: usize) -> Self {
        self.engine.background_workers = Some(workers);
        self
    }

    /// The processor that code is compiled for, in place of this machine's with all that it has: one without AVX-512, for example. The level
    /// of code generation stays that of [`optimization`](Self::optimization).
    #[cfg(feature = "llvm")]
    #[must_use]
    pub fn target(mut self, target: JitTargetMachineBuilder) -> Self {
        self.compile.target = Some(target);
        self
    }

    /// The level of the passes over IR and of code generation.
    #[cfg(feature = "llvm")]
    #[must_use]
    pub fn optimization(mut self, level: OptimizationLevel) -> Self {
        self.compile.codegen_level = level.into();
        self.compile.pipeline = OptimizationPipeline::level(level);
        self
    }

    /// Other passes over IR; the level of code generation stays.
    #[cfg(feature = "llvm")]
    #[must_use]
    pub fn pipeline(mut self, pipeline: OptimizationPipeline) -> Self {
        self.compile.pipeline = pipeline;
        self
    }

    /// How large modules are divided, so that several threads compile one. They are not, unless told otherwise.
    #[cfg(feature = "llvm")]
    #[must_use]
    pub fn partition(mut self, partition: Partition) -> Self {
        self.compile.partition = partition;
        self
    }

    /// Whether LLVM's verifier runs over bitcode that is read, which it does unless told otherwise.
    ///
    /// Leave it out only for bitcode that a compiler known to be right has made: without it, a module that breaks LLVM's rules
    /// may crash the process. Modules built in memory are never verified.
    #[cfg(feature = "llvm")]
    #[must_use]
    pub fn verify_ir(mut self, verify: bool) -> Self {
        self.compile.verifies_ir = verify;
        self
    }

    /// Whether functions of IR that are compiled by themselves ([`OnCall::Function`], tiers) keep their debug information: lines and
    /// variables for [`Jit::symbol_at`](crate::Jit::symbol_at), gdb and perf. Unless told otherwise they do with a [debugger](Self::debugger)
    /// or [`PerfFormat::JitDump`]. Modules that are compiled as a whole always keep theirs.
    ///
    /// # Cost
    /// The object of each function has a copy of the types that the function refers to.
    #[cfg(feature = "llvm")]
    #[must_use]
    pub fn debug_info(mut self, keep: bool) -> Self {
        self.compile.keeps_debug_info = Some(keep);
        self
    }

    /// Where to look for what was compiled before: a directory, or a store of the host's. An object that is found there is linked, and
    /// LLVM is not called for it; what is not there is compiled and put there.
    ///
    /// A pipeline that LLVM does not understand is then found out when something is compiled.
    #[cfg(feature = "cache")]
    #[must_use]
    pub fn cache(mut self, cache: impl Into<CacheOptions>) -> Self {
        self.cache = Some(cache.into());
        self
    }

    /// Which symbols of the process programs may use.
    #[must_use]
    pub fn process_symbols(mut self, process: ProcessSymbols) -> Self {
        self.engine.process = process;
        self
    }

    /// Where code goes.
    #[must_use]
    pub fn memory(mut self, memory: Arc<dyn MemoryManager>) -> Self {
        self.engine.memory = Some(memory);
        self
    }

    /// Has gdb know the code: functions, lines, variables and frames. `break FILE:LINE`, `bt` and `info locals` work as in a program that
    /// was linked ahead. Source lines and variables need objects or modules with debug information (`-g`).
    ///
    /// It holds for all engines of the process from here on; [`set_debugger`](uruk_pipeline::debug::set_debugger) switches it while the
    /// program runs. Code that an engine places in [memory of one's own](Self::memory), or in which it was switched on later, has names and
    /// frames, but gdb can set only hardware breakpoints (`hbreak`) there: two views of code are shared memory.
    ///
    /// # Cost
    /// A copy of the debug information, made many units at a time, and memory in which objects share no pages.
    ///
    /// ORC: `enableDebuggerSupport`.
    #[doc(alias = "enableDebuggerSupport")]
    #[must_use]
    pub fn debugger(mut self, is_on: bool) -> Self {
        self.engine.debugger = is_on;
        self
    }

    /// Has perf know the code: functions, and with [`PerfFormat::JitDump`] instructions and lines too.
    ///
    /// It holds for all engines of the process from here on; [`set_perf`](uruk_pipeline::debug::set_perf) switches it while the program
    /// runs.
    ///
    /// ORC: `PerfSupportPlugin`.
    #[doc(alias = "PerfSupportPlugin")]
    #[must_use]
    pub fn perf(mut self, format: impl Into<Option<PerfFormat>>) -> Self {
        self.engine.perf = format.into();
        self
    }

    /// Has modules compiled for further processors, which count where objects are linked as an image.
    #[cfg(feature = "llvm")]
    pub(crate) fn versions(mut self, versions: Vec<ModuleVersion>) -> Self {
        self.compile.versions = versions.into();
        self
    }

    /// Has `objects` note what is linked.
    pub(crate) fn collect(mut self, objects: Arc<CollectedObjects>) -> Self {
        self.engine.collected = Some(objects);
        self
    }

    /// Called for every state a symbol goes through: without a lock, so that it may use the session, on any thread, possibly on
    /// several at once.
    #[must_use]
    pub fn observer(mut self, observer: Arc<dyn Fn(&SessionEvent) + Send + Sync>) -> Self {
        self.engine.observer = Some(observer);
        self
    }

    /// Called for each error that no caller waits for, such as that of a function that was compiled ahead: without a lock, on any thread,
    /// possibly on several at once.
    #[must_use]
    pub fn on_error(mut self, report: impl Fn(&SessionError) + Send + Sync + 'static) -> Self {
        self.engine.on_error = Some(Arc::new(report));
        self
    }

    /// Whether [`on_error`](Self::on_error) also hears of each unit that fails while a lookup waits for it.
    #[must_use]
    pub fn report_all_failures(mut self, report: bool) -> Self {
        self.engine.reports_all_failures = report;
        self
    }

    /// Whether [`Scope::lookup`](crate::Scope::lookup), [`Scope::function`](crate::Scope::function), [`Scope::get`](crate::Scope::get) and their asynchronous forms initialise the dylib they look in before they
    /// answer, as [`Scope::initialize`](crate::Scope::initialize) does: for plugins in C++, whose static objects are then there. Asking for it is the promise that
    /// `initialize` asks for.
    ///
    /// # Cost
    /// One load in each lookup, once all is initialised that was linked.
    #[must_use]
    pub fn initialize_on_lookup(mut self, initialize: bool) -> Self {
        self.run.initializes_on_lookup = initialize;
        self
    }

    /// Whether it is kept which symbols depend on those of the main dylib, and of dylibs that [`Jit::create_dylib`] makes. It is, unless
    /// said otherwise: [`Scope::remove_tracker`](crate::Scope::remove_tracker) and a tracker's own `remove` refuse to remove what others need, and name them;
    /// [`Scope::remove_tracker_with`](crate::Scope::remove_tracker_with) may remove them too, and
    /// [`Scope::remove_tracker_leaving_dependants`](crate::Scope::remove_tracker_leaving_dependants) leaves them. A lazy function does not need
    /// its body: it can be given another. A whole dylib that is removed or cleared, a removal by name and a transaction
    /// ask nobody.
    ///
    /// # Cost
    /// As for [`ExecutionSession::create_jit_dylib_keeping_dependants`](crate::core::ExecutionSession::create_jit_dylib_keeping_dependants). A call costs nothing.
    #[must_use]
    pub fn keep_dependants(mut self, keep: bool) -> Self {
        self.engine.keeps_dependants = keep;
        self
    }

    /// Has calls of [lazy](crate::Scope::add_lazy) functions that cannot be had go on at the address that `handler` gives; see
    /// [`LazyCallThroughManager::on_failure`](crate::pipeline::lazy::LazyCallThroughManager::on_failure). Otherwise such a call says what is wrong on stderr and ends the process.
    /// [`Function::try_call`](crate::Function::try_call) asks first, and needs no handler. Where [another process](Self::executor) runs the code, the address is one of that.
    #[must_use]
    pub fn on_lazy_failure(
        mut self,
        handler: impl Fn(&LazyCallFailure) -> ExecutorAddr + Send + Sync + 'static,
    ) -> Self {
        self.run.on_lazy_failure = Some(Box::new(handler));
        self
    }

    /// Has functions compiled when they are first called, each by itself or with its file, on the thread that calls it.
    ///
    /// A lookup gives a function's stub, which is there at once. A function that cannot be compiled goes where
    /// [`on_lazy_failure`](Self::on_lazy_failure) says, when it is called.
    ///
    /// With [`OnCall::Function`], variables of a file of LLVM IR are compiled together when something refers to one of them. Functions are
    /// optimized by themselves: none is inlined into another one, unless it says that it must be. Files with assembly of their own, or
    /// with sections that lie beside those of other files, are compiled as a whole, at once. An object is linked when one of its
    /// functions is called, or something refers to its data; so is a file with [`OnCall::Module`]. Files that do something by being there,
    /// such as running code at start, are not put off.
    ///
    /// A module that was [built in memory](crate::Scope::add_module) is taken as the bitcode that it is written as. It is compiled as a whole if it
    /// is [bound to the process](uruk_pipeline::ir::ThreadSafeModule::bound_to_process), and so is one added with its
    /// [interface](crate::Scope::add_ir_with_interface).
    ///
    /// # Examples
    /// ```
    /// # #[cfg(not(feature = "llvm"))]
    /// # fn main() {}
    /// # #[cfg(feature = "llvm")]
    /// # fn main() -> Result<(), uruk::JitError> {
    /// let jit = uruk::Jit::builder().threads(1).compile_on_call(uruk::OnCall::Function).build()?;
    /// let text = "
    ///     define i64 @next(i64 %x) { %y = add i64 %x, 1 ret i64 %y }
    ///     define i64 @never(i64 %x) { ret i64 %x }";
    /// jit.add_ir_text("functions.ll", text)?;
    /// // SAFETY: `next` takes and gives a 64-bit integer.
    /// let next = unsafe { jit.get::<extern "C" fn(i64) -> i64>("next") }?; // Nothing is compiled yet.
    /// assert_eq!(next(41), 42); // `next` is, and `never` is not.
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// ORC: `CompileOnDemandLayer`, `LLLazyJIT`.
    #[must_use]
    #[doc(alias = "CompileOnDemandLayer")]
    pub fn compile_on_call(mut self, what: impl Into<Option<OnCall>>) -> Self {
        self.run.on_call = what.into();
        self
    }

    /// Has functions of LLVM IR compiled when they are first called, as [`compile_on_call`](Self::compile_on_call) does, but without
    /// optimizing them: the code is soon there. Those that are called often are compiled again, at the level of
    /// [`optimization`](Self::optimization) and with small callees inlined, in the background; calls reach the better code once it is there.
    /// `policy` decides; [`CallCounting`](uruk_pipeline::tiers::CallCounting) is a good one. Addresses of functions stay.
    ///
    /// The workers compile in the background when no lookup waits for anything else. If there are none, or the process is
    /// [the program's](Self::owns_process), a thread that is started for it does.
    ///
    /// # Cost
    /// 90 bytes more for each function. While it is counted, a call costs about 1 ns more.
    #[cfg(feature = "llvm")]
    #[must_use]
    pub fn tiers(mut self, policy: impl TierPolicy + 'static) -> Self {
        self.run.on_call = Some(OnCall::Function);
        self.compile.tiers = Some(Arc::new(policy));
        self
    }

    /// Whether the process is the program's alone, as for `uruk run`: what its code registers for the end goes to the C library, and
    /// runs when the process exits, in the order of a native program. None of its code may be removed before, and the [`Jit`] must not be
    /// dropped.
    #[must_use]
    pub fn owns_process(mut self, owns: bool) -> Self {
        self.engine.owns_process = owns;
        self
    }

    /// Sets everything up. Threads start when there is work for them.
    ///
    /// # Errors
    /// [`JitError::Memory`] if no address range for code can be had, [`JitError::Threads`] if the pool cannot
    /// be made, [`JitError::Compile`] if LLVM does not understand the pipeline, [`JitError::Cache`] if the directory of a
    /// cache that has to hit cannot be used.
    pub fn build(self) -> Result<Jit, JitError> {
        #[cfg(feature = "llvm")]
        self.check_executor()?;
        let Self { mut engine, run, .. } = self;
        let (has_workers, initializes_on_lookup) = (engine.has_workers(), run.initializes_on_lookup);
        #[cfg(feature = "llvm")]
        let is_debugged = engine.is_debugged();
        let ground = engine.ground()?;
        let linking = run.linking(ground.layer, has_workers);
        #[cfg(feature = "cache")]
        let cache = self.cache.map(CacheOptions::open).transpose()?.unwrap_or_default();
        let files = Arc::new(Files {
            platform: ground.platform,
            #[cfg(feature = "llvm")]
            modules: self.compile.modules(linking.clone(), &cache, has_workers, is_debugged)?,
            #[cfg(feature = "cache")]
            cache,
            objects: Objects(linking.clone()),
            linking,
            images: Arc::default(),
            process: Arc::new(std::mem::take(&mut engine.process)),
        });
        let session = engine.session()?;
        let keeps_dependants = engine.keeps_dependants;
        let main = create_dylib(&session, "main", keeps_dependants)?;
        let libraries = process_libraries(&files);
        #[cfg(feature = "llvm")]
        let libraries = ground
            .remote
            .as_ref()
            .map_or(libraries, |remote| remote.libraries(files.linking.layer.low_addresses()));
        let searched_last = create_searched(&session, &files, libraries, ground.image.as_ref())?;
        for (library, flags) in &searched_last {
            main.add_to_link_order(library, *flags)?;
        }
        let (memory, image, ready) = (ground.memory, ground.image, Ready::new(&main));
        let engine = Engine {
            session,
            searched_last,
            memory,
            image,
            files,
            redefinitions: Redefinitions::default(),
            ready,
            initializes_on_lookup,
            keeps_dependants,
            #[cfg(feature = "llvm")]
            remote: ground.remote,
        };
        Ok(Jit::of(engine, main))
    }
}

impl Jit {
    /// An engine with the defaults of [`JitBuilder`].
    ///
    /// # Errors
    /// Those of [`JitBuilder::build`].
    pub fn new() -> Result<Self, JitError> {
        JitBuilder::new().build()
    }

    /// Starts to set up an engine.
    pub fn builder() -> JitBuilder {
        JitBuilder::new()
    }
}

impl Default for JitBuilder {
    fn default() -> Self {
        Self::new()
    }
}

impl std::fmt::Debug for JitBuilder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("JitBuilder").field("threads", &self.engine.threads).finish_non_exhaustive()
    }
}
