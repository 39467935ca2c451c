//! Alias.
use crate::SymbolName;

use super::ids::RowId;

/// An alias that waits for the symbol it names.
#[derive(Clone, Debug)]
pub(crate) struct AliasEdge {
    pub(crate) alias: RowId,
    pub(crate) source: SymbolName,
}
