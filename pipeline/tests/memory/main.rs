//! The memory managers: protections, ranges, sizes, and processes that fork.

#[path = "../support/alone.rs"]
#[macro_use]
mod alone;

mod cost;
mod fork;
mod huge;
mod manager;
mod ranges;
