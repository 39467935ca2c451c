//! A lock that no model sees.

#![expect(clippy::disallowed_types, reason = "a model that followed this lock would learn an order from it")]

use std::sync::{Mutex, PoisonError};

/// Holds what a model uses and does not examine, such as the memory behind a modelled pointer.
///
/// A modelled lock orders all accesses of its holders before and after, and would hide that a protocol
/// forgot to. This one takes no part in the model: it neither orders anything nor lets another thread
/// run.
#[derive(Debug, Default)]
pub struct Hidden<T>(Mutex<T>);

impl<T> Hidden<T> {
    /// Hides `value`.
    pub const fn new(value: T) -> Self {
        Self(Mutex::new(value))
    }

    /// Looks at the value. `look` must touch nothing that is modelled: all modelled threads may run on one real thread.
    pub fn with<R>(&self, look: impl FnOnce(&mut T) -> R) -> R {
        look(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
