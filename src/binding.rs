//! Symbols of the program that loaded libraries use and the command line wants, where the process is the program's.

use std::collections::{HashMap, HashSet};

use uruk_core::sync::Arc;
use uruk_core::{
    DylibError, ExecutionSession, JitDylib, JitDylibLookupFlags, LookupRequest, LookupSet, SearchOrder,
    SymbolFlags, SymbolName, absolute_symbols,
};
use uruk_pipeline::runtime::image::{ProgramImage, publish};
use uruk_pipeline::runtime::process::LibraryReferences;

use crate::error::JitError;
use crate::files::Files;
use crate::jit::Jit;

/// Puts what linkers define before the libraries, which `searched` has. Some libraries have such names of their own, `end` among them: a
/// program that refers to one means the linker's.
pub(crate) fn image_before_libraries(
    session: &ExecutionSession,
    image: &ProgramImage,
    searched: &mut Vec<(JitDylib, JitDylibLookupFlags)>,
) -> Result<(), DylibError> {
    // By the brackets errors leave it out.
    let dylib = session.create_jit_dylib("<linker>")?;
    let symbols = image.symbols().map(|(name, definition)| (session.intern(name), definition));
    dylib.define(absolute_symbols(symbols.collect())).expect("the dylib is new, and the names differ");
    searched.insert(0, (dylib, JitDylibLookupFlags::MatchExportedSymbolsOnly));
    Ok(())
}

impl Jit {
    /// Lets `dl_iterate_phdr` tell the program, and libraries that were loaded for it, of the program. For a process that is
    /// [the program's](crate::JitBuilder::owns_process), and for as long as it is there.
    pub fn publish_image(&self) {
        if let Some(image) = &self.engine.image {
            let memory = self.engine.memory.clone();
            publish(image.header(), Arc::new(move || memory.mapped()));
        }
    }

    /// The header and the symbols of an executable, for a [program](crate::JitBuilder::owns_process).
    pub fn program_image(&self) -> Option<&ProgramImage> {
        self.engine.image.as_ref()
    }

    /// Those of `wanted` that something along `order` defines. Members of archives are added for it.
    pub(crate) fn defined_of(&self, order: &SearchOrder, wanted: &[&str]) -> Vec<SymbolName> {
        let is_defined = |name: &SymbolName| {
            let alone = LookupSet::one(name.clone());
            self.engine.session.lookup_flags(LookupRequest::new(order, alone)).is_ok()
        };
        wanted.iter().map(|name| self.engine.session.intern(name)).filter(is_defined).collect()
    }

    /// Adds the members of archives that `roots` and all files need, before the first of them is linked. A member may have what others
    /// have to know by then:
    ///
    /// - sections of a name that others have too, which are one;
    /// - a strong definition, to which a weak one of another file yields.
    pub(crate) fn add_members<'n>(&self, order: &SearchOrder, roots: impl Iterator<Item = &'n SymbolName>) {
        let Files { platform, linking, .. } = &*self.engine.files;
        if !platform.sections_are_shared() && !linking.commons.searches_archives() {
            return;
        }
        let mut asked: HashSet<SymbolName> = roots.cloned().collect();
        let mut names: Vec<_> = asked.iter().cloned().collect();
        loop {
            names.extend(platform.undefined().into_iter().filter(|name| asked.insert(name.clone())));
            if names.is_empty() {
                return;
            }
            let names = std::mem::take(&mut names);
            // A symbol that is defined nowhere is an error when its user is linked.
            let _ = self.engine.session.lookup_flags(LookupRequest::new(order, LookupSet::required(names)));
        }
    }

    /// The names by which loaded libraries refer to the program: those that it defines, and those that have to be defined.
    pub(crate) fn names_for_libraries(&self) -> Result<Vec<SymbolName>, JitError> {
        let references = self.references_to_program()?;
        let intern = |name: &str| self.engine.session.intern(name);
        let optional = references.optional.iter().map(|name| intern(name));
        let defined = self.dylib().flags(optional).into_iter();
        let is_bound = |flags: SymbolFlags| {
            flags.contains(SymbolFlags::EXPORTED) && !flags.contains(SymbolFlags::THREAD_LOCAL)
        };
        let defined = defined.filter(|(_, flags)| is_bound(*flags)).map(|(name, _)| name);
        Ok(defined.chain(references.required.iter().map(|name| intern(name))).collect())
    }

    fn references_to_program(&self) -> Result<LibraryReferences, JitError> {
        #[cfg(feature = "llvm")]
        if let Some(remote) = &self.engine.remote {
            return Ok(remote.executor.references_to_program()?);
        }
        Ok(self.engine.files.process.references_to_program())
    }

    /// Binds what loaded libraries refer to by `names`, which have been linked.
    pub(crate) fn bind_libraries(&self, order: &SearchOrder, names: Vec<SymbolName>) -> Result<(), JitError> {
        let mut found = HashMap::new();
        if !names.is_empty() {
            let answer = self.engine.session.lookup(LookupRequest::new(order, LookupSet::required(names)))?;
            found.extend(answer.iter().map(|(name, definition)| (Box::from(name.as_str()), definition)));
        }
        #[cfg(feature = "llvm")]
        if let Some(remote) = &self.engine.remote {
            return Ok(remote.executor.bind_to_program(&found)?);
        }
        self.engine.files.process.bind_to_program(&found);
        Ok(())
    }
}
