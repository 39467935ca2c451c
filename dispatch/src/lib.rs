#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod current;
mod dispatcher;
mod gate;
mod limits;
mod metrics;
mod pool;
// Rayon's own threads cannot be modelled.
#[cfg(all(feature = "rayon", not(any(uruk_loom, uruk_shuttle))))]
mod rayon;
mod signals;
mod threads;
mod worker;

// Reachable, so that models can drive the parking protocol without a pool around it; no part of the interface.
#[doc(hidden)]
pub mod queues;
#[doc(hidden)]
pub mod sleep;

pub use current::current_worker;
pub use dispatcher::{AfterFork, BuildError, WorkStealingTaskDispatcher, WorkStealingTaskDispatcherBuilder};
pub use metrics::{Metrics, PerPriority, WaitHistogram};
#[cfg(all(feature = "rayon", not(any(uruk_loom, uruk_shuttle))))]
pub use rayon::{RayonMetrics, RayonTaskDispatcher, RayonTaskDispatcherBuilder};
