//! Every way to run tasks, and each test on all of them.

use std::sync::Arc;

use uruk_core::{InPlaceTaskDispatcher, TaskDispatcher};
use uruk_dispatch::{RayonTaskDispatcher, WorkStealingTaskDispatcher};

/// A way to run tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum On {
    Place,
    /// A pool of so many workers.
    Stealing(usize),
    /// A rayon pool of so many threads.
    Rayon(usize),
}

/// Whatever nests by the ten thousand overflows it.
pub(crate) const STACK_SIZE_BYTES: usize = 256 << 10;

impl On {
    /// A dispatcher of its own.
    pub(crate) fn dispatcher(self) -> Arc<dyn TaskDispatcher> {
        match self {
            Self::Place => Arc::new(InPlaceTaskDispatcher::default()),
            Self::Stealing(workers) => {
                let pool = WorkStealingTaskDispatcher::builder().workers(workers);
                Arc::new(pool.stack_size_bytes(STACK_SIZE_BYTES).build().unwrap())
            }
            Self::Rayon(threads) => {
                let host = rayon_core::ThreadPoolBuilder::new().num_threads(threads);
                let host = Arc::new(host.stack_size(STACK_SIZE_BYTES).build().unwrap());
                Arc::new(
                    RayonTaskDispatcher::in_pool(host).stack_size_bytes(STACK_SIZE_BYTES).build().unwrap(),
                )
            }
        }
    }
}

/// Each fault as a test of each dispatcher.
macro_rules! on_every_dispatcher {
    ($($fault:ident,)*) => {
        on_every_dispatcher!(in_place, On::Place, $($fault,)*);
        on_every_dispatcher!(stealing_alone, On::Stealing(1), $($fault,)*);
        on_every_dispatcher!(stealing, On::Stealing(2), $($fault,)*);
        on_every_dispatcher!(rayon_alone, On::Rayon(1), $($fault,)*);
        on_every_dispatcher!(rayon, On::Rayon(2), $($fault,)*);
    };
    ($name:ident, $on:expr, $($fault:ident,)*) => {
        mod $name {
            use super::On;
            use protocol_tests::within_reason;
            $(#[test]
            fn $fault() {
                within_reason(|| super::$fault($on));
            })*
        }
    };
}

pub(crate) use on_every_dispatcher;
