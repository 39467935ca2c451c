//! The layers that take modules: one that changes them, and one that compiles them.

use std::fmt;
use std::sync::Arc;

use uruk_core::{MaterializationResponsibility, SharedError};

use super::linker_info::{LinkerInfo, RenameLayer};
use super::{
    CompileError, IrCache, IrCompiler, IrLayer, ModuleInterface, OptimizationPipeline, PendingModule,
    ThreadSafeModule,
};
use crate::lazy::{FileLayer, FileStubs};
use crate::linking::ObjectLinkingLayer;
use crate::object::{ObjectBuffer, ObjectLayer};

/// Compiles modules and hands the objects to a layer that links them.
///
/// # Examples
/// ```
/// use std::sync::Arc;
/// use uruk_core::{ExecutionSession, LookupRequest, LookupSet};
/// use uruk_pipeline::ir::{IrCompileLayer, IrCompiler, IrLayer, OptimizationLevel, define_ir};
/// use uruk_pipeline::linking::ObjectLinkingLayer;
/// use uruk_pipeline::runtime::in_process::InProcessExecutor;
/// use uruk_pipeline::memory::InProcessMemoryManager;
/// use uruk_pipeline::object::ObjectBuffer;
/// use uruk_pipeline::platform::Platform;
///
/// let objects = ObjectLinkingLayer::new(Arc::new(InProcessExecutor::new(Arc::new(InProcessMemoryManager::new()?))), Arc::new(Platform::new()));
/// let compiler = IrCompiler::host(OptimizationLevel::O2)?;
/// let target = compiler.target().clone();
/// let layer: Arc<dyn IrLayer> = Arc::new(IrCompileLayer::new(compiler, Arc::new(objects)));
///
/// let session = ExecutionSession::new();
/// let main = session.create_jit_dylib("main")?;
/// let source = ObjectBuffer::new("answer.ll", "define i64 @answer() { ret i64 42 }".as_bytes());
/// define_ir(&main, &layer, &target, source)?;
/// assert!(session.lookup(LookupRequest::along(&main, LookupSet::one(session.intern("answer")))).is_ok());
/// session.close()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// ORC: `IRCompileLayer`.
#[derive(Clone)]
#[doc(alias = "IRCompileLayer")]
pub struct IrCompileLayer {
    compiler: IrCompiler,
    cache: Option<Arc<IrCache>>,
    below: Arc<dyn ObjectLayer>,
}

impl IrCompileLayer {
    /// Compiles with `compiler`, for `below`.
    pub fn new(compiler: IrCompiler, below: Arc<dyn ObjectLayer>) -> Self {
        Self { compiler, cache: None, below }
    }

    /// The same, asking a cache made for its [compiler](Self::compiler) before it compiles.
    #[must_use]
    pub fn with_cache(mut self, cache: Arc<IrCache>) -> Self {
        self.cache = Some(cache);
        self
    }

    /// The same, with other passes: entries of the cache are those of the passes.
    ///
    /// # Errors
    /// As [`IrCompiler::with_pipeline`].
    pub fn with_pipeline(&self, pipeline: OptimizationPipeline) -> Result<Self, CompileError> {
        Ok(Self { compiler: self.compiler.clone().with_pipeline(pipeline)?, ..self.clone() })
    }

    /// The same compiler and cache for a module whose names mean what `info` says. `objects` links it.
    #[must_use]
    pub fn with_meanings(&self, objects: ObjectLinkingLayer, info: Arc<LinkerInfo>) -> Self {
        Self { below: Arc::new(RenameLayer { layer: objects, info }), ..self.clone() }
    }

    /// The same compiler and cache for a module whose functions are behind `stubs`. `objects` links it.
    #[must_use]
    pub fn with_stubs(&self, objects: ObjectLinkingLayer, stubs: Arc<FileStubs>) -> Self {
        Self { below: Arc::new(FileLayer::new(objects, stubs)), ..self.clone() }
    }

    /// The compiler of the layer's modules.
    pub fn compiler(&self) -> &IrCompiler {
        &self.compiler
    }

