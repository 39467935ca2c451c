//! [`ImageReader`]: the header and the tables of a file.
//!
//! Opening checks the header, the checksum, where the tables lie, the segments, which are few, and which assumptions are each unit's. All
//! other numbers are checked where they are used: most images have more symbols than a run asks for.

use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::error::ImageError;
use super::format::{
    CHECKSUM, FORMAT, HEADER_AT, HEADER_BYTES, INTERFACE, ImageFlags, ImageLayout, ImageSymbol, LEVEL_SHIFT,
    MAGIC, PAGE_BYTES, REGIONS, Region, SymbolTraits, ThreadLocals, checksum, hash_of_name,
};
use super::tables::TableRow;
use crate::executor::{Initializers, TlsShape};
use crate::memory::{FileSegment, SegmentKind};

/// No image has more tables than this. A header that says so is damaged, and no memory is taken for it.
const TABLES_BYTES_MAX: u64 = 1 << 31;
/// No image takes more addresses than this.
const MEMORY_BYTES_MAX: u64 = 1 << 46;
/// No segment is aligned to more.
const ALIGN_MAX: u64 = 1 << 30;

/// The tables of an image, in memory of their own: the file may go meanwhile.
#[derive(Debug)]
pub struct ImageReader {
    pub(super) path: PathBuf,
    length: u64,
    id: [u8; 16],
    pub(super) layout: ImageLayout,
    regions: [(u32, u32); REGIONS],
    tables: Vec<u8>,
    segments: Box<[FileSegment]>,
}

impl ImageReader {
    /// Reads the tables of a file of `length` bytes, whose bytes from an offset on `read_at` gives.
    ///
    /// # Errors
    /// [`ImageError`].
    ///
    /// # Cost
    /// Reads and checks as many bytes as there are tables: 30 or 40 for each symbol.
    pub fn read(
        path: &Path,
        length: u64,
        read_at: impl Fn(u64, &mut [u8]) -> io::Result<()>,
    ) -> Result<Self, ImageError> {
        let refused = |source| ImageError::Read { path: path.to_owned(), source: Arc::new(source) };
        let damaged = |what: &str| ImageError::Damaged { path: path.to_owned(), what: what.into() };
        let mut header = [0; HEADER_BYTES];
        if length < (HEADER_AT + HEADER_BYTES) as u64 {
            return Err(not_image(path, "a short file"));
        }
        read_at(HEADER_AT as u64, &mut header).map_err(refused)?;
        let row = TableRow(&header);
        if header[..MAGIC.len()] != MAGIC {
            return Err(not_image(path, "another kind of file"));
        }
        for (what, at, have) in [("format", 8, FORMAT), ("run-time interface", 12, INTERFACE)] {
            let made_for = row.half(at);
            if made_for != have {
                return Err(ImageError::Version { path: path.to_owned(), what, made_for, have });
            }
        }
        let (written_bytes, start, size) = (row.word(16), row.word(24), row.word(32));
        if written_bytes != length {
            let path = path.to_owned();
            return Err(ImageError::Length { path, found_bytes: length, written_bytes });
        }
        if size > TABLES_BYTES_MAX || start.checked_add(size).is_none_or(|end| end > length) {
            return Err(damaged("the tables lie outside of the file"));
        }
        let mut tables = vec![0; size as usize];
        read_at(start, &mut tables).map_err(refused)?;
        if checksum(&header, &tables) != header[CHECKSUM] {
            return Err(damaged("checksum"));
        }
        let words = std::array::from_fn(|index| row.word(88 + 8 * index));
        let regions = std::array::from_fn(|index| (row.half(192 + 8 * index), row.half(196 + 8 * index)));
        let mut reader = Self {
            path: path.to_owned(),
            length,
            id: header[56..72].try_into().unwrap_or_default(),
            layout: ImageLayout::of_words(words),
            regions,
            tables,
            segments: Box::default(),
        };
        reader.check_regions()?;
        reader.segments = reader.read_segments(start)?;
        reader.check_layout()?;
        reader.check_assumptions()?;
        Ok(reader)
    }

