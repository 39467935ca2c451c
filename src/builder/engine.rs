//! Where an engine runs: its memory, its threads, its session, and the process around it.

use uruk_core::sync::Arc;
use uruk_core::{ExecutionSession, InPlaceTaskDispatcher, SessionError, SessionEvent, TaskDispatcher};
use uruk_dispatch::{AfterFork, WorkStealingTaskDispatcher};
use uruk_pipeline::debug::{self, PerfFormat};
use uruk_pipeline::executor::{Executor, PublishError};
use uruk_pipeline::linking::{CollectedObjects, ObjectLinkingLayer};
use uruk_pipeline::memory::{InProcessMemoryManager, MemoryManager, MemoryOptions, ViewPolicy};
use uruk_pipeline::platform::Platform;
#[cfg(feature = "llvm")]
use uruk_pipeline::remote::RemoteProgram;
use uruk_pipeline::runtime::image::{self, ProgramImage};
use uruk_pipeline::runtime::in_process::InProcessExecutor;
use uruk_pipeline::runtime::process::ProcessSymbols;

use super::forks::rest_before_forks;
use crate::error::JitError;
#[cfg(feature = "llvm")]
use crate::remote::Remote;

type Observer = Arc<dyn Fn(&SessionEvent) + Send + Sync>;
type ErrorReporter = Arc<dyn Fn(&SessionError) + Send + Sync>;

/// Where an engine runs.
pub(super) struct EngineOptions {
    pub(super) threads: Option<usize>,
    pub(super) dispatcher: Option<Arc<dyn TaskDispatcher>>,
    pub(super) memory: Option<Arc<dyn MemoryManager>>,
    pub(super) process: ProcessSymbols,
    pub(super) observer: Option<Observer>,
    pub(super) on_error: Option<ErrorReporter>,
    pub(super) reports_all_failures: bool,
    pub(super) background_workers: Option<usize>,
    pub(super) after_fork: AfterFork,
    pub(super) keeps_dependants: bool,
    pub(super) owns_process: bool,
    pub(super) debugger: bool,
    pub(super) perf: Option<PerfFormat>,
    pub(super) collected: Option<Arc<CollectedObjects>>,
    #[cfg(feature = "llvm")]
    pub(super) executor: Option<RemoteProgram>,
}

/// The memory of an engine, and the layer that links into it.
pub(super) struct Ground {
    pub(super) memory: Arc<dyn MemoryManager>,
    pub(super) image: Option<ProgramImage>,
    pub(super) platform: Arc<Platform>,
    pub(super) layer: Arc<ObjectLinkingLayer>,
    #[cfg(feature = "llvm")]
    pub(super) remote: Option<Remote>,
}

impl EngineOptions {
    /// One thread a core, and the symbols of the C and C++ libraries.
    pub(super) fn new() -> Self {
        Self {
            threads: None,
            dispatcher: None,
            memory: None,
            process: ProcessSymbols::new(),
            observer: None,
            on_error: None,
            reports_all_failures: false,
            background_workers: None,
            after_fork: AfterFork::default(),
            keeps_dependants: true,
            owns_process: false,
            debugger: is_on("URUK_DEBUGGER"),
            perf: perf_of_environment(),
            collected: None,
            #[cfg(feature = "llvm")]
            executor: None,
        }
    }

    /// Whether a debugger or a profiler asks for lines.
    #[cfg(feature = "llvm")]
    pub(super) fn is_debugged(&self) -> bool {
        self.debugger || self.perf == Some(PerfFormat::JitDump)
    }

    /// Whether workers compile in the background when they have nothing else to do.
    pub(super) fn has_workers(&self) -> bool {
        !self.owns_process && self.threads != Some(0)
    }

    /// # Errors
    /// [`JitError::Memory`].
    pub(super) fn ground(&mut self) -> Result<Ground, JitError> {
        #[cfg(feature = "llvm")]
        if let Some(program) = self.executor.take() {
            return self.ground_there(program);
        }
        if self.debugger {
            debug::set_debugger(true);
        }
        if self.perf.is_some() {
            debug::set_perf(self.perf).map_err(|source| JitError::Perf { source: Arc::new(source) })?;
        }
        // Files of an image may refer to the symbols of linkers, which the process that loads it has.
        let has_image = self.owns_process || self.collected.is_some();
        let memory = match self.memory.take() {
            Some(memory) => memory,
            None => Arc::new(InProcessMemoryManager::with_options(MemoryOptions {
                keeps_program: has_image,
                // A debugger cannot write breakpoints into shared pages that are mapped for running alone.
                views: if self.debugger { ViewPolicy::OneView } else { ViewPolicy::Automatic },
                ..MemoryOptions::default()
            })?),
        };
        let place = Arc::new(InProcessExecutor::new(memory.clone()));
        let image = if has_image { program_image(&*place, image::debuggers_record())? } else { None };
        let platform = self.platform();
        let layer = ObjectLinkingLayer::new(place, platform.clone());
        let layer =
            Arc::new(self.collected.take().into_iter().fold(layer, ObjectLinkingLayer::with_collected));
        Ok(Ground {
            memory,
            image,
            platform,
            layer,
            #[cfg(feature = "llvm")]
            remote: None,
        })
    }

