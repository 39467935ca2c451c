//! The protocol's tests, in one binary: none of them counts on what else runs in its process.

mod closing;
mod deadlocks;
mod definitions;
mod dispatchers;
mod faults;
mod lookups;
mod priorities;
mod removal;
mod responsibilities;
