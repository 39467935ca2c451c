//! Sessions that end: closed, shut down with their dispatcher, or let go with their last handle.

mod beside;
mod close;
mod generators;
mod last_handle;
mod refused;
mod shutdown;
