#![doc = include_str!("README.md")]

#[cfg(any(uruk_loom, uruk_shuttle))]
mod hidden;
#[cfg(uruk_loom)]
mod model;
#[cfg(not(any(uruk_loom, uruk_shuttle)))]
mod real;
#[cfg(uruk_shuttle)]
mod scheduled;

mod brief;
mod busy;
mod followed;
mod latch;
mod process;
mod serial;
mod stripes;

#[cfg(uruk_loom)]
pub use model::{Condvar, Mutex, MutexGuard, atomic, hint, thread, weakened};
#[cfg(not(any(uruk_loom, uruk_shuttle)))]
pub use real::{Condvar, Mutex, MutexGuard, atomic, hint, thread, weakened};
#[cfg(uruk_shuttle)]
pub use scheduled::{Condvar, Mutex, MutexGuard, atomic, hint, thread, weakened};

#[cfg(uruk_loom)]
pub use loom::thread_local;
#[cfg(uruk_shuttle)]
pub use shuttle::thread_local;
#[cfg(not(any(uruk_loom, uruk_shuttle)))]
pub use std::thread_local;

pub use brief::BriefMutex;
#[cfg(uruk_loom)]
pub use brief::{Patience, Queued, Word};
pub use busy::BusyMutex;
pub use followed::Followed;
#[cfg(any(uruk_loom, uruk_shuttle))]
pub use hidden::Hidden;
pub use latch::Latch;
pub use process::Process;
pub(crate) use serial::unique;
pub use std::sync::{Arc, Weak};
pub(crate) use stripes::{Stripe, Striped};
