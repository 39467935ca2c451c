//! Stage: what models of sessions share. A bounded exploration, units made of closures, short lookups.

use uruk_core::sync::Arc;
use uruk_core::sync::atomic::{AtomicUsize, Ordering};
use uruk_core::{
    DependenceGroup, ExecutionSession, ExecutorAddr, ExecutorSymbolDef, JitDylib, LookupError, LookupRequest,
    LookupSet, MaterializationInterface, MaterializationResponsibility, MaterializationUnit,
    ResolvedResponsibility, SearchOrder, SymbolFlags, SymbolMap, SymbolName,
};

/// Explores every order with at most four preemptions, or as many as `LOOM_MAX_PREEMPTIONS` says. A session
/// takes more steps than loom's default allows.
pub fn model(scenario: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound.get_or_insert(4);
    builder.max_branches = 100_000;
    builder.check(scenario);
}

/// A session that runs its units on the threads that look them up, with one dylib.
#[derive(Debug)]
pub struct Stage {
    /// The session.
    pub session: ExecutionSession,
    /// Its dylib.
    pub dylib: JitDylib,
}

impl Stage {
    /// An empty stage, to be shared by the threads of a model.
    pub fn new() -> Arc<Self> {
        let session = ExecutionSession::new();
        let dylib = session.create_jit_dylib("main").expect("the first dylib");
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
        let symbols = symbols.iter().map(|&name| (name.clone(), SymbolFlags::EXPORTED)).collect();
        let unit = Scripted { symbols, materialize: Box::new(materialize) };
        self.dylib.define(Box::new(unit)).expect("names are new");
    }

    /// Looks up one symbol and blocks until it is Ready.
    pub fn lookup(&self, name: &SymbolName) -> Result<ExecutorSymbolDef, LookupError> {
        self.session.lookup_symbol(&self.order(), name)
    }

    /// Asks for the address of one symbol, as a linker does.
    pub fn until_resolved(&self, name: &SymbolName) -> LookupRequest {
        LookupRequest::new(self.order(), LookupSet::one(name.clone())).until_resolved()
    }
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

/// What every symbol of a model resolves to.
pub fn definition() -> ExecutorSymbolDef {
    ExecutorSymbolDef::new(ExecutorAddr::new(0x1000), SymbolFlags::EXPORTED)
}

/// Gives every symbol its address.
pub fn resolve(responsibility: MaterializationResponsibility) -> ResolvedResponsibility {
    let addresses: SymbolMap =
        responsibility.symbols().keys().map(|name| (name.clone(), definition())).collect();
    responsibility.notify_resolved(&addresses).expect("every symbol has an address")
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
