//! For an engine inside a library loaded by `dlopen`: making libgcc call us, or register each object with it.

use std::ffi::{CStr, c_int, c_void};
use std::ptr;

use super::UnwindError;

/// Lets every loaded object that imports `name` call `function` instead; answers how many slots were changed.
///
/// # Concurrency
/// A slot is changed by one aligned store; threads call the old or the new function.
pub(super) fn redirect_imports(name: &CStr, function: *mut c_void) -> usize {
    let mut search = Search { name, function, slots: 0 };
    // SAFETY: the callback gets back the pointer to `search`, which outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(visit), (&raw mut search).cast()) };
    search.slots
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

struct Search<'a> {
    name: &'a CStr,
    function: *mut c_void,
    slots: usize,
}

unsafe extern "C" fn visit(info: *mut libc::dl_phdr_info, _: usize, data: *mut c_void) -> c_int {
    // SAFETY: dl_iterate_phdr passes a valid description and the pointer given to it.
    let (info, search) = unsafe { (&*info, &mut *data.cast::<Search<'_>>()) };
    // SAFETY: the description's program headers are `dlpi_phnum` valid entries.
    let headers = unsafe { std::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum)) };
    if let Some(dynamic) = headers.iter().find(|header| header.p_type == libc::PT_DYNAMIC) {
        let relro = headers.iter().find(|header| header.p_type == libc::PT_GNU_RELRO);
        let relro = relro.map_or(0..0, |header| {
            let start = info.dlpi_addr + header.p_vaddr;
            start..start + header.p_memsz
        });
        // SAFETY: the object is loaded and stays so during the iteration, so its dynamic section can be read.
        unsafe { patch_object(info.dlpi_addr, info.dlpi_addr + dynamic.p_vaddr, &relro, search) };
    }
    0
}

/// # Safety
/// `base` and `dynamic` describe an object that is loaded and relocated.
unsafe fn patch_object(base: u64, dynamic: u64, relro: &std::ops::Range<u64>, search: &mut Search<'_>) {
    const DT_NULL: u64 = 0;
    const DT_PLTRELSZ: u64 = 2;
    const DT_STRTAB: u64 = 5;
    const DT_SYMTAB: u64 = 6;
    const DT_RELA: u64 = 7;
    const DT_RELASZ: u64 = 8;
    const DT_JMPREL: u64 = 23;
    const R_X86_64_GLOB_DAT: u64 = 6;
    const R_X86_64_JUMP_SLOT: u64 = 7;

    let mut tags = [0_u64; 24];
    let mut at = ptr::with_exposed_provenance::<[u64; 2]>(dynamic as usize);
    loop {
        // SAFETY: a dynamic section ends with DT_NULL, where the loop stops.
        let [tag, value] = unsafe { at.read() };
        match tag {
            DT_NULL => break,
            tag if (tag as usize) < tags.len() => tags[tag as usize] = value,
            _ => {}
        }
        at = at.wrapping_add(1);
    }
    // glibc has turned these into addresses in place, except for the vDSO, whose values are offsets.
    let address = |tag: u64| match tags[tag as usize] {
        0 => 0,
        value if value < base => base + value,
        value => value,
    };
    let (symbols, strings) = (address(DT_SYMTAB), address(DT_STRTAB));
    if symbols == 0 || strings == 0 {
        return;
    }
    for (table, size) in
        [(address(DT_JMPREL), tags[DT_PLTRELSZ as usize]), (address(DT_RELA), tags[DT_RELASZ as usize])]
    {
        if table == 0 {
            continue;
        }
        for index in 0..size as usize / 24 {
            // SAFETY: the dynamic section says that `size` bytes of 24-byte entries are here.
            let [offset, info, _] =
                unsafe { ptr::with_exposed_provenance::<[u64; 3]>(table as usize).add(index).read() };
            if !matches!(info & 0xffff_ffff, R_X86_64_GLOB_DAT | R_X86_64_JUMP_SLOT) {
                continue;
            }
            // SAFETY: relocations name entries of the symbol table, whose names are terminated strings in the
            // string table.
            let name = unsafe {
                let symbol = ptr::with_exposed_provenance::<libc::Elf64_Sym>(symbols as usize)
                    .add((info >> 32) as usize);
                CStr::from_ptr(ptr::with_exposed_provenance(strings as usize + (*symbol).st_name as usize))
            };
            if name == search.name && store(base + offset, search.function, relro.contains(&(base + offset)))
            {
                search.slots += 1;
            }
        }
    }
}

/// Stores `function` into the slot at `address`; says whether that was possible.
fn store(address: u64, function: *mut c_void, read_only: bool) -> bool {
    use uruk_core::sync::atomic::{AtomicPtr, Ordering};
    let page = ptr::with_exposed_provenance_mut::<c_void>(address as usize & !4095);
    // SAFETY: the page holds a GOT of a loaded object; making it writable for a moment takes nothing from anyone.
    if read_only && unsafe { libc::mprotect(page, 4096, libc::PROT_READ | libc::PROT_WRITE) } != 0 {
        return false;
    }
    // SAFETY: the slot is an aligned pointer that other threads only read, with single loads.
    let slot =
        unsafe { AtomicPtr::from_ptr(ptr::with_exposed_provenance_mut::<*mut c_void>(address as usize)) };
    // Relaxed: whoever reads the slot gets a function that has been there since our library was loaded.
    slot.store(function, Ordering::Relaxed);
    if read_only {
        // SAFETY: as above; the protection the dynamic linker gave it is restored.
        unsafe { libc::mprotect(page, 4096, libc::PROT_READ) };
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::unwind::{DlFindObject, own_function};
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
