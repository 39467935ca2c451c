//! For an engine inside a library loaded by `dlopen`: making libgcc call us, or register each object with it.

use std::ffi::{CStr, c_void};
use std::ptr;

use super::UnwindError;
use crate::arch::SlotKind;
use crate::runtime::loaded::for_each_slot;

/// Lets every loaded object that imports `name` call `function` instead; answers how many slots were changed.
///
/// # Concurrency
/// A slot is changed by one aligned store; threads call the old or the new function.
pub(super) fn redirect_imports(name: &CStr, function: *mut c_void) -> usize {
    let mut slots = 0;
    for_each_slot(|slot| {
        let is_import = matches!(slot.kind, SlotKind::Function | SlotKind::Any);
        if is_import && slot.name == name && slot.store(function) {
            slots += 1;
        }
    });
    slots
}

/// Keeps the library that contains `function` in memory for ever.
pub(super) fn never_unload(function: *mut c_void) {
    // SAFETY: a zeroed Dl_info is valid, and dladdr fills it or fails.
    unsafe {
        let mut info: libc::Dl_info = std::mem::zeroed();
        if libc::dladdr(function, &raw mut info) != 0 && !info.dli_fname.is_null() {
            libc::dlopen(info.dli_fname, libc::RTLD_NOW | libc::RTLD_NOLOAD | libc::RTLD_NODELETE);
        }
    }
}

/// Hands the frames behind `eh_frame_hdr` to libgcc's list; answers the address to take them back by.
pub(super) fn register_frames(eh_frame_hdr: u64) -> Result<u64, UnwindError> {
    let frames = eh_frame_of(eh_frame_hdr)?;
    let register = unwinder_function(c"__register_frame").ok_or(UnwindError::NoUnwinder)?;
    // SAFETY: the function takes the address of a terminated `.eh_frame` section, which `register` demands.
    unsafe { register(ptr::with_exposed_provenance(frames as usize)) };
    Ok(frames)
}

/// Takes back what [`register_frames`] handed over.
pub(super) fn deregister_frames(frames: u64) {
    if let Some(deregister) = unwinder_function(c"__deregister_frame") {
        // SAFETY: `frames` was registered by `register_frames` and is deregistered once.
        unsafe { deregister(ptr::with_exposed_provenance(frames as usize)) };
    }
}

fn unwinder_function(name: &CStr) -> Option<unsafe extern "C" fn(*const c_void)> {
    // SAFETY: dlsym with a terminated name has no other obligation.
    let address = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    // SAFETY: both functions this is used for take one pointer and answer nothing we use.
    (!address.is_null()).then(|| unsafe { std::mem::transmute(address) })
}

/// Follows a header to its `.eh_frame`. Linkers write that pointer relative to itself, in four bytes.
fn eh_frame_of(eh_frame_hdr: u64) -> Result<u64, UnwindError> {
    const PC_RELATIVE_SIGNED_4: u8 = 0x1b;
    // SAFETY: `register`'s caller promises a header there; its first eight bytes are always present.
    let header = unsafe { ptr::with_exposed_provenance::<[u8; 8]>(eh_frame_hdr as usize).read_unaligned() };
    let [version, encoding, ..] = header;
    if (version, encoding) != (1, PC_RELATIVE_SIGNED_4) {
        return Err(UnwindError::Header { address: eh_frame_hdr, version, encoding });
    }
    let distance = i32::from_le_bytes([header[4], header[5], header[6], header[7]]);
    Ok((eh_frame_hdr + 4).wrapping_add_signed(i64::from(distance)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::unwind::{DlFindObject, own_function};
    use std::ffi::c_int;
    use uruk_core::sync::atomic::{AtomicUsize, Ordering};

    static CALLS: AtomicUsize = AtomicUsize::new(0);

    unsafe extern "C" fn counting(pc: *mut c_void, result: *mut DlFindObject) -> c_int {
        // Relaxed: read by the thread that threw.
        CALLS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's obligation, passed on.
        unsafe { crate::runtime::unwind::find_object(pc, result) }
    }

    #[test]
    fn a_redirected_import_is_called_by_the_unwinder() {
        assert!(redirect_imports(c"_dl_find_object", counting as *mut c_void) > 0);
        let caught = std::panic::catch_unwind(|| std::panic::resume_unwind(Box::new(7)));
        assert!(redirect_imports(c"_dl_find_object", own_function()) > 0);
        assert_eq!(*caught.unwrap_err().downcast::<i32>().unwrap(), 7);
        // Relaxed: this thread made the calls.
        assert!(CALLS.load(Ordering::Relaxed) > 0);
        never_unload(own_function());
    }

    #[test]
    fn a_header_leads_to_its_frames() {
        let header: [u8; 8] = [1, 0x1b, 3, 0x3b, 0x10, 0, 0, 0];
        let address = header.as_ptr().expose_provenance() as u64;
        assert_eq!(eh_frame_of(address), Ok(address + 4 + 0x10));
        let foreign: [u8; 8] = [1, 0xff, 3, 0x3b, 0x10, 0, 0, 0];
        let address = foreign.as_ptr().expose_provenance() as u64;
        assert_eq!(eh_frame_of(address), Err(UnwindError::Header { address, version: 1, encoding: 0xff }));
    }
}
