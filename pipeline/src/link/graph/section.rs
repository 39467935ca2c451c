//! Sections: the parts of an object that take part in the link, and their uses.

use super::{BlockId, Name, ObjectId};

/// The use of a section, which decides where it goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SectionRole {
    /// Executable.
    Code,
    /// Constant, or constant after relocation.
    ReadOnly,
    /// Writable, with contents.
    Data,
    /// Writable, all zero.
    ZeroFill,
    /// Like `ZeroFill`, and so large that it is kept away from data that must be reached.
    GreatZeroFill,
    /// Writable, of the large code model: may lie out of reach of the code.
    LargeData,
    /// All zero, of the large code model.
    LargeZeroFill,
    /// Initial values of thread-local variables.
    TlsData,
    /// Thread-local variables that start as zero.
    TlsZeroFill,
    /// Call frame information, split into records.
    EhFrame,
}

impl SectionRole {
    /// Whether the section has no bytes in the object.
    pub const fn is_zero_fill(self) -> bool {
        matches!(self, Self::ZeroFill | Self::GreatZeroFill | Self::LargeZeroFill | Self::TlsZeroFill)
    }

    /// Whether the section is part of the thread-local image.
    pub const fn is_tls(self) -> bool {
        matches!(self, Self::TlsData | Self::TlsZeroFill)
    }
}

/// Whether a section holds pointers to functions that run before or after the program, or such a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InitRole {
    /// `.preinit_array`.
    Preinit,
    /// `.init_array`, by priority.
    Init(u16),
    /// `.fini_array`, by priority.
    Fini(u16),
    /// `.ctors`: as `Init`, but its entries run from last to first.
    Ctors(u16),
    /// `.dtors`: as `Fini`, but its entries run from first to last.
    Dtors(u16),
    /// The start of a function around a fragment of code in `.init`.
    InitFragment,
    /// The start of a function around a fragment of code in `.fini`.
    FiniFragment,
}

/// A section of one object that takes part in the link.
#[derive(Clone, Copy, Debug)]
pub struct Section {
    pub(in crate::link) name: Name,
    pub(in crate::link) object: ObjectId,
    /// The file that it was read from.
    pub(in crate::link) file: u32,
    /// Its number in that file; zero if it was not read.
    pub(in crate::link) number: u32,
    pub(in crate::link) role: SectionRole,
    pub(in crate::link) init: Option<InitRole>,
    pub(in crate::link) size: u64,
    pub(in crate::link) align_log2: u8,
    /// Whether other objects may have the same section: it is part of a COMDAT group.
    pub(in crate::link) is_grouped: bool,
    /// Blocks of the section: first and count.
    pub(in crate::link) first_block: BlockId,
    pub(in crate::link) block_count: u32,
}

impl Section {
    /// The use of the section.
    pub fn role(&self) -> SectionRole {
        self.role
    }

    /// The object the section comes from.
    pub fn object(&self) -> ObjectId {
        self.object
    }

    /// Size in bytes.
    pub fn size_bytes(&self) -> u64 {
        self.size
    }

    pub(in crate::link) fn blocks(&self) -> impl Iterator<Item = BlockId> + use<> {
        (self.first_block.0..self.first_block.0 + self.block_count).map(BlockId)
    }
}
