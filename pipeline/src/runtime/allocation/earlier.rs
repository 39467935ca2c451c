//! Where the C library's heap lay when a program took over.
//!
//! | part of the heap | how it is known |
//! |---|---|
//! | main arena | the mapping that the system calls `[heap]` |
//! | arenas of threads | mappings of [`ARENA_BYTES`], aligned to that, that begin with a pointer to an arena's state |
//! | large allocations | in other anonymous mappings; the words before the pointer say that a mapping is its own |
//!
//! # Later changes of these places
//! The program may map memory of its own in places that the heap has left. So a place is either kept, or looked at again:
//! - main arena: memory of ours lies behind it, and glibc lets it shrink to its end alone;
//! - arenas of threads: unmapped as a whole, so their first word is compared with its earlier value;
//! - large allocations: the words before the pointer are read each time.
//!
//! Facts about glibc since 2.26. Another allocator, from `LD_PRELOAD`, has its memory elsewhere, which is not recognized.

use std::ffi::c_void;
use std::fs;
use std::io;
use std::ops::Range;
use std::ptr;

use uruk_core::sync::atomic::{AtomicPtr, Ordering};

use super::ReplaceError;

#[derive(Debug, Default)]
struct Earlier {
    /// Mappings that the system calls the heap.
    main: Vec<Range<usize>>,
    /// The heaps of threads' arenas, sorted.
    arenas: Vec<Range<usize>>,
    /// The state of the arena to which each of them belongs, as its first word names it.
    states: Vec<usize>,
    /// All anonymous mappings without a name, sorted. Those of an arena count as the arena's.
    others: Vec<Range<usize>>,
}

/// Null until a program replaces something.
static EARLIER: AtomicPtr<Earlier> = AtomicPtr::new(ptr::null_mut());

const ARENA_BYTES: usize = 64 << 20;
const PAGE_BYTES: usize = 4096;

const MAPS: &str = "/proc/self/maps";

/// Notes where the heap lies. For ever: memory of that time may be freed at any later one.
///
/// # Errors
/// [`ReplaceError`] if the system does not say, or the heap cannot be kept where it is.
pub(super) fn remember() -> Result<(), ReplaceError> {
    keep_main_arena()?;
    let text = fs::read_to_string(MAPS).map_err(|source| ReplaceError::Maps { path: MAPS, source })?;
    let earlier = Box::leak(Box::new(Earlier::of_maps(&text)));
    // Relaxed: stored before the program runs, and so before there is another thread that asks.
    EARLIER.store(earlier, Ordering::Relaxed);
    Ok(())
}

/// Takes a page behind the main arena. glibc gives back nothing that is not at the end.
fn keep_main_arena() -> Result<(), ReplaceError> {
    // SAFETY: no other thread moves the end, and the C library's heap expects that other code moves it.
    let taken = unsafe { libc::sbrk(PAGE_BYTES.cast_signed()) };
    match taken.addr() {
        usize::MAX => Err(ReplaceError::Keep { bytes: PAGE_BYTES, source: io::Error::last_os_error() }),
        _ => Ok(()),
    }
}

/// Whether the memory was allocated before the program took over. Never of memory that the program itself gave out.
///
/// # Cost
/// A load while nothing is replaced. Otherwise a search among some tens of ranges, and a system call for an address that lies in a range of
/// a thread or at the start of a page.
pub(super) fn is_earlier(memory: *mut c_void) -> bool {
    // Relaxed: see `remember`.
    let earlier = EARLIER.load(Ordering::Relaxed);
    // SAFETY: null, or made by `remember` and never freed.
    unsafe { earlier.as_ref() }.is_some_and(|earlier| !memory.is_null() && earlier.contains(memory.addr()))
}

impl Earlier {
    fn of_maps(text: &str) -> Self {
        let mut earlier = Self::default();
        for line in text.lines() {
            match mapping(line) {
                Some((range, "[heap]")) => earlier.main.push(range),
                Some((range, "")) => {
                    earlier.arenas.extend(arenas_in(&range));
                    // Large allocations beside an arena are in the same mapping.
                    earlier.others.push(range);
                }
                _ => {}
            }
        }
        earlier.arenas.sort_by_key(|range| range.start);
        earlier.others.sort_by_key(|range| range.start);
        // SAFETY: as in `arenas_in`.
        let state = |range: &Range<usize>| unsafe { word_at(range.start) };
        earlier.states = earlier.arenas.iter().map(state).collect();
        earlier
    }

