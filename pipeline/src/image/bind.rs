//! Bind: words that hold addresses get their values, at the place where the image lies.

use super::error::BindError;
use super::format::Region;
use super::reader::ImageReader;
use super::tables::TableRow;
use super::targets::ImageVersion;
use crate::arch::Architecture;
use crate::link::{Rebase, RebaseTarget, RebaseTo, Rebases, RuntimeEntry, TlsFact};
use crate::memory::{FileSegment, InFlightAlloc};

/// Gives every word of the segments in `memory` its value. `to` says where they lie, and what they meet.
///
/// # Errors
/// [`BindError`] if the tables are damaged, or if a value does not fit its field.
///
/// # Cost
/// A few instructions for each word; the pages of the words are written, and no others are touched.
pub(crate) fn bind(
    reader: &ImageReader,
    memory: &mut InFlightAlloc,
    to: &RebaseTo<'_>,
    base: u64,
) -> Result<(), BindError> {
    let words = |region| Words { reader, region };
    words(Region::Relative).change(memory, |_, word| Some(word.wrapping_add(base)))?;
    let imports = reader.count(Region::Imports) as u32;
    words(Region::ImportWords).change(memory, |row, word| {
        let import = row.half(4);
        (import < imports).then(|| word.wrapping_add((to.import)(import)))
    })?;
    if reader.count(Region::Fields) == 0 {
        return Ok(());
    }
    let (segment, offset) = reader.layout.got;
    let names = reader.imports().map(|(name, _)| name.into()).collect();
    let rebases = Rebases::new(names, Vec::new(), (segment as u8, offset));
    for row in reader.rows(Region::Fields) {
        let field = field(reader, row).ok_or_else(|| damaged(reader, Region::Fields))?;
        let size = Architecture::HOST.field_bytes(field.kind);
        let bytes = memory.working(field.segment.into());
        let bytes = bytes.get_mut(field.offset as usize..field.offset as usize + size);
        rebases.apply_one(&field, bytes.ok_or_else(|| damaged(reader, Region::Fields))?, to)?;
    }
    Ok(())
}

/// Has calls of functions with versions for `target` go by these. The words are bound afterwards, as words with addresses of the image.
///
/// # Errors
/// [`BindError`] if the table is damaged.
///
/// # Cost
/// A search for each version.
pub(crate) fn choose(reader: &ImageReader, memory: &mut InFlightAlloc, target: u32) -> Result<(), BindError> {
    let relative = reader.count(Region::Relative);
    let is_relative = |slot: u64| {
        let word = |row| reader.row(Region::Relative, row).map_or(u64::MAX, |row| row.half(0).into());
        let (mut from, mut until) = (0, relative);
        while from < until {
            let middle = from + (until - from) / 2;
            if word(middle) < slot { from = middle + 1 } else { until = middle }
        }
        word(from) == slot
    };
    for ImageVersion { slot, code, .. } in reader.versions().filter(|version| version.target == target) {
        let inside = |segment: &&FileSegment| {
            segment.address <= slot && slot - segment.address < segment.content_bytes && segment.is_written
        };
        let found = reader.segments().iter().enumerate().find(|(_, segment)| inside(segment));
        let place = found.filter(|_| is_relative(slot) && reader.code().contains(&code));
        let (segment, at) = place
            .map(|(index, segment)| (index, (slot - segment.address) as usize))
            .ok_or_else(|| damaged(reader, Region::Versions))?;
        let word = memory.working(segment).get_mut(at..at + 8);
        word.ok_or_else(|| damaged(reader, Region::Versions))?.copy_from_slice(&code.to_le_bytes());
    }
    Ok(())
}

/// Words in the order of their addresses.
struct Words<'r> {
    reader: &'r ImageReader,
    region: Region,
}

impl Words<'_> {
    /// Stores what `value` makes of each word and its row. `None` for a row that is damaged.
    fn change(
        &self,
        memory: &mut InFlightAlloc,
        value: impl Fn(TableRow<'_>, u64) -> Option<u64>,
    ) -> Result<(), BindError> {
        let mut rows = self.reader.rows(self.region).peekable();
        for (index, segment) in self.reader.segments().iter().enumerate() {
            let is_in = |row: &TableRow<'_>| {
                let address = u64::from(row.half(0));
                segment.address <= address && address - segment.address < segment.content_bytes
            };
            if !rows.peek().is_some_and(is_in) {
                continue;
            }
            let contents = memory.working(index);
            while let Some(row) = rows.next_if(is_in) {
                let at = (u64::from(row.half(0)) - segment.address) as usize;
                let word = contents.get_mut(at..at + 8).and_then(|word| word.try_into().ok());
                let changed = word.and_then(|word: &mut [u8; 8]| {
                    *word = value(row, u64::from_le_bytes(*word))?.to_le_bytes();
                    Some(())
                });
                changed.ok_or_else(|| damaged(self.reader, self.region))?;
            }
        }
        // One that is out of order, or in no segment, is left.
        if rows.next().is_some() { Err(damaged(self.reader, self.region)) } else { Ok(()) }
    }
}

fn field(reader: &ImageReader, row: TableRow<'_>) -> Option<Rebase> {
    let (segment, detail, value) = (row.byte(0), row.byte(3), row.word(8));
    let import =
        || u32::try_from(value).ok().filter(|import| (*import as usize) < reader.count(Region::Imports));
    let fact = || match detail {
        0 => Some(TlsFact::Module),
        1 => Some(TlsFact::Offset),
        2 => Some(TlsFact::Distance),
        _ => None,
    };
    let target = match row.byte(2) {
        0 => RebaseTarget::Fixed(value),
        1 => RebaseTarget::Import(import()?),
        2 if usize::from(detail) < reader.segments().len() => RebaseTarget::Relative(detail, value),
        3 => RebaseTarget::Entry(match detail {
            0 => RuntimeEntry::IfuncThunk,
            1 => RuntimeEntry::TlsDynamic,
            2 => RuntimeEntry::TlsAbsent,
            _ => return None,
        }),
        4 => RebaseTarget::OwnTls(fact()?, value),
        5 => RebaseTarget::ImportTls(fact()?, import()?),
        _ => return None,
    };
    let kind = Architecture::HOST.kind_of_number(row.byte(1))?;
    let is_there = usize::from(segment) < reader.segments().len();
    let addend = row.word(16).cast_signed();
    is_there.then_some(Rebase { segment, offset: row.half(4).into(), kind, target, addend })
}

/// The imports whose distance from the thread pointer is needed, and whether that of the image's own variables is.
pub(crate) fn needed_distances(reader: &ImageReader) -> (Vec<u32>, bool) {
    let (mut imports, mut own) = (Vec::new(), false);
    for field in reader.rows(Region::Fields).filter_map(|row| field(reader, row)) {
        match field.target {
            RebaseTarget::OwnTls(TlsFact::Distance, _) => own = true,
            RebaseTarget::ImportTls(TlsFact::Distance, import) => imports.push(import),
            _ => {}
        }
    }
    (imports, own)
}

fn damaged(reader: &ImageReader, region: Region) -> BindError {
    BindError::Damaged { image: reader.path().display().to_string().into(), what: region.name().into() }
}
