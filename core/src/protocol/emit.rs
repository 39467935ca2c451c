//! Emit.
use crate::SymbolName;

use super::ids::RowId;

/// Symbols of one responsibility that depend on the same rows.
#[derive(Clone, Debug)]
pub(crate) struct EmitGroup {
    pub(crate) symbols: Vec<SymbolName>,
    pub(crate) dependencies: Vec<RowId>,
}
