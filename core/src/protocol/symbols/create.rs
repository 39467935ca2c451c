//! Create: name spaces appear.

use crate::DylibError;
use crate::protocol::state::{Payload, SessionState};
use crate::protocol::storage::DylibId;
use crate::sync::Arc;

impl<P: Payload> SessionState<P> {
    /// See [`crate::ExecutionSession::create_jit_dylib`].
    pub(crate) fn create_dylib(&mut self, name: Arc<str>) -> Result<DylibId, DylibError> {
        if !self.is_open() {
            return Err(DylibError::Closed);
        }
        self.definitions.create_dylib(name.clone()).ok_or(DylibError::Duplicate { name })
    }
}
