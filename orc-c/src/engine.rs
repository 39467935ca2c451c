//! An LLJIT: the engine, the layers in front of it, and the handles that stand for parts of it.

use std::ffi::{CString, c_char, c_void};

use llvm_sys::error::LLVMErrorRef;
use uruk::core::sync::{Arc, Mutex};
use uruk::core::{ExecutionSession, FailureCause, SessionError};
use uruk::pipeline::ir::{
    IrCompileLayer, IrCompiler, IrLayer, JitTargetMachineBuilder, OptimizationPipeline,
};
use uruk::pipeline::linking::ObjectLinkingLayer;
use uruk::pipeline::object::ObjectLayer;
use uruk::pipeline::runtime::process::ProcessSymbols;
use uruk::{Jit, JitBuilder};

use crate::boundary::Out;
use crate::cache::{self, SharedCache};
use crate::callbacks::Data;
use crate::dylib;
use crate::errors::Problem;
use crate::handles::{self, Handle, Handled};
use crate::memory::{ClientMemory, EngineMemory};
use crate::names;
use crate::responsibility::FailedByClient;
use crate::target::MachineBuilder;
use crate::transforms::{ClientIrLayer, ClientObjectLayer, Transforms};

pub(crate) type ReportError = unsafe extern "C" fn(*mut c_void, LLVMErrorRef);
pub(crate) type Reporter = Arc<Mutex<Option<(ReportError, Data)>>>;

/// An engine and its layers.
pub(crate) struct Engine {
    /// None once it was disposed of.
    jit: Mutex<Option<Arc<Jit>>>,
    session: ExecutionSession,
    pub(crate) target: JitTargetMachineBuilder,
    memory: Arc<EngineMemory>,
    pub(crate) ir: Arc<dyn IrLayer>,
    /// In front of the linker.
    pub(crate) objects: Arc<dyn ObjectLayer>,
    pub(crate) transforms: Arc<Transforms>,
    pub(crate) reporter: Reporter,
    /// Modules are looked for by their shape.
    cache: Mutex<Option<SharedCache>>,
    triple: CString,
    layout: CString,
    /// Those that end with the engine.
    handles: Mutex<Option<Handles>>,
}

/// The handles of parts of an engine. Each part has one.
#[derive(Clone, Copy)]
struct Handles {
    session: Handle,
    pool: Handle,
    ir_transform: Handle,
    object_transform: Handle,
    linking: Handle,
}

