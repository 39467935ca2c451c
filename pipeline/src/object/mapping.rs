//! A file mapped for reading.
//!
//! Holds: the mapping is private and read-only, and is taken back when the value is dropped.

use std::fs::File;
use std::io;
use std::ptr::{self, NonNull};

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// The bytes of a file, loaded page by page when they are touched.
pub(crate) struct Mapping {
    address: NonNull<u8>,
    size_bytes: usize,
}

impl Mapping {
    /// Maps `size_bytes` bytes of `file` from `offset` on: more than none, from a multiple of a page on.
    pub(crate) fn of_file(file: &File, offset: u64, size_bytes: usize) -> io::Result<Self> {
        // SAFETY: a new private mapping at an address of the kernel's choice overlaps nothing of ours.
        let address =
            unsafe { mmap(ptr::null_mut(), size_bytes, ProtFlags::READ, MapFlags::PRIVATE, file, offset) }?;
        let address = NonNull::new(address.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { address, size_bytes })
    }
}

impl AsRef<[u8]> for Mapping {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: `of_file` mapped this many readable bytes here and only `drop` unmaps them. The callers of `ObjectBuffer::open`
        // and `ImageFile::map_sections` guarantee that the file is neither written to nor truncated meanwhile.
        unsafe { std::slice::from_raw_parts(self.address.as_ptr(), self.size_bytes) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range is the one `of_file` mapped, and the borrow rules end every slice of it before. A failure would leave the pages
        // mapped, which is harmless, and no caller could act on it.
        let _ = unsafe { munmap(self.address.as_ptr().cast(), self.size_bytes) };
    }
}

// SAFETY: the mapping is read-only memory of the process, bound to no thread.
unsafe impl Send for Mapping {}
// SAFETY: as above; shared reads need no synchronization.
unsafe impl Sync for Mapping {}
