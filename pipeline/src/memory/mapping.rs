//! The operating system's part: reserving addresses, making the two views of a slab, giving pages back.
//!
//! All system calls of `memory/` are here, but for those that make files (`temporary_file.rs`). Addresses travel as numbers; the callers (`arena.rs`,
//! `slab.rs`) own disjoint parts of a [`ReservedRange`] and never hand a part to two owners.
//!
//! # The two views
//!
//! ```text
//!   mmap(SHARED|ANONYMOUS, RW)  ──▶ working view, wherever the system puts it
//!   mremap(working, 0, n, FIXED) ─▶ run view, inside the reserved range, then mprotect to RX or R
//! ```
//!
//! The run view is RW for the moment between the two calls and never writable and executable. The same
//! pages need no file descriptor that way, and perf names the functions in them.
//!
//! A process may be forbidden to make pages executable that were not mapped so (`PR_SET_MDWE`, SELinux). Then
//! the pages are those of a file in memory (of a temporary one where those are forbidden), and each view is mapped with the protection that it
//! keeps:
//!
//! ```text
//!   memfd_create, ftruncate
//!   mmap(SHARED, file, RW)        ──▶ working view
//!   mmap(SHARED, file, RX, FIXED) ──▶ run view; the descriptor is closed
//! ```

use std::fs::File;
use std::io;
use std::iter;
use std::mem::ManuallyDrop;
use std::ops::Range;
use std::ptr;
use std::sync::Arc;

use rustix::fs::FallocateFlags;
use rustix::mm::{Advice, MapFlags, MprotectFlags, MremapFlags, ProtFlags};

use super::{MemoryError, SegmentKind, TemporaryFile};

/// The size of a page on the targets we link for.
pub(super) const PAGE_BYTES: usize = 4096;

/// A range of addresses that is ours alone; nothing is accessible in it until a slab is mapped there.
#[derive(Debug)]
pub(super) struct ReservedRange {
    start: usize,
    len: usize,
}

impl ReservedRange {
    /// Reserves `len` bytes where the system likes, which is right below the loaded libraries.
    pub(super) fn reserve(len: usize) -> Result<Self, MemoryError> {
        // SAFETY: a fresh mapping at an address of the system's choice touches no existing one.
        let mapped = unsafe {
            rustix::mm::mmap_anonymous(
                ptr::null_mut(),
                len,
                ProtFlags::empty(),
                MapFlags::PRIVATE | MapFlags::NORESERVE,
            )
        };
        let start = mapped.map_err(reserve_error(len))?;
        Ok(Self { start: start.expose_provenance(), len })
    }

    /// Reserves `len` bytes from `start` on, of which nothing may be mapped yet.
    pub(super) fn reserve_at(start: usize, len: usize) -> Result<Self, MemoryError> {
        // SAFETY: the flag keeps the system from replacing an existing mapping.
        let mapped = unsafe {
            rustix::mm::mmap_anonymous(
                pointer(start).cast(),
                len,
                ProtFlags::empty(),
                MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED_NOREPLACE,
            )
        };
        let mapped = Self { start: mapped.map_err(reserve_error(len))?.expose_provenance(), len };
        // Systems that do not know the flag take the address for a wish.
        if mapped.start == start { Ok(mapped) } else { Err(reserve_error(len)(rustix::io::Errno::EXIST)) }
    }

    /// Makes all but the first `guard_bytes` readable and writable.
    pub(super) fn make_writable(&self, guard_bytes: usize) -> Result<(), MemoryError> {
        let (start, len) = (self.start + guard_bytes, self.len - guard_bytes);
        // SAFETY: private pages of this range, which belong to it alone.
        unsafe {
            rustix::mm::mprotect(pointer(start).cast(), len, MprotectFlags::READ | MprotectFlags::WRITE)
        }
        .map_err(protect_error(start, len, "a stack"))
    }

    /// Gives back what lies beyond the first `len` bytes, in which nothing is mapped.
    pub(super) fn shrink(&mut self, len: usize) {
        unmap(self.start + len, self.len - len);
        self.len = len;
    }

    /// The addresses.
    pub(super) const fn range(&self) -> Range<usize> {
        self.start..self.start + self.len
    }

