//! The symbol protocol seen from outside, without LLVM: what the tests share.

pub mod by_priority;
pub mod deadlock;
pub mod halt;
mod in_full;
pub mod kept;
pub mod on;
pub mod per_task;
pub mod resident;
pub mod scene;
pub mod sends;
pub mod tracked;
pub mod units;

// Shared with the tests of dispatchers.
#[path = "../../dispatch/tests/support/hammer.rs"]
pub mod hammer;
#[path = "../../dispatch/tests/support/patience.rs"]
mod patience;
#[path = "../../dispatch/tests/support/random.rs"]
pub mod random;

pub use in_full::InFull;
pub use patience::{within, within_reason};
pub use units::define_parked;

use std::sync::{Arc, mpsc};

use uruk_core::{
    DependenceGroup, ExecutionSession, ExecutorAddr, ExecutorSymbolDef, InPlaceTaskDispatcher, JitDylib,
    LookupError, LookupRequest, LookupResult, LookupSet, MaterializationInterface,
    MaterializationResponsibility, MaterializationUnit, ResolvedResponsibility, SearchOrder, SerialQueue,
    SessionError, SymbolFlags, SymbolFlagsMap, SymbolMap, SymbolName, TaskDispatcher, TaskPriority,
    absolute_symbols,
};
use uruk_dispatch::WorkStealingTaskDispatcher;

type Materialize = Box<dyn FnOnce(MaterializationResponsibility) + Send>;
type Discard = Box<dyn FnMut(&SymbolName) + Send>;

/// A unit made of closures.
pub struct TestUnit {
    name: String,
    interface: MaterializationInterface,
    materialize: Option<Materialize>,
    discard: Discard,
    serial_queue: Option<SerialQueue>,
    priority: TaskPriority,
    leaf: bool,
}

impl TestUnit {
    /// A unit of `symbols` that runs `materialize`.
    pub fn new(
        name: &str,
        symbols: SymbolFlagsMap,
        materialize: impl FnOnce(MaterializationResponsibility) + Send + 'static,
    ) -> Self {
        let interface = MaterializationInterface::new(symbols);
        Self {
            name: name.into(),
            interface,
            materialize: Some(Box::new(materialize)),
            discard: Box::new(|_| {}),
            serial_queue: None,
            priority: TaskPriority::Demanded,
            leaf: false,
        }
    }

    /// Calls `discard` for each symbol the unit loses.
    #[must_use]
    pub fn on_discard(mut self, discard: impl FnMut(&SymbolName) + Send + 'static) -> Self {
        self.discard = Box::new(discard);
        self
    }

    /// Adds a symbol for the unit's initialisers.
    #[must_use]
    pub fn with_initializer(mut self, initializer: SymbolName) -> Self {
        self.interface = self.interface.with_initializer(initializer);
        self
    }

    /// Says how urgent the unit is by itself.
    #[must_use]
    pub fn with_priority(mut self, priority: TaskPriority) -> Self {
        self.priority = priority;
        self
    }

    /// Has the unit run when no other of `queue` does.
    #[must_use]
    pub fn in_queue(mut self, queue: &SerialQueue) -> Self {
        self.serial_queue = Some(queue.clone());
        self
    }

    /// Declares that the unit never blocks.
    #[must_use]
    pub fn leaf(mut self) -> Self {
        self.leaf = true;
        self
    }

    /// The unit as sessions take it.
    #[must_use]
    pub fn boxed(self) -> Box<dyn MaterializationUnit> {
        Box::new(self)
    }
}

impl std::fmt::Debug for TestUnit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TestUnit").field("name", &self.name).finish_non_exhaustive()
    }
}

impl MaterializationUnit for TestUnit {
    fn name(&self) -> &str {
        &self.name
    }

    fn interface(&self) -> MaterializationInterface {
        self.interface.clone()
    }

    fn priority(&self) -> TaskPriority {
        self.priority
    }

    fn serial_queue(&self) -> Option<SerialQueue> {
        self.serial_queue.clone()
    }

    fn is_leaf(&self) -> bool {
        self.leaf
    }

    fn materialize(mut self: Box<Self>, responsibility: MaterializationResponsibility) {
        let materialize = self.materialize.take().expect("a unit materializes once");
        materialize(responsibility);
    }

    fn discard(&mut self, _dylib: &JitDylib, symbol: &SymbolName) {
        (self.discard)(symbol);
    }
}

/// Exported code.
pub const EXPORTED: SymbolFlags = SymbolFlags::EXPORTED.union(SymbolFlags::CALLABLE);

/// An exported definition at `address`.
pub fn at(address: u64) -> ExecutorSymbolDef {
    ExecutorSymbolDef::new(ExecutorAddr::new(address), EXPORTED)
}

/// A session in place, with a dylib `main`.
pub fn session() -> (ExecutionSession, JitDylib) {
    let session = ExecutionSession::new();
    let main = session.create_jit_dylib("main").expect("the first dylib has a name of its own");
    (session, main)
}

/// A session whose tasks run where `dispatcher` has them run, with a dylib `main`.
pub fn session_on(dispatcher: Arc<dyn TaskDispatcher>) -> (ExecutionSession, JitDylib) {
    let session = ExecutionSession::builder().dispatcher(dispatcher).build();
    let main = session.create_jit_dylib("main").expect("the first dylib has a name of its own");
    (session, main)
}

