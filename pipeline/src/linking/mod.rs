//! Between links and the session: objects and duties in, code that can run out.
//!
//! ```text
//!   object, duty ─▶ layer ─▶ Link ─▶ Executor::publish ─▶ code: found by address, shared by trackers, held by handles
//!                     └─ announces addresses, looks references up, emits or fails
//! ```
//!
//! | file | its part |
//! |---|---|
//! | `layer.rs` | it takes an object through the phases, and looks up the addresses of its references without blocking |
//! | `publish.rs` | it announces addresses, emits symbols, or fails them |
//! | `failed.rs` | errors of links |
//! | `share.rs` | the code of a unit is a resource of its tracker |
//! | `code.rs` | linked code and its keepers: trackers, and handles of functions, which also keep the code that these refer to |
//! | `placements.rs` | the thread-local variables that descriptors in memory stand for |
//! | `collected.rs` | the objects of a program, to be linked once more as one, or as units |
//! | `image.rs`, `image_names.rs` | an image that is mapped takes the place of a link; its names for debuggers |
//! | `image_generator.rs` | the names of an image in lookups |
//! | `low.rs` | addresses below 2 GiB, for code that holds them in 32 bits |
//!
//! **Architecture Invariant:** code becomes runnable in one place, [`Executor::publish`](crate::executor::Executor::publish), and what
//! fails before that gives back the room that it took.

mod code;
mod collected;
mod discarded;
mod failed;
mod image;
mod image_generator;
mod image_names;
mod layer;
mod low;
mod names;
mod placements;
mod publish;
mod share;

pub use code::{CodeRemoval, HeldCode, KeepAlive};
pub(crate) use code::{StubTargets, Stubs};
pub use collected::{CollectedLink, CollectedObjects, CollectedSource};
pub use image::{ImageUnit, image_units};
pub use image_generator::{ImageGenerator, StubbedFunction};
pub use layer::ObjectLinkingLayer;
pub use low::LowAddresses;
