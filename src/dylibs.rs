//! Dylibs beside the main one: plugins, libraries, tenants.

use uruk_core::{DylibError, ExecutionSession, JitDylib, JitDylibLookupFlags, TransactionError};

use crate::{Jit, JitError, Scope};

impl Jit {
    /// Creates a dylib, of which the process's symbols are found as in the main one.
    ///
    /// What its code refers to is searched in the dylib itself first, then in those that it was [linked to](Scope::link_to), then in
    /// the C and C++ libraries and whatever else was loaded. It sees nothing of the main dylib unless it is linked to that, and
    /// nobody sees anything of it.
    ///
    /// It is there until it is [removed](Jit::remove_dylib), or the `Jit` dropped.
    ///
    /// # Errors
    /// [`JitError::Dylib`] if there is one of that name, or the session was closed.
    ///
    /// ORC: `LLJIT::createJITDylib`.
    #[doc(alias = "createJITDylib")]
    pub fn create_dylib(&self, name: &str) -> Result<JitDylib, JitError> {
        let dylib = create_dylib(&self.session, name, self.keeps_dependants)?;
        for (library, flags) in &self.searched_last {
            dylib.add_to_link_order(library, *flags)?;
        }
        Ok(dylib)
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

impl Scope<'_> {
    /// Lets what is added here find the exported symbols of `other`: behind the dylib's own and those of dylibs that it was linked to
    /// before, and ahead of the process's. Does nothing if it was linked to `other` already.
    ///
    /// Two dylibs may be linked to each other. [`JitDylib::set_link_order`] makes any other order.
    ///
    /// # Errors
    /// [`JitError::Dylib`] if one of them was removed, or `other` belongs to another engine.
    ///
    /// # Cost
    /// Linear in the link order, during one hold of the session's lock.
    pub fn link_to(&self, other: &JitDylib) -> Result<(), JitError> {
        let dylib = self.dylib();
        let order = dylib.link_order();
        let (exported, jit) = (JitDylibLookupFlags::MatchExportedSymbolsOnly, self.jit);
        let is_searched = |library: &JitDylib| order.iter().any(|(searched, _)| searched == library);
        if is_searched(other) {
            return Ok(());
        }
        let last: Vec<_> = jit.searched_last.iter().filter(|(library, _)| is_searched(library)).collect();
        let mut changes = jit.session.transaction();
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
