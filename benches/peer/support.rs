//! The common part of the cases: a session with a dylib, symbol names, addresses, and a unit that does nothing.

use uruk_core::sync::Arc;
use uruk_core::{
    ExecutionSession, ExecutionSessionBuilder, ExecutorAddr, ExecutorSymbolDef, JitDylib,
    JitDylibLookupFlags, LookupRequest, LookupResult, LookupSet, MaterializationInterface,
    MaterializationResponsibility, MaterializationUnit, SearchOrder, SymbolFlags, SymbolMap, SymbolName,
    TaskDispatcher, absolute_symbols,
};

use crate::harness::SplitMix64;

/// A session with one dylib. Dropping it closes the session.
pub(crate) struct Engine {
    pub(crate) session: ExecutionSession,
    pub(crate) main: JitDylib,
    /// `main` alone.
    pub(crate) order: SearchOrder,
}

impl Engine {
    pub(crate) fn in_place() -> Self {
        Self::build(ExecutionSession::builder())
    }

    pub(crate) fn with_dispatcher(dispatcher: Arc<dyn TaskDispatcher>) -> Self {
        Self::build(ExecutionSession::builder().dispatcher(dispatcher))
    }

    /// An engine that says nothing about failures and may measure how long its lock is held.
    pub(crate) fn silent(measured: bool) -> Self {
        let builder = ExecutionSession::builder().error_reporter(Arc::new(|_| {}));
        Self::build(builder.measure_lock_holds(measured))
    }

    /// An engine in place that measures how long its lock is held, which costs two looks at the clock each time.
    pub(crate) fn measured() -> Self {
        Self::build(ExecutionSession::builder().measure_lock_holds(true))
    }

    /// How long the lock was held at the longest since this was last asked. Zero unless it is measured.
    pub(crate) fn longest_hold_us(&self) -> f64 {
        self.session.take_lock_holds().map_or(0.0, |holds| holds.longest.as_nanos() as f64 / 1e3)
    }

    fn build(builder: ExecutionSessionBuilder) -> Self {
        let session = builder.build();
        let main = session.create_jit_dylib("main").expect("the first dylib of a session");
        let order = order([&main]);
        Self { session, main, order }
    }

    /// Interns the names of symbols `first` and on.
    pub(crate) fn names(&self, first: usize, count: usize) -> Vec<SymbolName> {
        (first..first + count).map(|index| self.session.intern(&symbol_name(index))).collect()
    }

    /// Defines one symbol at a fixed address, by a unit of its own.
    pub(crate) fn define_absolute(&self, name: &SymbolName, index: usize) {
        self.main.define(one_absolute(name, index)).expect("names are distinct");
    }

    pub(crate) fn define_noop(&self, name: &SymbolName, index: usize) {
        let unit = NoopUnit { name: name.clone(), definition: definition(index) };
        self.main.define(Box::new(unit)).expect("names are distinct");
    }

    /// Looks up all of `names` and blocks until they are Ready.
    pub(crate) fn look_up(&self, order: &SearchOrder, names: &[SymbolName]) -> LookupResult {
        let found =
            self.session.lookup(LookupRequest::new(order, set(names))).expect("every symbol is defined");
        assert_eq!(found.len(), names.len());
        found
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.session.close().expect("there are no resources that could refuse");
    }
}

pub(crate) fn one_absolute(name: &SymbolName, index: usize) -> Box<dyn MaterializationUnit> {
    absolute_symbols(one(name, definition(index)))
}

/// A map of one symbol.
pub(crate) fn one(name: &SymbolName, definition: ExecutorSymbolDef) -> SymbolMap {
    SymbolMap::from_iter([(name.clone(), definition)])
}

pub(crate) fn set(names: &[SymbolName]) -> LookupSet {
    LookupSet::required(names.iter().cloned())
}

/// A search of these dylibs, all symbols included.
pub(crate) fn order<'a>(dylibs: impl IntoIterator<Item = &'a JitDylib>) -> SearchOrder {
    dylibs.into_iter().map(|dylib| (dylib.clone(), JitDylibLookupFlags::MatchAllSymbols)).collect()
}

/// 33 characters, as a compiler mangles them.
pub(crate) fn symbol_name(index: usize) -> String {
    format!("_ZN5bench3sym17h{:016x}E", SplitMix64(index as u64).next())
}

pub(crate) fn definition(index: usize) -> ExecutorSymbolDef {
    ExecutorSymbolDef::new(ExecutorAddr::new(0x10_0000 + 16 * index as u64), SymbolFlags::EXPORTED)
}

/// The interface of a unit of one exported symbol.
pub(crate) fn interface(name: &SymbolName) -> MaterializationInterface {
    MaterializationInterface::new([(name.clone(), SymbolFlags::EXPORTED)].into_iter().collect())
}

/// One symbol that depends on nothing and is there as soon as it is asked for.
struct NoopUnit {
    name: SymbolName,
    definition: ExecutorSymbolDef,
}

impl MaterializationUnit for NoopUnit {
    fn name(&self) -> &str {
        "noop"
    }

    fn interface(&self) -> MaterializationInterface {
        interface(&self.name)
    }

    fn materialize(self: Box<Self>, responsibility: MaterializationResponsibility) {
        let resolved = responsibility
            .notify_resolved(&one(&self.name, self.definition))
            .unwrap_or_else(|refused| panic!("refused: {refused}"));
        resolved.notify_emitted(Vec::new()).unwrap_or_else(|refused| panic!("refused: {refused}"));
    }

    fn discard(&mut self, _: &JitDylib, _: &SymbolName) {}
}
