//! [`ImageSections`]: bytes of the host in an image, mapped read-only.
//!
//! The checksum covers where they lie, and not their contents: a section may be large, and nothing of it is read before the host does. The id covers the
//! contents too, and `ImageFile::check_contents` compares them with it.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use super::error::ImageError;
use super::format::{PAGE_BYTES, Region};
use super::host::{SECTION_ALIGN, SECTION_BYTES_MAX};
use super::open::ImageFile;
use super::reader::ImageReader;
use super::tables::TableRow;
use crate::object::ObjectBuffer;
use crate::object::mapping::Mapping;

/// The sections of a host in an image.
#[derive(Clone, Debug, Default)]
pub struct ImageSections {
    /// The part of the file that they lie in, and where that begins.
    mapped: Option<(ObjectBuffer, u64)>,
}

/// The bytes of a section. They are there as long as this is, also when the image was unloaded. They begin at a multiple of 64.
#[derive(Clone)]
pub struct ImageSection(ObjectBuffer);

impl ImageReader {
    /// The names and lengths of the host's sections.
    pub fn sections(&self) -> impl ExactSizeIterator<Item = (&str, u64)> {
        self.rows(Region::Sections).map(|row| (self.text(row.half(0)).unwrap_or_default(), row.word(16)))
    }

    /// Where a section lies in the file, and where it ends, if that is sound.
    fn place_of_section(&self, row: TableRow<'_>) -> Option<(u64, u64)> {
        let (start, length) = (row.word(8), row.word(16));
        let end = start.checked_add(length)?;
        let is_sound = start >= PAGE_BYTES
            && start.is_multiple_of(SECTION_ALIGN)
            && length < SECTION_BYTES_MAX
            && end <= self.file_bytes();
        is_sound.then_some((start, end))
    }
}

impl ImageFile {
    /// Maps the sections of the host.
    ///
    /// # Errors
    /// [`ImageError`]: one lies outside of the file, or the system refuses.
    ///
    /// # Cost
    /// One system call, if there are sections. None of them is read.
    pub fn map_sections(&self) -> Result<ImageSections, ImageError> {
        let reader = self.reader();
        let (mut first, mut last) = (u64::MAX, 0);
        for row in reader.rows(Region::Sections) {
            let place = reader.place_of_section(row);
            let (start, end) =
                place.ok_or_else(|| reader.damaged("a section of the host lies outside of the file"))?;
            (first, last) = (first.min(start), last.max(end));
        }
        let first = first - first % PAGE_BYTES;
        if last <= first {
            return Ok(ImageSections::default());
        }
        let path = || reader.path().to_owned();
        let refused = |source| ImageError::Read { path: path(), source: Arc::new(source) };
        let length = usize::try_from(last - first)
            .map_err(|_| reader.damaged("the sections of the host are too large"))?;
        let mapped = Mapping::of_file(self.file(), self.begin() + first, length).map_err(refused)?;
        let whole = ObjectBuffer::new(reader.path().display().to_string(), mapped);
        Ok(ImageSections { mapped: Some((whole, first)) })
    }
}

impl ImageSections {
    /// The section of that name in the image of `reader`, which these are of.
    ///
    /// # Cost
    /// Compares the names of the sections, of which there are few.
    pub fn get(&self, reader: &ImageReader, name: &str) -> Option<ImageSection> {
        let row = reader.rows(Region::Sections).find(|row| reader.text(row.half(0)) == Some(name))?;
        let (start, end) = reader.place_of_section(row)?;
        let Some((mapped, first)) = &self.mapped else {
            return (start == end).then(|| ImageSection(ObjectBuffer::new(name, [])));
        };
        let range = usize::try_from(start.checked_sub(*first)?).ok()?..usize::try_from(end - first).ok()?;
        mapped.slice(name, range).map(ImageSection)
    }
}

impl AsRef<[u8]> for ImageSection {
    fn as_ref(&self) -> &[u8] {
        self.0.bytes()
    }
}

impl Deref for ImageSection {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.0.bytes()
    }
}

impl fmt::Debug for ImageSection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ImageSection")
            .field("name", self.0.name())
            .field("size_bytes", &self.0.size_bytes())
            .finish_non_exhaustive()
    }
}
