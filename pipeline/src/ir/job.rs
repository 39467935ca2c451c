//! [`CompileJob`]: a compilation as a message to a helper, and its outcome as one from it.
//!
//! A job has all that its object depends on, as the key of a cache has: options of the target, passes, division, the names that are kept and
//! left out. Its source, bitcode or text, is the bulk beside it. The outcome's bulk is an interface (`interface_bytes.rs`) or an object.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::error::CompileError;
use super::optimize::OptimizationPipeline;
use super::partition::Partition;
use super::target::TargetOptions;

/// The work of a helper.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct CompileJob {
    pub(super) wanted: Wanted,
    /// The source's name in messages, which LLVM's own use too.
    pub(super) name: String,
    /// Whether LLVM's verifier runs.
    pub(super) verified: bool,
    /// Definitions that optimization must be told to keep.
    pub(super) kept: Vec<String>,
    /// Definitions to be left out.
    pub(super) discarded: Vec<String>,
    /// The options; without triple, processor and features, if they are those of the machine that both run on.
    pub(super) target: TargetOptions,
    pub(super) is_host: bool,
    pub(super) pipeline: OptimizationPipeline,
    pub(super) partition: Partition,
}

/// The result that a job asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Wanted {
    /// Whether LLVM understands the passes. There is no source.
    Check,
    /// The interface of the source.
    Interface,
    /// Its object.
    Object,
}

/// The outcome of a job.
pub(super) type Outcome = Result<(), JobError>;

/// A [`CompileError`] on its way.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum JobError {
    Parse {
        module: String,
        message: String,
    },
    Verify {
        module: String,
        message: String,
    },
    Optimize {
        module: String,
        passes: String,
        message: String,
    },
    Codegen {
        module: String,
        message: String,
    },
    Target {
        subject: String,
        message: String,
    },
    TypeTest {
        module: String,
        function: String,
    },
    Library {
        path: PathBuf,
        message: String,
    },
    Shim {
        message: String,
    },
    Fatal {
        module: String,
        stage: String,
        message: String,
    },
    Diagnosed {
        module: String,
        message: String,
    },
    /// One that helpers do not expect.
    Other {
        message: String,
    },
}

impl From<CompileError> for JobError {
    fn from(error: CompileError) -> Self {
        let text = |name: std::sync::Arc<str>| name.to_string();
        match error {
            CompileError::Parse { module, message } => Self::Parse { module: text(module), message },
            CompileError::Verify { module, message } => Self::Verify { module: text(module), message },
            CompileError::Optimize { module, passes, message } => {
                Self::Optimize { module: text(module), passes, message }
            }
            CompileError::Codegen { module, message } => Self::Codegen { module: text(module), message },
            CompileError::Target { subject, message } => Self::Target { subject: text(subject), message },
            CompileError::TypeTest { module, function } => Self::TypeTest { module: text(module), function },
            CompileError::Library { path, message } => Self::Library { path, message },
            CompileError::Shim { message } => Self::Shim { message },
            CompileError::Fatal { module, stage, message } => {
                Self::Fatal { module: text(module), stage: stage.to_owned(), message }
            }
            CompileError::Diagnosed { module, message } => Self::Diagnosed { module: text(module), message },
            other => Self::Other { message: other.to_string() },
        }
    }
}

/// The stages at which LLVM gives up; another one has no name of its own.
const STAGES: [&str; 6] =
    ["reading bitcode", "reading textual IR", "verification", "optimization", "code generation", "dividing"];

impl JobError {
    /// The error of the module that the host calls `name`.
    pub(super) fn into_error(self, name: &std::sync::Arc<str>) -> CompileError {
        match self {
            Self::Parse { module, message } => CompileError::Parse { module: module.into(), message },
            Self::Verify { module, message } => CompileError::Verify { module: module.into(), message },
            Self::Optimize { module, passes, message } => {
                CompileError::Optimize { module: module.into(), passes, message }
            }
            Self::Codegen { module, message } => CompileError::Codegen { module: module.into(), message },
            Self::Target { subject, message } => CompileError::Target { subject: subject.into(), message },
            Self::TypeTest { module, function } => CompileError::TypeTest { module: module.into(), function },
            Self::Library { path, message } => CompileError::Library { path, message },
            Self::Shim { message } => CompileError::Shim { message },
            Self::Fatal { module, stage, message } => {
                let stage = STAGES.into_iter().find(|known| *known == stage).unwrap_or("a stage in a helper");
                CompileError::Fatal { module: module.into(), stage, message }
            }
            Self::Diagnosed { module, message } => CompileError::Diagnosed { module: module.into(), message },
            Self::Other { message } => CompileError::Diagnosed { module: name.clone(), message },
        }
    }
}
