//! Images: a program that was linked once, as a file that is mapped.
//!
//! ```text
//!   objects ─link, rebasable─▶ image in memory ─write─▶ file ─open, map─▶ segments ─bind─▶ code at its addresses
//! ```
//!
//! | file | its part |
//! |---|---|
//! | `format.rs` | the file, byte by byte |
//! | `link.rs` | objects become the parts of an image |
//! | `plain_memory.rs` | the memory of that link |
//! | `package.rs` | images of units become one file, with the keys of their sources |
//! | `host.rs` | what the host adds: sections, images below, code instances |
//! | `writer.rs`, `elf.rs` | the parts become the bytes of a file, which debuggers and profilers know as ELF |
//! | `targets.rs` | processors that an image has code for, and the choice of one |
//! | `reader.rs`, `units.rs`, `instances.rs`, `below.rs` | tables of a file; each number is checked where it is used |
//! | `sections.rs` | sections of the host, mapped |
//! | `open.rs` | a file of this user becomes mapped segments |
//! | `bind.rs` | words that hold addresses get their values |
//! | `validate.rs`, `containing.rs`, `unit_set.rs` | which units of a package are still right, and which contain code of which |
//! | `stages.rs` | which are in use, beside redefinitions |
//! | `replaced.rs` | which contain no code of definitions that others have replaced |
//! | `error.rs` | the sentences |
//!
//! An image is whole, or a package of units each of which is. Whole means that its parts refer to each other directly, and that what it does not define is an import, which the session looks up as it does
//! for an object. `linking/image.rs` stands between the two.
//!
//! **Architecture Invariant:** the numbers of a file are not trusted. A damaged file is an [`ImageError`]. Its code is: it runs as this user, as
//! an object's does, so a file that others may write to is refused.
//!
//! **Never:** reading tables touches no page of the code, and runs nothing.

mod below;
mod bind;
mod containing;
mod elf;
mod error;
mod format;
mod host;
mod instances;
mod link;
mod open;
mod package;
mod plain_memory;
mod reader;
mod replaced;
mod sections;
mod stages;
mod tables;
mod targets;
mod unit_set;
mod units;
mod validate;
mod writer;

pub use below::readable_id;
pub(crate) use bind::{bind, choose, needed_distances};
pub use error::{BindError, HostPartError, ImageError};
pub use format::{ImageFlags, ImageSymbol, ImageTarget, SymbolTraits};
pub use host::{BuiltInstance, HostParts};
pub use instances::{AssumedDefinition, ImageInstance};
pub use link::{BuiltImage, link_image, link_image_in_order};
pub use open::{ImageFile, OverusedFunction};
pub use package::{BuiltUnit, package};
pub use reader::ImageReader;
pub use replaced::Unreplaced;
pub use sections::{ImageSection, ImageSections};
pub use stages::{Redefined, Revocable, UnitStage, UnitStages};
pub use units::{ContainedCode, KeyOfUnit, PackedUnit, UnitKey};
pub use validate::{Rejection, SourceMatch, Validation};
pub use writer::seal;
