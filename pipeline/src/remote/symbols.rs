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
}

impl RemoteSymbolsGenerator {
    /// A generator that asks `executor`.
    pub fn new(executor: RemoteExecutor) -> Self {
        let name = format!("the libraries of process {}", executor.pid());
        Self { executor, name }
    }
}

impl DefinitionGenerator for RemoteSymbolsGenerator {
    fn name(&self) -> &str {
        &self.name
    }

    fn generate(&self, mut request: GenerateRequest) {
        let symbols: Vec<_> = request.symbols().iter().map(|(symbol, _)| symbol.clone()).collect();
        let names: Vec<&str> = symbols.iter().map(|symbol| symbol.as_str()).collect();
        let found = match self.executor.find(&names) {
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
