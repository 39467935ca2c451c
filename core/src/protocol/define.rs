//! Define: units come into a dylib.

use crate::{SymbolFlagsMap, SymbolName, TaskPriority};

/// What a unit says of itself.
#[derive(Clone, Debug)]
pub(crate) struct Definition {
    pub(crate) unit_name: SymbolName,
    pub(crate) symbols: SymbolFlagsMap,
    pub(crate) initializer: Option<SymbolName>,
    pub(crate) priority: TaskPriority,
}
