//! Process symbols as definitions of a dylib.

use std::fmt;

use uruk_core::sync::Arc;
use uruk_core::{
    DefinitionGenerator, ExecutorSymbolDef, GenerateRequest, SymbolMap, absolute_symbols, shared_error,
};

use super::library::LibraryName;
use super::{ProcessSymbols, jit_overrides};

/// Defines in its dylib what the process has, when a lookup misses it there.
///
/// Give it to a dylib at the end of the link order. The overrides for linked code come first; with an allow-list
/// in force they are subject to it as well.
///
/// Over [`ProcessSymbols::of_library`] it makes a dylib stand for one shared library, without the overrides.
///
/// # Examples
/// ```
/// use std::sync::Arc;
/// use uruk_core::{ExecutionSession, LookupRequest, LookupSet};
/// use uruk_pipeline::runtime::process::{ProcessSymbols, ProcessSymbolsGenerator};
///
/// let session = ExecutionSession::new();
/// let libc = session.create_jit_dylib("libc")?;
/// libc.add_generator(Arc::new(ProcessSymbolsGenerator::new(Arc::new(ProcessSymbols::new()))));
/// let getpid = LookupRequest::along(&libc, LookupSet::one(session.intern("getpid")));
/// assert!(session.lookup(getpid).is_ok());
/// # Ok::<(), uruk_core::DylibError>(())
/// ```
///
/// ORC: `EPCDynamicLibrarySearchGenerator`.
#[doc(alias = "EPCDynamicLibrarySearchGenerator")]
pub struct ProcessSymbolsGenerator {
    symbols: Arc<ProcessSymbols>,
    overrides: Vec<(&'static str, ExecutorSymbolDef)>,
    /// The libraries searched when the generator was made.
    name: String,
    adjust: Adjust,
}

/// The definition that linked code gets in place of a symbol of the process.
type Adjust = Box<dyn Fn(&str, ExecutorSymbolDef) -> ExecutorSymbolDef + Send + Sync>;

impl ProcessSymbolsGenerator {
    /// A generator over `symbols`, which may be shared: libraries loaded later are found too.
    pub fn new(symbols: Arc<ProcessSymbols>) -> Self {
        let applies = |(name, _): &(&str, _)| symbols.is_overridden() && symbols.allows(name);
        let overrides = jit_overrides().into_iter().filter(applies).collect();
        let name = symbols.searched().join(", ");
        Self { symbols, overrides, name, adjust: Box::new(|_, definition| definition) }
    }

    /// Lets `adjust` choose the definition that linked code gets in place of the process's, once for each symbol.
    #[must_use]
    pub fn adjusted_by(
        self,
        adjust: impl Fn(&str, ExecutorSymbolDef) -> ExecutorSymbolDef + Send + Sync + 'static,
    ) -> Self {
        Self { adjust: Box::new(adjust), ..self }
    }
}

impl DefinitionGenerator for ProcessSymbolsGenerator {
    fn name(&self) -> &str {
        &self.name
    }

    fn generate(&self, mut request: GenerateRequest) {
        self.symbols.will_tell(request.dylib());
        let mut found = SymbolMap::default();
        for (symbol, _) in request.symbols().iter() {
            let name = symbol.as_str();
            let unversioned = LibraryName::unversioned(name);
            let overridden = self.overrides.iter().find(|(known, _)| *known == unversioned);
            let overridden = overridden.map(|(_, definition)| *definition);
            if let Some(definition) = overridden.or_else(|| self.symbols.lookup(name)) {
                found.insert(symbol.clone(), (self.adjust)(unversioned, definition));
            }
        }
        request.rule_out(|symbol| !found.contains_key(symbol) && self.symbols.is_certain_of(symbol.as_str()));
        let defined = if found.is_empty() { Ok(()) } else { request.dylib().define(absolute_symbols(found)) };
        request.finish(defined.map_err(shared_error));
    }
}

impl fmt::Debug for ProcessSymbolsGenerator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ProcessSymbolsGenerator").field(&self.symbols).finish()
    }
}
