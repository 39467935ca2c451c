//! Where the C library's heap lay when a program took over.
//!
//! | part of the heap | how it is known |
//! |---|---|
//! | main arena | the mapping that the system calls `[heap]` |
//! | arenas of threads | mappings of [`ARENA_BYTES`], aligned to that, that begin with a pointer to an arena's state |
//! | large allocations | in other anonymous mappings; what precedes the pointer says that a mapping is its own |
//!
//! Facts about glibc since 2.26. Another allocator, from `LD_PRELOAD`, has its memory elsewhere, which is not recognized.

use std::ffi::c_void;
use std::fs;
use std::ops::Range;
use std::ptr;

use uruk_core::sync::atomic::{AtomicPtr, Ordering};

#[derive(Debug, Default)]
struct Earlier {
    /// The arenas, sorted.
    arenas: Vec<Range<usize>>,
    /// All other anonymous mappings, sorted.
    others: Vec<Range<usize>>,
}

/// Null until a program replaces something.
static EARLIER: AtomicPtr<Earlier> = AtomicPtr::new(ptr::null_mut());

const ARENA_BYTES: usize = 64 << 20;
const PAGE_BYTES: usize = 4096;

/// Notes where the heap lies. For ever: memory of that time may be freed at any later one.
pub(super) fn remember() {
    let text = fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let earlier = Box::leak(Box::new(Earlier::of_maps(&text)));
    // Relaxed: stored before the program runs, and so before there is another thread that asks.
    EARLIER.store(earlier, Ordering::Relaxed);
}

/// Whether the memory was allocated before the program took over. Never of memory that the program itself gave out.
///
/// # Cost
/// A load while nobody replaces anything; a search among some tens of ranges otherwise.
pub(super) fn is_earlier(memory: *mut c_void) -> bool {
    // Relaxed: see `remember`.
    let earlier = EARLIER.load(Ordering::Relaxed);
    // SAFETY: null, or made by `remember` and never freed.
    unsafe { earlier.as_ref() }.is_some_and(|earlier| !memory.is_null() && earlier.contains(memory.addr()))
}

impl Earlier {
    fn of_maps(text: &str) -> Self {
        let mut earlier = Self::default();
        let mut anonymous = Vec::new();
        for line in text.lines() {
            match mapping(line) {
                Some((range, "[heap]")) => earlier.arenas.push(range),
                Some((range, "")) => anonymous.push(range),
                _ => {}
            }
        }
        for range in anonymous {
            match arenas_in(&range) {
                found if found.is_empty() => earlier.others.push(range),
                found => earlier.arenas.extend(found),
            }
        }
        earlier.arenas.sort_by_key(|range| range.start);
        earlier.others.sort_by_key(|range| range.start);
        earlier
    }

    fn contains(&self, address: usize) -> bool {
        range_of(&self.arenas, address).is_some()
            || range_of(&self.others, address).is_some_and(|range| is_large_allocation(address, range))
    }
}

fn range_of(ranges: &[Range<usize>], address: usize) -> Option<&Range<usize>> {
    let after = ranges.partition_point(|range| range.start <= address);
    ranges[..after].last().filter(|range| range.contains(&address))
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
        let state = unsafe { ptr::with_exposed_provenance::<usize>(*start).read() };
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
    // SAFETY: the two words lie in a mapping that could be read and written when it was noted. Who asks is about to
    // free or resize what lies behind them, so they are still there.
    let [before, size] = unsafe { ptr::with_exposed_provenance::<[usize; 2]>(address - HEAD_BYTES).read() };
    let Some(start) = (address - HEAD_BYTES).checked_sub(before) else { return false };
    let Some(end) = (address - HEAD_BYTES).checked_add(size & !FLAGS) else { return false };
    size & FLAGS == HAS_OWN_PAGES
        && start.is_multiple_of(PAGE_BYTES)
        && end.is_multiple_of(PAGE_BYTES)
        && mapping.start <= start
        && end <= mapping.end
        && address < end
}
