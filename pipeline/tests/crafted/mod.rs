//! Writes objects and archives that no tool writes: every number in them is the test's.
//!
//! ```text
//!  | head | contents of each section | .symtab | .strtab | .shstrtab | section headers |
//! ```
//! Section 0 is the empty one; the caller's are numbered from 1 on.

#![allow(dead_code, reason = "each test binary and each fuzz target uses a part")]

pub(crate) mod choices;
pub(crate) mod drive;

pub(crate) const PROGBITS: u32 = 1;
pub(crate) const RELA: u32 = 4;
pub(crate) const NOBITS: u32 = 8;
pub(crate) const INIT_ARRAY: u32 = 14;
pub(crate) const GROUP: u32 = 17;
pub(crate) const CREL: u32 = 0x4000_0014;

pub(crate) const WRITE: u64 = 1;
pub(crate) const ALLOC: u64 = 2;
pub(crate) const EXEC: u64 = 4;
pub(crate) const TLS: u64 = 0x400;

pub(crate) const LOCAL: u8 = 0;
pub(crate) const GLOBAL: u8 = 1;
pub(crate) const NOTYPE: u8 = 0;
pub(crate) const OBJECT: u8 = 1;
pub(crate) const FUNC: u8 = 2;
pub(crate) const TLS_VARIABLE: u8 = 6;
pub(crate) const IFUNC: u8 = 10;

/// As a section's link: the symbol table, wherever that comes to lie.
pub(crate) const TO_SYMBOLS: u32 = u32::MAX;

/// A name of its own, or the bytes at an offset of the table.
#[derive(Clone, Debug)]
pub(crate) enum Name {
    Text(Vec<u8>),
    At(u32),
}

impl From<&str> for Name {
    fn from(text: &str) -> Self {
        Self::Text(text.as_bytes().to_vec())
    }
}

impl From<u32> for Name {
    fn from(offset: u32) -> Self {
        Self::At(offset)
    }
}

/// Bytes of its own, or those of an earlier section.
#[derive(Clone, Debug)]
pub(crate) enum Contents {
    Bytes(Vec<u8>),
    SharedWith(usize),
}

#[derive(Clone, Debug)]
pub(crate) struct Section {
    pub(crate) name: Name,
    pub(crate) kind: u32,
    pub(crate) flags: u64,
    pub(crate) contents: Contents,
    /// The size in the header, in place of the contents' length.
    pub(crate) size: Option<u64>,
    pub(crate) link: u32,
    pub(crate) info: u32,
    pub(crate) align: u64,
    pub(crate) entry_bytes: u64,
}

impl Section {
    pub(crate) fn new(name: &str, kind: u32, flags: u64, contents: &[u8]) -> Self {
        let contents = Contents::Bytes(contents.to_vec());
        Self {
            name: name.into(),
            kind,
            flags,
            contents,
            size: None,
            link: 0,
            info: 0,
            align: 1,
            entry_bytes: 0,
        }
    }

    pub(crate) fn aligned(self, align: u64) -> Self {
        Self { align, ..self }
    }

    pub(crate) fn sized(self, size: u64) -> Self {
        Self { size: Some(size), ..self }
    }

    pub(crate) fn sharing(self, section: usize) -> Self {
        Self { contents: Contents::SharedWith(section), ..self }
    }

    /// The relocations `(offset, symbol, type, addend)` of section `info`.
    pub(crate) fn relocations(info: u32, relocations: &[(u64, u32, u32, i64)]) -> Self {
        let mut bytes = Vec::new();
        for (offset, symbol, kind, addend) in relocations {
            bytes.extend(offset.to_le_bytes());
            bytes.extend((u64::from(*symbol) << 32 | u64::from(*kind)).to_le_bytes());
            bytes.extend(addend.to_le_bytes());
        }
        Self { link: TO_SYMBOLS, info, entry_bytes: 24, ..Self::new(".rela", RELA, 0x40, &bytes).aligned(8) }
    }

