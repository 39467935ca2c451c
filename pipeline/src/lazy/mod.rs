//! Lazy functions: each has an address at once, and is compiled and linked when it is first called.
//!
//! ```text
//!   stub f: jmp *slot ─┬─▶ (before) cold part ─▶ first call: look f's body up, bind the slot
//!                      └─▶ (after)  body of f
//! ```
//!
//! The stub *is* the function's address, so two pointers to a function are equal whenever they were taken. Stubs, slots and cold parts
//! are an ordinary graph that the linker places; nothing executable is ever written again. The first call is
//! `runtime/call_through.rs`.
//!
//! **Where it runs.** The body is looked up. Unless another thread has begun with it, it is compiled and linked on the thread that calls
//! ([`LookupRequest::here`](uruk_core::LookupRequest::here)): no other thread has to wake. Threads that call it meanwhile wait in the
//! same lookup.
//!
//! **Tiers.** If there are any, a slot may lead to a counting part first, which jumps on to the body:
//!
//! ```text
//!   slot ─▶ counting part: one call less ─┬─▶ body
//!                                         └─(none left)─▶ cold part ─▶ the function waits to be compiled better ─▶ body
//! ```
//!
//! **Bodies.** [`redirect`](LazyCallThroughManager::redirect) gives functions other bodies while other threads call them. Functions of a
//! [group](LazyCallThroughManager::lazy_group) are switched at one moment: their stubs jump through one table.
//!
//! **Holds.** A slot leads to code that was present after it was found, and a holder of the stub also holds that code. A stub whose body is
//! removed later keeps leading to the removed code, like every call that is linked directly, until it is led elsewhere.

mod cell;
mod file;
mod function;
mod group;
mod known;
mod order;
mod promotion;
mod redirect;
mod speculator;
mod stubs;
mod trace;
mod trace_file;
mod traced;

use std::any::Any;
use std::fmt;

use uruk_core::sync::{Arc, Mutex};
use uruk_core::{
    AliasMap, AliasTarget, ExecutorAddr, JitDylib, LookupError, MaterializationInterface,
    MaterializationResponsibility, MaterializationUnit, SharedError, SymbolFlags, SymbolName, WeakJitDylib,
    WithCauses,
};

pub use self::file::{FileLayer, FileStubs};
pub use self::function::callee;
#[cfg(test)]
pub(crate) use self::function::use_the_locks;
use self::function::{BodyName, LazyFunction};
use self::group::StubGroup;
pub(crate) use self::known::FileOfUnit;
use self::known::{KnownFunction, LazyUnit};
pub use self::order::{CallOrder, CallOrderError, FunctionOfFile};
use self::promotion::Improving;
pub use self::redirect::RedirectError;
pub use self::speculator::{SpeculationStats, Speculator};
use self::stubs::{Contents, StubKind};
pub use self::trace::{CompileTrace, CompileTraceError, TracedFunction};
pub use self::trace_file::{CompileTraceFile, CompileTraceFileError};
use crate::linking::{ObjectLinkingLayer, StubTargets, Stubs};
use crate::runtime::call_through::{Cells, Destination, NamedCells};
use crate::tiers::Improve;

/// Why a first call found no function.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LazyCallError {
    /// It could not be found, compiled or linked.
    #[error(transparent)]
    Lookup(#[from] LookupError),
    /// The symbol is data.
    #[error("what was found is not a function")]
    NotCallable,
    /// The session is gone.
    #[error("the session that would compile it is gone")]
    SessionGone,
    /// The engine's own code has panicked.
    #[error("the engine panicked")]
    Panicked,
    /// A better body could not be defined.
    #[error("cannot define a better body")]
    Better(#[source] SharedError),
}

/// A first call that found no function: which one, and why. Its message has the causes.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LazyCallFailure {
    /// The function that was called.
    pub function: SymbolName,
    /// Why the call cannot go on there.
    pub error: LazyCallError,
}

impl std::error::Error for LazyCallFailure {}

