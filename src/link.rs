//! [`Jit::link`]: a program as a static linker would make it.

use std::collections::HashSet;

use uruk_core::{
    ExecutorSymbolDef, LookupError, LookupRequest, LookupSet, SearchOrder, SymbolFlags, SymbolLookupFlags,
    SymbolName,
};
use uruk_pipeline::debug;
use uruk_pipeline::platform::LatentUnit;

use crate::error::JitError;
use crate::jit::Jit;

impl Jit {
    /// Materializes `entry` and everything that it or another part of the program needs; answers where the entry is.
    ///
    /// As with a static linker, each file takes part: what it runs at start is linked, and what it refers to has to be defined
    /// somewhere. Members of archives take part only if something refers to them. All that is needed is compiled at once, on
    /// all threads.
    ///
    /// A file that nothing refers to, and that does nothing by being there, stays as it is until one of its symbols is looked
    /// up. It does something if it runs code at start or end, has thread-local variables, sections that lie beside those
    /// of other files, tentative definitions or module-level assembly.
    ///
    /// # Errors
    /// [`JitError::Lookup`] for the first thing that is missing or fails, and [`JitError::NotCallable`] if the entry is
    /// data.
    pub fn link(&self, entry: &str) -> Result<ExecutorSymbolDef, JitError> {
        self.link_with(entry, &[])
    }

    /// As [`Jit::link`], with what defines `wanted` besides, if something does: members of archives too, as for a linker's option `-u`.
    ///
    /// # Errors
    /// As [`Jit::link`].
    pub fn link_with(&self, entry: &str, wanted: &[&str]) -> Result<ExecutorSymbolDef, JitError> {
        let entry = self.engine.session.intern(entry);
        let order = self.dylib().link_order();
        let for_libraries = self.names_for_libraries()?;
        let wanted = self.defined_of(&order, wanted);
        let mut roots: HashSet<SymbolName> = for_libraries.iter().cloned().chain(wanted).collect();
        self.add_members(&order, roots.iter().chain([&entry]));
        let mut found = None;
        loop {
            let mut needed = self.engine.files.platform.take_needed(Some(&entry));
            if needed.is_empty() && found.is_some() {
                let (called, latent) =
                    (self.engine.files.platform.take_called(), self.engine.files.platform.take_latent());
                if called.is_empty() && latent.is_empty() {
                    break;
                }
                // A missing symbol may have come out of archives, and brings files with it. Of functions that are compiled when they are
                // called, those of a file that misses something are compiled now: code may not need it when it is optimized.
                let (called, latent) = (self.incomplete(&order, called), self.incomplete(&order, latent));
                needed = latent.iter().map(|unit| unit.symbol.clone()).collect();
                let on_call = called.into_iter().chain(latent).filter_map(|unit| unit.compiled_on_call);
                needed.extend(on_call.flat_map(|functions| functions.bodies()));
            }
            // An initializer symbol has no address, so it is never required; its unit runs all the same.
            let mut symbols = LookupSet::weakly_referenced(needed);
            roots.insert(entry.clone());
            symbols.extend(roots.drain().map(|root| (root, SymbolLookupFlags::RequiredSymbol)));
            let answer = self.engine.session.lookup(LookupRequest::new(&order, symbols));
            found = answer.map_err(|error| self.told(error))?.get(&entry);
        }
        self.bind_libraries(&order, for_libraries)?;
        debug::settle();
        // The caller is going to call an entry that it asks for.
        found
            .filter(|found| found.flags.contains(SymbolFlags::CALLABLE))
            .ok_or_else(|| JitError::NotCallable { symbol: entry.as_str().into() })
    }

    /// Materializes every file that was added, and members of archives as they and `wanted` need them.
    ///
    /// # Errors
    /// [`JitError::Lookup`] for the first thing that is missing or fails.
    pub(crate) fn link_all(&self, wanted: &[&str]) -> Result<(), JitError> {
        let platform = &self.engine.files.platform;
        let order = self.dylib().link_order();
        let mut roots = self.defined_of(&order, wanted);
        self.add_members(&order, roots.iter());
        loop {
            let mut needed = platform.take_needed(None);
            needed.extend(platform.take_latent().into_iter().map(|unit| unit.symbol));
            needed.append(&mut roots);
            if needed.is_empty() {
                return Ok(());
            }
            let request = LookupRequest::new(&order, LookupSet::weakly_referenced(needed));
            self.engine.session.lookup(request).map_err(|error| self.told(error))?;
        }
    }

    /// Those of `units` that refer to something undefined. Linking them says so.
    fn incomplete(&self, order: &SearchOrder, units: Vec<LatentUnit>) -> Vec<LatentUnit> {
        let undefined = LookupSet::required(units.iter().flat_map(|unit| unit.undefined.iter().cloned()));
        let missing: HashSet<SymbolName> =
            match self.engine.session.lookup_flags(LookupRequest::new(order, undefined)) {
                Ok(_) => return Vec::new(),
                Err(LookupError::NotFound { symbols, .. }) => symbols.into_iter().collect(),
                // Whichever of them it concerns is going to say so.
                Err(_) => return units,
            };
        let misses = |unit: &LatentUnit| unit.undefined.iter().any(|name| missing.contains(name));
        units.into_iter().filter(misses).collect()
    }
}