/// The same, and the reports of the session.
pub fn reporting_session_on(
    dispatcher: Arc<dyn TaskDispatcher>,
) -> (ExecutionSession, JitDylib, mpsc::Receiver<String>) {
    let (send, reports) = mpsc::channel();
    // The test may have ended.
    let reporter = Arc::new(move |error: &SessionError| drop(send.send(error.in_full())));
    let session = ExecutionSession::builder().dispatcher(dispatcher).error_reporter(reporter).build();
    let main = session.create_jit_dylib("main").expect("the first dylib has a name of its own");
    (session, main, reports)
}

/// A work-stealing pool of so many workers.
pub fn pool(workers: usize) -> Arc<WorkStealingTaskDispatcher> {
    Arc::new(WorkStealingTaskDispatcher::builder().workers(workers).build().expect("a possible number"))
}

/// A session on a work-stealing pool of so many workers, or in place where there are none, with a dylib `main`.
pub fn session_of(workers: usize) -> (ExecutionSession, JitDylib) {
    session_on(pool_or_place(workers))
}

/// A work-stealing pool of so many workers; the dispatcher without threads where there are none.
pub fn pool_or_place(workers: usize) -> Arc<dyn TaskDispatcher> {
    match workers {
        0 => Arc::new(InPlaceTaskDispatcher::default()),
        _ => pool(workers),
    }
}

/// Exported flags for each of `names`.
pub fn exported(session: &ExecutionSession, names: &[&str]) -> SymbolFlagsMap {
    names.iter().map(|name| (session.intern(name), EXPORTED)).collect()
}

/// A search of `dylib` alone, hidden symbols included.
pub fn order(dylib: &JitDylib) -> SearchOrder {
    SearchOrder::of(dylib)
}

/// Required symbols of these names.
pub fn set(session: &ExecutionSession, names: &[&str]) -> LookupSet {
    LookupSet::required(names.iter().map(|name| session.intern(name)))
}

/// An address for each covered symbol: 0x1000 and on, in the order of their names.
pub fn addresses(symbols: &SymbolFlagsMap) -> SymbolMap {
    let mut names: Vec<_> = symbols
        .iter()
        .filter(|(_, flags)| !flags.contains(SymbolFlags::MATERIALIZATION_SIDE_EFFECTS_ONLY))
        .collect();
    names.sort_by_key(|(name, _)| *name);
    let at = |index: usize| ExecutorAddr::new(0x1000 + 16 * index as u64);
    names
        .into_iter()
        .enumerate()
        .map(|(index, (name, flags))| (name.clone(), ExecutorSymbolDef::new(at(index), *flags)))
        .collect()
}

/// Gives every symbol its address.
pub fn resolve(responsibility: MaterializationResponsibility) -> ResolvedResponsibility {
    let addresses = addresses(responsibility.symbols());
    responsibility.notify_resolved(&addresses).expect("addresses are as promised")
}

/// Resolves and emits everything, depending on nothing.
pub fn finish(responsibility: MaterializationResponsibility) {
    finish_with(responsibility, Vec::new());
}

/// Resolves and emits everything with these dependence groups.
pub fn finish_with(responsibility: MaterializationResponsibility, groups: Vec<DependenceGroup>) {
    resolve(responsibility).notify_emitted(groups).expect("dependencies are possible");
}

/// A unit of one exported symbol at a known address.
pub fn absolute(dylib: &JitDylib, name: &str, address: u64) -> Box<dyn MaterializationUnit> {
    absolute_symbols([(dylib.session().intern(name), at(address))].into_iter().collect())
}

/// Defines one exported symbol at a known address.
pub fn define_absolute(dylib: &JitDylib, name: &str, address: u64) {
    dylib.define(absolute(dylib, name, address)).expect("nothing of the name is defined");
}

/// Emits everything as depending on the symbols of `needs`, once they have addresses, as a linker does. Fails with their error
/// otherwise.
pub fn emit_depending_on(resolved: ResolvedResponsibility, needs: LookupRequest) {
    let session = resolved.session().clone();
    let resolved = resolved.detach();
    session.lookup_async(needs.until_resolved(), move |found| {
        let resolved = resolved.attach();
        let found = match found {
            Ok(found) => found,
            Err(error) => return resolved.fail(Arc::new(error)),
        };
        let symbols = resolved.symbols().keys().cloned().collect();
        let group = DependenceGroup { symbols, dependencies: found.dependencies() };
        if let Err(refused) = resolved.notify_emitted(vec![group]) {
            refused.fail();
        }
    });
}

/// Defines exported `symbols` whose unit does nothing but finish.
pub fn define_simple(dylib: &JitDylib, unit: &str, symbols: &[&str]) {
    let symbols = exported(dylib.session(), symbols);
    dylib.define(TestUnit::new(unit, symbols, finish).boxed()).expect("nothing of the name is defined");
}

/// Starts a lookup whose answer comes through a channel.
pub fn look_up_later(
    session: &ExecutionSession,
    request: LookupRequest,
) -> mpsc::Receiver<Result<LookupResult, LookupError>> {
    let (send, receive) = mpsc::channel();
    session.lookup_async(request, move |answer| {
        // The test may have lost interest.
        let _ = send.send(answer);
    });
    receive
}

/// A request for `names` in `dylib` alone.
pub fn request(dylib: &JitDylib, names: &[&str]) -> LookupRequest {
    LookupRequest::new(order(dylib), set(dylib.session(), names))
}

/// A waker that does nothing.
pub fn waker() -> std::task::Waker {
    struct Quiet;
    impl std::task::Wake for Quiet {
        fn wake(self: Arc<Self>) {}
    }
    Arc::new(Quiet).into()
}
