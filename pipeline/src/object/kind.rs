//! [`FileKind`]: what a file is, by its first bytes.

use object::elf;

/// What the bytes of a file claim to be. Nothing further is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FileKind {
    /// Nothing at all.
    Empty,
    /// An ELF relocatable object.
    Object,
    /// An ELF shared library, or an executable that can be loaded anywhere.
    SharedLibrary,
    /// Any other ELF file: an executable, a core dump, or one cut off before it says.
    OtherElf,
    /// LLVM bitcode, with or without its wrapper.
    Bitcode,
    /// A static archive.
    Archive,
    /// An archive that only names its members.
    ThinArchive,
    /// None of these. Textual IR is among them: it has no mark of its own.
    Other,
}

impl FileKind {
    /// What `bytes` begin like.
    pub fn of(bytes: &[u8]) -> Self {
        match bytes {
            [] => Self::Empty,
            [b'B', b'C', 0xC0, 0xDE, ..] | [0xDE, 0xC0, 0x17, 0x0B, ..] => Self::Bitcode,
            _ if bytes.starts_with(b"!<arch>\n") => Self::Archive,
            _ if bytes.starts_with(b"!<thin>\n") => Self::ThinArchive,
            _ if bytes.starts_with(&elf::ELFMAG) => Self::of_elf(bytes),
            _ => Self::Other,
        }
    }

    fn of_elf(bytes: &[u8]) -> Self {
        let (Some(&order), Some(&[first, second])) =
            (bytes.get(5), bytes.get(16..18).and_then(<[u8]>::first_chunk))
        else {
            return Self::OtherElf;
        };
        let kind = match order {
            2 => u16::from_be_bytes([first, second]),
            _ => u16::from_le_bytes([first, second]),
        };
        match elf::FileType(kind) {
            elf::ET_REL => Self::Object,
            elf::ET_DYN => Self::SharedLibrary,
            _ => Self::OtherElf,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_known_by_their_first_bytes() {
        let elf = |kind: u8, order: u8| {
            let mut bytes = [0; 20];
            bytes[..4].copy_from_slice(&elf::ELFMAG);
            bytes[5] = order;
            bytes[if order == 2 { 17 } else { 16 }] = kind;
            FileKind::of(&bytes)
        };
        assert_eq!((elf(1, 1), elf(1, 2)), (FileKind::Object, FileKind::Object));
        assert_eq!((elf(3, 1), elf(2, 1)), (FileKind::SharedLibrary, FileKind::OtherElf));
        assert_eq!(FileKind::of(b"\x7FELF"), FileKind::OtherElf);
        assert_eq!(FileKind::of(b""), FileKind::Empty);
        assert_eq!(FileKind::of(b"BC\xC0\xDE"), FileKind::Bitcode);
        assert_eq!(FileKind::of(b"!<thin>\n"), FileKind::ThinArchive);
        assert_eq!(FileKind::of(b"; ModuleID"), FileKind::Other);
    }
}
