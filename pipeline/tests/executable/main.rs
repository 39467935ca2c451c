//! An executable that exports what programs replace: the functions of allocation, and a reserve of thread-local storage.

#[path = "../support/alone.rs"]
#[macro_use]
mod alone;

uruk_pipeline::export_allocation_functions!();

#[path = "../link_support/mod.rs"]
#[expect(dead_code, reason = "the objects alone are needed here")]
mod link_support;
#[path = "../link_support/threads.rs"]
#[expect(dead_code, reason = "the libraries are not asked here")]
mod threads;

mod allocation;
mod allocation_moves;
mod startup;
mod tls_reserve;
