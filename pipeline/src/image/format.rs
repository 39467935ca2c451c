//! The file, byte by byte. All numbers are little-endian.
//!
//! ```text
//!      0  ELF header and program headers: what linkers of other tools, debuggers and profilers read
//!    512  header of the image, 368 bytes, in words of 8 bytes
//!   4096  contents of the segments, each from a multiple of 4096 on; zeros up to the next
//!         images of the packed units, each a whole file as this one, from a multiple of 4096 on
//!         sections of the host: the first from a multiple of 4096 on, the others from multiples of 64 on
//!         tables, from a multiple of 4096 on
//!         ELF: symbol table, its names, names of sections, section headers
//!
//!  header  +0   8  "urukimg\n"                     +112  8  segment of the global offset table
//!          +8   4  version of the format           +120  8  its offset there
//!          +12  4  run-time interface              +128  8  thread-local image: address
//!          +16  8  length of the file              +136  8    length of its contents
//!          +24  8  where the tables begin          +144  8    length with zeros; 0: there is none
//!          +32  8  length of the tables            +152  8    alignment
//!          +40 16  XXH3-128 of header and tables,  +160  8    1: at one distance on every thread
//!                  with zeros in this place        +168  8  code: first address
//!          +56 16  id: XXH3-128 of all else, then  +176  8    one past the last
//!                  16 zeros
//!          +88  8  flags; bits 8-15: level + 1, or 0                         +184  8  .eh_frame_hdr; 0: there is none
//!          +96  8  length of the memory            +192     22 regions: offset in the tables (4), rows (4)
//!          +104 8  alignment of the memory
//!
//!  regions, in this order; an address is a distance from the start of the memory
//!    segments      40   kind 4, is written 4, address 8, offset in the file 8, length of contents 8, zero fill 8
//!    relative       4   address of a word; the word holds the distance of its target from the start of the memory. Sorted
//!    import words   8   address of a word 4, import 4; the word holds what is added to the import's address. Sorted
//!    fields        24   segment 1, kind of edge 1, target 1, detail 1, offset in the segment 4, value 8, addend 8
//!    imports        8   name 4, flags 4
//!    symbols       24   name 4, unit 4, flags 4, size 4, address 8 (a number, where the flags say absolute)
//!    name index     4   open addressing by XXH3-128 (its low 32 bits) of the name: a symbol + 1, or 0; a power of two
//!    functions     24   when 4 (0 before all, 1 before, 2 after the program), priority 4, import + 1 or 0 4, zero 4, address 8
//!    indirect       4   address of the descriptor of a function that chooses its implementation
//!    descriptors    8   address of the descriptor of a thread-local variable 4, offset of the variable in the image 4
//!    units          4   name of a file
//!    targets       40   name 4, bits of the widest vectors that its code uses, or 0 4, instruction sets that its code may use 16, that it
//!                        uses 16 (by the numbers of `arch/x86_64/features.rs`). The first is the base, whose code runs with that of any other
//!    versions      12   address of the word that calls of a function go by 4, target 4, address of the code of that target 4
//!    packed        32   traits 8 (as the flags of an image), where the image of the unit with this number begins 8, its length 8, first
//!                       assumption 4, assumptions 4
//!    sources       40   unit 4, name 4, key 32: of the source and the options that the unit was compiled with
//!    assumptions   40   unit + 1 that has the definition or 0 4, name 4, key 32: of a definition whose code a unit contains
//!    text           1   names, each with a zero behind it; a name is its offset here. Bytes of the host; offset and length
//!    sections      24   name 4, zero 4, where it begins in the file 8, its length 8
//!    below         24   an image that this one was built on: name 4, zero 4, id 16
//!    instances     48   bytes 8 each: of the method, of the specialization, of the signature; names + 1 or 0: invoke 4, specptr 4;
//!                       specptr is specialized 4, first assumption 4, assumptions 4, zero 4
//!    instance index 4   open addressing by XXH3-128 (its low 32 bits) of the method's length in 4 bytes, the method and the
//!                       specialization: an instance + 1, or 0; a power of two
//!    assumed       48   bytes 8 each: of the method, of the specialization; key 32: of its definition
//!
//!  field: target   0 fixed          value: the number
//!                  1 import         value: the import
//!                  2 place          detail: segment; value: offset there
//!                  3 entry          detail: 0 thunk of indirect functions, 1 resolver of thread-local variables, 2 that of absent ones
//!                  4 own variable   detail: 0 module, 1 offset, 2 distance; value is added
//!                  5 import's variable   detail as before; value: the import
//! ```

