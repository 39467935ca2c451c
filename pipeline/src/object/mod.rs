//! Relocatable objects before they are linked: their bytes, the symbols they define, the units and archives
//! they come in.
//!
//! Nothing here relocates, allocates memory for code, or needs LLVM: the `link` module turns what this one
//! hands over into running code.

mod archive;
mod buffer;
mod common;
mod error;
mod generator;
mod interface;
mod kind;
mod mapping;
mod parts;
mod proportion;
mod references;
mod unit;

pub use archive::{ArchiveIndex, ArchiveMember};
pub use buffer::ObjectBuffer;
pub use common::{CommonError, CommonExtent, CommonSymbols, SearchedArchive};
pub use error::ObjectError;
pub use generator::StaticArchiveGenerator;
pub(crate) use interface::default_version;
pub use interface::{ObjectInterface, ObjectSymbol, UndefinedSymbol};
pub use kind::{FileKind, is_script};
pub use parts::{join_parts, parts};
pub(crate) use proportion::{NameBudget, check_sections};
pub use references::CloseReferences;
pub use unit::{ObjectMaterializationUnit, define_object};
#[cfg(feature = "llvm")]
pub(crate) use unit::{intern_interface, references};