    /// Gives back everything but `parts`, which lie in the range and do not overlap. The owner of a mapping inside a part unmaps it.
    pub(super) fn keep(self, mut parts: Vec<Range<usize>>) {
        let whole = ManuallyDrop::new(self).range();
        parts.sort_unstable_by_key(|part| part.start);
        let ends = parts.iter().map(|part| part.end);
        let starts = parts.iter().map(|part| part.start);
        for (gap_start, gap_end) in iter::once(whole.start).chain(ends).zip(starts.chain([whole.end])) {
            if gap_start < gap_end {
                unmap(gap_start, gap_end - gap_start);
            }
        }
    }
}

impl Drop for ReservedRange {
    fn drop(&mut self) {
        unmap(self.start, self.len);
    }
}

/// Makes the two views of a fresh slab: `kind`'s protection at `run`, writable at the address returned.
pub(super) fn map_two_views(run: usize, len: usize, kind: SegmentKind) -> Result<usize, MemoryError> {
    let prot = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a fresh mapping at an address of the system's choice touches no existing one.
    let working = unsafe {
        rustix::mm::mmap_anonymous(ptr::null_mut(), len, prot, MapFlags::SHARED | MapFlags::NORESERVE)
    }
    .map_err(protect_error(run, len, "two views (writable view)"))?;
    // SAFETY: `run..run + len` lies in our reserved range and belongs to the caller; an old size of zero
    // leaves the working view in place and maps the same pages again.
    let second =
        unsafe { rustix::mm::mremap_fixed(working, 0, len, MremapFlags::MAYMOVE, pointer(run).cast()) };
    let result =
        second.map_err(protect_error(run, len, "two views (run view)")).and_then(|_| protect(run, len, kind));
    if let Err(error) = result {
        unmap(working.expose_provenance(), len);
        // The run side may be mapped already: take it back, or leave an unused mapping if even that fails.
        let _ = map_nothing(run, len);
        return Err(error);
    }
    Ok(working.expose_provenance())
}

/// Makes the two views of a fresh slab in a file; neither ever has another protection than its own.
pub(super) fn map_file_views(run: usize, len: usize, kind: SegmentKind) -> Result<usize, MemoryError> {
    // A file beyond the limit on files would cost the process a deadly signal.
    let limit = rustix::process::getrlimit(rustix::process::Resource::Fsize).current;
    let is_too_long = limit.is_some_and(|limit| limit < len as u64);
    let refused = if is_too_long { Err(rustix::io::Errno::FBIG.into()) } else { Ok(()) };
    refused
        .and_then(|()| TemporaryFile::with(|file| Ok(views_of_file(file, run, len, kind)?)))
        .map_err(protect_error(run, len, "two views (of a file)"))
}

fn views_of_file(
    file: &TemporaryFile,
    run: usize,
    len: usize,
    kind: SegmentKind,
) -> rustix::io::Result<usize> {
    if file.is_in_memory() {
        rustix::fs::ftruncate(file.file(), len as u64)?;
    } else {
        // A disk that turned out to be full later would cost the process a deadly signal.
        rustix::fs::fallocate(file.file(), FallocateFlags::empty(), 0, len as u64)?;
    }
    let prot = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a fresh mapping at an address of the system's choice touches no existing one.
    let working = unsafe { rustix::mm::mmap(ptr::null_mut(), len, prot, MapFlags::SHARED, file.file(), 0) }?;
    let prot = match kind {
        SegmentKind::Code => ProtFlags::READ | ProtFlags::EXEC,
        _ => ProtFlags::READ,
    };
    // SAFETY: `run..run + len` lies in our reserved range and belongs to the caller, so nothing is replaced but the
    // reservation.
    let second = unsafe {
        rustix::mm::mmap(pointer(run).cast(), len, prot, MapFlags::SHARED | MapFlags::FIXED, file.file(), 0)
    };
    if let Err(errno) = second {
        unmap(working.expose_provenance(), len);
        // A mapping that replaces another and fails may have removed that: take the addresses back.
        let _ = map_nothing(run, len);
        return Err(errno);
    }
    Ok(working.expose_provenance())
}

