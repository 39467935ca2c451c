//! Dependencies: the definitions on which a unit's symbols depend, named when they are emitted.

use std::fmt;

use crate::SymbolName;
use crate::ids::{RowId, SessionTag};

/// Symbols that depend on the same others.
///
/// ORC: `SymbolDependenceGroup`.
#[doc(alias = "SymbolDependenceGroup")]
#[derive(Clone, Debug, Default)]
pub struct DependenceGroup {
    /// The dependent symbols, all of one responsibility.
    pub symbols: Vec<SymbolName>,
    /// The dependencies of each of them, as tokens from lookups.
    pub dependencies: Vec<Dependency>,
}

/// A definition that may be depended on: not a name, but this very definition of it.
///
/// A later definition of the same name has another token.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Dependency {
    pub(crate) row: RowId,
    /// Tells tokens of different sessions apart.
    pub(crate) session: SessionTag,
}

impl fmt::Debug for Dependency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Dependency({:?})", self.row)
    }
}