impl fmt::Display for LazyCallFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot call `{}`: ", self.function.readable())?;
        match &self.error {
            // Its body has failed: what is new is why.
            LazyCallError::Lookup(LookupError::Failed(failure)) if failure.path.len() == 1 => {
                write!(f, "{}", failure.cause)
            }
            error => write!(f, "{}", WithCauses(error)),
        }
    }
}

/// Where a call goes on that has failed.
type OnFailure = dyn Fn(&LazyCallFailure) -> ExecutorAddr + Send + Sync;

/// Makes functions that are compiled when they are first called.
///
/// # Examples
/// ```
/// # #[cfg(not(feature = "llvm"))]
/// # fn main() {}
/// # #[cfg(feature = "llvm")]
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use std::sync::Arc;
/// use uruk_core::{AliasMap, AliasTarget, ExecutionSession, LookupRequest, LookupSet, SymbolFlags};
/// # use uruk_pipeline::ir::{IrCompiler, OptimizationLevel, ThreadSafeModule};
/// # use uruk_pipeline::object::ObjectLayer;
/// use uruk_pipeline::lazy::LazyCallThroughManager;
/// use uruk_pipeline::linking::ObjectLinkingLayer;
/// use uruk_pipeline::runtime::in_process::InProcessExecutor;
/// use uruk_pipeline::memory::InProcessMemoryManager;
/// # use uruk_pipeline::object::{ObjectBuffer, define_object};
/// use uruk_pipeline::platform::Platform;
///
/// let memory = Arc::new(InProcessMemoryManager::new()?);
/// let layer = ObjectLinkingLayer::new(Arc::new(InProcessExecutor::new(memory)), Arc::new(Platform::new()));
/// let session = ExecutionSession::new();
/// let (main, bodies) = (session.create_jit_dylib("main")?, session.create_jit_dylib("bodies")?);
/// # let source = ObjectBuffer::new("answer.ll", "define i64 @answer() { ret i64 42 }".as_bytes());
/// # let object = IrCompiler::host(OptimizationLevel::O2)?.compile(ThreadSafeModule::parse(&source)?)?;
/// # let objects: Arc<dyn ObjectLayer> = Arc::new(layer.clone());
/// # define_object(&bodies, &objects, object)?; // It defines `answer`.
/// let answer = session.intern("answer");
/// let flags = SymbolFlags::EXPORTED | SymbolFlags::CALLABLE;
/// let lazy: AliasMap = [(answer.clone(), AliasTarget { source: answer.clone(), flags })].into_iter().collect();
/// main.define(LazyCallThroughManager::new(layer).lazy_reexports(&bodies, lazy))?;
///
/// let stub = session.lookup(LookupRequest::along(&main, LookupSet::one(answer.clone())))?; // Nothing is linked yet but the stub.
/// // SAFETY: that is its signature.
/// let call: extern "C" fn() -> i64 = unsafe { std::mem::transmute(stub.get(&answer).unwrap().address.to_ptr::<()>()) };
/// assert_eq!(call(), 42);
/// # session.close()?;
/// # Ok(())
/// # }
/// ```
///
/// ORC: `LazyCallThroughManager`.
#[derive(Clone)]
pub struct LazyCallThroughManager {
    layer: ObjectLinkingLayer,
    on_failure: Arc<OnFailure>,
    /// Of those that lead several functions elsewhere, one at a time.
    redirections: Arc<Mutex<()>>,
    speculator: Speculator,
}

impl LazyCallThroughManager {
    /// Stubs are linked by `layer`, which must be the one that links the bodies too.
    pub fn new(layer: ObjectLinkingLayer) -> Self {
        let (on_failure, speculator) = (Arc::new(say_and_abort), Speculator::new(false));
        Self { layer, on_failure, redirections: Arc::default(), speculator }
    }

    /// Has `speculator` know the functions, and compile them ahead if it is told to; otherwise one does whose thread compiles.
    #[must_use]
    pub fn with_speculator(self, speculator: Speculator) -> Self {
        Self { speculator, ..self }
    }

    /// Records the order of first calls, and compiles some functions ahead.
    pub fn speculator(&self) -> &Speculator {
        &self.speculator
    }

