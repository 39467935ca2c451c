//! [`RemoteProgram`]: which program runs the code, and how long it may take for what.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use crate::peer::PeerProgram;

/// A program that calls [`serve_executor`](super::serve_executor).
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use uruk_pipeline::remote::RemoteProgram;
///
/// let program = RemoteProgram::new("/usr/local/bin/uruk").argument("executor");
/// let program = program.request_limit(Duration::from_secs(5));
/// # let _ = program;
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoteProgram {
    pub(super) program: PeerProgram,
    pub(super) start_limit: Duration,
    pub(super) request_limit: Duration,
    pub(super) call_limit: Option<Duration>,
}

impl RemoteProgram {
    /// A program that has half a minute to start, and as long for each request. Calls take as long as they take.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        let limit = Duration::from_secs(30);
        let program = PeerProgram { path: path.into(), arguments: Vec::new() };
        Self { program, start_limit: limit, request_limit: limit, call_limit: None }
    }

    /// Adds an argument of the program.
    #[must_use]
    pub fn argument(mut self, argument: impl Into<OsString>) -> Self {
        self.program.arguments.push(argument.into());
        self
    }

    /// How long it may take until it is ready.
    #[must_use]
    pub fn start_limit(mut self, limit: Duration) -> Self {
        self.start_limit = limit;
        self
    }

    /// How long it may take to find symbols or to load a library. Then it is ended.
    #[must_use]
    pub fn request_limit(mut self, limit: Duration) -> Self {
        self.request_limit = limit;
        self
    }

    /// How long a call may take. Then the executor is ended: code that runs cannot be stopped in another way.
    #[must_use]
    pub fn call_limit(mut self, limit: impl Into<Option<Duration>>) -> Self {
        self.call_limit = limit.into();
        self
    }
}
