//! Objects that may be linked with others.

use std::fmt;

use uruk_core::sync::Arc;

use crate::object::ObjectBuffer;

/// An object that may be linked with others.
pub(crate) struct WaitingObject {
    pub(crate) object: ObjectBuffer,
    /// `None` if its names are those of the program.
    pub(crate) names: Option<Arc<NameInProgram>>,
}

impl fmt::Debug for WaitingObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("WaitingObject").field(self.object.name()).finish()
    }
}

/// The name in the program of a name in an object. `None` if it is the same.
pub(crate) type NameInProgram = dyn Fn(&str) -> Option<Box<str>> + Send + Sync;
