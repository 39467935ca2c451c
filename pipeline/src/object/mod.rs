//! Relocatable objects before they are linked: their bytes, the symbols they define, the units and archives
//! they come in.
//!
//! Nothing here relocates, allocates memory for code, or needs LLVM: the `link` module turns what this one
//! hands over into running code.

mod archive;
mod buffer;
mod error;
mod interface;
mod mapping;

pub use archive::{ArchiveIndex, ArchiveMember};
pub(crate) use archive::{is_archive, is_bitcode};
pub use buffer::ObjectBuffer;
pub use error::ObjectError;
pub use interface::{ObjectInterface, ObjectSymbol, UndefinedSymbol};
