//! Why a responsibility was not completed.

use super::{EmitError, ResolveError};

/// Why a responsibility was not completed. Its symbols have failed with this.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CompleteError {
    /// Addresses were refused.
    #[error(transparent)]
    Resolve(#[from] ResolveError),
    /// The symbols' dependencies were refused.
    #[error(transparent)]
    Emit(#[from] EmitError),
}
