//! Costs in bytes and allocations. In a binary of its own: its allocator counts.

mod dependants;
mod ready;
