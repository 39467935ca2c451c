//! The messages between a pool and its helpers. Bodies are by `postcard`; those of jobs and answers belong to the pool's user.

use serde::{Deserialize, Serialize};

/// The first message of the host.
pub(super) const HELLO: u16 = 1;
/// The helper can compile.
pub(super) const READY: u16 = 2;
/// A job, in a body of the pool's user.
pub(super) const JOB: u16 = 3;
/// The helper has the whole job.
pub(super) const BEGUN: u16 = 4;
/// The [`AnswerHead`], and the answer in a body of the pool's user.
pub(super) const ANSWER: u16 = 5;

/// Raised when messages change: a helper of another number is refused.
pub(super) const PROTOCOL: u32 = 2;

/// The body of a [`HELLO`].
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Hello {
    pub(super) protocol: u32,
    /// The host's number.
    pub(super) parent: u32,
    /// How much memory the helper may take beyond its first.
    pub(super) memory_bytes: Option<u64>,
    /// Whether the helper gives up what its work does not need.
    pub(super) confines: bool,
}

/// The body of a [`READY`].
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Ready {
    pub(super) protocol: u32,
    /// Identifies the compiler.
    pub(super) build: String,
    /// Why it is not confined, if it should be and is not.
    pub(super) unconfined: Option<String>,
}

/// The beginning of the body of an [`ANSWER`].
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct AnswerHead {
    /// How much address space the helper has beyond its first.
    pub(super) grown_bytes: u64,
}
