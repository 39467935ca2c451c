//! Every way to run tasks, and each test on all of them.

use std::sync::{Arc, mpsc};

use uruk_core::{
    ExecutionSession, FailureCause, InPlaceTaskDispatcher, JitDylib, LookupError, TaskDispatcher,
};
use uruk_dispatch::{RayonTaskDispatcher, WorkStealingTaskDispatcher};

use crate::per_task::PerTask;
use crate::{reporting_session_on, session_on};

/// A way to run tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum On {
    /// The dispatcher without threads.
    Place,
    /// A pool of so many workers.
    Stealing(usize),
    /// A rayon pool of so many threads.
    Rayon(usize),
    /// A thread for each task.
    PerTask,
}

/// All of them, and pools of several sizes.
pub const EVERYWHERE: [On; 7] =
    [On::Place, On::Stealing(1), On::Stealing(2), On::Stealing(4), On::Rayon(1), On::Rayon(2), On::PerTask];

/// Ten thousand nested calls overflow it.
pub const STACK_SIZE_BYTES: usize = 256 << 10;

impl On {
    /// A dispatcher of its own.
    pub fn dispatcher(self) -> Arc<dyn TaskDispatcher> {
        match self {
            Self::Place => Arc::new(InPlaceTaskDispatcher::default()),
            Self::Stealing(workers) => {
                let pool = WorkStealingTaskDispatcher::builder().workers(workers);
                Arc::new(pool.stack_size_bytes(STACK_SIZE_BYTES).build().expect("a small pool"))
            }
            Self::Rayon(threads) => {
                let host = rayon_core::ThreadPoolBuilder::new().num_threads(threads);
                let host = host.stack_size(STACK_SIZE_BYTES).build().expect("a small pool");
                let inside = RayonTaskDispatcher::in_pool(Arc::new(host)).stack_size_bytes(STACK_SIZE_BYTES);
                Arc::new(inside.build().expect("the host has threads"))
            }
            Self::PerTask => Arc::new(PerTask::default()),
        }
    }

    /// A session on it, with a dylib `main`.
    pub fn session(self) -> (ExecutionSession, JitDylib) {
        session_on(self.dispatcher())
    }

    /// The same, and its reports.
    pub fn reporting_session(self) -> (ExecutionSession, JitDylib, mpsc::Receiver<String>) {
        reporting_session_on(self.dispatcher())
    }
}

/// Why the symbol of a lookup failed.
pub fn failure_of<T: std::fmt::Debug>(answer: Result<T, LookupError>) -> FailureCause {
    match answer.expect_err("a symbol failed") {
        LookupError::Failed(failure) => failure.cause.clone(),
        error => panic!("{error}"),
    }
}

/// Each fault as a test of each dispatcher.
#[macro_export]
macro_rules! on_every_dispatcher {
    (on $name:ident, $on:expr, $($fault:ident,)*) => {
        mod $name {
            $(#[test]
            fn $fault() {
                $crate::within_reason(|| super::$fault($on));
            })*
        }
    };
    ($($fault:ident,)*) => {
        $crate::on_every_dispatcher!(on in_place, $crate::on::On::Place, $($fault,)*);
        $crate::on_every_dispatcher!(on stealing_alone, $crate::on::On::Stealing(1), $($fault,)*);
        $crate::on_every_dispatcher!(on stealing, $crate::on::On::Stealing(2), $($fault,)*);
        $crate::on_every_dispatcher!(on rayon_alone, $crate::on::On::Rayon(1), $($fault,)*);
        $crate::on_every_dispatcher!(on rayon, $crate::on::On::Rayon(2), $($fault,)*);
    };
}
