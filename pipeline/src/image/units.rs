//! The units of a package, as the tables have them.

use std::ops::Range;

use super::error::ImageError;
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

/// A source of a unit of a package.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyOfUnit<'i> {
    /// The number of the unit.
    pub unit: u32,
    /// The name of the source.
    pub name: &'i str,
    /// The key of the source.
    pub key: UnitKey,
}

/// A definition whose code a unit of a package contains, and that is not its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContainedCode<'i> {
    /// The number of the unit that has the definition; `None` if no unit of the package has it.
    pub home: Option<u32>,
    /// The name of the definition.
    pub name: &'i str,
    /// The key of its source.
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
        let rows = self.rows(Region::Sources);
        rows.map(|row| KeyOfUnit { unit: row.half(0), name: self.name_in(row), key: row.key(8) })
    }

    /// The definitions whose code units of a package contain, besides their own.
    pub fn assumptions(&self) -> impl ExactSizeIterator<Item = ContainedCode<'_>> {
        self.rows(Region::Assumptions).map(|row| self.contained(row))
    }

    /// Where those of one unit are among them.
    pub(super) fn assumptions_of(&self, unit: u32) -> Range<usize> {
        let Some(row) = self.row(Region::Packed, unit as usize) else { return 0..0 };
        let (first, count) = (row.half(24) as usize, row.half(28) as usize);
        first..first + count
    }

    /// Those of the units have to lie one behind the other, and to be all that there are: a unit without its assumptions would be valid.
    pub(super) fn check_assumptions(&self) -> Result<(), ImageError> {
        let end = self
            .rows(Region::Packed)
            .try_fold(0, |end, row| (row.half(24) as usize == end).then(|| end + row.half(28) as usize));
        if end == Some(self.count(Region::Assumptions)) {
            return Ok(());
        }
        Err(self.damaged("the assumptions of a unit are not those behind the assumptions of the unit before"))
    }

    /// The numbers of the sources of one unit: they are sorted by their units.
    pub fn sources_of(&self, unit: u32) -> Range<usize> {
        let unit_of = |index| self.row(Region::Sources, index).map_or(u32::MAX, |row| row.half(0));
        let count = self.count(Region::Sources);
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
    pub(super) fn assumption(&self, index: usize) -> Option<ContainedCode<'_>> {
        Some(self.contained(self.row(Region::Assumptions, index)?))
    }

    /// The unit that has its definition, if one does.
    pub(super) fn home_of(&self, index: usize) -> Option<u32> {
        home(self.row(Region::Assumptions, index)?)
    }

    fn contained(&self, row: TableRow<'_>) -> ContainedCode<'_> {
        ContainedCode { home: home(row), name: self.name_in(row), key: row.key(8) }
    }

    fn name_in(&self, row: TableRow<'_>) -> &str {
        self.text(row.half(4)).unwrap_or_default()
    }
}

fn home(assumption: TableRow<'_>) -> Option<u32> {
    assumption.half(0).checked_sub(1)
}