    /// The same in the compact form: each as the difference to the one before.
    pub(crate) fn compact_relocations(info: u32, relocations: &[(u64, u32, u32, i64)]) -> Self {
        let mut bytes = number(i128::from(relocations.len() as u64) << 3 | 4, false);
        let mut last = (0_u64, 0_u32, 0_u32, 0_i64);
        for next in relocations {
            let differences = [
                next.1.wrapping_sub(last.1).cast_signed().into(),
                next.2.wrapping_sub(last.2).cast_signed().into(),
                next.3.wrapping_sub(last.3),
            ];
            let flags: i128 = (0..3).map(|bit| i128::from(differences[bit] != 0) << bit).sum();
            bytes.extend(number(i128::from(next.0.wrapping_sub(last.0)) << 3 | flags, false));
            let changed = differences.into_iter().filter(|difference| *difference != 0);
            bytes.extend(changed.flat_map(|difference| number(difference.into(), true)));
            last = *next;
        }
        Self { link: TO_SYMBOLS, info, entry_bytes: 1, ..Self::new(".crel", CREL, 0x40, &bytes) }
    }

    /// A COMDAT group of sections, with a symbol as its signature.
    pub(crate) fn group(symbol: u32, members: &[u32]) -> Self {
        let words = [1].iter().chain(members).flat_map(|word| word.to_le_bytes());
        let bytes: Vec<u8> = words.collect();
        Self {
            link: TO_SYMBOLS,
            info: symbol,
            entry_bytes: 4,
            ..Self::new(".group", GROUP, 0, &bytes).aligned(4)
        }
    }
}

