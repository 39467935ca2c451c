//! The only door to threads, locks and atomics.
//!
//! Everything that two threads may touch goes through here, so that a model build (`--cfg uruk_loom`)
//! can replace each piece by loom's and explore the interleavings. `clippy.toml` refuses the direct
//! paths elsewhere.
//!
//! **Architecture Invariant:** no other module of this workspace names `std::sync::atomic`,
//! `std::thread::spawn`, `parking_lot` or `loom`.
//!
//! [`Arc`] is the standard one in both builds: loom's cannot hold `dyn Trait`, and what the models
//! check is the protocol, not reference counting.

#[cfg(uruk_loom)]
mod model;
#[cfg(not(uruk_loom))]
mod real;

mod latch;
mod serial;

#[cfg(uruk_loom)]
pub use model::{Condvar, Mutex, MutexGuard, atomic, hint, thread, weakened};
#[cfg(not(uruk_loom))]
pub use real::{Condvar, Mutex, MutexGuard, atomic, hint, thread, weakened};

#[cfg(uruk_loom)]
pub use loom::thread_local;
#[cfg(not(uruk_loom))]
pub use std::thread_local;

pub use latch::Latch;
pub(crate) use serial::unique;
pub use std::sync::{Arc, Weak};
