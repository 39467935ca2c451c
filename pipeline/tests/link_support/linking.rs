//! A session that links objects as the files of a program, each with a tracker of its own, and units that wait for the test.

use std::sync::Arc;

use uruk_core::sync::Mutex;
use uruk_core::{
    Detached, ExecutionSession, JitDylib, LookupError, LookupRequest, LookupResult, LookupSet,
    MaterializationInterface, MaterializationResponsibility, MaterializationUnit, ResourceTracker,
    SearchOrder, SymbolName,
};
use uruk_pipeline::executor::Executor;
use uruk_pipeline::linking::ObjectLinkingLayer;
use uruk_pipeline::memory::{InProcessMemoryManager, MemoryManager};
use uruk_pipeline::object::ObjectLayer;
use uruk_pipeline::object::UnitTraits;
use uruk_pipeline::object::{ObjectBuffer, ObjectMaterializationUnit};
use uruk_pipeline::platform::Platform;
use uruk_pipeline::runtime::in_process::InProcessExecutor;

use super::{CC, chain, compile};

/// A function of the objects that the tests make.
pub(crate) type Function = extern "C" fn() -> u64;

/// A session whose objects lie in memory of its own. Everything runs on the thread that asks, before the question returns.
pub(crate) struct Linking {
    pub(crate) session: ExecutionSession,
    pub(crate) dylib: JitDylib,
    pub(crate) layer: Arc<dyn ObjectLayer>,
    pub(crate) memory: Arc<dyn MemoryManager>,
    pub(crate) platform: Arc<Platform>,
}

impl Linking {
    pub(crate) fn new() -> Self {
        let memory = Arc::new(InProcessMemoryManager::new().expect("address space"));
        let executor = Arc::new(InProcessExecutor::new(memory.clone()));
        Self::for_executor(executor, memory, Platform::new())
    }

    /// A session whose objects run where `executor` says.
    pub(crate) fn for_executor(
        executor: Arc<dyn Executor>,
        memory: Arc<dyn MemoryManager>,
        platform: Platform,
    ) -> Self {
        let session = ExecutionSession::new();
        let dylib = session.create_jit_dylib("main").expect("new");
        let platform = Arc::new(platform);
        let layer = Arc::new(ObjectLinkingLayer::new(executor, platform.clone()));
        Self { session, dylib, layer, memory, platform }
    }

    /// An object made of `source`.
    pub(crate) fn unit(&self, name: &str, source: &str) -> ObjectMaterializationUnit {
        self.unit_of(ObjectBuffer::new(name, compile(CC, "c", source, &["-fPIC", "-funwind-tables"])))
    }

    pub(crate) fn unit_of(&self, object: ObjectBuffer) -> ObjectMaterializationUnit {
        ObjectMaterializationUnit::new(&self.session, self.layer.clone(), object).expect("an object")
    }

    /// Declares a file to the platform, for a unit that is to be defined.
    pub(crate) fn declare(&self, name: &str, shares_sections: bool) -> SymbolName {
        self.platform.declare(&self.dylib, name, UnitTraits { shares_sections, ..UnitTraits::default() })
    }

    /// A file of the program.
    pub(crate) fn file(&self, name: &str, source: &str) -> File {
        let inner = self.unit(name, source);
        let initializer = self.declare(name, inner.shares_sections());
        self.file_of(inner, initializer)
    }

    /// A file of the program that was declared.
    pub(crate) fn file_of(&self, inner: ObjectMaterializationUnit, initializer: SymbolName) -> File {
        let mut interface = inner.interface();
        if let Some(own) = interface.initializer.take() {
            interface.symbols.remove(&own);
        }
        File { inner, interface: interface.with_initializer(initializer), parks: None }
    }

    /// Defines a unit with a tracker of its own.
    pub(crate) fn define(&self, unit: impl MaterializationUnit + 'static) -> ResourceTracker {
        self.define_in(&self.dylib, unit)
    }

