//! The linker: an object's bytes become code, data and tables at their final addresses.
//!
//! ```text
//!  bytes ─parse─▶ LinkGraph ─prune, plan─▶ Link<Built> ─allocate─▶ Link<Allocated> ─resolve─▶ Link<Resolved> ─fix─▶ Link<Fixed>
//! ```
//! Each phase consumes the one before, so a link that fails anywhere is a value that is dropped, and its memory
//! with it. No phase blocks, looks a name up on its own, or runs any code of the object.
//!
//! **Architecture Invariant:** nothing here is `unsafe` or names LLVM.
//!
//! **Architecture Invariant:** the phases do not know the session. Addresses come in as numbers, and bytes go out through the memory
//! manager's working views. Three files stand between a link and the session:
//!
//! | file | its dealings with the session |
//! |---|---|
//! | `layer.rs` | it looks up the addresses of an object's references, without blocking |
//! | `publish.rs` | it announces addresses, emits symbols, or fails them |
//! | `share.rs` | the code of a unit is a resource of its tracker; `code.rs` has the other keepers |
//!
//! **Architecture Invariant:** what an object says is never trusted. Malformed input is a [`LinkError`].
//!
#![doc = include_str!("README.md")]

mod code;
mod divert;
mod eh_frame;
pub mod elf;
mod error;
mod fixup;
mod got_plt;
pub mod graph;
mod ifunc;
mod initializers;
mod layer;
mod layout;
mod low;
mod merge;
mod parts;
mod phases;
mod placed;
mod placements;
mod plan;
mod prune;
mod publish;
mod rename;
mod resolution;
mod section_bounds;
mod share;
mod tables;
mod terms;
mod tls;
mod tls_detour;

pub use code::{CodeRemoval, HeldCode, KeepAlive};
pub(crate) use code::{StubTargets, Stubs};
pub use error::{LinkError, Site, UndefinedSymbol};
pub use graph::LinkGraph;
pub use layer::ObjectLinkingLayer;
pub use low::{IsWantedLow, LowAddresses};
pub use phases::{Allocated, Built, Fixed, Link, Resolved};
pub use rename::Rename;
pub use terms::{LinkEnvironment, LinkOptions, LinkSizes, Linked, SectionRange, UnwindTable};
pub use tls::{TlsImage, TlsPlacement};
