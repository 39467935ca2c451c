//! [`ObjectBuffer`]: the bytes of one object, shared and never changed.

use std::fmt;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use super::mapping::Mapping;

/// A named, immutable run of bytes that is cheap to clone and to cut.
///
/// The owner of the bytes may be anything: a vector, a mapped file, a buffer of LLVM's. It is dropped with
/// the last clone or slice. The name says where the bytes came from and appears in every message about them.
///
/// # Examples
/// ```
/// use uruk_pipeline::object::ObjectBuffer;
///
/// let file = ObjectBuffer::new("answer.o", b"\x7fELF and so on".to_vec());
/// assert_eq!(&**file.name(), "answer.o");
/// assert!(file.bytes().starts_with(b"\x7fELF"));
/// ```
#[derive(Clone)]
pub struct ObjectBuffer {
    name: Arc<str>,
    owner: Arc<dyn AsRef<[u8]> + Send + Sync>,
    range: Range<usize>,
}

impl ObjectBuffer {
    /// Shares the bytes of `owner` without copying them.
    pub fn new(name: impl Into<Arc<str>>, owner: impl AsRef<[u8]> + Send + Sync + 'static) -> Self {
        let range = 0..owner.as_ref().len();
        Self { name: name.into(), owner: Arc::new(owner), range }
    }

    /// Opens a file. Up to 16 MiB it is read, so that it may be replaced while the buffer lives. Larger files,
    /// which are mostly archives of which little is needed, are mapped: those must not be truncated meanwhile.
    ///
    /// # Errors
    /// What the operating system says when the file cannot be opened or read, and [`io::ErrorKind::InvalidInput`]
    /// for a directory.
    pub fn open(path: &Path) -> io::Result<Self> {
        let name: Arc<str> = path.display().to_string().into();
        let file = File::open(path)?;
        let metadata = file.metadata()?;
        if metadata.is_dir() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "is a directory, not an object"));
        }
        match usize::try_from(metadata.len()) {
            Ok(size_bytes) if metadata.is_file() && size_bytes >= MAP_BYTES_MIN => {
                Ok(Self::new(name, Mapping::of_file(&file, 0, size_bytes)?))
            }
            _ => Ok(Self::new(name, read_whole(file)?)),
        }
    }

    /// The bytes' name in messages.
    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// The same bytes under another name.
    #[must_use]
    pub fn renamed(mut self, name: impl Into<Arc<str>>) -> Self {
        self.name = name.into();
        self
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        // The owner answered with at least this many bytes when the buffer was made. One that has changed
        // its mind gets an empty buffer, which every reader refuses, rather than a panic.
        (*self.owner).as_ref().get(self.range.clone()).unwrap_or_default()
    }

    /// How many bytes there are.
    pub fn size_bytes(&self) -> usize {
        self.range.len()
    }

    /// A part of the buffer under a name of its own, without copying. `None` when it reaches past the end.
    pub fn slice(&self, name: impl Into<Arc<str>>, range: Range<usize>) -> Option<Self> {
        let start = self.range.start.checked_add(range.start)?;
        let end = self.range.start.checked_add(range.end)?;
        (start <= end && end <= self.range.end).then(|| Self {
            name: name.into(),
            owner: Arc::clone(&self.owner),
            range: start..end,
        })
    }
}

/// Below this a copy (3 ms for 16 MiB) is a fair price for not minding what happens to the file.
const MAP_BYTES_MIN: usize = (16 << 20) + 1;

fn read_whole(mut file: File) -> io::Result<Vec<u8>> {
    // `read_to_end` asks for the size itself, so one allocation fits.
    let mut bytes = Vec::new();
    io::Read::read_to_end(&mut file, &mut bytes)?;
    Ok(bytes)
}

impl AsRef<[u8]> for ObjectBuffer {
    fn as_ref(&self) -> &[u8] {
        self.bytes()
    }
}

impl fmt::Debug for ObjectBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ObjectBuffer")
            .field("name", &self.name)
            .field("size_bytes", &self.size_bytes())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slice_shares_the_bytes_and_has_its_own_name() {
        let whole = ObjectBuffer::new("whole", vec![1, 2, 3, 4]);
        let part = whole.slice("part", 1..3).expect("within bounds");
        assert_eq!(part.bytes(), [2, 3]);
        assert_eq!(&**part.name(), "part");
        assert_eq!(part.bytes().as_ptr(), whole.bytes()[1..].as_ptr());
        let inner = part.slice("inner", 1..2).expect("within bounds");
        assert_eq!(inner.bytes(), [3]);
    }

    #[test]
    fn a_slice_cannot_reach_past_the_part_it_is_cut_from() {
        let part = ObjectBuffer::new("whole", vec![1, 2, 3, 4]).slice("part", 1..3).expect("within bounds");
        assert!(part.slice("beyond", 0..3).is_none());
        assert!(part.slice("overflow", 1..usize::MAX).is_none());
        #[expect(clippy::reversed_empty_ranges, reason = "a reversed range is what is tested")]
        let reversed = part.slice("reversed", 2..1);
        assert!(reversed.is_none());
    }

    #[test]
    fn a_directory_is_refused_and_a_large_file_reads_like_a_small_one() {
        let directory = std::env::temp_dir();
        assert!(ObjectBuffer::open(&directory).is_err());
        let path = directory.join(format!("uruk-object-buffer-{}", std::process::id()));
        for size_bytes in [0, 10, MAP_BYTES_MIN - 1, MAP_BYTES_MIN] {
            let bytes: Vec<u8> = (0..size_bytes).map(|index| index as u8).collect();
            std::fs::write(&path, &bytes).expect("temporary file");
            let buffer = ObjectBuffer::open(&path).expect("readable");
            assert_eq!(buffer.bytes(), bytes);
        }
        std::fs::remove_file(&path).expect("temporary file");
    }
}