use twox_hash::XxHash3_128;

use crate::arch::{CodeNeeds, Features};

/// The beginning of the header.
pub(super) const MAGIC: [u8; 8] = *b"urukimg\n";
/// The version of the format that is written and read.
pub(super) const FORMAT: u32 = 4;
/// The number of the interface between code in images and the engine: kinds of edges, entries, descriptors.
pub(super) const INTERFACE: u32 = 1;
/// Where the level of its code is in the flags.
pub(super) const LEVEL_SHIFT: u32 = 8;
/// Where the header is.
pub(super) const HEADER_AT: usize = 512;
/// How long it is.
pub(super) const HEADER_BYTES: usize = 192 + 8 * REGIONS;
/// Where the checksum is in it.
pub(super) const CHECKSUM: std::ops::Range<usize> = 40..56;
/// The size of a page, which segments begin at.
pub(super) const PAGE_BYTES: u64 = 4096;
/// How many regions there are.
pub(super) const REGIONS: usize = 22;

/// A table of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Region {
    Segments,
    Relative,
    ImportWords,
    Fields,
    Imports,
    Symbols,
    NameIndex,
    Functions,
    Indirect,
    Descriptors,
    Units,
    Targets,
    Versions,
    Packed,
    Sources,
    Assumptions,
    Text,
    Sections,
    Below,
    Instances,
    InstanceIndex,
    Assumed,
}

impl Region {
    /// The size of a row.
    pub(super) const fn row_bytes(self) -> usize {
        match self {
            Self::Segments | Self::Targets | Self::Sources | Self::Assumptions => 40,
            Self::Relative | Self::NameIndex | Self::Indirect | Self::Units => 4,
            Self::ImportWords | Self::Imports | Self::Descriptors => 8,
            Self::Fields | Self::Symbols | Self::Functions => 24,
            Self::Packed => 32,
            Self::Versions => 12,
            Self::InstanceIndex => 4,
            Self::Sections | Self::Below => 24,
            Self::Instances | Self::Assumed => 48,
            Self::Text => 1,
        }
    }

    /// Its name in messages.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Segments => "segments",
            Self::Relative => "words with addresses",
            Self::ImportWords => "words with addresses of imports",
            Self::Fields => "fields",
            Self::Imports => "imports",
            Self::Symbols => "symbols",
            Self::NameIndex => "the index of names",
            Self::Functions => "functions to run",
            Self::Indirect => "indirect functions",
            Self::Descriptors => "descriptors of thread-local variables",
            Self::Units => "units",
            Self::Targets => "processors",
            Self::Versions => "versions",
            Self::Packed => "packed units",
            Self::Sources => "sources",
            Self::Assumptions => "assumptions",
            Self::Text => "names",
            Self::Sections => "sections",
            Self::Below => "images below",
            Self::Instances => "code instances",
            Self::InstanceIndex => "the index of code instances",
            Self::Assumed => "assumptions of code instances",
        }
    }
}

bitflags::bitflags! {
    /// Traits of an image as a whole.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct ImageFlags: u64 {
        /// It is a system of its own: nothing of the session is assumed by it.
        const SYSTEM = 1;
        /// Something runs before or after the program.
        const RUNS = 1 << 1;
        /// It is a package: it has units, each of which is an image of its own.
        const PACKAGE = 1 << 2;
        /// Of a unit: stubs may stand for its functions, but for those whose address it takes.
        const STUBS = 1 << 3;
    }
}

