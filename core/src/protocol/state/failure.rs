//! Failures: what broke, and where each row stands that fell.

use std::cell::Cell;

use crate::protocol::storage::ids::{FailureId, RowId};
use crate::sync::Arc;
use crate::{Failure, FailureCause, SymbolName};

/// What broke, once for all the rows it felled.
#[derive(Debug)]
pub(crate) struct FailureRecord {
    /// A symbol of the unit that failed, for paths whose end was removed since.
    pub(crate) symbol: SymbolName,
    pub(crate) unit: SymbolName,
    pub(crate) dylib: Arc<str>,
    pub(crate) cause: FailureCause,
    /// How many rows refer to the record; it goes with the last.
    pub(crate) rows: usize,
    /// Somebody has been told of it.
    pub(in crate::protocol) told: Cell<bool>,
}

impl FailureRecord {
    pub(in crate::protocol) fn at_its_root(&self) -> Arc<Failure> {
        let (unit, dylib, cause) = (self.unit.clone(), self.dylib.clone(), self.cause.clone());
        Arc::new(Failure { path: vec![self.symbol.clone()], path_omitted: 0, unit, dylib, cause })
    }
}

/// Where a row stands in a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fallen {
    pub(crate) failure: FailureId,
    /// Where it began.
    pub(crate) root: RowId,
    /// How many steps away.
    pub(crate) depth: u32,
}
