//! Thread-local storage of linked code.
//!
//! Code that is compiled for the general- or local-dynamic model calls `__tls_get_addr` with a [`TlsIndex`]: a
//! module number and an offset. Linked modules have numbers of ours, with the top bit set; our function serves
//! those from a table each thread owns and hands all others to the C library, so one function serves a
//! linked module's own variables and those of loaded libraries.
//!
//! A thread gets its copy of a module's image when it first touches one of its variables. It is freed when
//! the thread ends, in the last round of the thread's key destructors, so that other keys' destructors still find
//! their variables; or when the module is gone and its slot is used again.
//!
//! Variables at a fixed distance from the thread pointer, as executables have them, need none of this: those of libraries
//! loaded with the process are told by their [distance](distance_from_thread_pointer), those of linked code lie in a
//! [reserve](reserve()), if the executable keeps one.
//!
//! Our function never takes the C library's name in the process: linked code receives it by address.
//!
//! # Signals and fork
//! The first access of a thread to a module allocates, like the C library's: not for signal handlers, unless
//! [`touch_modules`] came before them; later ones are. Threads that linked code starts do that first
//! ([`threads`](super::threads)). After a fork the child's only thread keeps its copies.

pub(super) mod distance;
pub(super) mod library;
pub(super) mod registry;
pub(super) mod reserve;
mod reserve_rooms;
mod resolvers;
mod table;

use std::alloc::Layout;
use std::fmt;

use uruk_core::ExecutorAddr;
use uruk_core::sync::Mutex;

use super::forks;

pub use crate::executor::{NotStatic, TlsError, TlsResolvers};
pub use distance::distance_from_thread_pointer;
pub use library::{library_variable, library_variable_descriptor, variable_of_descriptor};
#[cfg(feature = "helpers")]
pub(crate) use registry::FIXED;
#[cfg(feature = "helpers")]
pub(crate) use reserve::reserve_distance;
pub use reserve::{RESERVE_ALIGN, RESERVE_BYTES, ReservedTls, offer_reserve, reserve};
#[cfg(feature = "helpers")]
pub(crate) use reserve_rooms::ReserveRooms;
pub(crate) use table::SignalsBlocked;

/// The argument of `__tls_get_addr`; the layout is the ABI's.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TlsIndex {
    /// The module number.
    pub module: u64,
    /// Offset of the variable in the module's block.
    pub offset: u64,
}

/// Gives a module of linked code its number, for [`TlsIndex::module`].
///
/// Each thread's block is `total_bytes` long and aligned to `align`; it starts as a copy of an image of `image_bytes`,
/// followed by zeros. No thread has a block before [`TlsModule::initialize`] says where the image is.
///
/// # Errors
/// [`TlsError`] if the sizes contradict each other, if a million modules are alive, or if the system cannot note what
/// forks have to do about them.
///
/// # Concurrency
/// Callable from any thread.
pub fn register_module(image_bytes: usize, total_bytes: usize, align: usize) -> Result<TlsModule, TlsError> {
    let layout = layout_of(image_bytes, total_bytes, align)?;
    forks::watch().map_err(|code| TlsError::Watch { code })?;
    Ok(TlsModule { id: registry::register()?, image_bytes, layout })
}

/// As [`register_module`], with the number that another process has given the module, out of [`ModuleNumbers`].
///
/// # Errors
/// As [`register_module`]; [`TlsError::Foreign`] if the number is none, or is alive.
pub fn adopt_module(
    number: u64,
    image_bytes: usize,
    total_bytes: usize,
    align: usize,
) -> Result<TlsModule, TlsError> {
    let layout = layout_of(image_bytes, total_bytes, align)?;
    forks::watch().map_err(|code| TlsError::Watch { code })?;
    match registry::adopt(number) {
        true => Ok(TlsModule { id: number, image_bytes, layout }),
        false => Err(TlsError::Foreign { number }),
    }
}

/// As [`reserve`](reserve()), for room that another process has given an object.
///
/// # Errors
/// [`TlsError::Foreign`] if that is no room of the reserve, or not free.
#[cfg(feature = "helpers")]
pub(super) fn adopt_room(index: TlsIndex, total_bytes: usize) -> Result<ReservedTls, TlsError> {
    reserve::adopt(index.offset, total_bytes).ok_or(TlsError::Foreign { number: index.offset })
}

