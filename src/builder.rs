//! How a [`Jit`] is set up.

use uruk_core::sync::Arc;
use uruk_core::{ExecutorAddr, JitDylibLookupFlags, SessionEvent, TaskDispatcher};
#[cfg(feature = "llvm")]
use uruk_pipeline::ir::{
    CodegenLevel, IrCompileLayer, IrCompiler, JitTargetMachineBuilder, OptimizationLevel,
    OptimizationPipeline, Partition,
};
use uruk_pipeline::lazy::{LazyCallFailure, LazyCallThroughManager, Speculator};
use uruk_pipeline::link::ObjectLinkingLayer;
use uruk_pipeline::memory::{InProcessMemoryManager, MemoryManager, MemoryOptions};
use uruk_pipeline::object::CommonSymbols;
use uruk_pipeline::platform::Platform;
use uruk_pipeline::runtime::image::ProgramImage;
use uruk_pipeline::runtime::process::{ProcessSymbols, ProcessSymbolsGenerator};
#[cfg(feature = "llvm")]
use uruk_pipeline::tiers::{TierPolicy, Tiers};

use crate::binding::image_around_libraries;
#[cfg(feature = "llvm")]
use crate::cache::CacheOptions;
use crate::compiler_runtime::CompilerRuntime;
use crate::dylibs::create_dylib;
use crate::engine::{Engine, Observer, pool, session};
use crate::error::JitError;
use crate::files::Files;
use crate::jit::Jit;
use crate::lazy::OnCall;
use crate::ready::Ready;

type OnLazyFailure = Box<dyn Fn(&LazyCallFailure<'_>) -> ExecutorAddr + Send + Sync>;

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
    threads: Option<usize>,
    dispatcher: Option<Arc<dyn TaskDispatcher>>,
    memory: Option<Arc<dyn MemoryManager>>,
    process: ProcessSymbols,
    observer: Option<Observer>,
    initializes_on_lookup: bool,
    keeps_dependants: bool,
    on_lazy_failure: Option<OnLazyFailure>,
    on_call: Option<OnCall>,
    #[cfg(feature = "llvm")]
    tiers: Option<Arc<dyn TierPolicy>>,
    owns_process: bool,
    #[cfg(feature = "llvm")]
    codegen_level: CodegenLevel,
    #[cfg(feature = "llvm")]
    pipeline: OptimizationPipeline,
    #[cfg(feature = "llvm")]
    partition: Partition,
    #[cfg(feature = "llvm")]
    verifies_ir: bool,
    #[cfg(feature = "llvm")]
    cache: Option<CacheOptions>,
}

impl JitBuilder {
    /// One compile thread a core, `-O2`, and the symbols of the C and C++ libraries.
    pub fn new() -> Self {
        Self {
            threads: None,
            dispatcher: None,
            memory: None,
            process: ProcessSymbols::new(),
            observer: None,
            initializes_on_lookup: false,
            keeps_dependants: false,
            on_lazy_failure: None,
            on_call: None,
            #[cfg(feature = "llvm")]
            tiers: None,
            owns_process: false,
            #[cfg(feature = "llvm")]
            codegen_level: CodegenLevel::Default,
            #[cfg(feature = "llvm")]
            pipeline: OptimizationPipeline::level(OptimizationLevel::O2),
            #[cfg(feature = "llvm")]
            partition: Partition::default(),
            #[cfg(feature = "llvm")]
            verifies_ir: true,
            #[cfg(feature = "llvm")]
            cache: None,
        }
    }

    /// How many threads compile and link; zero compiles on the thread that looks symbols up.
    #[must_use]
    pub fn threads(mut self, threads: usize) -> Self {
        self.threads = Some(threads);
        self
    }

    /// Where tasks run, in place of a pool of [`JitBuilder::threads`].
    #[must_use]
    pub fn dispatcher(mut self, dispatcher: Arc<dyn TaskDispatcher>) -> Self {
        self.dispatcher = Some(dispatcher);
        self
    }

    /// The level of the passes over IR and of code generation.
    #[cfg(feature = "llvm")]
    #[must_use]
    pub fn optimization(mut self, level: OptimizationLevel) -> Self {
        self.codegen_level = level.into();
        self.pipeline = OptimizationPipeline::level(level);
        self
    }

    /// Other passes over IR; the level of code generation stays.
    #[cfg(feature = "llvm")]
    #[must_use]
    pub fn pipeline(mut self, pipeline: OptimizationPipeline) -> Self {
        self.pipeline = pipeline;
        self
    }

    /// How large modules are divided, so that several threads compile one. They are not, unless told otherwise.
    #[cfg(feature = "llvm")]
    #[must_use]
    pub fn partition(mut self, partition: Partition) -> Self {
        self.partition = partition;
        self
    }