/// The kinds of handles that stand for an engine.
macro_rules! parts {
    ($($(#[$meta:meta])* $name:ident: $kind:literal;)*) => {$(
        $(#[$meta])*
        pub(crate) struct $name(pub(crate) Arc<Engine>);

        impl Handled for $name {
            const KIND: &'static str = $kind;
        }
    )*};
}

parts! {
    Lljit: "LLVMOrcLLJITRef";
    Session: "LLVMOrcExecutionSessionRef";
    /// Its pool of names.
    Pool: "LLVMOrcSymbolStringPoolRef";
    IrTransform: "LLVMOrcIRTransformLayerRef";
    ObjectTransform: "LLVMOrcObjectTransformLayerRef";
}

/// An `LLVMOrcObjectLayerRef`.
pub(crate) struct Linking {
    pub(crate) engine: Arc<Engine>,
    /// The engine's own: it is not the client's to dispose of.
    pub(crate) is_part: bool,
    /// Where the client wants the code of an LLJIT that is made with this layer.
    pub(crate) memory: Option<Arc<ClientMemory>>,
}

impl Handled for Linking {
    const KIND: &'static str = "LLVMOrcObjectLayerRef";
}

impl Linking {
    /// # Errors
    /// The layer has a memory manager of its own. All layers of an engine are one linker, which has one.
    pub(crate) fn linker(&self) -> Result<Arc<ObjectLinkingLayer>, Problem> {
        if self.memory.is_some() {
            return Err(Problem::new(
                "the layer has a memory manager, and was not made by an LLJIT's creator of layers",
            ));
        }
        Ok(self.engine.jit()?.object_layer().clone())
    }

    /// A layer that the client has created.
    pub(crate) fn give(session: Handle, memory: Option<ClientMemory>) -> Result<Handle, Problem> {
        let engine = handles::get::<Session>(session)?.0.clone();
        Ok(handles::give(Self { engine, is_part: false, memory: memory.map(Arc::new) }))
    }
}

fn builder(target: &JitTargetMachineBuilder, reporter: &Reporter, memory: Arc<EngineMemory>) -> JitBuilder {
    let reporter = reporter.clone();
    Jit::builder()
        // Units and generators of the client run on its thread.
        .threads(0)
        .target(target.clone())
        .memory(memory)
        .pipeline(OptimizationPipeline::none())
        // ORC does not verify modules either.
        .verify_ir(false)
        // A tracker goes though other symbols need it.
        .keep_dependants(false)
        .process_symbols(ProcessSymbols::whole_process())
        // Its header says that the reporter hears of each failure to compile or to link.
        .report_all_failures(true)
        .on_error(move |error| report(&reporter, error))
}

impl Engine {
    fn new(target: JitTargetMachineBuilder) -> Result<Arc<Self>, Problem> {
        let reporter = Reporter::default();
        let cache = cache::open();
        let memory = Arc::new(EngineMemory::new()?);
        let mut builder = builder(&target, &reporter, memory.clone());
        if let Some(cache) = &cache {
            builder = builder.cache(cache.options());
        }
        let jit = builder.build()?;
        let transforms = Arc::new(Transforms::default());
        let objects: Arc<dyn ObjectLayer> =
            Arc::new(ClientObjectLayer { transforms: transforms.clone(), below: jit.object_layer().clone() });
        let compiler = IrCompiler::new(target.clone(), OptimizationPipeline::none());
        let compile = Arc::new(IrCompileLayer::new(compiler, objects.clone()));
        let ir = Arc::new(ClientIrLayer { transforms: transforms.clone(), below: compile });
        let (triple, layout) =
            (CString::new(&*target.options().triple)?, CString::new(target.data_layout()?)?);
        let session = jit.session().clone();
        let jit = Mutex::new(Some(Arc::new(jit)));
        let handles = Mutex::new(None);
        let engine = Arc::new(Self {
            jit,
            session,
            target,
            memory,
            ir,
            objects,
            transforms,
            reporter,
            cache: Mutex::new(cache),
            triple,
            layout,
            handles,
        });
        *engine.handles.lock() = Some(Handles {
            session: handles::give(Session(engine.clone())),
            pool: handles::give(Pool(engine.clone())),
            ir_transform: handles::give(IrTransform(engine.clone())),
            object_transform: handles::give(ObjectTransform(engine.clone())),
            linking: handles::give(Linking { engine: engine.clone(), is_part: true, memory: None }),
        });
        ENGINES.lock().push(engine.clone());
        Ok(engine)
    }

    /// The engine, unless it was disposed of.
    pub(crate) fn jit(&self) -> Result<Arc<Jit>, Problem> {
        self.jit.lock().clone().ok_or_else(|| Problem::new("the LLJIT was disposed of before"))
    }

    /// The cache of its modules, unless it was disposed of.
    pub(crate) fn cache(&self) -> Option<SharedCache> {
        self.cache.lock().clone()
    }

    pub(crate) fn session(&self) -> &ExecutionSession {
        &self.session
    }

    fn handles(&self) -> Result<Handles, Problem> {
        self.handles.lock().ok_or_else(|| Problem::new("the LLJIT was disposed of before"))
    }

    pub(crate) fn session_handle(&self) -> Result<Handle, Problem> {
        Ok(self.handles()?.session)
    }

    /// Ends the engine: its handles first, so that no new call comes in.
    fn dispose(&self) {
        ENGINES.lock().retain(|engine| !std::ptr::eq(&**engine, self));
        if let Some(parts) = self.handles.lock().take() {
            drop(handles::take::<Session>(parts.session));
            drop(handles::take::<Pool>(parts.pool));
            drop(handles::take::<IrTransform>(parts.ir_transform));
            drop(handles::take::<ObjectTransform>(parts.object_transform));
            drop(handles::take::<Linking>(parts.linking));
        }
        let (jit, cache) = (self.jit.lock().take(), self.cache.lock().take());
        // The session closes while the client's handles of trackers and names still live.
        crate::callbacks::in_place(|| drop(jit));
        self.memory.end();
        cache.into_iter().for_each(SharedCache::finish);
        dylib::forget(&self.session);
        names::clear_dead();
    }
}

/// The engines that have not been disposed of.
static ENGINES: Mutex<Vec<Arc<Engine>>> = Mutex::new(Vec::new());

/// The engine of a session.
pub(crate) fn of_session(session: &ExecutionSession) -> Result<Arc<Engine>, Problem> {
    let found = ENGINES.lock().iter().find(|engine| engine.session == *session).cloned();
    found.ok_or_else(|| Problem::new("the session's LLJIT was disposed of before"))
}

fn report(reporter: &Reporter, error: &SessionError) {
    if is_of_client(error) {
        return;
    }
    let problem = Problem::from(error.clone());
    let reporter = *reporter.lock();
    match reporter {
        // SAFETY: the client has given the function for that, with its data. It takes the error over.
        Some((function, data)) => unsafe { function(data.0, problem.into_llvm()) },
        None => problem.report(),
    }
}

/// Whether the client itself has failed a unit. It knows, and ORC does not tell it.
fn is_of_client(error: &SessionError) -> bool {
    let SessionError::Failed(failure) = error else { return false };
    matches!(&failure.cause, FailureCause::Unit(cause) if cause.is::<FailedByClient>())
}

/// `LLVMOrcLLJITBuilderObjectLinkingLayerCreatorFunction`.
type CreateLayer = unsafe extern "C" fn(*mut c_void, Handle, *const c_char) -> Handle;

#[derive(Default)]
struct Builder {
    machine: Mutex<Option<Arc<MachineBuilder>>>,
    creator: Mutex<Option<(CreateLayer, Data)>>,
}

impl Handled for Builder {
    const KIND: &'static str = "LLVMOrcLLJITBuilderRef";
}

fn create(builder: Handle) -> Result<Handle, Problem> {
    let builder = if builder.is_null() { Arc::default() } else { handles::take::<Builder>(builder)? };
    let target = match builder.machine.lock().take() {
        Some(machine) => machine.target()?,
        None => JitTargetMachineBuilder::host()?,
    };
    let engine = Engine::new(target)?;
    let creator = builder.creator.lock().take();
    if let Some((create, data)) = creator
        && let Err(problem) = use_layer(&engine, create, data)
    {
        engine.dispose();
        return Err(problem);
    }
    Ok(handles::give(Lljit(engine)))
}

/// Asks the client for a layer. All layers link with our linker, so what counts is where the code is to lie.
fn use_layer(engine: &Arc<Engine>, create: CreateLayer, data: Data) -> Result<(), Problem> {
    let (session, triple) = (engine.session_handle()?, engine.triple.clone());
    // SAFETY: the client has given the function for that, with its data; the handle and the string live for the call.
    let layer = unsafe { create(data.0, session, triple.as_ptr()) };
    let layer = handles::take::<Linking>(layer)?;
    if let Some(memory) = &layer.memory {
        engine.memory.use_clients(memory.clone());
    }
    Ok(())
}

interface! {
    fn LLVMOrcCreateLLJITBuilder() -> Handle {
        Ok(handles::give(Builder::default()))
    }

    fn LLVMOrcDisposeLLJITBuilder(builder: Handle) {
        handles::take::<Builder>(builder).map(drop)
    }

    fn LLVMOrcLLJITBuilderSetJITTargetMachineBuilder(builder: Handle, machine: Handle) {
        let builder = handles::get::<Builder>(builder)?;
        let before = builder.machine.lock().replace(handles::take(machine)?);
        drop(before);
        Ok(())
    }

    fn LLVMOrcLLJITBuilderSetObjectLinkingLayerCreator(builder: Handle, create: CreateLayer, data: *mut c_void) {
        *handles::get::<Builder>(builder)?.creator.lock() = Some((create, Data(data)));
        Ok(())
    }

    fn LLVMOrcCreateLLJIT(result: Out<Handle>, builder: Handle) -> LLVMErrorRef {
        result.set(Handle::NULL);
        result.set(create(builder)?);
        Ok(())
    }

    fn LLVMOrcDisposeLLJIT(jit: Handle) -> LLVMErrorRef {
        handles::take::<Lljit>(jit)?.0.dispose();
        Ok(())
    }

    fn LLVMOrcLLJITGetExecutionSession(jit: Handle) -> Handle {
        handles::get::<Lljit>(jit)?.0.session_handle()
    }

    fn LLVMOrcLLJITGetMainJITDylib(jit: Handle) -> Handle {
        Ok(dylib::handle(handles::get::<Lljit>(jit)?.0.jit()?.main_dylib()))
    }

    fn LLVMOrcLLJITGetTripleString(jit: Handle) -> *const c_char {
        Ok(handles::get::<Lljit>(jit)?.0.triple.as_ptr())
    }

    /// ELF has none.
    fn LLVMOrcLLJITGetGlobalPrefix(jit: Handle) -> c_char {
        handles::get::<Lljit>(jit).map(|_| 0)
    }

    fn LLVMOrcLLJITGetDataLayoutStr(jit: Handle) -> *const c_char {
        Ok(handles::get::<Lljit>(jit)?.0.layout.as_ptr())
    }

    fn LLVMOrcLLJITGetObjLinkingLayer(jit: Handle) -> Handle {
        Ok(handles::get::<Lljit>(jit)?.0.handles()?.linking)
    }

    fn LLVMOrcLLJITGetObjTransformLayer(jit: Handle) -> Handle {
        Ok(handles::get::<Lljit>(jit)?.0.handles()?.object_transform)
    }

    fn LLVMOrcLLJITGetIRTransformLayer(jit: Handle) -> Handle {
        Ok(handles::get::<Lljit>(jit)?.0.handles()?.ir_transform)
    }

    fn LLVMOrcLLJITEnableDebugSupport(jit: Handle) -> LLVMErrorRef {
        handles::get::<Lljit>(jit)?;
        uruk::pipeline::debug::set_debugger(true);
        Ok(())
    }

    fn LLVMOrcExecutionSessionSetErrorReporter(session: Handle, function: ReportError, data: *mut c_void) {
        *handles::get::<Session>(session)?.0.reporter.lock() = Some((function, Data(data)));
        Ok(())
    }

    fn LLVMOrcExecutionSessionGetSymbolStringPool(session: Handle) -> Handle {
        Ok(handles::get::<Session>(session)?.0.handles()?.pool)
    }

    fn LLVMOrcSymbolStringPoolClearDeadEntries(pool: Handle) {
        let pool = handles::get::<Pool>(pool)?;
        names::clear_dead();
        pool.0.session().symbol_string_pool().reclaim();
        Ok(())
    }
}