    /// Reads the tables of a file that is in memory.
    ///
    /// # Errors
    /// [`ImageError`].
    pub fn of_bytes(path: &Path, bytes: &[u8]) -> Result<Self, ImageError> {
        Self::read(path, bytes.len() as u64, |offset, into| {
            let start = usize::try_from(offset).unwrap_or(usize::MAX);
            let found = start.checked_add(into.len()).and_then(|end| bytes.get(start..end));
            into.copy_from_slice(found.ok_or(io::ErrorKind::UnexpectedEof)?);
            Ok(())
        })
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The length of the file.
    pub fn file_bytes(&self) -> u64 {
        self.length
    }

    /// A hash of all that the image consists of. Two builds of the same parts have the same.
    pub fn id(&self) -> &[u8; 16] {
        &self.id
    }

    /// The level that its code was compiled at, in the numbers of who built it. `None` if that is not noted.
    pub fn level(&self) -> Option<u8> {
        let level = (self.layout.flags >> LEVEL_SHIFT) & 0xff;
        (level as u8).checked_sub(1)
    }

    /// Traits of the whole.
    pub fn flags(&self) -> ImageFlags {
        ImageFlags::from_bits_truncate(self.layout.flags)
    }

    /// The segments, by their addresses.
    pub fn segments(&self) -> &[FileSegment] {
        &self.segments
    }

    /// How much memory they take together, and its alignment.
    pub fn memory(&self) -> (u64, u64) {
        (self.layout.memory_bytes, self.layout.memory_align)
    }

    /// How many words hold addresses that change: of the image's own, of imports, and fields of other kinds.
    pub fn relocations(&self) -> [usize; 3] {
        [Region::Relative, Region::ImportWords, Region::Fields].map(|region| self.count(region))
    }

    /// The names of the files that the image was made of.
    pub fn units(&self) -> impl ExactSizeIterator<Item = &str> {
        self.rows(Region::Units).map(|row| self.text(row.half(0)).unwrap_or_default())
    }

    /// The names that it does not define, with their traits.
    pub fn imports(&self) -> impl ExactSizeIterator<Item = (&str, SymbolTraits)> {
        self.rows(Region::Imports).map(|row| {
            let traits = SymbolTraits::from_bits_truncate(row.half(4));
            (self.text(row.half(0)).unwrap_or_default(), traits)
        })
    }

    /// All symbols, in no order. Those whose row is damaged have no name.
    pub fn symbols(&self) -> impl ExactSizeIterator<Item = ImageSymbol<'_>> {
        self.rows(Region::Symbols).map(|row| self.symbol(row))
    }