fn layout_of(image_bytes: usize, total_bytes: usize, align: usize) -> Result<Layout, TlsError> {
    let invalid = TlsError::Invalid { image_bytes, total_bytes, align };
    if image_bytes > total_bytes {
        return Err(invalid);
    }
    Layout::from_size_align(total_bytes.max(1), align).map_err(|_| invalid)
}

/// The numbers of modules of another process, which are given out here.
///
/// # Concurrency
/// One lock, held for a step.
#[derive(Debug)]
pub struct ModuleNumbers(Mutex<registry::Registry>);

impl ModuleNumbers {
    /// Nothing is given out yet.
    pub fn new() -> Self {
        Self(Mutex::new(registry::Registry::new()))
    }

    /// A number that no module has had.
    ///
    /// # Errors
    /// [`TlsError::Exhausted`] if a million modules are alive.
    pub fn take(&self) -> Result<u64, TlsError> {
        self.0.lock().take()
    }

    /// Whether a number is one of those that are given out so.
    #[cfg(feature = "helpers")]
    pub(crate) fn may_have(number: u64) -> bool {
        number & registry::OURS != 0
    }

    /// Ends the life of a number that [`take`](Self::take) has given.
    pub fn give_back(&self, number: u64) {
        self.0.lock().give_back(number);
    }
}

impl Default for ModuleNumbers {
    fn default() -> Self {
        Self::new()
    }
}

/// The address of our `__tls_get_addr`, for linked code.
pub fn tls_get_addr_address() -> ExecutorAddr {
    ExecutorAddr::from_ptr(
        table::tls_get_addr as unsafe extern "C" fn(*const TlsIndex) -> *mut u8 as *const u8,
    )
}

/// Where the calling thread's instance is of the variable that the descriptor at `descriptor` names.
///
/// # Safety
/// The address is a descriptor's, and its module is alive.
pub unsafe fn address_on_this_thread(descriptor: ExecutorAddr) -> ExecutorAddr {
    // SAFETY: passed on to the caller.
    ExecutorAddr::from_ptr(unsafe { table::tls_get_addr(descriptor.to_ptr()) })
}

/// Gives the calling thread its copies of all modules that are alive now. Signal handlers may then touch their
/// variables, as they may touch those of a native program.
///
/// # Cost
/// An allocation for each module.
pub fn touch_modules() {
    table::touch_all();
}

/// Whether there is any module.
pub(super) fn has_modules() -> bool {
    registry::has_any()
}

/// How often the reserve's initial values have been written; `None` without a reserve.
pub(super) fn reserve_writes() -> Option<u64> {
    reserve::writes()
}

/// Prepares a thread before any program code runs on it: it catches up with initial values that were written into the reserve since
/// `reserve_writes`, and gets its copies of all modules.
pub(super) fn start_thread(reserve_writes: Option<u64>) {
    if let Some(writes) = reserve_writes {
        // If the end of a thread is not reported, initial values would be written to it when its memory is gone.
        let is_known = table::watch_thread_end();
        reserve::thread_starts(writes, is_known);
    }
    touch_modules();
}

/// Has the C library give the calling thread its block of a library's module.
fn touch_library_module(module: u64) {
    table::touch_library(module);
}

/// A module of linked code that has thread-local variables. Dropping it ends the validity of its number.
///
/// Blocks that threads still have are freed when the threads end, or when the slot is used again by a thread.
#[must_use = "dropping the module ends it"]
pub struct TlsModule {
    id: u64,
    image_bytes: usize,
    layout: Layout,
}

impl TlsModule {
    /// The module number.
    pub const fn id(&self) -> u64 {
        self.id
    }

    /// Gives threads their blocks from now on, as copies of the image at `image`. It has its final contents, and stays
    /// unchanged until the module is dropped.
    ///
    /// # Concurrency
    /// To be called before any code that uses the variables runs. Threads that start meanwhile may copy the image at once.
    pub fn initialize(&self, image: ExecutorAddr) {
        let (address, len) = (image.value(), self.image_bytes);
        registry::set_image(self.id, registry::Image { address, len, layout: self.layout });
    }
}

impl Drop for TlsModule {
    fn drop(&mut self) {
        registry::unregister(self.id);
    }
}

impl fmt::Debug for TlsModule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TlsModule({:#x})", self.id)
    }
}
