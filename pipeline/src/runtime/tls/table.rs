//! The blocks of one thread, and the function that finds a variable in them.
//!
//! Only the thread itself touches its table, so nothing here is synchronized. The thread-local variable that
//! leads to it has a constant initializer and no destructor of its own: reaching it is one load.

use std::alloc::Layout;
use std::cell::Cell;
use std::ffi::c_void;
use std::ptr;
use std::sync::OnceLock;

use super::TlsIndex;
use super::distance::thread_pointer;
use super::registry::{self, FIXED, OURS, slot_of};
use super::reserve;

/// One block of this thread. `module` is zero where there is none.
#[derive(Clone, Copy)]
struct TlsBlock {
    module: u64,
    base: *mut u8,
    memory: Memory,
}

/// The memory of a block.
#[derive(Clone, Copy)]
struct Memory {
    start: *mut u8,
    layout: Layout,
}

/// This thread's blocks by slot, as the parts of a `Vec<TlsBlock>`, and how far its end has come.
#[derive(Clone, Copy)]
struct BlockTable {
    blocks: *mut TlsBlock,
    len: usize,
    capacity: usize,
    rounds: u32,
    watched: bool,
}

thread_local! {
    static TABLE: Cell<BlockTable> =
        const { Cell::new(BlockTable { blocks: ptr::null_mut(), len: 0, capacity: 0, rounds: 0, watched: false }) };
}

unsafe extern "C" {
    /// The C library's function, for the modules it numbers itself.
    #[link_name = "__tls_get_addr"]
    fn library_tls_get_addr(index: *const TlsIndex) -> *mut u8;
}

/// Finds the calling thread's instance of a variable. Linked code calls it as `__tls_get_addr`.
///
/// For a module that is gone the answer lies in the unmapped first page.
///
/// # Safety
/// `index` points to a descriptor of a module that is alive.
pub(super) unsafe extern "C" fn tls_get_addr(index: *const TlsIndex) -> *mut u8 {
    // SAFETY: the caller's obligation.
    let TlsIndex { module, offset } = unsafe { *index };
    if module & OURS == 0 {
        if module == FIXED {
            return ptr::with_exposed_provenance_mut(thread_pointer().wrapping_add(offset) as usize);
        }
        // SAFETY: the caller's obligation, passed on.
        return unsafe { library_tls_get_addr(index) };
    }
    let table = TABLE.get();
    let slot = slot_of(module);
    if slot < table.len {
        // SAFETY: `blocks` holds `len` initialised entries.
        let block = unsafe { &*table.blocks.add(slot) };
        if block.module == module {
            return block.base.wrapping_add(offset as usize);
        }
    }
    first_access(module).wrapping_add(offset as usize)
}

/// Gives this thread its blocks of all modules that are alive, so that no later access is a first one. A block for which
/// there is no memory is left to its first access, which may never come.
pub(super) fn touch_all() {
    let mut first = 0;
    while let Some(module) = registry::next_alive(first) {
        if !has_block(module) {
            let _ = make_block(module);
        }
        first = slot_of(module) + 1;
    }
}

fn has_block(module: u64) -> bool {
    let (table, slot) = (TABLE.get(), slot_of(module));
    // SAFETY: `blocks` holds `len` initialised entries.
    slot < table.len && unsafe { (*table.blocks.add(slot)).module } == module
}

/// Has the C library give this thread its block of a module that it numbers itself.
pub(super) fn touch_library(module: u64) {
    // SAFETY: the caller has the number from the C library, of a library that is never unloaded.
    unsafe { library_tls_get_addr(&TlsIndex { module, offset: 0 }) };
}

/// Gives this thread its block of `module`.
#[cold]
fn first_access(module: u64) -> *mut u8 {
    match make_block(module) {
        Ok(base) => base,
        // Code of a module that is gone runs, against the contract of removal. It faults at its own instruction, where a debugger finds the
        // mistake.
        Err(NoBlock::Gone) => ptr::null_mut(),
        // Linked code is in the middle of an access and cannot handle an error. The C library ends the process here too.
        Err(NoBlock::NoMemory(layout)) => std::alloc::handle_alloc_error(layout),
    }
}

/// Why this thread has no block of a module.
enum NoBlock {
    /// The module is gone, or its image is not written yet.
    Gone,
    /// There is no memory for such a block.
    NoMemory(Layout),
}

/// Makes this thread's block of `module`.
fn make_block(module: u64) -> Result<*mut u8, NoBlock> {
    // A handler that ran in the middle could find the table half changed, or have its own block replaced.
    let _signals = SignalsBlocked::now();
    let layout = registry::layout(module).ok_or(NoBlock::Gone)?;
    let (memory, base) = Memory::zeroed(layout).ok_or(NoBlock::NoMemory(layout))?;
    let block = TlsBlock { module, base, memory };
    // A thread that starts touches modules whose code it may never run, so this one may have gone by now.
    // SAFETY: the block is fresh and has the module's layout.
    if !unsafe { registry::copy_image(module, base) } {
        free(&block);
        return Err(NoBlock::Gone);
    }
    insert(block);
    Ok(base)
}