    /// One of all symbols, by its number.
    pub(crate) fn symbol_of(&self, number: usize) -> Option<ImageSymbol<'_>> {
        Some(self.symbol(self.row(Region::Symbols, number)?))
    }

    /// The definition of a name for others.
    ///
    /// # Cost
    /// One probe of the index, and a comparison, if the name is there.
    pub fn lookup(&self, name: &str) -> Option<ImageSymbol<'_>> {
        let slots = self.count(Region::NameIndex);
        if !slots.is_power_of_two() {
            return None;
        }
        let mut slot = hash_of_name(name) as usize & (slots - 1);
        for _ in 0..slots {
            let symbol = self.row(Region::NameIndex, slot)?.half(0).checked_sub(1)?;
            let found = self.symbol(self.row(Region::Symbols, symbol as usize)?);
            if found.name == name && found.traits.contains(SymbolTraits::GLOBAL) {
                let is_there =
                    found.traits.contains(SymbolTraits::ABSOLUTE) || found.address < self.layout.memory_bytes;
                return is_there.then_some(found);
            }
            slot = (slot + 1) & (slots - 1);
        }
        None
    }

    /// The code, and the sorted table of its frames.
    pub(crate) fn unwind(&self) -> Option<(Range<u64>, u64)> {
        let (start, end) = self.layout.code;
        let hdr = self.layout.eh_frame_hdr;
        (hdr != 0 && start < end).then_some((start..end, hdr))
    }

    /// The code.
    pub(crate) fn code(&self) -> Range<u64> {
        self.layout.code.0..self.layout.code.1
    }

    /// The thread-local variables: their shape, and where their initial values are.
    pub(crate) fn thread_locals(&self) -> Option<(TlsShape, u64)> {
        let ThreadLocals { address, image_bytes, total_bytes, align, needs_static } =
            self.layout.thread_locals;
        (total_bytes > 0).then_some((TlsShape { image_bytes, total_bytes, align, needs_static }, address))
    }

    /// The descriptors of thread-local variables that others may reach, each with the variable's offset.
    pub(crate) fn descriptors(&self) -> impl Iterator<Item = (u64, u64)> {
        self.rows(Region::Descriptors).map(|row| (row.half(0).into(), row.half(4).into()))
    }

    /// The descriptors of functions that choose their implementation.
    pub(crate) fn indirect_functions(&self) -> impl Iterator<Item = u64> {
        self.rows(Region::Indirect).map(|row| row.half(0).into())
    }

    /// The functions to run before and after the program, for memory at `base` and imports at the addresses that `import` says.
    ///
    /// # Errors
    /// A function that is none: it is going to be called.
    pub(crate) fn functions(
        &self,
        base: u64,
        import: impl Fn(u32) -> Option<u64>,
    ) -> Result<Initializers, &'static str> {
        const NOT_CODE: &str = "a function to run is no code";
        let mut functions = Initializers::default();
        for row in self.rows(Region::Functions) {
            let address = match row.half(8).checked_sub(1) {
                Some(number) => import(number).ok_or(NOT_CODE)?,
                None if self.code().contains(&row.word(16)) => base + row.word(16),
                None => return Err(NOT_CODE),
            };
            let (priority, address) = (row.half(4).cast_signed(), uruk_core::ExecutorAddr::new(address));
            match row.half(0) {
                0 => functions.preinitializers.push(address),
                1 => functions.initializers.push((priority, address)),
                2 => functions.finalizers.push((priority, address)),
                _ => return Err("a function runs at no time that is known"),
            }
        }
        Ok(functions)
    }

    /// The error for a contradiction.
    pub(super) fn damaged(&self, what: &str) -> ImageError {
        ImageError::Damaged { path: self.path.clone(), what: what.into() }
    }

    pub(super) fn rows(&self, region: Region) -> impl ExactSizeIterator<Item = TableRow<'_>> {
        self.bytes(region).chunks_exact(region.row_bytes()).map(TableRow)
    }

    pub(super) fn row(&self, region: Region, index: usize) -> Option<TableRow<'_>> {
        let start = index.checked_mul(region.row_bytes())?;
        self.bytes(region).get(start..start + region.row_bytes()).map(TableRow)
    }

    pub(super) fn count(&self, region: Region) -> usize {
        self.regions[region as usize].1 as usize
    }

    /// Bytes of the host in the text, whose place and length are in a row.
    pub(super) fn host_bytes(&self, row: TableRow<'_>, at: usize) -> Option<&[u8]> {
        let (start, length) = (row.half(at) as usize, row.half(at + 4) as usize);
        self.bytes(Region::Text).get(start..start.checked_add(length)?)
    }

    /// The rows of a table, which `check_regions` has found to be there.
    fn bytes(&self, region: Region) -> &[u8] {
        let (start, count) = self.regions[region as usize];
        let start = start as usize;
        self.tables.get(start..start + count as usize * region.row_bytes()).unwrap_or_default()
    }

    /// The name at an offset of the text.
    pub(super) fn text(&self, at: u32) -> Option<&str> {
        let rest = self.bytes(Region::Text).get(at as usize..)?;
        let name = &rest[..memchr::memchr(0, rest)?];
        std::str::from_utf8(name).ok()
    }

    fn symbol(&self, row: TableRow<'_>) -> ImageSymbol<'_> {
        ImageSymbol {
            name: self.text(row.half(0)).unwrap_or_default(),
            unit: row.half(4),
            traits: SymbolTraits::from_bits_truncate(row.half(8)),
            size_bytes: row.half(12),
            address: row.word(16),
        }
    }

    fn check_regions(&self) -> Result<(), ImageError> {
        const ALL: [Region; REGIONS] = [
            Region::Segments,
            Region::Relative,
            Region::ImportWords,
            Region::Fields,
            Region::Imports,
            Region::Symbols,
            Region::NameIndex,
            Region::Functions,
            Region::Indirect,
            Region::Descriptors,
            Region::Units,
            Region::Targets,
            Region::Versions,
            Region::Packed,
            Region::Sources,
            Region::Assumptions,
            Region::Text,
            Region::Sections,
            Region::Below,
            Region::Instances,
            Region::InstanceIndex,
            Region::Assumed,
        ];
        for region in ALL {
            let (start, count) = self.regions[region as usize];
            let end = (count as usize).checked_mul(region.row_bytes());
            let end = end.and_then(|size| size.checked_add(start as usize));
            if end.is_none_or(|end| end > self.tables.len()) {
                return Err(self.damaged(&format!("the table of {} is cut off", region.name())));
            }
        }
        Ok(())
    }

    /// The segments, none of which lies over another one, in memory or in the tables, which begin at `tables`.
    fn read_segments(&self, tables: u64) -> Result<Box<[FileSegment]>, ImageError> {
        let mut end = 0;
        let rows = self.rows(Region::Segments).map(|row| {
            let kind = match row.half(0) {
                0 => SegmentKind::Code,
                1 => SegmentKind::ReadOnly,
                2 => SegmentKind::Data,
                3 => SegmentKind::FarData,
                _ => return Err(self.damaged("a segment is of no kind that is known")),
            };
            let segment = FileSegment {
                kind,
                is_written: row.half(4) != 0,
                address: row.word(8),
                file_offset: row.word(16),
                content_bytes: row.word(24),
                zero_fill_bytes: row.word(32),
            };
            end = self.end_of(&segment, end, tables).ok_or_else(|| {
                self.damaged("a segment lies outside of the file or of its memory, or over another one")
            })?;
            Ok(segment)
        });
        rows.collect()
    }

    /// Where a segment ends that begins behind `begin`, if it is sound.
    fn end_of(&self, segment: &FileSegment, begin: u64, tables: u64) -> Option<u64> {
        let FileSegment { kind, address, file_offset, content_bytes, zero_fill_bytes, .. } = *segment;
        let is_aligned = address % PAGE_BYTES == 0 && file_offset % PAGE_BYTES == 0;
        let in_file = file_offset.checked_add(content_bytes)?.checked_next_multiple_of(PAGE_BYTES)? <= tables;
        let is_data = matches!(kind, SegmentKind::Data | SegmentKind::FarData);
        let end = address.checked_add(content_bytes)?.checked_add(zero_fill_bytes)?;
        let end = end.checked_next_multiple_of(PAGE_BYTES)?;
        let is_sound = is_aligned
            && (in_file || content_bytes == 0)
            && (is_data || zero_fill_bytes == 0)
            && address >= begin
            && end <= self.layout.memory_bytes;
        is_sound.then_some(end)
    }

    fn check_layout(&self) -> Result<(), ImageError> {
        let ImageLayout { memory_bytes, memory_align, got, code, eh_frame_hdr, .. } = self.layout;
        let ThreadLocals { address, image_bytes, total_bytes, align, .. } = self.layout.thread_locals;
        let contains = |start: u64, len: u64, kind: SegmentKind| {
            len == 0
                || self.segments.iter().any(|segment| {
                    let contents = segment.address..segment.address + segment.content_bytes;
                    segment.kind == kind
                        && contents.contains(&start)
                        && start.checked_add(len).is_some_and(|end| end <= contents.end)
                })
        };
        let is_align = |align: u64, most: u64| align.is_power_of_two() && align <= most;
        let checks = [
            (memory_bytes <= MEMORY_BYTES_MAX && memory_bytes % PAGE_BYTES == 0, "the memory is too large"),
            (is_align(memory_align, ALIGN_MAX), "the alignment of the memory"),
            (
                code.0 <= code.1
                    && code.1 <= memory_bytes
                    && contains(code.0, code.1 - code.0.min(code.1), SegmentKind::Code),
                "the code",
            ),
            (
                eh_frame_hdr == 0 || contains(eh_frame_hdr, 12, SegmentKind::ReadOnly),
                "the table of frames lies outside of the constants",
            ),
            (self.segments.is_empty() || (got.0 as usize) < self.segments.len(), "the global offset table"),
            (
                total_bytes == 0
                    || address <= memory_bytes
                        && contains(address, image_bytes, SegmentKind::ReadOnly)
                        && image_bytes <= total_bytes
                        && is_align(align, 1 << 21)
                        && total_bytes <= 1 << 31,
                "the thread-local variables",
            ),
        ];
        match checks.iter().find(|(is_sound, _)| !is_sound) {
            Some((_, what)) => Err(self.damaged(what)),
            None => Ok(()),
        }
    }
}

fn not_image(path: &Path, what: &str) -> ImageError {
    ImageError::NotImage { path: path.to_owned(), what: what.into() }
}
