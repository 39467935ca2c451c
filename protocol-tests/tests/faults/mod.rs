//! Faults in code of the embedder, on every dispatcher: they harm no other code.

mod clock;
mod depth;
mod hooks;
mod nested;
mod panics;
mod shutdown;
mod units;
