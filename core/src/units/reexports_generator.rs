//! Re-exports on demand: a dylib that shows, under the same names, what another one has.

use std::fmt;

use crate::{
    AliasMap, AliasTarget, DefineError, DefinitionGenerator, GenerateRequest, JitDylib, JitDylibLookupFlags,
    LookupRequest, LookupSet, SearchOrder, SharedError, SymbolFlagsMap, SymbolName, reexports, shared_error,
};

use super::reexports::AliasSource;

/// Defines re-exports of another dylib's symbols when a lookup misses them.
///
/// The other dylib is asked what its symbols are, its generators included, and materializes nothing before a
/// re-export is looked up.
///
/// ```
/// # use std::sync::Arc;
/// # use uruk_core::{ExecutionSession, JitDylibLookupFlags, ReexportsGenerator};
/// # let session = ExecutionSession::new();
/// # let (facade, library) = (session.create_jit_dylib("facade")?, session.create_jit_dylib("library")?);
/// let exported = ReexportsGenerator::new(library, JitDylibLookupFlags::MatchExportedSymbolsOnly)
///     .allow_only(|name| name.as_str().starts_with("api_"));
/// facade.add_generator(Arc::new(exported));
/// # Ok::<(), uruk_core::DylibError>(())
/// ```
///
/// Two dylibs may re-export each other's symbols: a symbol that neither has is an error then, not a wait. Lookups do not queue
/// here, but ask the other dylib side by side.
///
/// ORC: `ReexportsGenerator`.
pub struct ReexportsGenerator {
    source: AliasSource,
    flags: JitDylibLookupFlags,
    allow: Box<dyn Fn(&SymbolName) -> bool + Send + Sync>,
    name: String,
}

impl ReexportsGenerator {
    /// Re-exports what `flags` show of `source`.
    pub fn new(source: JitDylib, flags: JitDylibLookupFlags) -> Self {
        let name = format!("re-exports of {}", source.name());
        Self { source: AliasSource::of(&source), flags, allow: Box::new(|_| true), name }
    }

    /// Restricts the re-exports to symbols for which `allow` holds.
    #[must_use]
    pub fn allow_only(mut self, allow: impl Fn(&SymbolName) -> bool + Send + Sync + 'static) -> Self {
        self.allow = Box::new(allow);
        self
    }
}

impl DefinitionGenerator for ReexportsGenerator {
    fn name(&self) -> &str {
        &self.name
    }

    fn generate(&self, request: GenerateRequest) {
        let names = request.symbols().iter().map(|(name, _)| name).filter(|name| (self.allow)(name));
        let wanted = LookupSet::weakly_referenced(names.cloned());
        // A dylib cannot re-export from itself a symbol that it lacks.
        if wanted.is_empty() || self.source.is(request.dylib()) {
            return request.finish(Ok(()));
        }
        let source = match self.source.handle(request.session()) {
            Ok(source) => source,
            Err(foreign) => return request.finish(Err(shared_error(foreign))),
        };
        let order: SearchOrder = [(source.clone(), self.flags)].into();
        // The source may re-export symbols of this dylib, and another lookup be on its way here from there.
        request.let_others_in();
        let mut lookup = LookupRequest::new(order, wanted);
        lookup.kind = request.kind();
        let (session, query) = (request.session().clone(), request.query());
        let flags = self.flags;
        let parked = request.detach();
        session.start_flags(lookup, Some(query), move |found| {
            let request = parked.attach();
            let defined = match found {
                Ok(found) => {
                    // The platform is told of what is defined, and may look for it.
                    request.keep_others_out();
                    define(request.dylib(), &source, flags, found)
                }
                Err(error) => Err(shared_error(error)),
            };
            request.finish(defined);
        });
    }
}

/// Defines re-exports of the symbols found, except for names that were defined meanwhile.
fn define(
    dylib: &JitDylib,
    source: &JitDylib,
    flags: JitDylibLookupFlags,
    mut found: SymbolFlagsMap,
) -> Result<(), SharedError> {
    while !found.is_empty() {
        let alias = |(name, flags): (&SymbolName, &crate::SymbolFlags)| {
            (name.clone(), AliasTarget { source: name.clone(), flags: *flags })
        };
        let aliases: AliasMap = found.iter().map(alias).collect();
        match dylib.define(reexports(source.clone(), flags, aliases)) {
            Err(DefineError::Duplicate { symbol, .. }) if found.remove(&symbol).is_some() => {}
            defined => return defined.map_err(shared_error),
        }
    }
    Ok(())
}

impl fmt::Debug for ReexportsGenerator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReexportsGenerator")
            .field("source", &self.source.name())
            .field("flags", &self.flags)
            .finish_non_exhaustive()
    }
}
