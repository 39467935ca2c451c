//! Begun: when and where a unit began, for whoever asks why it takes so long.

use std::time::Duration;

use crate::sync::Arc;

/// What is noted when a unit begins, if the session notes it.
#[derive(Clone, Debug)]
pub(crate) struct Begun {
    pub(crate) thread: Arc<str>,
    /// Since the session was made.
    pub(crate) at: Duration,
}
