//! Earlier memory that goes while the program runs which replaced `malloc`. The program's own memory then lies where it
//! was, and must come to the program's functions. A process of its own: it replaces its functions once.

use std::ffi::c_void;
use std::mem::ManuallyDrop;
use std::{io, ptr};

use uruk_core::ExecutorAddr;
use uruk_core::sync::atomic::{AtomicUsize, Ordering};
use uruk_core::sync::{Arc, Latch, Mutex, thread};
use uruk_pipeline::runtime::allocation::{self, ReplaceError};

const PAGE_BYTES: usize = 4096;
/// A heap of a thread's arena, and what it is aligned to.
const HEAP_BYTES: usize = 64 << 20;
/// No allocation of this size has pages of its own.
const PIECE_BYTES: usize = 100_000;

static TAKEN: AtomicUsize = AtomicUsize::new(0);

/// The program's `free`. It does not give memory out in this test: that would be other libraries' at the same time.
unsafe extern "C" fn free(_: *mut c_void) {
    // Relaxed: one thread at a time uses it.
    TAKEN.fetch_add(1, Ordering::Relaxed);
}

/// Whether memory comes to the program's `free`.
fn comes_to_program(memory: *mut c_void) -> bool {
    let before = TAKEN.load(Ordering::Relaxed);
    // SAFETY: the program's function does not look at the memory; earlier memory is left alone.
    unsafe { libc::free(memory) };
    TAKEN.load(Ordering::Relaxed) > before
}

fn map(at: *mut c_void, bytes: usize) -> *mut c_void {
    let fixed = if at.is_null() { 0 } else { libc::MAP_FIXED_NOREPLACE };
    let (protection, flags) =
        (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE);
    // SAFETY: new memory, where nothing else is mapped.
    let memory = unsafe { libc::mmap(at, bytes, protection, flags | fixed, -1, 0) };
    assert_ne!(memory, libc::MAP_FAILED, "{bytes} bytes at {at:?}: {}", io::Error::last_os_error());
    memory
}

/// Pieces that the engine has, one behind the other.
fn pieces(bytes: usize) -> Vec<Vec<u8>> {
    (0..bytes / PIECE_BYTES).map(|_| Vec::with_capacity(PIECE_BYTES)).collect()
}

fn replace() -> Result<(), ReplaceError> {
    let program = ExecutorAddr::from_ptr(free as *const ());
    // SAFETY: the functions are exported from here; the threads there are wait for this one.
    unsafe { allocation::replace(|name| (name == "free").then_some(program)) }
}

/// Nothing is replaced where it cannot be known what is earlier. The files that this process may open are counted.
fn assert_missing_maps_are_an_error() {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: reads the limit and changes it for a moment; nothing else opens files.
    let replaced = unsafe {
        assert_eq!(libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit), 0);
        let none = libc::rlimit { rlim_cur: 0, ..limit };
        assert_eq!(libc::setrlimit(libc::RLIMIT_NOFILE, &raw const none), 0);
        let replaced = replace();
        assert_eq!(libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit), 0);
        replaced
    };
    let text = replaced.expect_err("it cannot be known what is earlier").to_string();
    assert!(text.contains("/proc/self/maps"), "{text}");
    assert!(!comes_to_program(ptr::null_mut()), "it has been replaced");
}

/// Pieces of a thread's arena. The thread keeps that to the end, and has nothing in it behind the pieces.
fn pieces_of_a_thread(bytes: usize) -> Vec<Vec<u8>> {
    static MADE: Mutex<Vec<Vec<u8>>> = Mutex::new(Vec::new());
    let is_made = Arc::new(Latch::new());
    let made = is_made.clone();
    thread::spawn(move || {
        *MADE.lock() = pieces(bytes);
        made.open();
        loop {
            thread::park();
        }
    });
    is_made.wait();
    std::mem::take(&mut *MADE.lock())
}

fn page_faults() -> i64 {
    // SAFETY: a zeroed description is valid, and is filled.
    unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        assert_eq!(libc::getrusage(libc::RUSAGE_SELF, &raw mut usage), 0);
        usage.ru_minflt
    }
}

#[test]
fn the_programs_memory_is_its_own_where_earlier_memory_was() {
    alone!();
    let mut heaps = ManuallyDrop::new(pieces_of_a_thread(100 << 20));
    let second = heaps.last().expect("some").as_ptr().addr() & !(HEAP_BYTES - 1);
    assert_ne!(heaps[0].as_ptr().addr() & !(HEAP_BYTES - 1), second, "there are two heaps");
    // The next thread allocates in the main arena.
    // SAFETY: a setting of the C library's heap.
    unsafe { assert_eq!(libc::mallopt(libc::M_ARENA_MAX, 1), 1) };
    let main = pieces_of_a_thread(4 << 20);
    let hole = map(ptr::null_mut(), 3 * PAGE_BYTES);
    let (free, _plug) = (pieces(32 << 20), pieces(PIECE_BYTES));
    drop(free);

    assert_missing_maps_are_an_error();
    replace().expect("/proc is there");
    for piece in [&heaps[0], &heaps[1], heaps.last().expect("some"), &main[0]] {
        assert!(!comes_to_program(piece.as_ptr().cast_mut().cast()), "earlier memory comes to the program");
    }

    // The page below is gone. The guard read the words before the pointer. SAFETY: the page has no user.
    assert_eq!(unsafe { libc::munmap(hole, PAGE_BYTES) }, 0);
    assert!(comes_to_program(hole.wrapping_byte_add(PAGE_BYTES)));

    // The main arena shrinks, and the program takes memory from the system behind it.
    let last = main.last().expect("some").as_ptr().addr();
    drop(main);
    // SAFETY: the end of the heap is moved up.
    let own = unsafe {
        libc::malloc_trim(0);
        libc::sbrk(1 << 16)
    };
    assert!(own.addr().abs_diff(last) < 64 << 20, "the pieces were in the main arena");
    assert!(comes_to_program(own), "{own:?}, and {last:#x} was the last piece");

    // A heap of a thread's arena goes, and the program has its memory in that place. The library unmaps an empty heap if there is room in
    // the one before; here the test does that. SAFETY: the heap has no user: its pieces are forgotten, and its thread waits for ever.
    unsafe {
        heaps.drain(1..).for_each(std::mem::forget);
        assert_eq!(libc::munmap(ptr::without_provenance_mut(second), HEAP_BYTES), 0);
    }
    let own = map(ptr::without_provenance_mut(second), 2 * PAGE_BYTES);
    assert!(comes_to_program(own.wrapping_byte_add(PAGE_BYTES)));
    assert!(!comes_to_program(heaps[0].as_ptr().cast_mut().cast()), "the first heap is still there");

    // Free parts of earlier memory are passed over in few steps: the library gave it out in pieces of 32 bytes.
    let before = page_faults();
    // SAFETY: any size may be asked for.
    unsafe { libc::calloc(24, 1) };
    let faults = page_faults() - before;
    assert!(faults < 500, "{faults} pages were touched");
}