    fn contains(&self, address: usize) -> bool {
        if let Some(index) = range_of(&self.arenas, address) {
            let start = self.arenas[index].start;
            // SAFETY: it has just been read. Only the heap's last free unmaps it, and a part of it is in use here.
            return is_readable(start) && unsafe { word_at(start) } == self.states[index];
        }
        range_of(&self.main, address).is_some()
            || range_of(&self.others, address)
                .is_some_and(|index| is_large_allocation(address, &self.others[index]))
    }
}

/// Which of the sorted ranges an address is in.
fn range_of(ranges: &[Range<usize>], address: usize) -> Option<usize> {
    let last = ranges.partition_point(|range| range.start <= address).checked_sub(1)?;
    ranges[last].contains(&address).then_some(last)
}

/// # Safety
/// The word is aligned and can be read.
unsafe fn word_at(address: usize) -> usize {
    // SAFETY: the caller's obligation.
    unsafe { ptr::with_exposed_provenance::<usize>(address).read() }
}

/// Whether the eight bytes at an address can be read. Asks a system call that looks at them before it sees that
/// the rest of the question makes no sense; `errno` is left as it is.
fn is_readable(address: usize) -> bool {
    const NO_SUCH_CHANGE: libc::c_int = -1;
    let bytes = ptr::with_exposed_provenance::<c_void>(address);
    // SAFETY: nothing is changed, as there is no such change; the system checks the address. `errno` is this thread's.
    unsafe {
        let errno = libc::__errno_location();
        let before = errno.read();
        let none = ptr::null_mut::<c_void>();
        libc::syscall(libc::SYS_rt_sigprocmask, NO_SUCH_CHANGE, bytes, none, size_of::<usize>());
        let is_readable = errno.read() != libc::EFAULT;
        errno.write(before);
        is_readable
    }
}

/// A private mapping that can be read and written, and what it is called.
fn mapping(line: &str) -> Option<(Range<usize>, &str)> {
    let mut words = line.split_ascii_whitespace();
    let (start, end) = words.next()?.split_once('-')?;
    let is_memory = words.next()? == "rw-p";
    let (_offset, _device, inode) = (words.next()?, words.next()?, words.next()?);
    let range = usize::from_str_radix(start, 16).ok()?..usize::from_str_radix(end, 16).ok()?;
    (is_memory && inode == "0").then_some((range, words.next().unwrap_or_default()))
}

/// The parts of a mapping that are heaps of a thread's arena. Each begins with a pointer to the arena's state, which
/// lies behind the head of the arena's first heap.
fn arenas_in(mapping: &Range<usize>) -> Vec<Range<usize>> {
    const HEAD_BYTES: Range<usize> = 0x20..0x41;
    let first = mapping.start.next_multiple_of(ARENA_BYTES);
    let starts = (first..mapping.end).step_by(ARENA_BYTES);
    let is_heap = |start: &usize| {
        // SAFETY: the start of a page in a mapping that can be read; no other thread unmaps anything at the time.
        let state = unsafe { word_at(*start) };
        state >= ARENA_BYTES && HEAD_BYTES.contains(&(state % ARENA_BYTES))
    };
    starts.filter(is_heap).map(|start| start..mapping.end.min(start + ARENA_BYTES)).collect()
}

/// Whether an address in a mapping is that of an allocation with pages of its own: before it lie how far it is from the
/// start of these pages, and their size with a flag.
fn is_large_allocation(address: usize, mapping: &Range<usize>) -> bool {
    const HEAD_BYTES: usize = 16;
    const FLAGS: usize = 7;
    const HAS_OWN_PAGES: usize = 2;
    if !address.is_multiple_of(HEAD_BYTES) || address - mapping.start < HEAD_BYTES {
        return false;
    }
    let words = address - HEAD_BYTES;
    // The mapping may have holes since it was noted, and memory that the program maps begins with a page.
    if address.is_multiple_of(PAGE_BYTES) && !is_readable(words) {
        return false;
    }
    // SAFETY: the two words lie in the page of an allocation that is about to be freed or resized, or in one that can be read.
    let [before, size] = unsafe { ptr::with_exposed_provenance::<[usize; 2]>(words).read() };
    let Some(start) = words.checked_sub(before) else { return false };
    let Some(end) = words.checked_add(size & !FLAGS) else { return false };
    size & FLAGS == HAS_OWN_PAGES
        && start.is_multiple_of(PAGE_BYTES)
        && end.is_multiple_of(PAGE_BYTES)
        && mapping.start <= start
        && end <= mapping.end
        && address < end
}