    /// Whether LLVM's verifier runs over bitcode that is read, which it does unless told otherwise.
    ///
    /// Leave it out only for bitcode that a compiler known to be right has made: without it, a module that breaks LLVM's rules
    /// may crash the process. Modules built in memory are never verified.
    #[cfg(feature = "llvm")]
    #[must_use]
    pub fn verify_ir(mut self, verify: bool) -> Self {
        self.verifies_ir = verify;
        self
    }

    /// Where to look for what was compiled before: a directory, or a store of the host's. What is found there is linked, and LLVM is not
    /// called for it; what is not there is compiled and put there.
    ///
    /// A pipeline that LLVM does not understand is then found out when something is compiled.
    #[cfg(feature = "llvm")]
    #[must_use]
    pub fn cache(mut self, cache: impl Into<CacheOptions>) -> Self {
        self.cache = Some(cache.into());
        self
    }

    /// Which symbols of the process programs may use.
    #[must_use]
    pub fn process_symbols(mut self, process: ProcessSymbols) -> Self {
        self.process = process;
        self
    }

    /// Where code goes.
    #[must_use]
    pub fn memory(mut self, memory: Arc<dyn MemoryManager>) -> Self {
        self.memory = Some(memory);
        self
    }

    /// Called for every state a symbol goes through: without a lock, so that it may use the session, on any thread, possibly on
    /// several at once.
    #[must_use]
    pub fn observer(mut self, observer: Arc<dyn Fn(&SessionEvent) + Send + Sync>) -> Self {
        self.observer = Some(observer);
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
        self.initializes_on_lookup = initialize;
        self
    }

    /// Whether it is kept which symbols depend on those of the main dylib, and of dylibs that [`Jit::create_dylib`] makes. Off unless
    /// said otherwise.
    ///
    /// If it is, [`Scope::remove_tracker`](crate::Scope::remove_tracker) and a tracker's own `remove` refuse to remove what others need, and name them;
    /// [`Scope::remove_tracker_with`](crate::Scope::remove_tracker_with) may remove them too. A whole dylib that is removed or cleared, a removal by name and a transaction
    /// ask nobody.
    ///
    /// # Cost
    /// As for [`ExecutionSession::create_jit_dylib_keeping_dependants`]. A call costs nothing.
    #[must_use]
    pub fn keep_dependants(mut self, keep: bool) -> Self {
        self.keeps_dependants = keep;
        self
    }

    /// Has calls of [lazy](crate::Scope::add_lazy) functions that cannot be had go on at the address that `handler` gives; see
    /// [`LazyCallThroughManager::on_failure`]. Otherwise such a call says what is wrong on stderr and ends the process.
    #[must_use]
    pub fn on_lazy_failure(
        mut self,
        handler: impl Fn(&LazyCallFailure<'_>) -> ExecutorAddr + Send + Sync + 'static,
    ) -> Self {
        self.on_lazy_failure = Some(Box::new(handler));
        self
    }

    /// Has functions compiled when they are first called, each by itself or with its file, on the thread that calls it.
    ///
    /// What is looked up is a function's stub, which is there at once. A function that cannot be compiled goes where
    /// [`on_lazy_failure`](Self::on_lazy_failure) says, when it is called.
    ///
    /// With [`OnCall::Function`], variables of a file of LLVM IR are compiled together when something refers to one of them. Functions are
    /// optimized by themselves: none is inlined into another one, unless it says that it must be. Files with assembly of their own, or
    /// with sections that lie beside those of other files, are compiled as a whole, at once. An object is linked when one of its
    /// functions is called, or something refers to its data; so is a file with [`OnCall::Module`]. Files that do something by being there,
    /// such as running code at start, are not put off.
    ///
    /// A module that was [built in memory](crate::Scope::add_module), and one added with its [interface](crate::Scope::add_ir_with_interface), is compiled as a
    /// whole.
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
        self.on_call = what.into();
        self
    }

    /// Has functions of LLVM IR compiled when they are first called, as [`compile_on_call`](Self::compile_on_call) does, but without
    /// optimizing them: the code is soon there. Those that are called often are compiled again, at the level of
    /// [`optimization`](Self::optimization) and with small callees inlined, in the background; calls reach the better code once it is there.
    /// `policy` decides; [`CallCounting`](uruk_pipeline::tiers::CallCounting) is a good one. Addresses of functions stay.
    ///
    /// The workers compile in the background when nobody waits for anything else. If there are none, or the process is
    /// [the program's](Self::owns_process), a thread that is started for it does.
    ///
    /// # Cost
    /// 90 bytes more for each function. While it is counted, a call costs about 1 ns more.
    #[cfg(feature = "llvm")]
    #[must_use]
    pub fn tiers(mut self, policy: impl TierPolicy + 'static) -> Self {
        self.on_call = Some(OnCall::Function);
        self.tiers = Some(Arc::new(policy));
        self
    }

    /// Whether the process is the program's alone, as for `uruk run`: what its code registers for the end goes to the C library, and
    /// runs when the process exits, in the order of a native program. None of its code may be removed before, and the [`Jit`] must not be
    /// dropped.
    #[must_use]
    pub fn owns_process(mut self, owns: bool) -> Self {
        self.owns_process = owns;
        self
    }

