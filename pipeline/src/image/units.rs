//! The units of a package, as the tables have them.

use std::ops::Range;

use super::format::{ImageFlags, Region};
use super::reader::ImageReader;
use super::tables::TableRow;

/// A key of 32 bytes in a file.
pub type UnitKey = [u8; 32];

/// A unit that a package has an image of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PackedUnit<'i> {
    /// Its name: that of its first file.
    pub name: &'i str,
    /// Whether something of it runs before or after the program.
    pub runs: bool,
    /// Where its image begins in the file.
    pub offset: u64,
    /// The length of its image.
    pub length: u64,
}

/// A source, or an assumption, of a unit of a package.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyOfUnit<'i> {
    /// The number of the unit.
    pub unit: u32,
    /// The name of the source, or of the definition.
    pub name: &'i str,
    /// The key of the source, or of the definition's.
    pub key: UnitKey,
}

impl ImageReader {
    /// Whether it has units, each of which is an image of its own.
    pub fn is_package(&self) -> bool {
        self.flags().contains(ImageFlags::PACKAGE)
    }

    /// The units of a package, by their numbers. Those that are damaged lie outside of the file.
    pub fn packed(&self) -> impl ExactSizeIterator<Item = PackedUnit<'_>> {
        self.rows(Region::Packed).zip(self.rows(Region::Units)).map(|(row, name)| self.packed_of(row, name))
    }

    /// One of them.
    pub fn packed_unit(&self, number: u32) -> Option<PackedUnit<'_>> {
        let row = |region| self.row(region, number as usize);
        Some(self.packed_of(row(Region::Packed)?, row(Region::Units)?))
    }

    fn packed_of(&self, row: TableRow<'_>, name: TableRow<'_>) -> PackedUnit<'_> {
        PackedUnit {
            name: self.text(name.half(0)).unwrap_or_default(),
            runs: ImageFlags::from_bits_truncate(row.word(0)).contains(ImageFlags::RUNS),
            offset: row.word(8),
            length: row.word(16),
        }
    }

    /// The sources of the units of a package.
    pub fn sources(&self) -> impl ExactSizeIterator<Item = KeyOfUnit<'_>> {
        self.keys(Region::Sources)
    }

    /// The definitions whose code units of a package contain, besides their own.
    pub fn assumptions(&self) -> impl ExactSizeIterator<Item = KeyOfUnit<'_>> {
        self.keys(Region::Assumptions)
    }

    /// Where those of one unit are among them: they are sorted by their units.
    pub(super) fn assumptions_of(&self, unit: u32) -> Range<usize> {
        let unit_of = |index| self.row(Region::Assumptions, index).map_or(u32::MAX, |row| row.half(0));
        let count = self.count(Region::Assumptions);
        // The first row for which `is_behind` says so.
        let first = |is_behind: &dyn Fn(u32) -> bool| {
            let (mut low, mut high) = (0, count);
            while low < high {
                let middle = low.midpoint(high);
                if is_behind(unit_of(middle)) { high = middle } else { low = middle + 1 }
            }
            low
        };
        let start = first(&|of| of >= unit);
        start..first(&|of| of > unit).max(start)
    }

    /// One of them.
    pub(super) fn assumption(&self, index: usize) -> Option<KeyOfUnit<'_>> {
        Some(self.key_of(self.row(Region::Assumptions, index)?))
    }

    fn keys(&self, region: Region) -> impl ExactSizeIterator<Item = KeyOfUnit<'_>> {
        self.rows(region).map(|row| self.key_of(row))
    }

    fn key_of(&self, row: TableRow<'_>) -> KeyOfUnit<'_> {
        let name = self.text(row.half(4)).unwrap_or_default();
        KeyOfUnit { unit: row.half(0), name, key: row.key(8) }
    }
}
