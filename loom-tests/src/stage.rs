//! Stage: what models of sessions share. A bounded exploration, units made of closures, short lookups.

use uruk_core::sync::atomic::{AtomicUsize, Ordering};
use uruk_core::sync::{Arc, Mutex, thread};
use uruk_core::{
    DependenceGroup, Detached, ExecutionSession, ExecutorAddr, ExecutorSymbolDef, JitDylib, LookupError,
    LookupRequest, LookupSet, MaterializationInterface, MaterializationResponsibility, MaterializationUnit,
    ResolvedResponsibility, SearchOrder, SymbolFlags, SymbolMap, SymbolName, TaskDispatcher,
};

/// Explores every order with at most four preemptions, or as many as `LOOM_MAX_PREEMPTIONS` says.
pub fn model(scenario: impl Fn() + Sync + Send + 'static) {
    model_within(4, scenario);
}

/// Explores every order with at most `preemptions`, or as many as `LOOM_MAX_PREEMPTIONS` says. A session takes more
/// steps than loom's default allows.
pub fn model_within(preemptions: usize, scenario: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound.get_or_insert(preemptions);
    builder.max_branches = 100_000;
    builder.check(scenario);
}

/// A session with one dylib.
#[derive(Debug)]
pub struct Stage {
    /// The session.
    pub session: ExecutionSession,
    /// Its dylib.
    pub dylib: JitDylib,
}

impl Stage {
    /// An empty stage, to be shared by the threads of a model. Units run on the threads that look them up.
    pub fn new() -> Arc<Self> {
        Self::of(ExecutionSession::new())
    }

    /// A stage whose tasks run where `dispatcher` has them run.
    pub fn on(dispatcher: Arc<dyn TaskDispatcher>) -> Arc<Self> {
        Self::of(ExecutionSession::builder().dispatcher(dispatcher).build())
    }

    /// A stage whose tasks wait in a queue until threads of the model take them, the queue, and a counted unit's one symbol.
    pub fn queued<Q: TaskDispatcher + Default + 'static>() -> (Arc<Self>, Arc<Q>, SymbolName, Arc<AtomicUsize>)
    {
        let queue = Arc::new(Q::default());
        let stage = Self::on(queue.clone());
        let name = stage.session.intern("name");
        let started = stage.define_counted(&[&name]);
        (stage, queue, name, started)
    }

    /// A stage for a session that was built for its model.
    pub fn of(session: ExecutionSession) -> Arc<Self> {
        let dylib = session.create_jit_dylib("main").expect("the first dylib");
        Arc::new(Self { session, dylib })
    }

    /// An empty stage whose dylib keeps the dependants of its symbols.
    pub fn keeping_dependants() -> Arc<Self> {
        let session = ExecutionSession::new();
        let dylib = session.create_jit_dylib_keeping_dependants("main").expect("the first dylib");
        Arc::new(Self { session, dylib })
    }

    /// The dylib, and all its symbols.
    pub fn order(&self) -> SearchOrder {
        SearchOrder::of(&self.dylib)
    }

    /// Defines a unit that provides `symbols` by running `materialize`.
    pub fn define(
        &self,
        symbols: &[&SymbolName],
        materialize: impl FnOnce(MaterializationResponsibility) + Send + 'static,
    ) {
        self.dylib.define(unit(symbols, materialize)).expect("names are new");
    }

    /// Defines a unit of `symbols` that finishes at once and counts how often it starts.
    pub fn define_counted(&self, symbols: &[&SymbolName]) -> Arc<AtomicUsize> {
        let started = Arc::new(AtomicUsize::new(0));
        let counts = started.clone();
        self.define(symbols, move |responsibility| {
            // Relaxed: read by threads that the session tells of a later step, or that have joined this one.
            counts.fetch_add(1, Ordering::Relaxed);
            resolve_and_emit(responsibility);
        });
        started
    }

    /// Defines a unit and starts it: its responsibility comes here, to be finished on any thread. No lookup waits yet.
    pub fn parked(&self, symbols: &[&SymbolName]) -> Detached<MaterializationResponsibility> {
        let parked = Arc::new(Mutex::new(None));
        self.define(symbols, {
            let parked = parked.clone();
            move |responsibility| *parked.lock() = Some(responsibility.detach())
        });
        drop(self.session.lookup_future(self.until_resolved(symbols[0])));
        let responsibility = parked.lock().take();
        responsibility.expect("the unit has run on this thread")
    }

