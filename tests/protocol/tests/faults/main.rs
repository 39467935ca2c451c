//! Faults in code of the embedder, on every dispatcher: they harm no other code.

mod clock;
mod hooks;
mod panics;
mod shutdown;
mod units;
