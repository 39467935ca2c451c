//! Relocatable objects before they are linked: their bytes, the symbols they define, the units and archives
//! they come in.
//!
//! Nothing here relocates, allocates memory for code, or needs LLVM: the `link` module turns what this one
//! hands over into running code.

mod archive;
mod beyond_stubs;
mod buffer;
mod common;
mod error;
mod foreign;
mod generator;
mod instrumented;
mod interface;
mod kind;
mod layer;
mod level;
pub(crate) mod mapping;
mod parts;
mod proportion;
mod relocations;
mod traits;
mod unit;

pub use archive::{ArchiveIndex, ArchiveMember};
pub use buffer::ObjectBuffer;
pub use common::{CommonError, CommonExtent, CommonSymbols, SearchedArchive};
pub use error::ObjectError;
pub use foreign::foreign_format;
pub use generator::StaticArchiveGenerator;
pub use instrumented::{PROFILE_RUNTIME, is_instrumented};
#[cfg(test)]
pub(crate) use interface::BOUND_BY_LINKER;
pub(crate) use interface::DEFINED_FOR_PROGRAM;
pub use interface::{ObjectInterface, ObjectSymbol, UndefinedName};
pub(crate) use interface::{default_version, is_bound_by_linker};
pub use kind::{FileKind, is_script};
pub use layer::ObjectLayer;
pub(crate) use level::level_of;
#[cfg(feature = "llvm")]
pub(crate) use level::level_text;
pub(crate) use parts::LOCAL_PREFIX;
#[cfg(feature = "llvm")]
pub(crate) use parts::buffers_of_parts;
pub use parts::{archive_of_parts, join_parts, parts, with_names_of_module};
pub(crate) use proportion::{NameBudget, check_sections};
pub(crate) use relocations::Relocations;
pub use traits::{CompiledOnCall, References, UnitTraits};
pub use unit::{ObjectMaterializationUnit, define_object};
#[cfg(feature = "llvm")]
pub(crate) use unit::{intern_interface, references};
