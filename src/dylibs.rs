//! Dylibs beside the main one: plugins, libraries, tenants.

use uruk_core::sync::Arc;
use uruk_core::{
    DefinitionGenerator, DylibError, ExecutionSession, JitDylib, JitDylibLookupFlags, RemoveError,
    TransactionError,
};

use uruk_pipeline::runtime::image::ProgramImage;
use uruk_pipeline::runtime::process::ProcessSymbolsGenerator;

use crate::binding::image_before_libraries;
use crate::compiler_runtime::CompilerRuntime;
use crate::error::JitError;
use crate::files::Files;
use crate::jit::Jit;
use crate::scope::Scope;
use crate::unmapping::Unmapping;

impl Jit {
    /// Creates a dylib, and gives its scope. The process's symbols are found from it as from the main one.
    ///
    /// References of its code are searched in the dylib itself first, then in those that it was [linked to](Scope::link_to), then in
    /// the C and C++ libraries and in other loaded libraries. It sees nothing of the main dylib unless it is linked to that, and
    /// no other dylib sees anything of it.
    ///
    /// It is there until it is [removed](Jit::remove_dylib), or the `Jit` dropped, however many handles of the scope there are.
    ///
    /// # Errors
    /// [`JitError::Dylib`] if there is one of that name, or the session was closed.
    ///
    /// ORC: `LLJIT::createJITDylib`.
    #[doc(alias = "createJITDylib")]
    pub fn create_dylib(&self, name: &str) -> Result<Scope, JitError> {
        let dylib = create_dylib(&self.engine.session, name, self.engine.keeps_dependants)?;
        for (library, flags) in &self.engine.searched_last {
            dylib.add_to_link_order(library, *flags)?;
        }
        Ok(Scope::new(self.engine.clone(), dylib))
    }

    /// Removes a dylib with everything that was added to it, and says when its code is gone, as [`Scope::remove_tracker`] does. The name
    /// is free when this returns.
    ///
    /// # Concurrency
    /// Does not block. Lookups that wait for symbols of the dylib fail.
    ///
    /// # Errors
    /// As [`ExecutionSession::remove_jit_dylib`].
    pub fn remove_dylib(&self, dylib: &Scope) -> Result<Unmapping, RemoveError> {
        self.removing(|remove| self.engine.session.remove_jit_dylib_by(dylib.dylib(), remove))
    }
}

/// Creates a dylib for files.
pub(crate) fn create_dylib(
    session: &ExecutionSession,
    name: &str,
    keeps_dependants: bool,
) -> Result<JitDylib, DylibError> {
    match keeps_dependants {
        true => session.create_jit_dylib_keeping_dependants(name),
        false => session.create_jit_dylib(name),
    }
}

/// The symbols of this process's libraries.
pub(crate) fn process_libraries(files: &Files) -> Arc<dyn DefinitionGenerator> {
    let low = files.linking.layer.low_addresses().clone();
    let generator = ProcessSymbolsGenerator::new(files.process.clone())
        .adjusted_by(move |name, definition| low.of_process(name, definition));
    Arc::new(generator)
}

/// Creates the dylibs that every other one searches last: the process's libraries, and symbols around them.
pub(crate) fn create_searched(
    session: &ExecutionSession,
    files: &Arc<Files>,
    generator: Arc<dyn DefinitionGenerator>,
    image: Option<&ProgramImage>,
) -> Result<Vec<(JitDylib, JitDylibLookupFlags)>, DylibError> {
    let exported = JitDylibLookupFlags::MatchExportedSymbolsOnly;
    let libraries = session.create_jit_dylib("libraries")?;
    libraries.add_generator(generator);
    let mut searched = vec![(libraries.clone(), exported)];
    if let Some(image) = image {
        image_before_libraries(session, image, &mut searched)?;
    }
    let runtimes = CompilerRuntime::find(files);
    if !runtimes.is_empty() {
        // Their symbols are hidden, so that each program has its own; this is part of the program.
        let dylib = session.create_jit_dylib("compiler runtime")?;
        for runtime in runtimes {
            let _generator = dylib.add_generator(Arc::new(runtime));
        }
        dylib.add_to_link_order(&libraries, exported)?;
        searched.push((dylib, JitDylibLookupFlags::MatchAllSymbols));
    }
    Ok(searched)
}

impl Scope {
    /// Lets what is added here find the exported symbols of `other`: behind the dylib's own and those of dylibs that it was linked to
    /// before, and ahead of the process's. Does nothing if it was linked to `other` already.
    ///
    /// Two dylibs may be linked to each other, and any to the main one: `plugin.link_to(&jit)`. [`JitDylib::set_link_order`] makes any other order.
    ///
    /// # Errors
    /// [`JitError::Dylib`] if one of them was removed, or `other` belongs to another engine.
    ///
    /// # Cost
    /// Linear in the link order, during one hold of the session's lock.
    pub fn link_to(&self, other: &Scope) -> Result<(), JitError> {
        self.check_open()?;
        let (dylib, other) = (self.dylib(), other.dylib());
        let order = dylib.link_order();
        let (exported, engine) = (JitDylibLookupFlags::MatchExportedSymbolsOnly, &self.engine);
        let is_searched = |library: &JitDylib| order.iter().any(|(searched, _)| searched == library);
        if is_searched(other) {
            return Ok(());
        }
        let last: Vec<_> = engine.searched_last.iter().filter(|(library, _)| is_searched(library)).collect();
        let mut changes = engine.session.transaction();
        for (library, _) in &last {
            changes = changes.remove_from_link_order(dylib, library);
        }
        changes = changes.add_to_link_order(dylib, other, exported);
        for (library, flags) in &last {
            changes = changes.add_to_link_order(dylib, library, *flags);
        }
        changes.commit().map_err(|refused| match refused.error {
            TransactionError::LinkOrder { source, .. } => source.into(),
            TransactionError::Foreign { dylib, .. } => DylibError::Foreign { name: dylib }.into(),
            error => unreachable!("a transaction that only links was refused: {error}"),
        })
    }
}