    /// Sets everything up. Threads start when there is work for them.
    ///
    /// # Errors
    /// [`JitError::Memory`] if no address range for code can be had, [`JitError::Threads`] if the pool cannot
    /// be made, [`JitError::Compile`] if LLVM does not understand the pipeline, [`JitError::Cache`] if the directory of a
    /// cache that has to hit cannot be used.
    pub fn build(self) -> Result<Jit, JitError> {
        let memory = match self.memory {
            Some(memory) => memory,
            None => Arc::new(InProcessMemoryManager::with_options(MemoryOptions {
                keeps_program: self.owns_process,
                ..MemoryOptions::default()
            })?),
        };
        let image = if self.owns_process { ProgramImage::new(&*memory)? } else { None };
        let platform = Arc::new(if self.owns_process { Platform::of_process() } else { Platform::new() });
        let object_layer = Arc::new(ObjectLinkingLayer::new(memory.clone(), platform.clone()));
        let uses_pool = !self.owns_process && self.threads != Some(0);
        let mut lazy = LazyCallThroughManager::new(ObjectLinkingLayer::clone(&object_layer))
            .with_speculator(Speculator::new(uses_pool));
        if let Some(handler) = self.on_lazy_failure {
            lazy = lazy.on_failure(handler);
        }
        #[cfg(feature = "llvm")]
        let (ir_layer, target, cache) = {
            let target = JitTargetMachineBuilder::host()?.with_codegen_level(self.codegen_level);
            let compiler = IrCompiler::new(target.clone(), self.pipeline).with_partition(self.partition);
            let mut cache = self.cache.map(|cache| cache.open(&compiler)).transpose()?.unwrap_or_default();
            let modules = cache.modules.take();
            if modules.is_none() {
                compiler.check_pipeline()?;
            }
            let layer = IrCompileLayer::new(compiler, object_layer.clone());
            (Arc::new(modules.into_iter().fold(layer, IrCompileLayer::with_cache)), target, cache)
        };

        #[cfg(feature = "llvm")]
        let tiers = match self.tiers {
            Some(policy) => {
                let soon = target.clone().with_codegen_level(OptimizationLevel::O0.into());
                let soon = IrCompiler::new(soon, OptimizationPipeline::level(OptimizationLevel::O0));
                Some((soon, Tiers::new(policy, uses_pool)))
            }
            None => None,
        };

        let dispatcher = match self.dispatcher {
            Some(dispatcher) => dispatcher,
            None => pool(self.threads)?,
        };
        let session = session(dispatcher, self.observer);
        let keeps_dependants = self.keeps_dependants;
        let main = create_dylib(&session, "main", keeps_dependants)?;
        let libraries = session.create_jit_dylib("libraries")?;
        let process = Arc::new(self.process);
        let low = object_layer.low_addresses().clone();
        let generator = ProcessSymbolsGenerator::new(process.clone())
            .adjusted_by(move |name, definition| low.of_process(name, definition));
        libraries.add_generator(Arc::new(generator));
        let mut searched_last = vec![(libraries.clone(), JitDylibLookupFlags::MatchExportedSymbolsOnly)];
        if let Some(image) = &image {
            image_around_libraries(&session, image, &mut searched_last)?;
        }
        let files = Files {
            platform,
            process,
            commons: CommonSymbols::new(object_layer.clone()),
            object_layer,
            lazy,
            on_call: self.on_call,
            #[cfg(feature = "llvm")]
            tiers,
            #[cfg(feature = "llvm")]
            ir_layer,
            #[cfg(feature = "llvm")]
            target,
            #[cfg(feature = "llvm")]
            verifies_ir: self.verifies_ir,
            #[cfg(feature = "llvm")]
            disk_cache: cache.disk,
            #[cfg(feature = "llvm")]
            cache_refused: cache.refused,
        };
        let files = Arc::new(files);
        if let Some(runtime) = CompilerRuntime::find(files.clone()) {
            // Its symbols are hidden, so that each program has its own; this is part of the program.
            let dylib = session.create_jit_dylib("compiler runtime")?;
            dylib.add_generator(Arc::new(runtime));
            dylib.add_to_link_order(&libraries, JitDylibLookupFlags::MatchExportedSymbolsOnly)?;
            searched_last.push((dylib, JitDylibLookupFlags::MatchAllSymbols));
        }
        for (library, flags) in &searched_last {
            main.add_to_link_order(library, *flags)?;
        }
        let (ready, initializes_on_lookup) = (Ready::new(&main), self.initializes_on_lookup);
        let engine = Engine {
            session,
            searched_last,
            memory,
            image,
            files,
            ready,
            initializes_on_lookup,
            keeps_dependants,
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
        f.debug_struct("JitBuilder").field("threads", &self.threads).finish_non_exhaustive()
    }
}
