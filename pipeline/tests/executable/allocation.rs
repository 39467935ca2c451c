//! An executable whose program replaces `malloc` for all libraries. It is this test: the functions are exported from here.

use std::ffi::{CStr, c_char, c_void};
use std::ptr;

use uruk_core::ExecutorAddr;
use uruk_core::sync::atomic::{AtomicUsize, Ordering};
use uruk_pipeline::runtime::allocation;

const POOL_BYTES: usize = 1 << 20;
#[repr(align(16))]
struct Pool(#[expect(dead_code, reason = "it is given out by address")] [AtomicUsize; POOL_BYTES / 8]);
static POOL: Pool = Pool([const { AtomicUsize::new(0) }; POOL_BYTES / 8]);
static USED: AtomicUsize = AtomicUsize::new(0);
static GIVEN: AtomicUsize = AtomicUsize::new(0);
static TAKEN: AtomicUsize = AtomicUsize::new(0);

#[repr(align(4096))]
struct Page(#[expect(dead_code, reason = "where it lies is what counts")] [u8; 4096]);

/// The program's functions in place of the C library's. They count, and know their own memory alone.
mod program {
    use super::*;

    pub(crate) unsafe extern "C" fn malloc(size: usize) -> *mut c_void {
        // Relaxed, here and below: one thread uses them.
        let offset = USED.fetch_add(size.next_multiple_of(16), Ordering::Relaxed);
        assert!(offset + size <= POOL_BYTES, "the pool is large enough");
        GIVEN.fetch_add(1, Ordering::Relaxed);
        (&raw const POOL).cast_mut().cast::<u8>().wrapping_add(offset).cast()
    }

    pub(crate) unsafe extern "C" fn free(_: *mut c_void) {
        TAKEN.fetch_add(1, Ordering::Relaxed);
    }
}

/// How often the program's two functions have been called since the last time this was asked.
fn calls() -> (usize, usize) {
    (GIVEN.swap(0, Ordering::Relaxed), TAKEN.swap(0, Ordering::Relaxed))
}

/// The C library's own `strdup` calls `malloc` by name.
fn copy(text: &CStr) -> *mut c_char {
    // SAFETY: the text is terminated.
    unsafe { libc::strdup(text.as_ptr()) }
}

#[test]
fn libraries_see_what_the_program_replaces_and_the_program_nothing_earlier() {
    alone!();
    // SAFETY: every pointer is used as what it was given out for, and once.
    unsafe {
        let early: Vec<_> = [8, 1000, 100_000, 1 << 20, 1 << 23]
            .map(|size| libc::memset(libc::malloc(size), 7, size))
            .into_iter()
            .chain([copy(c"early").cast(), libc::aligned_alloc(1 << 16, 1 << 18)])
            .collect();
        let (small, large) = (libc::malloc(24), libc::malloc(1 << 20));
        libc::memset(large, 9, 1 << 20);
        allocation::replace(|_| None).expect("nothing to do");
        libc::free(copy(c"nothing is replaced").cast());
        assert_eq!(calls(), (0, 0));

        allocation::replace(|name| match name {
            "malloc" => Some(ExecutorAddr::from_ptr(program::malloc as *const ())),
            "free" => Some(ExecutorAddr::from_ptr(program::free as *const ())),
            _ => None,
        })
        .expect("/proc is there");
        let late = copy(c"late");
        assert_eq!((CStr::from_ptr(late), calls()), (c"late", (1, 0)));
        libc::free(late.cast());
        assert_eq!(calls(), (0, 1));

        // The engine's own memory stays with the engine.
        drop(vec![1_u8; 3000]);
        drop(Box::new(Page([1; 4096])));
        assert_eq!(calls(), (0, 0));

        early.into_iter().for_each(|memory| libc::free(memory));
        assert_eq!(calls(), (0, 0), "earlier memory came to the program's `free`");

        // Functions that it does not replace are the library's, which give out nothing where earlier memory lies.
        let grown = libc::realloc(large, 2 << 20).cast::<u8>();
        assert_eq!((*grown, *grown.add((1 << 20) - 1)), (9, 9));
        libc::free(grown.cast());
        assert_eq!(calls(), (0, 1));
        for count in 1..2000 {
            let memory = libc::calloc(count, 1);
            assert!(memory != small);
            libc::free(memory);
            assert_eq!(calls(), (0, 1), "{count} bytes lie where earlier memory does");
        }
        let mut aligned = ptr::null_mut();
        assert_eq!(libc::posix_memalign(&raw mut aligned, 4096, 10), 0);
        libc::free(aligned);
        assert_eq!((aligned.addr() % 4096, calls()), (0, (0, 1)));
    }
}
