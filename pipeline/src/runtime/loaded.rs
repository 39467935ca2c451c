//! The pointers through which loaded objects reach each other's functions and variables, as the dynamic linker left them.

use std::ffi::{CStr, c_int, c_void};
use std::ops::Range;
use std::ptr;

use uruk_core::sync::atomic::{AtomicPtr, Ordering};

const PAGE_BYTES: u64 = 4096;

/// What a pointer is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SlotKind {
    /// An entry of the table of a procedure linkage.
    Function,
    /// An entry of the global offset table.
    Any,
    /// A pointer in the object's data, which may point into a variable.
    Pointer,
}

/// A pointer of a loaded object to a symbol that may be another object's.
#[derive(Debug)]
pub(super) struct Slot<'a> {
    pub(super) kind: SlotKind,
    /// The symbol's name.
    pub(super) name: &'a CStr,
    /// Added to the symbol's address.
    pub(super) addend: u64,
    address: u64,
    /// Whether its page is writable only when the dynamic linker says so.
    read_only: bool,
}

impl Slot<'_> {
    /// What it holds.
    pub(super) fn load(&self) -> u64 {
        // Relaxed: it is what the dynamic linker wrote before any thread of ours looked.
        self.pointer().load(Ordering::Relaxed).expose_provenance() as u64
    }

    /// Changes what it holds; says whether that was possible.
    ///
    /// # Concurrency
    /// One aligned store: threads see the old or the new address.
    pub(super) fn store(&self, value: *mut c_void) -> bool {
        if self.read_only && !protect(self.page(), libc::PROT_READ | libc::PROT_WRITE) {
            return false;
        }
        // Relaxed: whoever reads the slot gets something that was complete before this call.
        self.pointer().store(value, Ordering::Relaxed);
        if self.read_only {
            protect(self.page(), libc::PROT_READ);
        }
        true
    }

    fn page(&self) -> u64 {
        self.address & !(PAGE_BYTES - 1)
    }

    fn pointer(&self) -> &AtomicPtr<c_void> {
        // SAFETY: a relocation of the object names it as an aligned pointer, the object stays loaded while the slot is
        // looked at, and other threads only read it, with single loads.
        unsafe { AtomicPtr::from_ptr(ptr::with_exposed_provenance_mut(self.address as usize)) }
    }
}

/// Changes the protection of a page that holds a table of a loaded object; says whether that was possible.
fn protect(page: u64, protection: c_int) -> bool {
    let start = ptr::with_exposed_provenance_mut(page as usize);
    // SAFETY: the page is a slot's. It stays readable, and being writable for a moment takes nothing from anyone.
    unsafe { libc::mprotect(start, PAGE_BYTES as usize, protection) == 0 }
}

