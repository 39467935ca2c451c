//! [`Engine`]: everything that the scopes of one engine share.

use std::fmt;

use uruk_core::sync::Arc;
use uruk_core::{ExecutionSession, JitDylib, JitDylibLookupFlags};
use uruk_pipeline::memory::MemoryManager;
use uruk_pipeline::runtime::image::ProgramImage;

use crate::error::JitError;
use crate::files::Files;
use crate::ready::Ready;
use crate::redefinitions::Redefinitions;
#[cfg(feature = "llvm")]
use crate::remote::Remote;

/// A session, its layers, and the dylibs that every program searches.
///
/// Every scope counts it. So its memory is there as long as a scope is. Its work ends with the [`Jit`](crate::Jit), which closes the
/// session.
pub(crate) struct Engine {
    pub(crate) session: ExecutionSession,
    /// The dylibs that every dylib searches behind its own symbols and those of dylibs that it is linked to.
    pub(crate) searched_last: Vec<(JitDylib, JitDylibLookupFlags)>,
    pub(crate) memory: Arc<dyn MemoryManager>,
    /// The symbols and headers that linkers give to an executable, where the process is the program's.
    pub(crate) image: Option<ProgramImage>,
    pub(crate) files: Arc<Files>,
    pub(crate) redefinitions: Redefinitions,
    pub(crate) ready: Ready,
    pub(crate) initializes_on_lookup: bool,
    pub(crate) keeps_dependants: bool,
    /// The process that runs the code, if it is not this one.
    #[cfg(feature = "llvm")]
    pub(crate) remote: Option<Remote>,
}

impl Engine {
    /// # Errors
    /// [`JitError::NotThere`] if another process runs the code.
    pub(crate) fn check_here(&self, what: &str) -> Result<(), JitError> {
        #[cfg(feature = "llvm")]
        if self.remote.is_some() {
            return Err(JitError::NotThere { what: what.into() });
        }
        let _ = what;
        Ok(())
    }
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine").finish_non_exhaustive()
    }
}
