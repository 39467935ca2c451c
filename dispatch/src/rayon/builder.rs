//! The settings of a dispatcher inside rayon: the host's pool, its spares, its limits.

use std::error::Error;
use std::fmt;

use rayon_core::{ThreadPool, ThreadPoolBuilder};
use uruk_core::TaskPriority;
use uruk_core::sync::{Arc, Condvar, Mutex};

use crate::dispatcher::{BuildError, STACK_SIZE_BYTES};
use crate::gate::Gate;
use crate::limits::BoundsWanted;
use crate::threads::{Permits, Threads};

use super::board::Board;
use super::{RayonTaskDispatcher, Shared};

/// Configures a [`RayonTaskDispatcher`].
#[derive(Clone, Debug)]
#[must_use]
pub struct RayonTaskDispatcherBuilder {
    host: Host,
    stack_size_bytes: usize,
    thread_name_prefix: String,
    bounds: BoundsWanted,
}

impl RayonTaskDispatcherBuilder {
    pub(super) fn new(host: Host) -> Self {
        let thread_name_prefix = "uruk-spare".to_owned();
        let bounds = BoundsWanted::default();
        Self { host, stack_size_bytes: STACK_SIZE_BYTES, thread_name_prefix, bounds }
    }

    /// How much stack each spare reserves, 64 MiB unless set. The host chooses the stacks of its own threads: LLVM recurses
    /// deeply.
    pub fn stack_size_bytes(mut self, stack_size_bytes: usize) -> Self {
        self.stack_size_bytes = stack_size_bytes;
        self
    }

    /// The first part of a spare's name; a number follows. `uruk-spare` unless set.
    pub fn thread_name_prefix(mut self, prefix: impl Into<String>) -> Self {
        self.thread_name_prefix = prefix.into();
        self
    }

    /// How many speculative tasks may wait for their start before those who would bring about more are
    /// [told](uruk_core::TaskDispatcher::admits) or [wait](uruk_core::TaskDispatcher::wait_for_room). Any number unless set. This and the other limits
    /// are those of the work-stealing pool, and said there in full:
    /// [`WorkStealingTaskDispatcherBuilder`](crate::WorkStealingTaskDispatcherBuilder::speculative_queue_max).
    pub fn speculative_queue_max(mut self, tasks: usize) -> Self {
        self.bounds.queued_max[TaskPriority::Speculative as usize] = tasks;
        self
    }

    /// The same for idle tasks.
    pub fn idle_queue_max(mut self, tasks: usize) -> Self {
        self.bounds.queued_max[TaskPriority::Idle as usize] = tasks;
        self
    }

    /// How many threads, the host's and spares, may run speculative and idle tasks at once; at least one. One less than the
    /// host has unless set, so that demanded tasks find a thread free of them. A task that blocks does not count.
    pub fn background_workers_max(mut self, workers: usize) -> Self {
        self.bounds.background_workers_max = Some(workers);
        self
    }

    /// Builds the dispatcher. Starts no thread.
    ///
    /// # Errors
    /// [`BuildError::ThreadName`]; [`BuildError::NoGlobalPool`] if that is asked for, and has not been built, and cannot be.
    pub fn build(self) -> Result<RayonTaskDispatcher, BuildError> {
        if self.thread_name_prefix.contains('\0') {
            return Err(BuildError::ThreadName { prefix: self.thread_name_prefix });
        }
        let host_threads = self.host.threads()?;
        let limits = Arc::new(self.bounds.of(host_threads));
        let board = Board::new(host_threads, limits.clone());
        let shared = Shared {
            counters: board.counters().clone(),
            board: Mutex::new(board),
            limits,
            called: Condvar::new(),
            gate: Gate::new(),
            threads: Threads::new(self.thread_name_prefix, self.stack_size_bytes, Permits::default()),
            host: self.host,
        };
        // The home of the host's threads, whose start the dispatcher does not see.
        shared.threads.settle_here();
        Ok(RayonTaskDispatcher { shared: Arc::new(shared) })
    }
}

/// Whose threads honour tickets.
#[derive(Clone)]
pub(super) enum Host {
    Pool(Arc<ThreadPool>),
    Global,
}

impl Host {
    pub(super) fn spawn(&self, job: impl FnOnce() + Send + 'static) {
        match self {
            Self::Pool(pool) => pool.spawn(job),
            Self::Global => rayon_core::spawn(job),
        }
    }

    fn threads(&self) -> Result<usize, BuildError> {
        match self {
            Self::Pool(pool) => Ok(pool.current_num_threads()),
            Self::Global => {
                // Asked for the first time rayon would build it as well, and panic if it could not. One that is there already is
                // an error without a source.
                match ThreadPoolBuilder::new().build_global() {
                    Err(error) if error.source().is_some() => {
                        Err(BuildError::NoGlobalPool { reason: error.to_string() })
                    }
                    _ => Ok(rayon_core::current_num_threads()),
                }
            }
        }
    }

    /// Whether the running thread is one of the host's.
    pub(super) fn runs_here(&self) -> bool {
        match self {
            Self::Pool(pool) => pool.current_thread_index().is_some(),
            Self::Global => rayon_core::current_thread_index().is_some(),
        }
    }
}

impl fmt::Debug for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Pool(_) => "Pool",
            Self::Global => "Global",
        })
    }
}