/// Maps private pages of a file over `start..start + len` of the reserved range, with the protection of `kind`.
pub(super) fn map_contents(
    file: &File,
    offset: u64,
    start: usize,
    len: usize,
    kind: SegmentKind,
) -> Result<(), MemoryError> {
    let prot = match kind {
        SegmentKind::Code => ProtFlags::READ | ProtFlags::EXEC,
        SegmentKind::ReadOnly => ProtFlags::READ,
        SegmentKind::Data | SegmentKind::FarData => ProtFlags::READ | ProtFlags::WRITE,
    };
    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED;
    // SAFETY: the range lies in our reserved range and belongs to the caller, so nothing is replaced but the reservation.
    unsafe { rustix::mm::mmap(pointer(start).cast(), len, prot, flags, file, offset) }
        .map(drop)
        .map_err(protect_error(start, len, "pages of a file"))
}

/// Maps pages of a file over `start..start + len` of the reserved range, as others write them, with the protection of `kind`: code or constants.
pub(super) fn map_shared_contents(
    file: &File,
    offset: u64,
    start: usize,
    len: usize,
    kind: SegmentKind,
) -> Result<(), MemoryError> {
    let prot = match kind {
        SegmentKind::Code => ProtFlags::READ | ProtFlags::EXEC,
        _ => ProtFlags::READ,
    };
    // SAFETY: the range lies in our reserved range and belongs to the caller, so nothing is replaced but the reservation.
    unsafe {
        rustix::mm::mmap(
            pointer(start).cast(),
            len,
            prot,
            MapFlags::SHARED | MapFlags::NORESERVE | MapFlags::FIXED,
            file,
            offset,
        )
    }
    .map(drop)
    .map_err(protect_error(start, len, "pages of a file"))
}

/// Maps the first `len` bytes of a file where the system likes, to be written.
pub(super) fn map_working_view(file: &File, len: usize) -> rustix::io::Result<usize> {
    let prot = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a fresh mapping at an address of the system's choice touches no existing one.
    let view = unsafe {
        rustix::mm::mmap(ptr::null_mut(), len, prot, MapFlags::SHARED | MapFlags::NORESERVE, file, 0)
    }?;
    Ok(view.expose_provenance())
}

/// Maps private, writable, zeroed memory over `start..start + len` of the reserved range.
pub(super) fn map_private(start: usize, len: usize) -> Result<(), MemoryError> {
    // SAFETY: the range lies in our reserved range and belongs to the caller, so nothing is replaced but
    // the reservation.
    unsafe {
        rustix::mm::mmap_anonymous(
            pointer(start).cast(),
            len,
            ProtFlags::READ | ProtFlags::WRITE,
            MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED,
        )
    }
    .map(drop)
    .map_err(protect_error(start, len, "readable and writable"))
}

/// Turns `start..start + len` back into inaccessible reserved addresses; its pages are freed.
pub(super) fn map_nothing(start: usize, len: usize) -> Result<(), MemoryError> {
    // SAFETY: the range lies in our reserved range and belongs to the caller, which no longer uses it.
    unsafe {
        rustix::mm::mmap_anonymous(
            pointer(start).cast(),
            len,
            ProtFlags::empty(),
            MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED,
        )
    }
    .map(drop)
    .map_err(protect_error(start, len, "inaccessible"))
}

/// Lets `start..start + len` of the reserved range be read, as zeros, where nothing is mapped yet.
pub(super) fn make_readable(start: usize, len: usize) -> Result<(), MemoryError> {
    // SAFETY: the range lies in our reserved range and belongs to the caller; inaccessible pages have no users.
    unsafe { rustix::mm::mprotect(pointer(start).cast(), len, MprotectFlags::READ) }
        .map_err(protect_error(start, len, "readable"))
}

/// Unmaps a view or a range that is ours.
pub(super) fn unmap(start: usize, len: usize) {
    // SAFETY: callers pass exactly a mapping they made and own, to which no reference is left.
    let result = unsafe { rustix::mm::munmap(pointer(start).cast(), len) };
    // The only possible failure here is a lack of mappings when splitting one, and whole mappings are not split.
    debug_assert!(result.is_ok(), "munmap of {start:#x}+{len:#x}: {result:?}");
}

/// Gives `start..start + len` the final protection of `kind`.
pub(super) fn protect(start: usize, len: usize, kind: SegmentKind) -> Result<(), MemoryError> {
    let (flags, wanted) = match kind {
        SegmentKind::Code => (MprotectFlags::READ | MprotectFlags::EXEC, "readable and executable"),
        SegmentKind::ReadOnly => (MprotectFlags::READ, "read-only"),
        SegmentKind::Data | SegmentKind::FarData => return Ok(()),
    };
    // SAFETY: the pages are the caller's own; from here on no thread writes to them through this address.
    unsafe { rustix::mm::mprotect(pointer(start).cast(), len, flags) }
        .map_err(protect_error(start, len, wanted))
}

