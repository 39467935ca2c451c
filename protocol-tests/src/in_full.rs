//! The full text of an error.

use std::error::Error;

use uruk_core::WithCauses;

/// All errors.
pub trait InFull {
    /// The error and its causes, in one line.
    fn in_full(&self) -> String;
}

impl<E: Error + 'static> InFull for E {
    fn in_full(&self) -> String {
        WithCauses(self).to_string()
    }
}