    /// The same in another process.
    ///
    /// # Errors
    /// [`JitError::Remote`] if that cannot be started.
    #[cfg(feature = "llvm")]
    fn ground_there(&self, program: RemoteProgram) -> Result<Ground, JitError> {
        let program = if self.debugger { program.debugger(true) } else { program };
        let program = if self.perf.is_some() { program.perf(self.perf) } else { program };
        let remote = Remote::reach(&program.for_program(self.owns_process))?;
        let memory = remote.executor.code_memory();
        let image = if self.owns_process {
            let record = remote.executor.find(&["_r_debug"])?.into_iter().flatten().next();
            program_image(&remote.executor, record.map_or(0, |found| found.address.value()))?
        } else {
            None
        };
        let platform = self.platform();
        let layer = ObjectLinkingLayer::new(Arc::new(remote.executor.clone()), platform.clone());
        Ok(Ground { memory, image, platform, layer: Arc::new(layer), remote: Some(remote) })
    }

    fn platform(&self) -> Arc<Platform> {
        Arc::new(if self.owns_process { Platform::of_process() } else { Platform::new() })
    }

    /// # Errors
    /// [`JitError::Threads`].
    pub(super) fn session(&mut self) -> Result<ExecutionSession, JitError> {
        let dispatcher = match self.dispatcher.take() {
            Some(dispatcher) => dispatcher,
            None => self.pool()?,
        };
        let mut session = ExecutionSession::builder().dispatcher(dispatcher);
        #[cfg(feature = "llvm")]
        {
            session = session.refuse_waits_while(held_context);
        }
        if let Some(observer) = self.observer.take() {
            session = session.observer(observer);
        }
        if let Some(on_error) = self.on_error.take() {
            session = session.error_reporter(on_error).report_all_failures(self.reports_all_failures);
        }
        Ok(session.build())
    }

    fn pool(&self) -> Result<Arc<dyn TaskDispatcher>, JitError> {
        let of_cores = || std::thread::available_parallelism().map_or(1, usize::from);
        Ok(match self.threads.unwrap_or_else(of_cores) {
            0 => Arc::new(InPlaceTaskDispatcher::default()),
            threads => {
                let pool = WorkStealingTaskDispatcher::builder().workers(threads).after_fork(self.after_fork);
                let workers = self.background_workers.into_iter();
                let pool =
                    workers.fold(pool, |pool, workers| pool.background_workers_max(workers)).build()?;
                let pool = Arc::new(pool);
                if self.after_fork == AfterFork::InPlace {
                    rest_before_forks(&pool);
                }
                pool
            }
        })
    }
}

/// Makes the image of a program in the memory of `place`.
fn program_image(place: &dyn Executor, debuggers_record: u64) -> Result<Option<ProgramImage>, JitError> {
    ProgramImage::new(place, debuggers_record).map_err(|error| match error {
        PublishError::Memory(error) => JitError::Memory(error),
        error => JitError::ProgramImage { source: Arc::new(error) },
    })
}

/// Whether the environment asks for something.
fn is_on(variable: &str) -> bool {
    std::env::var_os(variable).is_some_and(|value| !value.is_empty() && value != "0")
}

/// The files for perf that the environment asks for by `URUK_PERF`.
fn perf_of_environment() -> Option<PerfFormat> {
    match std::env::var("URUK_PERF").as_deref() {
        Ok("map") => Some(PerfFormat::Map),
        Ok("jitdump") => Some(PerfFormat::JitDump),
        _ => None,
    }
}

/// A task that waits while it holds a context waits for ever if what it waits for needs the same.
#[cfg(feature = "llvm")]
fn held_context() -> Option<uruk_core::HeldResource> {
    uruk_pipeline::ir::ThreadSafeContext::held_resource()
}
