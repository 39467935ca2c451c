//! [`SourceKind`]: whether a file holds bitcode or textual IR, or something else.

use super::error::CompileError;
use crate::object::{FileKind, ObjectBuffer};

/// The form of a source, by its first bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SourceKind {
    Bitcode,
    Assembly,
}

impl SourceKind {
    pub(super) fn of(source: &ObjectBuffer) -> Result<Self, CompileError> {
        let data = source.bytes();
        let foreign = match FileKind::of(data) {
            FileKind::Bitcode => return Ok(Self::Bitcode),
            FileKind::TextualIr => return Ok(Self::Assembly),
            FileKind::Empty => "the file is empty",
            FileKind::Archive | FileKind::ThinArchive => "it is an archive",
            FileKind::Object => "it is an ELF object, to be linked and not compiled",
            FileKind::SharedLibrary | FileKind::OtherElf => "it is an ELF file",
            FileKind::Other if data.contains(&0) => "it is neither bitcode nor text",
            FileKind::Other if data.iter().all(u8::is_ascii_whitespace) => "the file is blank",
            FileKind::Other => return Ok(Self::Assembly),
        };
        Err(parse_error(source, foreign))
    }
}

/// `source` cannot be read, because of `message`.
pub(super) fn parse_error(source: &ObjectBuffer, message: &str) -> CompileError {
    CompileError::Parse { module: source.name().clone(), message: message.to_owned() }
}
