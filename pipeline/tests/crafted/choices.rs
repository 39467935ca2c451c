//! Objects and archives made from a string of bytes: each choice takes the next one. A fuzzer that changes the bytes
//! changes choices, so that most of what it tries gets past the first check.
//!
//! The choices lean towards trouble: sections that share bytes, names that overlap, sizes and alignments at the powers of two, relocations
//! at the ends of sections, symbols outside of them.

use super::*;

/// Choices yet to be made. Where the bytes end, every choice is the first.
pub(crate) struct Choices<'a> {
    bytes: &'a [u8],
}

impl<'a> Choices<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes }
    }

    pub(crate) fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.bytes.split_first() else { return 0 };
        self.bytes = rest;
        *first
    }

    fn below(&mut self, count: usize) -> usize {
        usize::from(self.byte()) % count.max(1)
    }

    fn one_of<T: Copy>(&mut self, values: &[T]) -> T {
        values[self.below(values.len())]
    }

    /// A choice that makes most files be refused at the first look if it is not rare.
    fn rarely(&mut self) -> bool {
        self.byte() >= 252
    }

    fn sometimes(&mut self) -> bool {
        self.byte() >= 224
    }

    fn word(&mut self) -> u64 {
        u64::from_le_bytes(std::array::from_fn(|_| self.byte()))
    }

    fn take(&mut self, count: usize) -> Vec<u8> {
        let (taken, rest) = self.bytes.split_at(count.min(self.bytes.len()));
        self.bytes = rest;
        taken.to_vec()
    }

    /// A number: mostly small or close to `near`, sometimes close to a power of two, rarely any.
    fn number(&mut self, near: u64) -> u64 {
        let way = self.byte();
        let offset = i64::from(self.byte().cast_signed());
        match way % 8 {
            0..3 => offset.unsigned_abs(),
            3..6 => near.wrapping_add_signed(offset % 16),
            6 => (1_u64 << self.below(64)).wrapping_add_signed(offset % 4),
            _ => self.word(),
        }
    }
}

/// Sections as they belong.
const SECTIONS: &[(&str, u32, u64)] = &[
    (".text", PROGBITS, ALLOC | EXEC),
    (".text.f", PROGBITS, ALLOC | EXEC),
    (".data", PROGBITS, ALLOC | WRITE),
    (".rodata", PROGBITS, ALLOC),
    (".bss", NOBITS, ALLOC | WRITE),
    (".eh_frame", PROGBITS, ALLOC),
    (".eh_frame", 0x7000_0001, ALLOC),
    (".tdata", PROGBITS, ALLOC | WRITE | TLS),
    (".tbss", NOBITS, ALLOC | WRITE | TLS),
    (".init_array", INIT_ARRAY, ALLOC | WRITE),
    (".fini_array.7", 15, ALLOC | WRITE),
    (".preinit_array", 16, ALLOC | WRITE),
    (".ctors.65000", PROGBITS, ALLOC | WRITE),
    (".dtors", PROGBITS, ALLOC | WRITE),
    ("things", PROGBITS, ALLOC | WRITE),
    ("things", PROGBITS, ALLOC | EXEC),
    ("others", NOBITS, ALLOC | WRITE),
    (".lbss", NOBITS, ALLOC | WRITE | LARGE),
    (".ldata", PROGBITS, ALLOC | WRITE | LARGE),
    (".data.rel.ro", PROGBITS, ALLOC | WRITE),
    ("COMMON", NOBITS, ALLOC | WRITE),
    (".debug_info", PROGBITS, 0),
    (".note.GNU-stack", PROGBITS, 0),
];
const LARGE: u64 = 0x1000_0000;
const KINDS: &[u32] = &[0, 2, 3, 5, 6, 7, 9, 18, 19, RELA, GROUP, CREL];
const SYMBOL_NAMES: &[&str] = &[
    "main",
    "f",
    "g",
    "variable",
    "elsewhere",
    "function_elsewhere",
    "variable_elsewhere",
    "_GLOBAL_OFFSET_TABLE_",
    "__start_things",
    "__stop_others",
    "DW.ref.f",
    "f@@V",
    "",
];

/// The bytes of an object.
pub(crate) fn object(choices: &mut Choices<'_>) -> Vec<u8> {
    let mut object = Object { sections: Vec::new(), symbols: Vec::new(), shared_names: Vec::new() };
    if choices.sometimes() {
        let length = choices.below(64) * 16;
        object.shared_names = b"names_that_overlap".iter().copied().cycle().take(length).collect();
    }
    for _ in 0..1 + choices.below(12) {
        let section = section(choices, &object);
        object.section(section);
    }
    for _ in 0..choices.below(24) {
        let symbol = symbol(choices, &object);
        object.symbol(symbol);
    }
    for _ in 0..choices.below(6) {
        let target = 1 + choices.below(object.sections.len());
        let section =
            if choices.sometimes() { group(choices, &object) } else { relocations(choices, &object, target) };
        object.section(section);
    }
    let mut bytes = object.write();
    while choices.rarely() {
        let place = choices.number(bytes.len() as u64) as usize % bytes.len();
        bytes[place] = choices.byte();
    }
    bytes
}

