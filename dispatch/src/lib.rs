//! Task dispatchers of Uruk: the work-stealing pool, and one inside rayon's.
//!
//! | file | what it holds |
//! |---|---|
//! | `dispatcher.rs` | [`WorkStealingTaskDispatcher`] and its builder: what an embedder sees |
//! | `pool.rs`, `pool/blocked.rs`, `pool/look.rs` | the state that workers share; dispatch, replacement of blocked workers, shutdown; what of the queued may start |
//! | `worker.rs` | the loop of one thread: own queue, search, sleep; runs tasks and survives their panics |
//! | `queues.rs` | where tasks wait: a deque per slot, an injector per priority, a lane for turns of serial queues; the seam that models replace |
//! | `sleep.rs` | the parking protocol, with its states and proof |
//! | `limits.rs`, `limits/room.rs`, `level.rs` | how much work in the background may queue up, hold in memory, and run at once; who waits for room; counts that somebody may watch |
//! | `limits/budget.rs` | which share of the workers' time such work may take |
//! | `gate.rs` | admits tasks until closed, knows when the last one has ended |
//! | `pool/herald.rs` | a thread that runs tasks which tell observers, so that news does not wait behind compiles |
//! | `threads.rs` | starts, names, retires and joins threads |
//! | `current.rs` | which worker the running thread is |
//! | `metrics.rs`, `metrics/waits.rs` | counts, read without locks; how long tasks wait for their start |
//! | `rayon.rs` | `RayonTaskDispatcher`: inside a pool that the host owns (feature `rayon`) |
//! | `rayon/builder.rs` | whose pool it is in, and its limits |
//! | `rayon/board.rs`, `board/watch.rs` | what waits there, and who may take it, pure; what a spare concludes from the time |
//! | `rayon/counters.rs` | what it counts, read without the board |
//! | `rayon/spare.rs`, `here.rs` | threads that step in for blocked ones; what lies on a thread's stack |
//!
//! **Architecture Invariants.** A pool of N workers has N *slots*, and a thread takes a task from a queue only
//! while it holds one. A worker that blocks gives its slot up first, so a blocked worker never costs the pool
//! one. No task runs on the stack of another. Every admitted task is run, or given back, exactly once.
//!
//! This crate contains no `unsafe` and never prints.

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
mod threads;
mod worker;

// Reachable, so that models can drive the parking protocol without a pool around it; no part of the interface.
#[doc(hidden)]
pub mod queues;
#[doc(hidden)]
pub mod sleep;

pub use current::current_worker;
pub use dispatcher::{BuildError, WorkStealingTaskDispatcher, WorkStealingTaskDispatcherBuilder};
pub use metrics::{Metrics, PerPriority, WaitHistogram};
#[cfg(all(feature = "rayon", not(any(uruk_loom, uruk_shuttle))))]
pub use rayon::{RayonMetrics, RayonTaskDispatcher, RayonTaskDispatcherBuilder};
