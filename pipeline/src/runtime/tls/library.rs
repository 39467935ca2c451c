//! Thread-local variables of loaded libraries: from the address `dlsym` answers to a descriptor any thread can use.

use std::ffi::{c_int, c_void};

use rustc_hash::FxHashMap;
use uruk_core::ExecutorAddr;

use super::TlsIndex;
use crate::runtime::forks::{LockOrder, RuntimeLock};

/// The descriptor of the thread-local variable whose instance in the *calling* thread is at `address`, or
/// `None` if no loaded object has a thread-local variable there.
///
/// # Cost
/// A walk over the loaded objects.
pub fn library_variable(address: u64) -> Option<TlsIndex> {
    let mut search = VariableSearch { address, found: None };
    // SAFETY: the callback gets back the pointer to `search`, which outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(visit), (&raw mut search).cast()) };
    search.found
}

/// The address of a descriptor equal to `index` in memory that is never freed. Equal descriptors share one address.
pub fn library_variable_descriptor(index: TlsIndex) -> ExecutorAddr {
    let mut descriptors = DESCRIPTORS.lock();
    // Leaked on purpose: linked code holds the address for as long as it likes, and libraries have few such variables.
    let descriptor =
        descriptors.get_or_insert_default().entry(index).or_insert_with(|| Box::leak(Box::new(index)));
    ExecutorAddr::from_ptr(*descriptor)
}

/// The content of the descriptor at `address`, if [`library_variable_descriptor`] has made it.
pub fn variable_of_descriptor(address: ExecutorAddr) -> Option<TlsIndex> {
    let descriptors = DESCRIPTORS.lock();
    let mut made = descriptors.as_ref()?.values().copied();
    made.find(|descriptor| ExecutorAddr::from_ptr(*descriptor) == address).copied()
}

static DESCRIPTORS: RuntimeLock<Option<FxHashMap<TlsIndex, &'static TlsIndex>>> =
    RuntimeLock::new(LockOrder::TlsDescriptors, None);

struct VariableSearch {
    address: u64,
    found: Option<TlsIndex>,
}

unsafe extern "C" fn visit(info: *mut libc::dl_phdr_info, size: usize, data: *mut c_void) -> c_int {
    // SAFETY: dl_iterate_phdr passes a description of `size` bytes and the pointer given to it.
    let (info, search) = unsafe { (&*info, &mut *data.cast::<VariableSearch>()) };
    if size < size_of::<libc::dl_phdr_info>() || info.dlpi_tls_data.is_null() {
        return 0;
    }
    // SAFETY: the description's program headers are `dlpi_phnum` valid entries.
    let headers = unsafe { std::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum)) };
    let Some(segment) = headers.iter().find(|header| header.p_type == libc::PT_TLS) else { return 0 };
    let start = info.dlpi_tls_data.addr() as u64;
    match search.address.checked_sub(start) {
        Some(offset) if offset < segment.p_memsz => {
            search.found = Some(TlsIndex { module: info.dlpi_tls_modid as u64, offset });
            1
        }
        _ => 0,
    }
}