    /// The interface of a file of bitcode, from the cache if that has it.
    ///
    /// # Errors
    /// As [`ModuleInterface::of_bitcode`], and [`CompileError::NotCached`].
    pub fn interface_of(&self, bitcode: &ObjectBuffer) -> Result<ModuleInterface, CompileError> {
        let read = || match self.compiler.interface_apart(bitcode) {
            Some(interface) => interface,
            None => ModuleInterface::of_bitcode(bitcode, self.compiler.target()),
        };
        match &self.cache {
            Some(cache) => cache.interface_or(&cache.source_key(bitcode), bitcode.name(), read),
            None => read(),
        }
    }

    /// The cache that it asks.
    pub fn ir_cache(&self) -> Option<&Arc<IrCache>> {
        self.cache.as_ref()
    }

    fn hand_down(
        &self,
        responsibility: MaterializationResponsibility,
        compiled: Result<ObjectBuffer, CompileError>,
    ) {
        match compiled {
            Ok(object) => self.below.emit(responsibility, object),
            Err(error) => responsibility.fail(Arc::new(error)),
        }
    }
}

impl IrLayer for IrCompileLayer {
    fn emit(&self, responsibility: MaterializationResponsibility, module: ThreadSafeModule) {
        let context = module.context().clone();
        let compiled = self.compiler.compile_in(responsibility.session(), module);
        // Linking needs no context: the next unit of this one may compile meanwhile.
        context.serial_queue().leave();
        self.hand_down(responsibility, compiled);
    }

    fn emit_pending(&self, responsibility: MaterializationResponsibility, pending: PendingModule) {
        if let Some(object) = pending.object() {
            return self.below.emit(responsibility, object.clone());
        }
        let queue = pending.serial_queue();
        let compiled = match &self.cache {
            Some(cache) => cache.object(&self.compiler, pending, responsibility.session()),
            None => self.compiler.compile_pending(responsibility.session(), pending, None),
        };
        if let Some(queue) = queue {
            queue.leave();
        }
        self.hand_down(responsibility, compiled);
    }

    fn cache(&self) -> Option<&IrCache> {
        self.cache.as_deref()
    }

    fn interface_apart(&self, source: &ObjectBuffer) -> Option<Result<ModuleInterface, CompileError>> {
        self.compiler.interface_apart(source)
    }
}

impl fmt::Debug for IrCompileLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IrCompileLayer").field("compiler", &self.compiler).finish_non_exhaustive()
    }
}

/// A change that an [`IrTransformLayer`] makes to each module. It sees the symbols that the module is compiled for.
pub type IrTransform = dyn Fn(ThreadSafeModule, &MaterializationResponsibility) -> Result<ThreadSafeModule, SharedError>
    + Send
    + Sync;

/// Changes modules on their way to another layer. A transform that fails, fails the module's symbols.
///
/// # Examples
/// ```
/// use std::sync::Arc;
/// use uruk_core::shared_error;
/// use uruk_pipeline::ir::IrTransformLayer;
/// use uruk_pipeline::ir::IrLayer;
///
/// /// Refuses modules of more than a hundred functions.
/// fn small_ones(below: Arc<dyn IrLayer>) -> IrTransformLayer {
///     IrTransformLayer::new(below, |module, responsibility| {
///         let functions = module.with_module(|module| module.get_functions().count()).map_err(shared_error)?;
///         match functions {
///             ..=100 => Ok(module),
///             many => Err(shared_error(format!("{} has {many} functions", responsibility.unit_name()))),
///         }
///     })
/// }
/// ```
///
/// ORC: `IRTransformLayer`.
#[derive(Clone)]
#[doc(alias = "IRTransformLayer")]
pub struct IrTransformLayer {
    transform: Arc<IrTransform>,
    below: Arc<dyn IrLayer>,
}

impl IrTransformLayer {
    /// Applies `transform` to each module, for `below`.
    pub fn new(
        below: Arc<dyn IrLayer>,
        transform: impl Fn(
            ThreadSafeModule,
            &MaterializationResponsibility,
        ) -> Result<ThreadSafeModule, SharedError>
        + Send
        + Sync
        + 'static,
    ) -> Self {
        Self { transform: Arc::new(transform), below }
    }
}

impl IrLayer for IrTransformLayer {
    fn emit(&self, responsibility: MaterializationResponsibility, module: ThreadSafeModule) {
        match (self.transform)(module, &responsibility) {
            Ok(module) => self.below.emit(responsibility, module),
            Err(error) => responsibility.fail(error),
        }
    }
}

impl fmt::Debug for IrTransformLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IrTransformLayer").finish_non_exhaustive()
    }
}