bitflags::bitflags! {
    /// Traits of a symbol of an image.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct SymbolTraits: u32 {
        /// Other dylibs see it.
        const EXPORTED = 1;
        /// It is code.
        const CALLABLE = 1 << 1;
        /// Its address is that of the descriptor of a thread-local variable.
        const THREAD_LOCAL = 1 << 2;
        /// Its address is a number.
        const ABSOLUTE = 1 << 3;
        /// Lookups find it. Other symbols are names for debuggers and reports.
        const GLOBAL = 1 << 4;
        /// Of an import: it may stay undefined. Of a definition: other files have one that may take its place.
        const WEAK = 1 << 5;
        /// Of a function: something in its image takes its address.
        const TAKEN = 1 << 6;
        /// Of an import: something reads it by a distance of 32 bits.
        const CLOSE = 1 << 7;
    }
}

/// A symbol of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImageSymbol<'i> {
    /// Its name.
    pub name: &'i str,
    /// Its distance from the start of the memory, or a number.
    pub address: u64,
    /// Its size in bytes; 0 if that is not known.
    pub size_bytes: u32,
    /// The number of its file.
    pub unit: u32,
    /// Its traits.
    pub traits: SymbolTraits,
}

/// Processors that an image has code for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImageTarget<'i> {
    /// Its name.
    pub name: &'i str,
    /// The instruction sets that its code may use.
    pub declared: Features,
    /// Those that its code uses, with the code of the base that runs beside it.
    pub needs: CodeNeeds,
}

/// The thread-local variables of an image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ThreadLocals {
    pub(super) address: u64,
    pub(super) image_bytes: u64,
    pub(super) total_bytes: u64,
    pub(super) align: u64,
    pub(super) needs_static: bool,
}

/// The numbers of a header, but for those of the file itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ImageLayout {
    pub(super) flags: u64,
    pub(super) memory_bytes: u64,
    pub(super) memory_align: u64,
    pub(super) got: (u64, u64),
    pub(super) thread_locals: ThreadLocals,
    pub(super) code: (u64, u64),
    pub(super) eh_frame_hdr: u64,
}

impl ImageLayout {
    /// As in the file, from `+88` to `+192`.
    pub(super) fn words(&self) -> [u64; 13] {
        let Self { flags, memory_bytes, memory_align, got, thread_locals, code, eh_frame_hdr } = *self;
        let ThreadLocals { address, image_bytes, total_bytes, align, needs_static } = thread_locals;
        [
            flags,
            memory_bytes,
            memory_align,
            got.0,
            got.1,
            address,
            image_bytes,
            total_bytes,
            align,
            needs_static.into(),
            code.0,
            code.1,
            eh_frame_hdr,
        ]
    }

    pub(super) fn of_words(words: [u64; 13]) -> Self {
        let [
            flags,
            memory_bytes,
            memory_align,
            segment,
            offset,
            address,
            image_bytes,
            total_bytes,
            align,
            is_static,
            start,
            end,
            eh_frame_hdr,
        ] = words;
        let needs_static = is_static != 0;
        Self {
            flags,
            memory_bytes,
            memory_align,
            got: (segment, offset),
            thread_locals: ThreadLocals { address, image_bytes, total_bytes, align, needs_static },
            code: (start, end),
            eh_frame_hdr,
        }
    }
}

/// The slot of a name's hash in an index of `slots`, a power of two.
pub(super) fn hash_of_name(name: &str) -> u32 {
    XxHash3_128::oneshot(name.as_bytes()) as u32
}

/// The checksum of a header and its tables.
pub(super) fn checksum(header: &[u8; HEADER_BYTES], tables: &[u8]) -> [u8; 16] {
    let mut header = *header;
    header[CHECKSUM].fill(0);
    let mut hash = XxHash3_128::new();
    hash.write(&header);
    hash.write(tables);
    hash.finish_128().to_le_bytes()
}

/// The id of an image with this layout, and these bytes from the second page on.
pub(super) fn id_of(layout: &ImageLayout, bytes: &[u8]) -> [u8; 16] {
    let mut id = XxHash3_128::new();
    id.write(&layout.words().map(u64::to_le_bytes).concat());
    id.write(bytes);
    id.finish_128().to_le_bytes()
}