/// Changes every slot for which `value` has an answer, or none; says whether that was possible.
///
/// # Concurrency
/// As [`Slot::store`]. No object is unloaded at the time.
pub(super) fn store_all(value: impl Fn(&Slot<'_>) -> Option<*mut c_void>) -> bool {
    let mut pages = Vec::new();
    let mut are_writable = true;
    for_each_slot(|slot| {
        if are_writable && slot.read_only && value(slot).is_some() && !pages.contains(&slot.page()) {
            are_writable = protect(slot.page(), libc::PROT_READ | libc::PROT_WRITE);
            pages.extend(are_writable.then_some(slot.page()));
        }
    });
    if are_writable {
        for_each_slot(|slot| {
            if let Some(value) = value(slot) {
                // Relaxed: as in `Slot::store`.
                slot.pointer().store(value, Ordering::Relaxed);
            }
        });
    }
    pages.into_iter().for_each(|page| _ = protect(page, libc::PROT_READ));
    are_writable
}

/// How often an object has been loaded into the process.
pub(super) fn loads() -> u64 {
    unsafe extern "C" fn first(info: *mut libc::dl_phdr_info, _: usize, loads: *mut c_void) -> c_int {
        // SAFETY: dl_iterate_phdr passes a valid description and the pointer given to it.
        unsafe { *loads.cast::<u64>() = (*info).dlpi_adds };
        1
    }
    let mut loads = 0_u64;
    // SAFETY: the callback gets back the pointer to `loads`, which outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(first), (&raw mut loads).cast()) };
    loads
}

/// Shows every slot of every loaded object to `visitor`.
pub(super) fn for_each_slot(mut visitor: impl FnMut(&Slot<'_>)) {
    let mut visitor: &mut dyn FnMut(&Slot<'_>) = &mut visitor;
    // SAFETY: the callback gets back the pointer to `visitor`, which outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(visit), (&raw mut visitor).cast()) };
}

unsafe extern "C" fn visit(info: *mut libc::dl_phdr_info, _: usize, data: *mut c_void) -> c_int {
    // SAFETY: dl_iterate_phdr passes a valid description and the pointer given to it.
    let (info, visitor) = unsafe { (&*info, &mut *data.cast::<&mut dyn FnMut(&Slot<'_>)>()) };
    // SAFETY: the description's program headers are `dlpi_phnum` valid entries.
    let headers = unsafe { std::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum)) };
    if let Some(dynamic) = headers.iter().find(|header| header.p_type == libc::PT_DYNAMIC) {
        let relro = headers.iter().find(|header| header.p_type == libc::PT_GNU_RELRO);
        let relro =
            relro.map_or(0..0, |header| read_only_pages(info.dlpi_addr + header.p_vaddr, header.p_memsz));
        // SAFETY: the object is loaded and stays so during the iteration, so its dynamic section can be read.
        unsafe { visit_object(info.dlpi_addr, info.dlpi_addr + dynamic.p_vaddr, &relro, visitor) };
    }
    0
}

/// The pages that the dynamic linker makes read-only after relocation. A last page that is covered in part stays writable,
/// as data follows there.
fn read_only_pages(start: u64, bytes: u64) -> Range<u64> {
    let page_of = |address: u64| address & !(PAGE_BYTES - 1);
    page_of(start)..page_of(start + bytes)
}

/// # Safety
/// `base` and `dynamic` describe an object that is loaded and relocated.
unsafe fn visit_object(base: u64, dynamic: u64, relro: &Range<u64>, visitor: &mut dyn FnMut(&Slot<'_>)) {
    const DT_NULL: u64 = 0;
    const DT_PLTRELSZ: u64 = 2;
    const DT_STRTAB: u64 = 5;
    const DT_SYMTAB: u64 = 6;
    const DT_RELA: u64 = 7;
    const DT_RELASZ: u64 = 8;
    const DT_JMPREL: u64 = 23;
    const R_X86_64_64: u64 = 1;
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
        let count = if table == 0 { 0 } else { size as usize / 24 };
        for index in 0..count {
            // SAFETY: the dynamic section says that `size` bytes of 24-byte entries are here.
            let [offset, info, addend] =
                unsafe { ptr::with_exposed_provenance::<[u64; 3]>(table as usize).add(index).read() };
            let kind = match info & 0xffff_ffff {
                R_X86_64_GLOB_DAT => SlotKind::Any,
                R_X86_64_JUMP_SLOT => SlotKind::Function,
                R_X86_64_64 => SlotKind::Pointer,
                _ => continue,
            };
            // SAFETY: relocations name entries of the symbol table, whose names are terminated strings in the
            // string table.
            let name = unsafe {
                let symbol = ptr::with_exposed_provenance::<libc::Elf64_Sym>(symbols as usize)
                    .add((info >> 32) as usize);
                CStr::from_ptr(ptr::with_exposed_provenance(strings as usize + (*symbol).st_name as usize))
            };
            let address = base + offset;
            let addend = if kind == SlotKind::Pointer { addend } else { 0 };
            let read_only = relro.contains(&address);
            if address.is_multiple_of(8) {
                visitor(&Slot { kind, name, addend, address, read_only });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The data behind was made read-only with the slot that came before it in its page.
    #[test]
    fn a_page_that_is_read_only_in_part_stays_writable() {
        assert_eq!(read_only_pages(0x3df0, 0x210), 0x3000..0x4000);
        assert_eq!(read_only_pages(0x3df0, 0x1250), 0x3000..0x5000);
        assert_eq!(read_only_pages(0x3df0, 0x20), 0x3000..0x3000);
    }
}
