//! [`ImageFile`]: an image of this user's, opened and ready to be mapped.

use std::fs::File;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::Path;
use std::sync::Arc;

use super::error::ImageError;
use super::format::{HEADER_AT, MAGIC};
use super::reader::ImageReader;
use crate::arch::ProcessorLevel;
use crate::memory::MappedFile;

/// An open image.
#[derive(Debug)]
pub struct ImageFile {
    file: File,
    reader: ImageReader,
}

impl ImageFile {
    /// Opens a file, and reads its tables. Its code is neither read nor run.
    ///
    /// # Errors
    /// [`ImageError`]: for a file that is no image, that is damaged or cut off, or that was made for another version of the engine.
    pub fn open(path: &Path) -> Result<Self, ImageError> {
        let refused = |source| ImageError::Read { path: path.to_owned(), source: Arc::new(source) };
        let file = File::open(path).map_err(refused)?;
        let metadata = file.metadata().map_err(refused)?;
        if !metadata.is_file() {
            return Err(ImageError::NotImage { path: path.to_owned(), what: "no regular file".into() });
        }
        let reader =
            ImageReader::read(path, metadata.len(), |offset, into| file.read_exact_at(into, offset))?;
        Ok(Self { file, reader })
    }

    /// Whether a file begins as an image does. Not if it cannot be read.
    pub fn is_image(path: &Path) -> bool {
        let mut magic = MAGIC;
        magic.fill(0);
        // A pipe has no places to read from.
        let read = File::open(path).and_then(|file| file.read_exact_at(&mut magic, HEADER_AT as u64));
        read.is_ok() && magic == MAGIC
    }

    /// The tables.
    pub fn reader(&self) -> &ImageReader {
        &self.reader
    }

    /// Checks that code of the file may run here: only this user or root can have written it, and the processor has what it needs.
    ///
    /// # Errors
    /// [`ImageError`].
    pub fn check_trusted(&self) -> Result<(), ImageError> {
        let path = || self.reader.path().to_owned();
        let metadata = self.file.metadata();
        let metadata =
            metadata.map_err(|source| ImageError::Read { path: path(), source: Arc::new(source) })?;
        let (mode, owner) = (metadata.mode() & 0o7777, metadata.uid());
        if mode & 0o022 != 0 {
            return Err(ImageError::WritableByOthers { path: path(), mode });
        }
        if owner != 0 && owner != rustix::process::geteuid().as_raw() {
            return Err(ImageError::Foreign { path: path(), owner });
        }
        let Some(level) = self.reader.processor() else {
            return Err(self.reader.damaged("the processor that it is for is not known"));
        };
        let missing = level.missing();
        if !missing.is_empty() {
            let have = ProcessorLevel::of_this_processor().name();
            return Err(ImageError::Processor { path: path(), level: level.name(), missing, have });
        }
        Ok(())
    }

    /// Maps the segments, and lets the file go.
    ///
    /// # Errors
    /// [`ImageError::Memory`].
    pub(crate) fn map(self) -> Result<(ImageReader, MappedFile), ImageError> {
        let Self { file, reader } = self;
        let (size, align) = reader.memory();
        let mapped = MappedFile::map(&file, size as usize, align as usize, reader.segments().into());
        match mapped {
            Ok(mapped) => Ok((reader, mapped)),
            Err(source) => Err(ImageError::Memory { path: reader.path().to_owned(), source }),
        }
    }
}
