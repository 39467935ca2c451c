//! The linker: an object's bytes become code, data and tables at their final addresses.
//!
//! ```text
//!  bytes ─parse─▶ LinkGraph ─prune, plan─▶ Link<Built> ─allocate─▶ Link<Allocated> ─resolve─▶ Link<Resolved> ─fix─▶ Link<Fixed>
//! ```
//! Each phase consumes the one before, so a link that fails anywhere is a value that is dropped, and its memory
//! with it. No phase blocks, looks a name up on its own, or runs any code of the object.
//!
//! The result is a value: memory that has been filled, and what has to happen before the code can run. The
//! [`Executor`](crate::executor::Executor) does that. `linking/` stands between links and the session.
//!
//! **Architecture Invariant:** nothing here is `unsafe`, or names LLVM, the C library or the session. Addresses come in as numbers, and bytes
//! go out through the memory manager's working views.
//!
//! **Architecture Invariant:** what an object says is never trusted. Malformed input is a [`LinkError`].
//!
#![doc = include_str!("README.md")]

mod direct;
mod divert;
mod eh_frame;
pub mod elf;
mod error;
mod fixup;
mod got_plt;
pub mod graph;
mod ifunc;
mod initializers;
mod layout;
mod low;
pub(crate) mod merge;
mod names;
mod order;
pub(crate) mod parts;
mod phases;
mod placed;
mod plan;
mod prune;
mod rebase;
mod rename;
mod resolution;
mod section_bounds;
mod tables;
mod taken;
mod terms;
mod tls;
mod tls_detour;
mod versions;

pub use error::{LinkError, Site, UndefinedSymbol};
pub use graph::LinkGraph;
pub use low::IsWantedLow;
pub use order::CodeOrder;
pub use phases::{Allocated, Built, Fixed, Link, Resolved};
pub use rebase::{Rebase, RebaseTarget, RebaseTo, Rebases, RuntimeEntry, TlsFact};
pub use rename::Rename;
pub use terms::{LinkEnvironment, LinkOptions, LinkSizes, Linked, SectionRange};
pub(crate) use versions::{GraphVersions, target_in_name};
