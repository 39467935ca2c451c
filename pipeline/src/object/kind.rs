//! [`FileKind`]: the format of a file, by its first bytes.

use object::elf;

/// The format that the first bytes of a file announce. Nothing further is checked.
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
    /// Text that begins as LLVM IR does: behind comments, and behind a first line with `#!`, stands a word of that language.
    TextualIr,
    /// None of these.
    Other,
}

impl FileKind {
    /// The format of `bytes`, by their beginning.
    pub fn of(bytes: &[u8]) -> Self {
        match bytes {
            [] => Self::Empty,
            [b'B', b'C', 0xC0, 0xDE, ..] | [0xDE, 0xC0, 0x17, 0x0B, ..] => Self::Bitcode,
            _ if bytes.starts_with(b"!<arch>\n") => Self::Archive,
            _ if bytes.starts_with(b"!<thin>\n") => Self::ThinArchive,
            _ if bytes.starts_with(&elf::ELFMAG) => Self::of_elf(bytes),
            _ if begins_as_textual_ir(bytes) => Self::TextualIr,
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

/// Whether a file is a script, whose first line says what runs it.
pub fn is_script(bytes: &[u8]) -> bool {
    bytes.starts_with(b"#!")
}

fn begins_as_textual_ir(bytes: &[u8]) -> bool {
    const WORDS: [&[u8]; 7] =
        [b"source_filename", b"target", b"module", b"define", b"declare", b"attributes", b"uselistorder"];
    // The first characters of names: of variables, types, metadata, COMDATs and summaries.
    const MARKS: &[u8] = b"@%!$^";
    // A comment may be long, but a file that is nothing else for so long is not looked at further.
    let beginning = &bytes[..bytes.len().min(1 << 16)];
    let comment = |line: &[u8]| line.is_empty() || line.starts_with(b";");
    let lines = beginning.split(|&byte| byte == b'\n').skip(usize::from(is_script(bytes)));
    let Some(line) = lines.map(<[u8]>::trim_ascii).find(|line| !comment(line)) else { return false };
    let word = line.split(|byte| !byte.is_ascii_alphabetic() && *byte != b'_').next().unwrap_or_default();
    MARKS.contains(&line[0]) && line[1..].contains(&b'=') || WORDS.contains(&word)
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
    }

    #[test]
    fn textual_ir_is_known_by_its_first_words() {
        for text in [
            "; ModuleID = 'a'\nsource_filename = \"a.c\"\n",
            "#!/usr/bin/env -S uruk run\ndefine i32 @main() { ret i32 0 }\n",
            "\n\n  @x = global i32 1\n",
            "%pair = type { i32, i32 }\n",
            "target triple = \"x86_64-pc-linux-gnu\"",
        ] {
            assert_eq!(FileKind::of(text.as_bytes()), FileKind::TextualIr, "{text}");
        }
        let others = [
            "; nothing but a comment",
            "#include <stdio.h>\n",
            "defined",
            "!",
            "int main;",
            "#!/bin/sh\necho",
        ];
        for text in others {
            assert_eq!(FileKind::of(text.as_bytes()), FileKind::Other, "{text}");
        }
    }
}