    /// On failure, a call continues at the address from `handler`: a function with the signature of the missing one, or one that does not
    /// return. The null address ends the process of the code by `abort`. Without a handler the call reports the error on stderr and does that: it has nowhere to
    /// return to.
    ///
    /// The handler runs on a stack of the engine's and must not unwind. The next call of the function tries again.
    ///
    /// ORC: the `ErrorHandlerAddr` of a `LazyCallThroughManager`.
    #[must_use]
    pub fn on_failure(
        self,
        handler: impl Fn(&LazyCallFailure) -> ExecutorAddr + Send + Sync + 'static,
    ) -> Self {
        Self { on_failure: Arc::new(handler), ..self }
    }

    /// A unit of functions whose bodies are functions of `bodies`: the names of the program, and what each stands for there.
    ///
    /// Looking one of them up links all stubs of the unit and no body. Calls among bodies go by what the link order of `bodies` says:
    /// with the dylib of the stubs ahead of it they are lazy too.
    ///
    /// # Concurrency
    /// Functions may be called on any thread, on small stacks and while the thread or the process ends too. A first call blocks until the
    /// body is Ready. Signals that are not faults wait meanwhile. A signal handler may make one if it has interrupted no code of the engine
    /// and no function of the C library that a handler must not call.
    ///
    /// # Errors
    /// The unit fails with [`LazyCallError::NotCallable`] if the flags of an alias say that it is data.
    ///
    /// # Cost
    /// About 100 bytes a function, and one link for all of them. The first call costs a lookup and its work, later ones a jump.
    ///
    /// ORC: `lazyReexports`.
    #[doc(alias = "lazyReexports")]
    pub fn lazy_reexports(&self, bodies: &JitDylib, functions: AliasMap) -> Box<dyn MaterializationUnit> {
        self.lazy_functions(FileOfUnit::named("<lazy reexports>"), bodies, functions, None)
    }

    /// The stubs of a file, whose bodies are defined in `dylib` too. See [`FileStubs`].
    pub fn lazy_file(&self, dylib: &JitDylib, stubs: &FileStubs) -> Box<dyn MaterializationUnit> {
        self.lazy_functions(FileOfUnit::named(stubs.file()), dylib, stubs.aliases(dylib.session()), None)
    }

    /// The stubs of a unit of an image, which was compiled from `file`. Its functions are bodies of `dylib` under the names that `stubs` gives
    /// them. They get better ones from `improve`.
    pub fn lazy_image(
        &self,
        file: &str,
        dylib: &JitDylib,
        stubs: &FileStubs,
        improve: Option<Arc<dyn Improve>>,
    ) -> Box<dyn MaterializationUnit> {
        let in_image = Some(stubs.file().into());
        let file = FileOfUnit { in_image, ..FileOfUnit::named(file) };
        self.lazy_functions(file, dylib, stubs.aliases(dylib.session()), improve)
    }

    /// The same, of functions that are led elsewhere together: [`redirect`](Self::redirect) switches those of them that it is given at one
    /// moment.
    ///
    /// # Cost
    /// As above. A later call is a load more than a jump. When several are redirected, a word for each function of the group, which stays
    /// until the stubs are removed.
    pub fn lazy_group(&self, bodies: &JitDylib, functions: AliasMap) -> Box<dyn MaterializationUnit> {
        self.lazy_functions_of(LazyKind::Group, FileOfUnit::named("<lazy group>"), bodies, functions)
    }

    /// The same, of functions that get better bodies from `improve` once they are called often.
    ///
    /// # Cost
    /// As above; about 80 bytes more a function. As long as calls are counted, one costs up to 2 ns more.
    pub fn improvable_reexports(
        &self,
        bodies: &JitDylib,
        functions: AliasMap,
        improve: Arc<dyn Improve>,
    ) -> Box<dyn MaterializationUnit> {
        self.lazy_functions(FileOfUnit::named("<lazy reexports>"), bodies, functions, Some(improve))
    }

