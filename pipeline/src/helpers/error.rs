//! Why a helper gave no answer.

use std::path::PathBuf;
use std::sync::Arc;

use crate::peer::PeerError;

/// A helper gave no answer to a job.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HelperError {
    /// The helper ended, was too slow or sent what makes no sense, while it had the job. The job is in
    /// quarantine if the helper was fresh, or that was the second time.
    #[error("its helper failed: {0}")]
    Failed(PeerError),
    /// The job has ended a helper before.
    #[error("it has ended a helper of this pool before, and is not tried again: {before}")]
    Quarantined {
        /// How it did.
        before: Arc<HelperError>,
    },
    /// No helper could be had that begins the job.
    #[error("no helper can be had from {}: {why}", program.display())]
    NoHelper {
        /// The helpers' program.
        program: PathBuf,
        /// The end of the last one, or the system's message.
        why: String,
    },
    /// The helper is a program of another build, whose objects may differ.
    #[error("{} is of another build: it compiles with {theirs}, and this program with {ours}", program.display())]
    OtherBuild {
        /// The helpers' program.
        program: PathBuf,
        /// Its build.
        theirs: String,
        /// The build that objects are cached for here.
        ours: String,
    },
    /// The job is too large for a frame, or for the memory of a helper.
    #[error("it is too large to be sent: {why}")]
    TooLarge {
        /// The sizes.
        why: String,
    },
}
