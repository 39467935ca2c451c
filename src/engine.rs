//! [`Engine`]: everything that the scopes of one engine share.

use std::fmt;

use uruk_core::sync::Arc;
use uruk_core::{
    ExecutionSession, InPlaceTaskDispatcher, JitDylib, JitDylibLookupFlags, SessionEvent, TaskDispatcher,
};
use uruk_dispatch::WorkStealingTaskDispatcher;
use uruk_pipeline::memory::MemoryManager;
use uruk_pipeline::runtime::image::ProgramImage;

use crate::error::JitError;
use crate::files::Files;
use crate::ready::Ready;

/// A session, its layers, and the dylibs that every program searches.
///
/// Every scope counts it. So its memory is there as long as a scope is. What it does ends with the [`Jit`](crate::Jit), which closes the
/// session.
pub(crate) struct Engine {
    pub(crate) session: ExecutionSession,
    /// The dylibs that every dylib searches behind its own symbols and those of dylibs that it is linked to.
    pub(crate) searched_last: Vec<(JitDylib, JitDylibLookupFlags)>,
    pub(crate) memory: Arc<dyn MemoryManager>,
    /// The symbols and headers that linkers give to an executable, where the process is the program's.
    pub(crate) image: Option<ProgramImage>,
    pub(crate) files: Arc<Files>,
    pub(crate) ready: Ready,
    pub(crate) initializes_on_lookup: bool,
    pub(crate) keeps_dependants: bool,
}

pub(crate) type Observer = Arc<dyn Fn(&SessionEvent) + Send + Sync>;

/// A session whose tasks run where `dispatcher` says.
pub(crate) fn session(dispatcher: Arc<dyn TaskDispatcher>, observer: Option<Observer>) -> ExecutionSession {
    let mut session = ExecutionSession::builder().dispatcher(dispatcher);
    #[cfg(feature = "llvm")]
    {
        session = session.refuse_waits_while(held_context);
    }
    if let Some(observer) = observer {
        session = session.observer(observer);
    }
    session.build()
}

/// A pool of `threads`, of one for each core if that is not said, or none.
pub(crate) fn pool(threads: Option<usize>) -> Result<Arc<dyn TaskDispatcher>, JitError> {
    let threads = threads.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from));
    Ok(match threads {
        0 => Arc::new(InPlaceTaskDispatcher::default()),
        threads => Arc::new(WorkStealingTaskDispatcher::builder().workers(threads).build()?),
    })
}

/// A task that waits while it holds a context waits for ever if what it waits for needs the same.
#[cfg(feature = "llvm")]
fn held_context() -> Option<uruk_core::HeldResource> {
    uruk_pipeline::ir::ThreadSafeContext::held_resource()
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine").finish_non_exhaustive()
    }
}
