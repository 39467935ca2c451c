//! Guards between libraries and a program that replaces functions: memory that was allocated earlier never reaches the program.
//!
//! | function | the program replaces it | it does not |
//! |---|---|---|
//! | gives memory | the program's | the library's, but never where earlier memory lies |
//! | takes memory | earlier memory is left alone, all other goes to the program | the library's |
//!
//! Sometimes the library's functions would give out memory where earlier memory lies. Such memory is kept back for good, and they are asked
//! again. So each such place is found at most once. The free memory around it is taken in pieces that double: that costs address space, and
//! few calls and pages.

use std::ffi::{c_int, c_void};
use std::ptr;

use super::earlier::is_earlier;
use super::engine::*;
use super::{AllocationFunction, FUNCTIONS, PROGRAM};

/// The guard before the program's function, if it needs one.
pub(super) fn of_program(function: AllocationFunction) -> Option<*mut c_void> {
    use AllocationFunction as F;
    macro_rules! releasing {
        ($($name:ident)+) => {
            match function {
                F::realloc => Some(resize as *mut c_void),
                F::malloc_usable_size => Some(usable_size as *mut c_void),
                $(F::$name => Some(release::<{ F::$name as usize }> as *mut c_void),)+
                _ => None,
            }
        };
    }
    releasing! {
        free _ZdlPv _ZdaPv _ZdlPvm _ZdaPvm _ZdlPvRKSt9nothrow_t _ZdaPvRKSt9nothrow_t
        _ZdlPvSt11align_val_t _ZdaPvSt11align_val_t _ZdlPvmSt11align_val_t _ZdaPvmSt11align_val_t
        _ZdlPvSt11align_val_tRKSt9nothrow_t _ZdaPvSt11align_val_tRKSt9nothrow_t
    }
}

/// The guard before the library's function, once a program replaces another.
pub(super) fn of_library(function: AllocationFunction) -> Option<*mut c_void> {
    use AllocationFunction as F;
    Some(match function {
        F::malloc => malloc as *mut c_void,
        F::calloc => calloc as *mut c_void,
        F::realloc => realloc as *mut c_void,
        F::memalign => memalign as *mut c_void,
        F::aligned_alloc => aligned_alloc as *mut c_void,
        F::posix_memalign => posix_memalign as *mut c_void,
        F::valloc => valloc as *mut c_void,
        F::pvalloc => pvalloc as *mut c_void,
        _ => return None,
    })
}

type GiveBack = unsafe extern "C-unwind" fn(*mut c_void, usize, usize);
type Allocate = unsafe extern "C-unwind" fn(usize) -> *mut c_void;
type Resize = unsafe extern "C-unwind" fn(*mut c_void, usize) -> *mut c_void;

/// `free` and every form of `operator delete`, which take two more words at most.
unsafe extern "C-unwind" fn release<const FUNCTION: usize>(memory: *mut c_void, second: usize, third: usize) {
    if is_earlier(memory) {
        return;
    }
    // SAFETY: the program's function is there, as this stands before it, and does not look at words it does not take.
    unsafe {
        let function: GiveBack = std::mem::transmute(PROGRAM.at(FUNCTION));
        function(memory, second, third);
    }
}

/// `realloc`. Earlier memory stays where it is, and its contents are copied.
unsafe extern "C-unwind" fn resize(memory: *mut c_void, size: usize) -> *mut c_void {
    if is_earlier(memory) {
        // SAFETY: the forwarder's function takes a size; earlier memory is the library's.
        return unsafe {
            let allocate: Allocate = std::mem::transmute(FUNCTIONS.get(AllocationFunction::malloc));
            copied(allocate(size), memory, size)
        };
    }
    // SAFETY: the program's function is there, as this stands before it.
    unsafe {
        let function: Resize = std::mem::transmute(PROGRAM.get(AllocationFunction::realloc));
        function(memory, size)
    }
}