    pub(crate) fn define_in(
        &self,
        dylib: &JitDylib,
        unit: impl MaterializationUnit + 'static,
    ) -> ResourceTracker {
        let tracker = dylib.create_tracker();
        dylib.define_with_tracker(Box::new(unit), &tracker).expect("a new name");
        tracker
    }

    /// Asks for a symbol until it is Ready.
    pub(crate) fn ask(&self, name: &str) -> Answer {
        self.ask_in(&self.dylib, name)
    }

    pub(crate) fn ask_in(&self, dylib: &JitDylib, name: &str) -> Answer {
        let symbol = self.session.intern(name);
        let answer = Answer { symbol: symbol.clone(), told: Arc::default() };
        let told = answer.told.clone();
        let request = LookupRequest::new(SearchOrder::of(dylib), LookupSet::one(symbol));
        self.session.lookup_async(request, move |found| *told.lock() = Some(found));
        answer
    }

    /// The function of a symbol that can be found at once.
    pub(crate) fn find(&self, name: &str) -> Option<Function> {
        self.ask(name).function().ok()
    }

    /// How many pieces of memory linked code has.
    pub(crate) fn allocations(&self) -> u64 {
        self.memory.usage().allocations
    }

    /// How many initializers, finalizers and descriptors the platform hands out.
    pub(crate) fn handed_out(&self) -> [usize; 3] {
        let platform = &self.platform;
        [
            platform.take_initializers().len(),
            platform.take_finalizers().len(),
            platform.take_indirect_functions().len(),
        ]
    }
}

/// The result of a lookup.
pub(crate) struct Answer {
    symbol: SymbolName,
    told: Arc<Mutex<Option<Result<LookupResult, LookupError>>>>,
}

impl Answer {
    pub(crate) fn is_there(&self) -> bool {
        self.told.lock().is_some()
    }

    /// The function found, or the error with its causes. Panics if there is no answer, because no task can give one any more.
    pub(crate) fn function(&self) -> Result<Function, String> {
        let told =
            self.told.lock().take().unwrap_or_else(|| panic!("`{}` is waited for in vain", self.symbol));
        let found = told.map_err(|error| chain(&error))?;
        let definition = found.get(&self.symbol).expect("it was required");
        // SAFETY: every function here has this signature, and is called before its tracker is removed.
        Ok(unsafe { std::mem::transmute::<*const u8, Function>(definition.address.to_ptr()) })
    }
}

/// A unit that waits until the test lets it go on.
pub(crate) type Parked =
    Arc<Mutex<Option<(ObjectMaterializationUnit, Detached<MaterializationResponsibility>)>>>;

/// An object as a file of a program.
pub(crate) struct File {
    inner: ObjectMaterializationUnit,
    interface: MaterializationInterface,
    parks: Option<Parked>,
}

impl File {
    /// The symbol by which the platform knows it.
    pub(crate) fn initializer(&self) -> SymbolName {
        self.interface.initializer.clone().expect("each file has one")
    }

    /// The same, which begins when [`go_on`] says so.
    pub(crate) fn parked(mut self) -> (Self, Parked) {
        let parked = Parked::default();
        self.parks = Some(parked.clone());
        (self, parked)
    }
}

/// Lets a parked file be linked, after a lookup of it.
pub(crate) fn go_on(parked: &Parked) {
    let (unit, responsibility) = take(parked);
    Box::new(unit).materialize(responsibility.attach());
}

/// The parked unit.
pub(crate) fn take(parked: &Parked) -> (ObjectMaterializationUnit, Detached<MaterializationResponsibility>) {
    parked.lock().take().expect("somebody has asked for it")
}

impl MaterializationUnit for File {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn interface(&self) -> MaterializationInterface {
        self.interface.clone()
    }

    fn materialize(self: Box<Self>, responsibility: MaterializationResponsibility) {
        match self.parks {
            Some(parked) => *parked.lock() = Some((self.inner, responsibility.detach())),
            None => Box::new(self.inner).materialize(responsibility),
        }
    }

    fn discard(&mut self, dylib: &JitDylib, symbol: &SymbolName) {
        self.interface.symbols.remove(symbol);
        self.inner.discard(dylib, symbol);
    }
}