fn section(choices: &mut Choices<'_>, object: &Object) -> Section {
    let (name, mut kind, mut flags) = choices.one_of(SECTIONS);
    if choices.rarely() {
        kind = choices.one_of(KINDS);
    }
    if choices.rarely() {
        flags = choices.word();
    }
    let contents = match (kind, name) {
        (NOBITS, _) => Contents::Bytes(Vec::new()),
        _ if choices.rarely() => Contents::SharedWith(choices.below(object.sections.len() + 1)),
        (_, ".eh_frame") => Contents::Bytes(frames(choices)),
        _ if choices.sometimes() => Contents::Bytes(vec![choices.byte(); choices.below(256) * 16]),
        (_, ".text" | ".text.f" | ".rodata") => {
            let length = choices.below(48);
            Contents::Bytes(choices.take(length))
        }
        _ => Contents::Bytes(vec![0; choices.below(6) * 8]),
    };
    let length = match &contents {
        Contents::Bytes(bytes) => bytes.len() as u64,
        Contents::SharedWith(_) => 0,
    };
    let size = (kind == NOBITS || choices.rarely()).then(|| choices.number(length.max(64)));
    let align = match choices.byte() {
        255 => choices.number(0),
        254 => 1 << choices.below(64),
        any => 1 << (any % 8),
    };
    let name = if choices.rarely() { Name::At(choices.byte().into()) } else { name.into() };
    let (link, info) =
        if choices.rarely() { (choices.byte().into(), choices.byte().into()) } else { (TO_SYMBOLS, 0) };
    Section { name, kind, flags, contents, size, link, info, align, entry_bytes: 0 }
}

/// Records of call frames: a common one, then others that refer to it.
fn frames(choices: &mut Choices<'_>) -> Vec<u8> {
    let mut bytes: Vec<u8> = Vec::new();
    for index in 0..1 + choices.below(6) as u32 {
        let start = bytes.len() as u32;
        let body = if choices.sometimes() { choices.below(5) as u32 * 4 } else { 12 };
        let back = if choices.rarely() {
            choices.one_of(&[0, start.wrapping_sub(8), 4, u32::MAX])
        } else if index == 0 {
            0
        } else {
            start + 4
        };
        let length = if choices.rarely() { choices.word() as u32 } else { 4 + body };
        bytes.extend(length.to_le_bytes());
        bytes.extend(back.to_le_bytes());
        bytes.resize(bytes.len() + body as usize, choices.byte());
    }
    bytes
}

fn symbol(choices: &mut Choices<'_>, object: &Object) -> Symbol {
    let name = match choices.below(6) {
        0 if !object.shared_names.is_empty() => {
            Name::At(1 + choices.byte() as u32 % object.shared_names.len() as u32)
        }
        _ if choices.rarely() => "__gnu_lto_slim".into(),
        _ => choices.one_of(SYMBOL_NAMES).into(),
    };
    let section = match choices.below(8) {
        0 if choices.rarely() => choices.one_of(&[0xff02, 0xffff, 0xff00]),
        0 => choices.one_of(&[0xfff1, 0xfff2]),
        1 | 2 => 0,
        _ => 1 + choices.below(object.sections.len()) as u16,
    };
    let size = section_size(object, section.into());
    let value = match section {
        0xfff2 => 1 << choices.below(12),
        _ if choices.rarely() => choices.number(size),
        _ => u64::from(choices.byte()) % size.saturating_add(1).max(1),
    };
    let thread_local =
        object.sections.get(usize::from(section).wrapping_sub(1)).is_some_and(|s| s.flags & TLS != 0);
    let kind = match choices.byte() {
        _ if thread_local => TLS_VARIABLE,
        250.. => choices.one_of(&[TLS_VARIABLE, IFUNC, 4, 5, 3]),
        any => [FUNC, OBJECT, NOTYPE][usize::from(any) % 3],
    };
    let (binding, other) = if choices.rarely() { (choices.byte() % 3, choices.byte()) } else { (GLOBAL, 0) };
    let binding = if choices.sometimes() { choices.one_of(&[LOCAL, 2, 10]) } else { binding };
    Symbol {
        name,
        binding,
        kind,
        other,
        section,
        value,
        size: if choices.rarely() { choices.word() } else { 8 },
    }
}

/// The relocations that compilers use, by number.
const RELOCATIONS: &[u32] = &[1, 2, 3, 4, 9, 10, 11, 12, 14, 24, 25, 26, 27, 28, 29, 31, 32, 33, 41, 42];
/// Those for thread-local variables.
const TLS_RELOCATIONS: &[u32] = &[19, 20, 21, 17, 18, 22, 23, 34, 35, 32, 33];

