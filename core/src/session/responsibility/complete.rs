//! Complete: both steps of a responsibility at once, for units that have everything in place when they know the addresses.

use crate::error::CompleteError;
use crate::{
    DependenceGroup, Dependency, EmitError, MaterializationResponsibility, Refused, ResolvedResponsibility,
    SymbolMap,
};

impl MaterializationResponsibility {
    /// Announces where the symbols are, and that code and data are in place there: [`notify_resolved`] and [`notify_emitted`] in one.
    ///
    /// Each of the symbols depends on all of `dependencies`, which are tokens from lookups.
    ///
    /// # Errors
    /// [`CompleteError`], with the reason of the step that was refused. The symbols have failed with it.
    ///
    /// # Cost
    /// That of the two steps: linear in the symbols and the dependencies.
    ///
    /// [`notify_resolved`]: Self::notify_resolved
    /// [`notify_emitted`]: crate::ResolvedResponsibility::notify_emitted
    pub fn complete(self, addresses: &SymbolMap, dependencies: Vec<Dependency>) -> Result<(), CompleteError> {
        let resolved = self.notify_resolved(addresses).map_err(Refused::fail)?;
        Ok(resolved.complete(dependencies)?)
    }
}

impl ResolvedResponsibility {
    /// Announces that code and data are in place, and that each of the symbols depends on all of `dependencies`: [`notify_emitted`] with
    /// one group.
    ///
    /// # Errors
    /// Those of [`notify_emitted`]. The symbols have failed with it.
    ///
    /// # Cost
    /// That of [`notify_emitted`].
    ///
    /// [`notify_emitted`]: Self::notify_emitted
    pub fn complete(self, dependencies: Vec<Dependency>) -> Result<(), EmitError> {
        let groups = match dependencies.is_empty() {
            true => Vec::new(),
            false => {
                vec![DependenceGroup { symbols: self.symbols().keys().cloned().collect(), dependencies }]
            }
        };
        self.notify_emitted(groups).map_err(Refused::fail)
    }
}
