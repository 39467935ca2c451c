//! Processes that compile for this one, so that a compilation may crash, hang, or eat memory without it.
//!
//! ```text
//!  request ─▶ quarantine ─▶ place on the shelf ─▶ helper: Hello ─▶ Ready
//!                (known to    (the idle one, or       Job   ─▶ Begun     from here on the job is to blame
//!                 kill)        a new one)                   ─▶ Answer    back to the shelf, or worn out
//! ```
//!
//! Nothing here knows LLVM: a job is bytes, and so is its answer. `ir/contained.rs` has the jobs, and `ir/serve.rs` the helper's side of them.
//!
//! Holds, for each request:
//!
//! - It is answered once, with an answer or an error, also if helpers end or lie. The model is `loom-tests/tests/helpers.rs`.
//! - A helper that ends before it has begun a job is not the job's fault: another one gets the job, up to [`ATTEMPTS_MAX`] times.
//! - A helper that ends afterwards, or does not answer in time, fails this one job. If it had no job before, or that happens twice, the job's
//!   key is not tried again in this pool.
//! - A helper that another process ends, by `SIGKILL`, is not the job's fault: another one gets the job, once. `blame.rs` says when that is known.
//! - A helper whose job failed has no other: it may be damaged, and the next job would be blamed.
//! - An answer is looked at before it is believed. A helper that sent what makes no sense is ended.
//! - No more helpers are alive than the pool has places, but for children of a fork and after [`HelperPool::retire`].
//! - A helper is confined (`confine.rs`) before it has its first job, unless the system refuses that or the settings say otherwise:
//!   [`HelperStats::unconfined`] counts those that are not.
//! - No lock is held while a helper works, is started, or ends.

mod backoff;
mod blame;
mod confine;
mod error;
mod messages;
mod pool;
mod quarantine;
mod serve;
mod settings;
mod shelf;

pub use error::HelperError;
pub use pool::{Checked, HelperAnswer, HelperPool, HelperStats, HelperWait};
pub use serve::{Serving, serve};
pub use settings::Helpers;
pub use shelf::ATTEMPTS_MAX;
