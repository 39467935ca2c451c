//! Symbols of the executor's process as definitions of a dylib.

use std::fmt;

use uruk_core::{DefinitionGenerator, GenerateRequest, SymbolMap, absolute_symbols, shared_error};

use super::place::RemoteExecutor;

/// Defines in its dylib what the executor's libraries have, when a lookup misses it there.
///
/// # Concurrency
/// A lookup waits for the executor's answer, once for all names that it misses.
///
/// ORC: `EPCDynamicLibrarySearchGenerator`.
pub struct RemoteSymbolsGenerator {
    executor: RemoteExecutor,
    name: String,
    is_close: IsClose,
}

/// Whether linked code reads a symbol directly.
type IsClose = Box<dyn Fn(&str) -> bool + Send + Sync>;

impl RemoteSymbolsGenerator {
    /// A generator that asks `executor`.
    pub fn new(executor: RemoteExecutor) -> Self {
        let name = format!("the libraries of process {}", executor.pid());
        Self { executor, name, is_close: Box::new(|_| false) }
    }

    /// Has variables of which `is_close` says that linked code reads them directly move near to that code.
    #[must_use]
    pub fn moving(mut self, is_close: impl Fn(&str) -> bool + Send + Sync + 'static) -> Self {
        self.is_close = Box::new(is_close);
        self
    }
}

impl DefinitionGenerator for RemoteSymbolsGenerator {
    fn name(&self) -> &str {
        &self.name
    }

    fn generate(&self, mut request: GenerateRequest) {
        let symbols: Vec<_> = request.symbols().iter().map(|(symbol, _)| symbol.clone()).collect();
        let names = symbols.iter().map(|symbol| (symbol.as_str(), (self.is_close)(symbol.as_str())));
        let found = match self.executor.find_near(&names.collect::<Vec<_>>()) {
            Ok(found) => found,
            Err(error) => return request.finish(Err(shared_error(error))),
        };
        let found: SymbolMap =
            symbols.into_iter().zip(found).filter_map(|(symbol, found)| Some((symbol, found?))).collect();
        // Libraries that come later are told of (`ExecutionSession::generators_changed`).
        request.rule_out(|symbol| !found.contains_key(symbol));
        let defined = if found.is_empty() { Ok(()) } else { request.dylib().define(absolute_symbols(found)) };
        request.finish(defined.map_err(shared_error));
    }
}

impl fmt::Debug for RemoteSymbolsGenerator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RemoteSymbolsGenerator").field(&self.name).finish()
    }
}
