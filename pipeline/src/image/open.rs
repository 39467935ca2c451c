//! [`ImageFile`]: an image of this user's, opened and ready to be mapped.

use std::fs::File;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::error::ImageError;
use super::format::SymbolTraits;
use super::format::{HEADER_AT, MAGIC, PAGE_BYTES, id_of};
use super::reader::ImageReader;
use crate::arch::{CodeNeeds, Features};
use crate::link::target_in_name;
use crate::memory::{FileSegment, MappedFile, MemoryManager, SegmentKind};

/// An open image.
#[derive(Debug)]
pub struct ImageFile {
    file: File,
    reader: ImageReader,
    /// Where it begins in the file: further on if it is a unit of a package.
    begin: u64,
}

/// A function whose code uses more than the processors have that it is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OverusedFunction {
    /// Its name.
    pub name: Box<str>,
    /// The instruction sets beyond.
    pub beyond: Features,
    /// The processors that the code is for.
    pub target: Box<str>,
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
        Ok(Self { file, reader, begin: 0 })
    }

    /// Whether a file begins as an image does. Not if it cannot be read.
    pub fn is_image(path: &Path) -> bool {
        let mut magic = MAGIC;
        magic.fill(0);
        // A pipe has no places to read from.
        let read = File::open(path).and_then(|file| file.read_exact_at(&mut magic, HEADER_AT as u64));
        read.is_ok() && magic == MAGIC
    }

    /// Whether a file begins as an image does, and is a package. Not if it cannot be read.
    pub fn is_package(path: &Path) -> bool {
        Self::is_image(path) && Self::open(path).is_ok_and(|image| image.reader().is_package())
    }

    /// The image of a unit of a package.
    ///
    /// # Errors
    /// [`ImageError`]: the package has no such unit, or its image is damaged.
    pub fn unit(&self, number: u32) -> Result<Self, ImageError> {
        let path = self.reader.path();
        let packed = self.reader.packed_unit(number);
        let packed = packed.ok_or_else(|| self.reader.damaged("a unit is not there"))?;
        let is_inside =
            packed.offset.checked_add(packed.length).is_some_and(|end| end <= self.reader.file_bytes());
        if !is_inside || packed.offset % PAGE_BYTES != 0 {
            return Err(self.reader.damaged("a unit lies outside of the file"));
        }
        let refused = |source| ImageError::Read { path: path.to_owned(), source: Arc::new(source) };
        let file = self.file.try_clone().map_err(refused)?;
        let begin = self.begin + packed.offset;
        let path = PathBuf::from(self.unit_path(number, packed.name));
        let reader =
            ImageReader::read(&path, packed.length, |offset, into| file.read_exact_at(into, begin + offset))?;
        Ok(Self { file, reader, begin })
    }

    /// The name under which an image of a unit is opened.
    pub fn unit_path(&self, number: u32, name: &str) -> String {
        format!("{} ({number}: {name})", self.reader.path().display())
    }

    /// Reads the whole file, and compares it with its id.
    ///
    /// # Errors
    /// [`ImageError::Damaged`] if any byte was changed, of its code too.
    ///
    /// # Cost
    /// Every page of the file is read.
    pub fn check_contents(&self) -> Result<(), ImageError> {
        let refused =
            |source| ImageError::Read { path: self.reader.path().to_owned(), source: Arc::new(source) };
        let mut bytes = vec![0; self.reader.file_bytes().saturating_sub(PAGE_BYTES) as usize];
        self.file.read_exact_at(&mut bytes, self.begin + PAGE_BYTES).map_err(refused)?;
        if id_of(&self.reader.layout, &bytes) == *self.reader.id() {
            return Ok(());
        }
        Err(self.reader.damaged("its contents are not those that were written"))
    }

    pub(super) fn file(&self) -> &File {
        &self.file
    }

    /// Where it begins in the file.
    pub(super) fn begin(&self) -> u64 {
        self.begin
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
        self.reader.target_here().map(drop)
    }

    /// The functions whose code uses more than the processors have that it is for. A program may have such code, and run it where it has asked
    /// the processor.
    ///
    /// # Errors
    /// [`ImageError::Read`].
    ///
    /// # Cost
    /// All code is read and decoded.
    pub fn overused(&self) -> Result<Vec<OverusedFunction>, ImageError> {
        let refused =
            |source| ImageError::Read { path: self.reader.path().to_owned(), source: Arc::new(source) };
        let targets: Vec<_> = self.reader.targets().collect();
        let mut versions: Vec<_> =
            self.reader.versions().map(|version| (version.code, version.target)).collect();
        versions.sort_unstable();
        let mut overused = Vec::new();
        for segment in self.reader.segments().iter().filter(|segment| segment.kind == SegmentKind::Code) {
            let mut contents = vec![0; segment.content_bytes as usize];
            self.file.read_exact_at(&mut contents, self.begin + segment.file_offset).map_err(refused)?;
            for symbol in
                self.reader.symbols().filter(|symbol| symbol.traits.contains(SymbolTraits::CALLABLE))
            {
                let Some(start) = symbol.address.checked_sub(segment.address) else { continue };
                let end = start.saturating_add(symbol.size_bytes.into());
                let Some(code) = contents.get(start as usize..end as usize) else { continue };
                let version = versions.iter().find(|(code, _)| *code == symbol.address);
                // Versions that other versions alone call have no word in the table.
                let called = || target_in_name(symbol.name, targets.iter().skip(1).map(|target| target.name));
                let number = version
                    .map_or_else(|| called().map_or(0, |number| number + 1), |(_, target)| *target as usize);
                let target = targets.get(number);
                let declared = target.map_or(Features::NONE, |target| target.declared);
                let needs = CodeNeeds::of_code(code, declared);
                let needs = if number == 0 { needs.without_unknown() } else { needs };
                let beyond = needs.features.without(declared);
                if !beyond.is_empty() {
                    let target = target.map_or("", |target| target.name).into();
                    overused.push(OverusedFunction { name: symbol.name.into(), beyond, target });
                }
            }
        }
        Ok(overused)
    }

    /// Maps the segments in `memory`, below 2 GiB if it `is_low`, and lets the file go.
    ///
    /// # Errors
    /// [`ImageError::Memory`].
    pub(crate) fn map(
        self,
        memory: &dyn MemoryManager,
        is_low: bool,
    ) -> Result<(ImageReader, MappedFile), ImageError> {
        let Self { file, reader, begin } = self;
        let (size, align) = reader.memory();
        let in_file =
            // An empty segment may say any offset, and is not read.
            |segment: &FileSegment| FileSegment { file_offset: begin.saturating_add(segment.file_offset), ..*segment };
        let segments = reader.segments().iter().map(in_file).collect();
        let mapped = MappedFile::map(&file, memory, (size as usize, align as usize, is_low), segments);
        match mapped {
            Ok(mapped) => Ok((reader, mapped)),
            Err(source) => Err(ImageError::Memory { path: reader.path().to_owned(), source }),
        }
    }
}