impl Memory {
    /// Memory for a block of `layout`, and where the block begins in it. Pages that the program leaves alone stay
    /// untouched: zeros with a large alignment would be written one by one, so the block is aligned here instead.
    fn zeroed(layout: Layout) -> Option<(Self, *mut u8)> {
        /// The alignment of the allocator's own fresh zeros.
        const ALIGN: usize = 16;
        let extra = if layout.align() > ALIGN { layout.align() } else { 0 };
        let layout_of_all = Layout::from_size_align(layout.size().checked_add(extra)?, ALIGN).ok()?;
        // SAFETY: the size is not zero: `register_module` sees to that.
        let start = unsafe { std::alloc::alloc_zeroed(layout_of_all) };
        if start.is_null() {
            return None;
        }
        let skipped = if extra == 0 { 0 } else { start.addr().next_multiple_of(extra) - start.addr() };
        Some((Self { start, layout: layout_of_all }, start.wrapping_add(skipped)))
    }
}

/// While it lives no signal handler runs on this thread.
pub(crate) struct SignalsBlocked(libc::sigset_t);

impl SignalsBlocked {
    pub(crate) fn now() -> Self {
        // SAFETY: a zeroed set is valid; the first call fills `all`, the second reads it and fills `before`.
        unsafe {
            let (mut all, mut before) = std::mem::zeroed::<(libc::sigset_t, libc::sigset_t)>();
            libc::sigfillset(&raw mut all);
            libc::pthread_sigmask(libc::SIG_BLOCK, &raw const all, &raw mut before);
            Self(before)
        }
    }
}

impl Drop for SignalsBlocked {
    fn drop(&mut self) {
        // SAFETY: the set is the one this thread had.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.0, ptr::null_mut()) };
    }
}

fn insert(block: TlsBlock) {
    watch_thread_end();
    let mut table = TABLE.get();
    let slot = slot_of(block.module);
    let mut blocks = take_blocks(&table);
    if blocks.len() <= slot {
        let memory = Memory { start: ptr::null_mut(), layout: Layout::new::<u8>() };
        let empty = TlsBlock { module: 0, base: ptr::null_mut(), memory };
        blocks.resize((slot + 1).next_multiple_of(16), empty);
    }
    let old = std::mem::replace(&mut blocks[slot], block);
    let mut blocks = std::mem::ManuallyDrop::new(blocks);
    table.blocks = blocks.as_mut_ptr();
    table.len = blocks.len();
    table.capacity = blocks.capacity();
    TABLE.set(table);
    free(&old);
}

/// Rebuilds the vector from its parts. The caller stores it again or frees it.
fn take_blocks(table: &BlockTable) -> Vec<TlsBlock> {
    if table.blocks.is_null() {
        return Vec::new();
    }
    // SAFETY: the parts are those of a vector that `insert` took apart, and no other exists on them.
    unsafe { Vec::from_raw_parts(table.blocks, table.len, table.capacity) }
}

fn free(block: &TlsBlock) {
    if block.module != 0 {
        // SAFETY: the memory was allocated with this layout by `make_block`, and the block has left the table.
        unsafe { std::alloc::dealloc(block.memory.start, block.memory.layout) };
    }
}

/// Asks for `thread_ends` to be called for this thread. Says whether it will be.
pub(super) fn watch_thread_end() -> bool {
    let mut table = TABLE.get();
    if !table.watched
        && let Some(key) = key()
    {
        table.watched = true;
        TABLE.set(table);
        // SAFETY: the key exists; the value only has to differ from null.
        unsafe { libc::pthread_setspecific(key, ptr::without_provenance(1)) };
    }
    table.watched
}

/// The key whose destructor frees a thread's blocks. Without one, which takes a process with a thousand keys, they leak.
fn key() -> Option<libc::pthread_key_t> {
    static KEY: OnceLock<Option<libc::pthread_key_t>> = OnceLock::new();
    *KEY.get_or_init(|| {
        let mut key = 0;
        // SAFETY: `key` can be written; the destructor is a function of the required type.
        (unsafe { libc::pthread_key_create(&raw mut key, Some(thread_ends)) } == 0).then_some(key)
    })
}

/// Runs in each round of the ending thread's key destructors and frees its blocks in the last.
unsafe extern "C" fn thread_ends(_: *mut c_void) {
    /// PTHREAD_DESTRUCTOR_ITERATIONS of the C library: after so many rounds it gives up on keys that are set again.
    const ROUNDS: u32 = 4;
    let mut table = TABLE.get();
    table.rounds += 1;
    if table.rounds < ROUNDS {
        TABLE.set(table);
        if let Some(key) = key() {
            // SAFETY: the key exists; the value only has to differ from null.
            unsafe { libc::pthread_setspecific(key, ptr::without_provenance(1)) };
        }
        return;
    }
    let blocks = take_blocks(&table);
    TABLE.set(BlockTable { blocks: ptr::null_mut(), len: 0, capacity: 0, ..table });
    reserve::thread_ends();
    for block in &blocks {
        free(block);
    }
}