    /// Looks up one symbol and blocks until it is Ready.
    pub fn lookup(&self, name: &SymbolName) -> Result<ExecutorSymbolDef, LookupError> {
        self.session.lookup_symbol(&self.order(), name)
    }

    /// Does so on a thread of its own.
    pub fn lookup_beside(
        self: &Arc<Self>,
        name: &SymbolName,
    ) -> thread::JoinHandle<Result<ExecutorSymbolDef, LookupError>> {
        let (stage, name) = (self.clone(), name.clone());
        thread::spawn(move || stage.lookup(&name))
    }

    /// Asks for one symbol until it is Ready.
    pub fn request(&self, name: &SymbolName) -> LookupRequest {
        LookupRequest::new(self.order(), LookupSet::one(name.clone()))
    }

    /// Asks for the address of one symbol, as a linker does.
    pub fn until_resolved(&self, name: &SymbolName) -> LookupRequest {
        LookupRequest::new(self.order(), LookupSet::one(name.clone())).until_resolved()
    }
}

/// A unit that provides `symbols` by running `materialize`.
pub fn unit(
    symbols: &[&SymbolName],
    materialize: impl FnOnce(MaterializationResponsibility) + Send + 'static,
) -> Box<dyn MaterializationUnit> {
    let symbols = symbols.iter().map(|&name| (name.clone(), SymbolFlags::EXPORTED)).collect();
    Box::new(Scripted { symbols, materialize: Box::new(materialize) })
}

type Script = Box<dyn FnOnce(MaterializationResponsibility) + Send>;

struct Scripted {
    symbols: uruk_core::SymbolFlagsMap,
    materialize: Script,
}

impl MaterializationUnit for Scripted {
    fn name(&self) -> &str {
        "scripted"
    }

    fn interface(&self) -> MaterializationInterface {
        MaterializationInterface::new(self.symbols.clone())
    }

    fn materialize(self: Box<Self>, responsibility: MaterializationResponsibility) {
        (self.materialize)(responsibility);
    }

    fn discard(&mut self, _: &JitDylib, _: &SymbolName) {}
}

/// The definition to which every symbol of a model resolves.
pub fn definition() -> ExecutorSymbolDef {
    ExecutorSymbolDef::new(ExecutorAddr::new(0x1000), SymbolFlags::EXPORTED)
}

/// An address for each symbol of a responsibility.
pub fn addresses(responsibility: &MaterializationResponsibility) -> SymbolMap {
    responsibility.symbols().keys().map(|name| (name.clone(), definition())).collect()
}

/// Gives every symbol its address.
pub fn resolve(responsibility: MaterializationResponsibility) -> ResolvedResponsibility {
    let addresses = addresses(&responsibility);
    responsibility.notify_resolved(&addresses).expect("every symbol has an address")
}

/// Gives every symbol its address, and says that all is in place and depends on nothing.
pub fn resolve_and_emit(responsibility: MaterializationResponsibility) {
    resolve(responsibility).notify_emitted(Vec::new()).expect("nothing can refuse it");
}

/// Does so on a thread of its own, with a parked responsibility.
pub fn emit_beside(parked: Detached<MaterializationResponsibility>) -> thread::JoinHandle<()> {
    thread::spawn(move || resolve_and_emit(parked.attach()))
}

/// A lookup beside a closing was answered, or told of it.
pub fn found_or_closed(told: Result<ExecutorSymbolDef, LookupError>) {
    match told {
        Ok(found) => assert_eq!(found, definition()),
        Err(LookupError::Closed) => {}
        Err(error) => panic!("neither found nor closed: {error}"),
    }
}

/// Looks `dependency` up until it has an address and then emits the unit's one symbol as depending on it:
/// what a linker does. If there is nothing to depend on, the symbol fails.
pub fn resolve_and_emit_depending_on(
    responsibility: MaterializationResponsibility,
    dependency: LookupRequest,
    emitted: Arc<AtomicUsize>,
) {
    let symbols = responsibility.symbols().keys().cloned().collect();
    let session = responsibility.session().clone();
    let resolved = resolve(responsibility).detach();
    session.lookup_async(dependency, move |found| {
        // Without an answer the responsibility is dropped, which fails the symbol.
        let Ok(found) = found else { return };
        let group = DependenceGroup { symbols, dependencies: found.dependencies() };
        // Relaxed: read by threads that the session has told of the emission.
        emitted.fetch_add(1, Ordering::Relaxed);
        if let Err(refused) = resolved.attach().notify_emitted(vec![group]) {
            refused.fail();
        }
    });
}
