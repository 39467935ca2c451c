//! The linker and its sources: objects, archives, units, and what a link leaves in the process.

#[path = "../support/alone.rs"]
#[macro_use]
mod alone;
#[path = "../crafted/mod.rs"]
mod crafted;
#[path = "../support/function_unit.rs"]
mod function_unit;
#[path = "../support/layers.rs"]
mod layers;
#[path = "../link_support/mod.rs"]
mod link_support;
#[path = "../link_support/made_memory.rs"]
mod made_memory;
#[path = "../link_support/other_process.rs"]
mod other_place;
#[path = "../link_support/running.rs"]
mod running;
#[path = "../support/mod.rs"]
mod support;
#[path = "../link_support/threads.rs"]
mod threads;

mod aarch64;
#[cfg(feature = "helpers")]
mod aarch64_executor;
#[cfg(feature = "llvm")]
mod aarch64_ir;
mod aarch64_runs;
mod archives;
mod built_graph;
mod crafted_files;
mod groups;
mod groups_cost;
mod hostile;
mod huge;
mod low;
mod objects;
mod other_process;
mod process;
mod programs;
mod proportion;
mod ranges;
mod rebase;
mod relocations;
mod removal;
mod rename;
mod shape;
mod spans;
mod tls_ifunc;
mod tls_library;
mod tls_static;
mod units;
mod valid;