/// A number in as many bytes as it needs (LEB128).
fn number(mut value: i128, is_signed: bool) -> Vec<u8> {
    let mut bytes = Vec::new();
    loop {
        let byte = value as u8 & 0x7f;
        value >>= 7;
        let is_last = if is_signed { value == -i128::from(byte >> 6) } else { value == 0 };
        bytes.push(if is_last { byte } else { byte | 0x80 });
        if is_last {
            return bytes;
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Symbol {
    pub(crate) name: Name,
    pub(crate) binding: u8,
    pub(crate) kind: u8,
    pub(crate) other: u8,
    pub(crate) section: u16,
    pub(crate) value: u64,
    pub(crate) size: u64,
}

impl Symbol {
    pub(crate) fn new(name: impl Into<Name>, binding: u8, kind: u8, section: u16) -> Self {
        Self { name: name.into(), binding, kind, other: 0, section, value: 0, size: 0 }
    }
}

/// An object in the making.
#[derive(Clone, Debug)]
pub(crate) struct Object {
    pub(crate) sections: Vec<Section>,
    pub(crate) symbols: Vec<Symbol>,
    /// The bytes that the names of symbols at an offset mean: they come right after the first, empty name.
    pub(crate) shared_names: Vec<u8>,
}

impl Object {
    /// An object with a function `main` in section 1, `.text`.
    pub(crate) fn with_main() -> Self {
        let code = Section::new(".text", PROGBITS, ALLOC | EXEC, b"\x31\xc0\xc3").aligned(16);
        let main = Symbol { size: 3, ..Symbol::new("main", GLOBAL, FUNC, 1) };
        Self { sections: vec![code], symbols: vec![main], shared_names: Vec::new() }
    }

    /// Adds a section; answers its number.
    pub(crate) fn section(&mut self, section: Section) -> u16 {
        self.sections.push(section);
        self.sections.len() as u16
    }

    /// Adds a symbol; answers its number.
    pub(crate) fn symbol(&mut self, symbol: Symbol) -> u32 {
        self.symbols.push(symbol);
        self.symbols.len() as u32
    }

    /// The bytes.
    pub(crate) fn write(&self) -> Vec<u8> {
        let symbol_table = self.sections.len() as u32 + 1;
        let mut strings = Strings::new(&self.shared_names);
        let mut symbols = vec![0; 24];
        for symbol in &self.symbols {
            put(&mut symbols, &[(strings.offset(&symbol.name).into(), 4)]);
            put(
                &mut symbols,
                &[(u64::from(symbol.binding << 4 | symbol.kind & 15), 1), (symbol.other.into(), 1)],
            );
            put(&mut symbols, &[(symbol.section.into(), 2), (symbol.value, 8), (symbol.size, 8)]);
        }
        let table = |name: &str, kind, bytes: &[u8]| Section::new(name, kind, 0, bytes).aligned(8);
        let mut sections = self.sections.clone();
        sections.push(Section {
            link: symbol_table + 1,
            info: 1,
            entry_bytes: 24,
            ..table(".symtab", 2, &symbols)
        });
        sections.push(table(".strtab", 3, &strings.bytes));
        let mut section_names = Strings::new(b"");
        let mut names: Vec<u32> =
            sections.iter().map(|section| section_names.offset(&section.name)).collect();
        names.push(section_names.offset(&".shstrtab".into()));
        sections.push(table(".shstrtab", 3, &section_names.bytes));

        let mut file = vec![0; 64];
        let mut headers = vec![0; 64];
        let mut places: Vec<(u64, u64)> = Vec::new();
        for (section, name) in sections.iter().zip(names) {
            let (offset, size) = match &section.contents {
                Contents::Bytes(bytes) => {
                    file.resize(file.len().next_multiple_of(8), 0);
                    file.extend(bytes);
                    ((file.len() - bytes.len()) as u64, bytes.len() as u64)
                }
                Contents::SharedWith(earlier) => {
                    places.get(earlier.wrapping_sub(1)).copied().unwrap_or_default()
                }
            };
            places.push((offset, size));
            let link = if section.link == TO_SYMBOLS { symbol_table } else { section.link };
            put(&mut headers, &[(name.into(), 4), (section.kind.into(), 4), (section.flags, 8), (0, 8)]);
            put(&mut headers, &[(offset, 8), (section.size.unwrap_or(size), 8), (link.into(), 4)]);
            put(&mut headers, &[(section.info.into(), 4), (section.align, 8), (section.entry_bytes, 8)]);
        }
        file.resize(file.len().next_multiple_of(8), 0);
        let headers_at = file.len() as u64;
        let count = sections.len() as u64 + 1;
        if count >= 0xff00 {
            headers[32..40].copy_from_slice(&count.to_le_bytes());
            headers[40..44].copy_from_slice(&(count as u32 - 1).to_le_bytes());
        }
        file.extend(headers);
        let mut head = b"\x7FELF\x02\x01\x01\0\0\0\0\0\0\0\0\0".to_vec();
        put(
            &mut head,
            &[(1, 2), (62, 2), (1, 4), (0, 8), (0, 8), (headers_at, 8), (0, 4), (64, 2), (0, 2), (0, 2)],
        );
        let (count, names) = if count >= 0xff00 { (0, 0xffff) } else { (count, count - 1) };
        put(&mut head, &[(64, 2), (count, 2), (names, 2)]);
        file[..64].copy_from_slice(&head);
        file
    }
}

/// A table of names in the making.
struct Strings {
    bytes: Vec<u8>,
}

impl Strings {
    fn new(shared: &[u8]) -> Self {
        let mut bytes = vec![0];
        if !shared.is_empty() {
            bytes.extend(shared);
            bytes.push(0);
        }
        Self { bytes }
    }

    fn offset(&mut self, name: &Name) -> u32 {
        match name {
            Name::At(offset) => *offset,
            Name::Text(text) if text.is_empty() => 0,
            Name::Text(text) => {
                let offset = self.bytes.len() as u32;
                self.bytes.extend(text);
                self.bytes.push(0);
                offset
            }
        }
    }
}

/// Appends numbers, each in so many little-endian bytes.
fn put(bytes: &mut Vec<u8>, numbers: &[(u64, usize)]) {
    for (number, width) in numbers {
        bytes.extend(&number.to_le_bytes()[..*width]);
    }
}

/// An archive of members `(name field, contents)`; the field has at most 16 bytes.
pub(crate) fn archive(members: &[(&[u8], &[u8])]) -> Vec<u8> {
    let mut bytes = b"!<arch>\n".to_vec();
    for (name, contents) in members {
        let mut field = name.to_vec();
        field.resize(16, b' ');
        bytes.extend(field);
        bytes.extend(format!("{:<12}{:<6}{:<6}{:<8}{:<10}`\n", 0, 0, 0, 644, contents.len()).as_bytes());
        bytes.extend(*contents);
        bytes.resize(bytes.len().next_multiple_of(2), b'\n');
    }
    bytes
}
