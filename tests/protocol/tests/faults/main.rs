//! What goes wrong in code of the embedder, on every dispatcher: it harms nobody else.

mod clock;
mod hooks;
mod panics;
mod shutdown;
mod units;