fn relocations(choices: &mut Choices<'_>, object: &Object, target: usize) -> Section {
    let size = section_size(object, target);
    let is_frames = matches!(&object.sections[target - 1].name, Name::Text(name) if name == b".eh_frame");
    let is_too_small = size < 8 || object.sections[target - 1].kind == NOBITS;
    let count = if is_too_small && !choices.rarely() { 0 } else { 1 + choices.below(8) };
    let one = |index: usize| {
        let symbol = choices.below(object.symbols.len() + 1) as u32;
        let is_thread_local = object
            .symbols
            .get((symbol as usize).wrapping_sub(1))
            .is_some_and(|symbol| symbol.kind == TLS_VARIABLE);
        let kind = match is_thread_local {
            _ if choices.rarely() => u32::from(choices.byte()) % 64,
            true => choices.one_of(TLS_RELOCATIONS),
            false if is_frames => 2,
            false => choices.one_of(RELOCATIONS),
        };
        // Mostly inside, often at the very end of what holds the field, and where frames have their functions.
        let offset = match choices.byte() {
            252.. => choices.number(size),
            _ if is_frames => 20 * (1 + index as u64) + 8,
            200.. => size.wrapping_sub(choices.one_of(&[8, 8, 8, 4, 2, 1])),
            any => u64::from(any) % size.saturating_sub(7).max(1),
        };
        let addend = if choices.sometimes() { choices.number(0) as i64 } else { -4 };
        (offset, symbol, kind, addend)
    };
    let relocations: Vec<_> = (0..count).map(one).collect();
    if !choices.sometimes() {
        return Section::relocations(target as u32, &relocations);
    }
    let mut compact = Section::compact_relocations(target as u32, &relocations);
    if let Contents::Bytes(bytes) = &mut compact.contents
        && choices.sometimes()
    {
        let place = choices.below(bytes.len());
        bytes[place] = choices.byte();
        bytes.truncate(choices.byte().into());
    }
    compact
}

fn group(choices: &mut Choices<'_>, object: &Object) -> Section {
    let signature = 1 + choices.below(object.symbols.len()) as u32;
    let first = choices.below(object.sections.len()) as u32;
    let members: Vec<u32> = (0..choices.below(3) as u32).map(|index| 1 + first + index).collect();
    Section::group(signature, &members)
}

fn section_size(object: &Object, number: usize) -> u64 {
    let Some(section) = object.sections.get(number.wrapping_sub(1)) else { return 0 };
    match (&section.size, &section.contents) {
        (Some(size), _) => *size,
        (None, Contents::Bytes(bytes)) => bytes.len() as u64,
        (None, Contents::SharedWith(_)) => 0,
    }
}

/// The bytes of an archive.
pub(crate) fn random_archive(choices: &mut Choices<'_>) -> Vec<u8> {
    const MEMBER_NAMES: &[&[u8]] = &[
        b"a.o/",
        b"/",
        b"//",
        b"/0",
        b"/7",
        b"/SYM64/",
        b"__.SYMDEF",
        b"__.SYMDEF SORTED",
        b"__.SYMDEF_64",
        b"#1/8",
        b"#1/4000",
        b"/99999999",
        b"",
    ];
    let members: Vec<(Vec<u8>, Vec<u8>)> = (0..choices.below(8))
        .map(|_| {
            let name = choices.one_of(MEMBER_NAMES).to_vec();
            let contents = match choices.below(5) {
                0 | 1 => object(choices),
                2 => table(choices),
                3 => b"a_long_name/\nanother_long_name/\nthe_last".repeat(1 + choices.below(8)),
                _ => {
                    let length = choices.below(100);
                    choices.take(length)
                }
            };
            (name, contents)
        })
        .collect();
    let members: Vec<(&[u8], &[u8])> =
        members.iter().map(|(name, contents)| (name.as_slice(), contents.as_slice())).collect();
    let mut bytes = archive(&members);
    bytes[..8].copy_from_slice(choices.one_of(&[
        b"!<arch>\n",
        b"!<arch>\n",
        b"!<arch>\n",
        b"<bigaf>\n",
        b"!<thin>\n",
    ]));
    while choices.rarely() {
        let place = choices.number(bytes.len() as u64) as usize % bytes.len();
        bytes[place] = choices.byte();
    }
    if choices.rarely() {
        bytes.truncate(bytes.len() - choices.below(100).min(bytes.len()));
    }
    bytes
}

/// A symbol table of an archive, in one of the forms.
fn table(choices: &mut Choices<'_>) -> Vec<u8> {
    let count = choices.below(20);
    let said = choices.number(count as u64);
    let mut bytes = Vec::new();
    let big_endian = choices.below(2) == 0;
    let mut put = |number: u64, wide: bool| match (big_endian, wide) {
        (true, false) => bytes.extend((number as u32).to_be_bytes()),
        (true, true) => bytes.extend(number.to_be_bytes()),
        (false, false) => bytes.extend((number as u32).to_le_bytes()),
        (false, true) => bytes.extend(number.to_le_bytes()),
    };
    let wide = choices.below(3) == 0;
    put(if big_endian { said } else { said.wrapping_mul(8) }, wide);
    for _ in 0..count {
        put(choices.number(68), wide);
        if !big_endian {
            put(choices.number(8), wide);
        }
    }
    if !big_endian {
        put(choices.number(count as u64 * 4), wide);
    }
    for index in 0..count {
        bytes.extend([b"f\0", b"g\0", b"\0\0", b"\xff\0"][index % 4]);
    }
    bytes
}
