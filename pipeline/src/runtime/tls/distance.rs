//! Variables that are at the same distance from the thread pointer on every thread.
//!
//! The C library puts the blocks of the executable and of the libraries loaded with it next to the thread pointer, at
//! distances that no thread changes: the *static* thread-local storage. Blocks of libraries loaded later are mostly
//! allocated one by one, when a thread first touches them. Which it is, the library does not say. It can be seen on
//! a thread that has touched nothing yet: there a block that is allocated on demand does not exist.

use std::ffi::{c_int, c_void};

use rustc_hash::FxHashMap;
use uruk_core::sync::thread;

use super::registry::{FIXED, OURS};
use super::{TlsIndex, reserve};
use crate::arch::host::VARIABLES_LIE_BELOW;
pub(super) use crate::arch::host::thread_pointer;
use crate::executor::NotStatic;
use crate::runtime::forks::{LockOrder, RuntimeLock};

/// How far from the thread pointer the variable is, on every thread there is and will be.
///
/// # Errors
/// [`NotStatic`] if threads do not agree, or if that cannot be found out.
///
/// # Cost
/// For the first variable of a library: a thread that is started and joined.
pub fn distance_from_thread_pointer(variable: TlsIndex) -> Result<i64, NotStatic> {
    if variable.module & OURS != 0 {
        return Err(reserve::why_not());
    }
    if variable.module == FIXED {
        return Ok(variable.offset.cast_signed());
    }
    let block = block_distance(variable.module)?;
    Ok(block.wrapping_add_unsigned(variable.offset))
}

/// The distances that were found, by module.
pub(in crate::runtime) static KNOWN: RuntimeLock<Option<FxHashMap<u64, i64>>> =
    RuntimeLock::new(LockOrder::TlsDistances, None);

/// How far the module's blocks are from the thread pointers. Libraries whose variables linked code uses are never unloaded,
/// so an answer stays true.
fn block_distance(module: u64) -> Result<i64, NotStatic> {
    if let Some(known) = KNOWN.lock().get_or_insert_default().get(&module) {
        return Ok(*known);
    }
    // On a new thread the module has a block only if every thread has one. If its block could have come by any other
    // way, it would not be where this thread's is.
    let started = thread::Builder::new().name("uruk-tls".into()).spawn(move || distance_here(module));
    let started = started
        .map_err(|refused| NotStatic::NoThread { code: refused.raw_os_error().unwrap_or(libc::EAGAIN) })?;
    let elsewhere = started.join().map_err(|_| NotStatic::Unknown)?.ok_or(NotStatic::LoadedLater)?;
    super::touch_library_module(module);
    let here = distance_here(module).filter(|here| *here == elsewhere && (*here < 0) == VARIABLES_LIE_BELOW);
    let distance = here.ok_or(NotStatic::LoadedLater)?;
    KNOWN.lock().get_or_insert_default().insert(module, distance);
    Ok(distance)
}

/// How far the calling thread's block of the module is from its thread pointer, if it has one.
fn distance_here(module: u64) -> Option<i64> {
    let mut search = BlockSearch { module, block: None };
    // SAFETY: the callback gets back the pointer to `search`, which outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(visit), (&raw mut search).cast()) };
    Some(search.block?.wrapping_sub(thread_pointer()).cast_signed())
}

struct BlockSearch {
    module: u64,
    block: Option<u64>,
}

unsafe extern "C" fn visit(info: *mut libc::dl_phdr_info, size: usize, data: *mut c_void) -> c_int {
    // SAFETY: dl_iterate_phdr passes a description of `size` bytes and the pointer given to it.
    let (info, search) = unsafe { (&*info, &mut *data.cast::<BlockSearch>()) };
    if size < size_of::<libc::dl_phdr_info>() || info.dlpi_tls_modid as u64 != search.module {
        return 0;
    }
    search.block = (!info.dlpi_tls_data.is_null()).then(|| info.dlpi_tls_data.addr() as u64);
    1
}
