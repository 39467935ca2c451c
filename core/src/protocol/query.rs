//! Queries: lookups that have not ended.

use crate::{ExecutorSymbolDef, SymbolName};

use super::ids::RowId;

/// One symbol of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) name: SymbolName,
    pub(crate) row: RowId,
    pub(crate) definition: ExecutorSymbolDef,
}