/// `malloc_usable_size`.
unsafe extern "C-unwind" fn usable_size(memory: *mut c_void) -> usize {
    // SAFETY: memory goes to the one who gave it; the program's function is there, as this stands before it.
    unsafe {
        if is_earlier(memory) {
            return library_malloc_usable_size(memory);
        }
        let function: unsafe extern "C-unwind" fn(*mut c_void) -> usize =
            std::mem::transmute(PROGRAM.get(AllocationFunction::malloc_usable_size));
        function(memory)
    }
}

unsafe extern "C" fn malloc(size: usize) -> *mut c_void {
    // SAFETY: the caller's obligation, passed on; so in those that follow.
    elsewhere(|| unsafe { library_malloc(size) })
}

unsafe extern "C" fn calloc(count: usize, size: usize) -> *mut c_void {
    // SAFETY: as above.
    elsewhere(|| unsafe { library_calloc(count, size) })
}

unsafe extern "C" fn memalign(align: usize, size: usize) -> *mut c_void {
    // SAFETY: as above.
    elsewhere(|| unsafe { library_memalign(align, size) })
}

unsafe extern "C" fn aligned_alloc(align: usize, size: usize) -> *mut c_void {
    // SAFETY: as above.
    elsewhere(|| unsafe { library_aligned_alloc(align, size) })
}

unsafe extern "C" fn valloc(size: usize) -> *mut c_void {
    // SAFETY: as above.
    elsewhere(|| unsafe { library_valloc(size) })
}

unsafe extern "C" fn pvalloc(size: usize) -> *mut c_void {
    // SAFETY: as above.
    elsewhere(|| unsafe { library_pvalloc(size) })
}

unsafe extern "C" fn posix_memalign(memory: *mut *mut c_void, align: usize, size: usize) -> c_int {
    let mut status = 0;
    let found = elsewhere(|| {
        let mut found = ptr::null_mut();
        // SAFETY: the caller's obligation, with a place of ours for the answer.
        status = unsafe { library_posix_memalign(&raw mut found, align, size) };
        found
    });
    if status == 0 {
        // SAFETY: the caller's place can be written.
        unsafe { memory.write(found) };
    }
    status
}

/// The library's `realloc`. Growing may move memory to where earlier memory lies.
unsafe extern "C" fn realloc(memory: *mut c_void, size: usize) -> *mut c_void {
    // SAFETY: the caller's obligation; memory that is not earlier stays with the library.
    unsafe {
        if is_earlier(memory) {
            return copied(malloc(size), memory, size);
        }
        let moved = library_realloc(memory, size);
        if is_earlier(moved) { copied(malloc(size), moved, size) } else { moved }
    }
}

/// Asks until what is given lies elsewhere than earlier memory.
fn elsewhere(mut allocate: impl FnMut() -> *mut c_void) -> *mut c_void {
    loop {
        let memory = allocate();
        if !is_earlier(memory) {
            return memory;
        }
        // SAFETY: the library gave it out just now.
        take_rest(unsafe { library_malloc_usable_size(memory) });
    }
}

/// Keeps back what the library has free of earlier memory in pieces of at least `size`: twice as much each time, then
/// what remains, by halves.
fn take_rest(size: usize) {
    let mut next = size;
    while let Some(twice) = next.checked_mul(2)
        && takes_earlier(twice)
    {
        next = twice;
    }
    while next > size {
        takes_earlier(next);
        next /= 2;
    }
}

/// Whether memory of this size is earlier memory, which is kept back then.
fn takes_earlier(size: usize) -> bool {
    // SAFETY: any size may be asked for; memory elsewhere goes back at once.
    unsafe {
        let memory = library_malloc(size);
        let is_earlier = is_earlier(memory);
        if !is_earlier {
            library_free(memory);
        }
        is_earlier
    }
}

/// Copies what fits of earlier memory.
///
/// # Safety
/// `earlier` is memory of the library's; `new` is null or has `size` bytes.
unsafe fn copied(new: *mut c_void, earlier: *mut c_void, size: usize) -> *mut c_void {
    if !new.is_null() {
        // SAFETY: the caller's obligation; the two differ, as both are in use.
        unsafe {
            let held = library_malloc_usable_size(earlier);
            new.cast::<u8>().copy_from_nonoverlapping(earlier.cast(), size.min(held));
        }
    }
    new
}
