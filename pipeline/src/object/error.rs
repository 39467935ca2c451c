//! Why a file cannot be used as a relocatable object or an archive.

use std::sync::Arc;

use crate::arch::Architecture;

/// Reading an object or an archive failed.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ObjectError {
    /// The bytes are no ELF file at all.
    #[error("{object}: not an ELF object: {found}")]
    NotElf {
        /// The file or archive member.
        object: Arc<str>,
        /// The meaning of the first bytes.
        found: String,
    },
    /// An ELF file for another kind of machine.
    #[error(
        "{object}: an ELF object for {machine}; this session links {wanted}, so compile it for that (--target={})",
        wanted.triple().replace("-unknown", "")
    )]
    ForeignMachine {
        /// The file or archive member.
        object: Arc<str>,
        /// The machine the file names.
        machine: String,
        /// The machine the session executes on.
        wanted: Architecture,
    },
    /// An ELF file that is already linked, or a core dump.
    #[error(
        "{object}: {kind}, not a relocatable object; link the `.o` files it was made from, or load a shared library as a library"
    )]
    NotRelocatable {
        /// The file or archive member.
        object: Arc<str>,
        /// The actual kind of file.
        kind: String,
    },
    /// An object that holds a compiler's intermediate code in place of machine code.
    #[error(
        "{object}: holds GCC's intermediate code and no machine code; compile it without `-flto`, or with `-ffat-lto-objects`"
    )]
    IntermediateOnly {
        /// The file or archive member.
        object: Arc<str>,
    },
    /// The file contradicts itself: most often it was cut off.
    #[error("{object}: truncated or malformed ({size_bytes} bytes): {what}")]
    Malformed {
        /// The file or archive member.
        object: Arc<str>,
        /// How many bytes there were.
        size_bytes: usize,
        /// The contradiction.
        what: String,
    },
    /// An archive of objects for another system.
    #[error("{archive}: not an archive of ELF objects: its member {member} is {found}")]
    ForeignMember {
        /// The archive.
        archive: Arc<str>,
        /// The name of the first such member.
        member: Box<str>,
        /// The member's actual form, and the form that is needed.
        found: String,
    },
    /// An archive that holds paths in place of members.
    #[error(
        "{archive}: a thin archive, which only names its members; name the members themselves, or rebuild it without `T` (`ar rcs`)"
    )]
    ThinArchive {
        /// The archive.
        archive: Arc<str>,
    },
}
