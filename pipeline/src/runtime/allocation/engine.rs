//! The engine's own allocator: the C library's functions, unaffected by a program's replacements.

use std::alloc::{GlobalAlloc, Layout};
use std::ffi::{c_int, c_void};
use std::ptr;

use super::{AllocationFunction, LIBRARY};

/// Allocates for the engine in a process whose program may replace `malloc`.
///
/// # Cost
/// As the standard library's.
#[derive(Clone, Copy, Debug, Default)]
pub struct EngineAllocator;

/// The alignment of `malloc`, for sizes that are no smaller.
const ALIGN_MIN: usize = 16;

// SAFETY: the C library's functions keep what the trait asks for; each pointer goes back to the function family it
// came from, as all of these go to the library.
unsafe impl GlobalAlloc for EngineAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if is_ordinary(layout) {
            // SAFETY: a size is all it takes.
            return unsafe { library_malloc(layout.size()) }.cast();
        }
        let mut memory = ptr::null_mut();
        let align = layout.align().max(size_of::<*mut c_void>());
        // SAFETY: the alignment is a power of two and a multiple of a pointer's size.
        let failed = unsafe { library_posix_memalign(&raw mut memory, align, layout.size()) } != 0;
        if failed { ptr::null_mut() } else { memory.cast() }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if is_ordinary(layout) {
            // SAFETY: a size is all it takes.
            return unsafe { library_calloc(layout.size(), 1) }.cast();
        }
        // SAFETY: the caller's obligation, and what comes back has the layout's size.
        unsafe {
            let memory = self.alloc(layout);
            if !memory.is_null() {
                memory.write_bytes(0, layout.size());
            }
            memory
        }
    }

    unsafe fn dealloc(&self, memory: *mut u8, _: Layout) {
        // SAFETY: the memory is the library's.
        unsafe { library_free(memory.cast()) };
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller promises a valid size.
        let new = unsafe { Layout::from_size_align_unchecked(size, layout.align()) };
        if is_ordinary(layout) && is_ordinary(new) {
            // SAFETY: the memory is the library's.
            return unsafe { library_realloc(memory.cast(), size) }.cast();
        }
        // SAFETY: the caller's obligation; both have room for the smaller size.
        unsafe {
            let moved = self.alloc(new);
            if !moved.is_null() {
                moved.copy_from_nonoverlapping(memory, size.min(layout.size()));
                self.dealloc(memory, layout);
            }
            moved
        }
    }
}

fn is_ordinary(layout: Layout) -> bool {
    layout.align() <= ALIGN_MIN && layout.align() <= layout.size()
}

macro_rules! library_functions {
    ($($own:ident $name:ident ($($argument:ident: $type:ty),*) $(-> $result:ty)?;)+) => {$(
        /// The libraries' function of this name.
        pub(super) unsafe fn $own($($argument: $type),*) $(-> $result)? {
            type Signature = unsafe extern "C" fn($($type),*) $(-> $result)?;
            // SAFETY: the address is that of the function, which has this type; the rest is the caller's obligation.
            unsafe {
                let function: Signature = std::mem::transmute(LIBRARY.get(AllocationFunction::$name));
                function($($argument),*)
            }
        }
    )+};
}

library_functions! {
    library_malloc malloc(size: usize) -> *mut c_void;
    library_calloc calloc(count: usize, size: usize) -> *mut c_void;
    library_realloc realloc(memory: *mut c_void, size: usize) -> *mut c_void;
    library_free free(memory: *mut c_void);
    library_memalign memalign(align: usize, size: usize) -> *mut c_void;
    library_aligned_alloc aligned_alloc(align: usize, size: usize) -> *mut c_void;
    library_posix_memalign posix_memalign(memory: *mut *mut c_void, align: usize, size: usize) -> c_int;
    library_valloc valloc(size: usize) -> *mut c_void;
    library_pvalloc pvalloc(size: usize) -> *mut c_void;
    library_malloc_usable_size malloc_usable_size(memory: *mut c_void) -> usize;
}