/// Makes pages of a slab without a second view writable again, once nothing in them is used any more.
pub(super) fn make_writable(start: usize, len: usize) -> Result<(), MemoryError> {
    // SAFETY: the pages are the caller's own and free: no code in them runs.
    unsafe { rustix::mm::mprotect(pointer(start).cast(), len, MprotectFlags::READ | MprotectFlags::WRITE) }
        .map_err(protect_error(start, len, "readable and writable"))
}

/// Frees the pages of `start..start + len`, which read as zeros afterwards; says whether that worked.
pub(super) fn discard_pages(start: usize, len: usize, shared: bool) -> bool {
    let advice = if shared { Advice::LinuxRemove } else { Advice::LinuxDontNeed };
    // SAFETY: the range is a whole number of the caller's pages and free: no thread reads or writes it.
    unsafe { rustix::mm::madvise(pointer(start).cast(), len, advice) }.is_ok()
}

/// Fills a working view with pages before it is written. Only a hint: old kernels do not know it.
pub(super) fn populate(start: usize, len: usize) {
    // SAFETY: the range is a mapped, writable part of the caller's slab; its contents do not change.
    let _ = unsafe { rustix::mm::madvise(pointer(start).cast(), len, Advice::LinuxPopulateWrite) };
}

/// Forgets the page table entries of a working view; the pages and their contents stay.
pub(super) fn forget_view(start: usize, len: usize) {
    // SAFETY: the mapping is shared, so a later access through it finds the same contents again.
    let result = unsafe { rustix::mm::madvise(pointer(start).cast(), len, Advice::LinuxDontNeed) };
    debug_assert!(result.is_ok(), "madvise of {start:#x}+{len:#x}: {result:?}");
}

/// Overwrites `start..start + len` with zeros.
pub(super) fn zero(start: usize, len: usize) {
    // SAFETY: the range is writable memory that the caller has just taken and not yet handed out.
    unsafe { ptr::write_bytes(pointer(start), 0, len) };
}

/// The writable bytes `start..start + len`.
///
/// # Safety
/// The range is mapped readable and writable, and for the lifetime `'a` nothing else touches it.
pub(super) unsafe fn bytes_mut<'a>(start: usize, len: usize) -> &'a mut [u8] {
    // SAFETY: passed on to the caller.
    unsafe { std::slice::from_raw_parts_mut(pointer(start), len) }
}

/// How many of the bytes `start..start + len` lie in pages that occupy physical memory.
pub(super) fn resident_bytes(start: usize, len: usize) -> u64 {
    const STEP_PAGES: usize = 16 * 1024;
    let end = start + len;
    let mut page = start & !(PAGE_BYTES - 1);
    let mut total = 0;
    let mut states = vec![0_u8; (end - page).div_ceil(PAGE_BYTES).min(STEP_PAGES)];
    while page < end {
        let pages = (end - page).div_ceil(PAGE_BYTES).min(STEP_PAGES);
        // SAFETY: mincore reads page tables only and writes one byte a page into `states`, which has room.
        let result = unsafe { libc::mincore(pointer(page).cast(), pages * PAGE_BYTES, states.as_mut_ptr()) };
        if result == 0 {
            for (index, state) in states[..pages].iter().enumerate() {
                if state & 1 != 0 {
                    let first = page + index * PAGE_BYTES;
                    total += (end.min(first + PAGE_BYTES) - start.max(first)) as u64;
                }
            }
        }
        page += pages * PAGE_BYTES;
    }
    total
}

fn pointer(address: usize) -> *mut u8 {
    ptr::with_exposed_provenance_mut(address)
}

fn reserve_error(len: usize) -> impl FnOnce(rustix::io::Errno) -> MemoryError {
    move |errno| MemoryError::Reserve {
        size_bytes: len as u64,
        limit_bytes: rustix::process::getrlimit(rustix::process::Resource::As).current,
        source: Arc::new(errno.into()),
    }
}

fn protect_error<E: Into<io::Error>>(
    start: usize,
    len: usize,
    wanted: &'static str,
) -> impl FnOnce(E) -> MemoryError {
    move |error| MemoryError::Protect {
        range: start as u64..(start + len) as u64,
        wanted,
        source: Arc::new(error.into()),
    }
}