    /// The same of a file, for messages, orders of calls and traces. Calls of functions that can be improved are counted.
    pub(crate) fn lazy_functions(
        &self,
        file: FileOfUnit,
        bodies: &JitDylib,
        functions: AliasMap,
        improve: Option<Arc<dyn Improve>>,
    ) -> Box<dyn MaterializationUnit> {
        let kind = improve.map_or(LazyKind::Plain, LazyKind::Improvable);
        self.lazy_functions_of(kind, file, bodies, functions)
    }

    fn lazy_functions_of(
        &self,
        kind: LazyKind,
        file: FileOfUnit,
        bodies: &JitDylib,
        functions: AliasMap,
    ) -> Box<dyn MaterializationUnit> {
        let unit = Arc::new(LazyUnit::new(file, bodies.downgrade(), &functions));
        self.speculator.add(&unit);
        Box::new(LazyReexports { unit, manager: self.clone(), bodies: bodies.downgrade(), functions, kind })
    }
}

fn say_and_abort(failure: &LazyCallFailure) -> ExecutorAddr {
    use std::io::Write as _;
    // If that fails too, the message is lost.
    _ = writeln!(std::io::stderr(), "uruk: {failure}");
    ExecutorAddr::NULL
}

impl fmt::Debug for LazyCallThroughManager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LazyCallThroughManager").field("layer", &self.layer).finish_non_exhaustive()
    }
}

/// The unit of stubs.
struct LazyReexports {
    unit: Arc<LazyUnit>,
    manager: LazyCallThroughManager,
    bodies: WeakJitDylib,
    functions: AliasMap,
    kind: LazyKind,
}

enum LazyKind {
    Plain,
    /// Calls are counted.
    Improvable(Arc<dyn Improve>),
    /// They are led elsewhere together.
    Group,
}

impl MaterializationUnit for LazyReexports {
    fn name(&self) -> &str {
        self.unit.name()
    }

    fn interface(&self) -> MaterializationInterface {
        let flags = |(name, function): (&SymbolName, &AliasTarget)| (name.clone(), function.flags);
        MaterializationInterface::new(self.functions.iter().map(flags).collect())
    }

    fn materialize(self: Box<Self>, responsibility: MaterializationResponsibility) {
        let Self { unit, manager, bodies, functions, kind } = *self;
        if functions.values().any(|function| !function.flags.contains(SymbolFlags::CALLABLE)) {
            let error: SharedError = Arc::new(LazyCallError::NotCallable);
            return responsibility.fail(error);
        }
        let targets = Arc::new(StubTargets::default());
        let (stubs, improving, group) = match kind {
            LazyKind::Plain => (StubKind::Plain, None, None),
            LazyKind::Improvable(improve) => (StubKind::Counting, Some(Improving::new(improve)), None),
            LazyKind::Group => (StubKind::Group, None, Some(Arc::<StubGroup>::default())),
        };
        let cell = |(number, function): (u32, &KnownFunction)| -> Box<dyn Destination> {
            let (manager, targets) = (manager.clone(), targets.clone());
            let (group, unit) = (group.clone(), unit.clone());
            let body = BodyName { dylib: bodies.clone(), name: function.body.clone() };
            Box::new(LazyFunction::new(manager, targets, number, body, improving.as_ref(), group, unit))
        };
        let cells: Cells = (0..).zip(&unit.functions).map(cell).collect();
        if let Some(improving) = &improving {
            improving.are_at(&cells);
        }
        let cells = NamedCells::new(cells);
        let executor = &manager.layer.executor;
        let contents = Contents::new(&cells, stubs, executor.architecture(), executor.entries());
        // Without those that others have taken over.
        let names = |function: &KnownFunction| -> Vec<SymbolName> {
            function.names.iter().filter(|name| functions.contains_key(*name)).cloned().collect()
        };
        let names: Vec<_> = unit.functions.iter().map(names).collect();
        let graph = contents.graph(names.iter());
        let cells: Arc<dyn Any + Send + Sync> = Arc::new(cells);
        match graph {
            Ok(graph) => manager.layer.emit_stubs(responsibility, graph, Stubs { targets, cells }),
            Err(error) => responsibility.fail(Arc::new(error)),
        }
    }

    fn discard(&mut self, _dylib: &JitDylib, symbol: &SymbolName) {
        self.functions.remove(symbol);
    }
}
