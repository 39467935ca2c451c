//! The pointers through which loaded objects reach each other's functions and variables, as the dynamic linker left them.

mod hashes;

use std::ffi::{CStr, CString, c_int, c_void};
use std::ops::Range;
use std::ptr;

use uruk_core::sync::atomic::{AtomicPtr, Ordering};

use crate::arch::{SlotKind, host};
pub(super) use hashes::older_hash;
use hashes::{in_hashes, in_older_hashes};

const PAGE_BYTES: u64 = 4096;

/// A pointer of a loaded object to a symbol that may be another object's.
#[derive(Debug)]
pub(super) struct ImportSlot<'a> {
    pub(super) kind: SlotKind,
    /// The symbol's name.
    pub(super) name: &'a CStr,
    /// Added to the symbol's address.
    pub(super) addend: u64,
    address: u64,
    /// Whether its page is writable only when the dynamic linker says so.
    read_only: bool,
}

impl ImportSlot<'_> {
    /// Its value.
    pub(super) fn load(&self) -> u64 {
        // Relaxed: the value that the dynamic linker wrote before any thread of ours looked.
        self.pointer().load(Ordering::Relaxed).expose_provenance() as u64
    }

    /// Changes its value; says whether that was possible.
    ///
    /// # Concurrency
    /// One aligned store: threads see the old or the new address.
    pub(super) fn store(&self, value: *mut c_void) -> bool {
        if self.read_only && !protect(self.page(), libc::PROT_READ | libc::PROT_WRITE) {
            return false;
        }
        // Relaxed: a thread that reads the slot gets a value that was complete before this call.
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
/// As [`ImportSlot::store`]. No object is unloaded at the time.
pub(super) fn store_all(value: impl Fn(&ImportSlot<'_>) -> Option<*mut c_void>) -> bool {
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
                // Relaxed: as in `ImportSlot::store`.
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
pub(super) fn for_each_slot(mut visitor: impl FnMut(&ImportSlot<'_>)) {
    for_each_object(|object| object.for_each_slot(&mut visitor));
}

/// Shows every loaded object that has a dynamic section to `visitor`.
pub(super) fn for_each_object(mut visitor: impl FnMut(&Object)) {
    let mut visitor: &mut dyn FnMut(&Object) = &mut visitor;
    // SAFETY: the callback gets back the pointer to `visitor`, which outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(visit), (&raw mut visitor).cast()) };
}

unsafe extern "C" fn visit(info: *mut libc::dl_phdr_info, _: usize, data: *mut c_void) -> c_int {
    // SAFETY: dl_iterate_phdr passes a valid description and the pointer given to it.
    let (info, visitor) = unsafe { (&*info, &mut *data.cast::<&mut dyn FnMut(&Object)>()) };
    // SAFETY: the object is loaded and stays so during the iteration.
    if let Some(object) = unsafe { Object::read(info) } {
        visitor(&object);
    }
    0
}

/// The pages that the dynamic linker makes read-only after relocation. A last page that is covered in part stays writable,
/// as data follows there.
fn read_only_pages(start: u64, bytes: u64) -> Range<u64> {
    let page_of = |address: u64| address & !(PAGE_BYTES - 1);
    page_of(start)..page_of(start + bytes)
}

/// A loaded object, as its dynamic section describes it. Valid while the object is loaded.
#[derive(Clone, Debug)]
pub(super) struct Object {
    /// Added to its own addresses.
    pub(super) base: u64,
    /// From the first to the last byte that is loaded.
    pub(super) range: Range<u64>,
    /// Where its dynamic section is.
    dynamic: u64,
    relro: Range<u64>,
    tags: [u64; TAGS],
    gnu_hash: u64,
}

/// Tags below this are looked at.
const TAGS: usize = 32;

/// Tags of a dynamic section.
mod tag {
    pub(super) const NEEDED: u64 = 1;
    pub(super) const PLTRELSZ: u64 = 2;
    pub(super) const HASH: u64 = 4;
    pub(super) const STRTAB: u64 = 5;
    pub(super) const SYMTAB: u64 = 6;
    pub(super) const RELA: u64 = 7;
    pub(super) const RELASZ: u64 = 8;
    pub(super) const INIT: u64 = 12;
    pub(super) const FINI: u64 = 13;
    pub(super) const SYMBOLIC: u64 = 16;
    pub(super) const JMPREL: u64 = 23;
    pub(super) const INIT_ARRAY: u64 = 25;
    pub(super) const INIT_ARRAYSZ: u64 = 27;
    pub(super) const FINI_ARRAYSZ: u64 = 28;
    pub(super) const FLAGS: u64 = 30;
    pub(super) const GNU_HASH: u64 = 0x6fff_fef5;
}

/// The destructors of an object whose constructors have not run, as its dynamic section told of them.
#[derive(Debug, Default)]
pub(super) struct PutOff(Vec<DynamicValue>);

impl PutOff {
    /// Has the dynamic linker run them at the end of the process: the constructors are about to run.
    pub(super) fn restore(&self) {
        for entry in &self.0 {
            // SAFETY: the object is never unloaded, and the dynamic linker looks at its destructors at the end alone.
            unsafe { entry.set(entry.value) };
        }
    }
}

/// A value in a dynamic section.
#[derive(Debug)]
struct DynamicValue {
    at: u64,
    value: u64,
    /// Whether its page is writable only when the dynamic linker says so.
    is_relro: bool,
}

impl DynamicValue {
    /// Sets another value; says whether that was possible.
    ///
    /// # Safety
    /// The object is loaded, and no other thread looks at the value.
    unsafe fn set(&self, value: u64) -> bool {
        let page = self.at & !(PAGE_BYTES - 1);
        if !protect(page, libc::PROT_READ | libc::PROT_WRITE) {
            return false;
        }
        // SAFETY: the caller's obligation, on a page that can be written now.
        unsafe { ptr::with_exposed_provenance_mut::<u64>(self.at as usize).write(value) };
        if self.is_relro {
            protect(page, libc::PROT_READ);
        }
        true
    }
}

impl Object {
    /// # Safety
    /// `info` describes an object that is loaded and relocated.
    unsafe fn read(info: &libc::dl_phdr_info) -> Option<Self> {
        // SAFETY: the description's program headers are `dlpi_phnum` valid entries.
        let headers = unsafe { std::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum)) };
        let base = info.dlpi_addr;
        let find = |kind| headers.iter().find(|header| header.p_type == kind);
        let loaded = headers.iter().filter(|header| header.p_type == libc::PT_LOAD);
        let ends = loaded.clone().map(|header| base + header.p_vaddr + header.p_memsz);
        let range = base + loaded.map(|header| header.p_vaddr).min()?..ends.max()?;
        let relro = find(libc::PT_GNU_RELRO);
        let relro = relro.map_or(0..0, |header| read_only_pages(base + header.p_vaddr, header.p_memsz));
        let dynamic = base + find(libc::PT_DYNAMIC)?.p_vaddr;
        let mut object = Self { base, range, dynamic, relro, tags: [0; TAGS], gnu_hash: 0 };
        for [tag, value] in object.entries() {
            match tag {
                tag::GNU_HASH => object.gnu_hash = object.address(value),
                tag if (tag as usize) < TAGS => object.tags[tag as usize] = value,
                _ => {}
            }
        }
        Some(object)
    }

    /// The entries of its dynamic section.
    fn entries(&self) -> impl Iterator<Item = [u64; 2]> + use<> {
        let mut at = ptr::with_exposed_provenance::<[u64; 2]>(self.dynamic as usize);
        std::iter::from_fn(move || {
            // SAFETY: a dynamic section ends with an entry of zero, where the iteration stops.
            let [tag, value] = unsafe { at.read() };
            at = at.wrapping_add(usize::from(tag != 0));
            (tag != 0).then_some([tag, value])
        })
    }

    /// glibc has turned values that are addresses into such in place, except for the vDSO, whose values are offsets.
    fn address(&self, value: u64) -> u64 {
        match value {
            0 => 0,
            value if value < self.base => self.base + value,
            value => value,
        }
    }

    fn at(&self, tag: u64) -> u64 {
        self.address(self.tags[tag as usize])
    }

    /// The name at `offset` in its table of strings.
    ///
    /// # Safety
    /// The object itself gives the offset.
    unsafe fn text(&self, offset: u64) -> &CStr {
        // SAFETY: the caller's obligation; the table's strings are terminated.
        unsafe { CStr::from_ptr(ptr::with_exposed_provenance((self.at(tag::STRTAB) + offset) as usize)) }
    }

    /// The names of the libraries that it says to need.
    pub(super) fn needed(&self) -> Vec<CString> {
        let named = self.entries().filter(|[tag, _]| *tag == tag::NEEDED);
        // SAFETY: that is what the value of such an entry is.
        named.map(|[_, offset]| unsafe { self.text(offset) }.to_owned()).collect()
    }

    /// Whether its references to its own symbols stay with it, even if others define them too.
    pub(super) fn is_symbolic(&self) -> bool {
        const DF_SYMBOLIC: u64 = 2;
        self.tags[tag::FLAGS as usize] & DF_SYMBOLIC != 0
            || self.entries().any(|[tag, _]| tag == tag::SYMBOLIC)
    }

    /// Its first definition of `name` that `accept` takes.
    ///
    /// # Cost
    /// A lookup in its table of hashes.
    pub(super) fn definition(
        &self,
        name: &CStr,
        accept: impl Fn(&libc::Elf64_Sym) -> bool,
    ) -> Option<libc::Elf64_Sym> {
        let symbols = ptr::with_exposed_provenance::<libc::Elf64_Sym>(self.at(tag::SYMTAB) as usize);
        if symbols.is_null() || self.at(tag::STRTAB) == 0 {
            return None;
        }
        let definition = |index: u32| {
            // SAFETY: the tables of hashes name entries of the symbol table, and a symbol's name is in its object's strings.
            let symbol = unsafe { symbols.add(index as usize).read() };
            let is_it = symbol.st_shndx != 0
                // SAFETY: as above.
                && unsafe { self.text(symbol.st_name.into()) } == name
                && accept(&symbol);
            is_it.then_some(symbol)
        };
        match (self.gnu_hash, self.at(tag::HASH)) {
            (0, 0) => None,
            (0, table) => in_older_hashes(table, name, definition),
            (table, _) => in_hashes(table, name, definition),
        }
    }

    /// Whether the dynamic linker finds a definition of `name` in it.
    pub(super) fn defines(&self, name: &CStr) -> bool {
        const STB_LOCAL: u8 = 0;
        self.definition(name, |symbol| symbol.st_info >> 4 != STB_LOCAL).is_some()
    }

    /// Its constructors, in their order.
    pub(super) fn constructors(&self) -> Vec<u64> {
        let init = Some(self.tags[tag::INIT as usize]).filter(|init| *init != 0).map(|init| self.base + init);
        let array = self.base + self.tags[tag::INIT_ARRAY as usize];
        let count = self.tags[tag::INIT_ARRAYSZ as usize] / 8;
        let in_array = (0..count).map(|index| {
            // SAFETY: the dynamic section says that so many pointers are there, and the object is relocated.
            unsafe { ptr::with_exposed_provenance::<u64>((array + 8 * index) as usize).read() }
        });
        // By convention the ends of a list.
        init.into_iter().chain(in_array).filter(|&function| function != 0 && function != u64::MAX).collect()
    }

    /// Lets the dynamic linker call `instead` and no constructor, and no destructor until the answer is [restored](PutOff::restore). `None` if that was
    /// not possible.
    ///
    /// # Safety
    /// The dynamic linker has not come to the constructors, and no other thread looks at the dynamic section.
    pub(super) unsafe fn put_off(&self, instead: extern "C" fn()) -> Option<PutOff> {
        let instead = ((instead as *const ()).expose_provenance() as u64).wrapping_sub(self.base);
        let mut destructors = PutOff::default();
        // Each entry is a tag and a value.
        for (at, [tag, value]) in (self.dynamic + 8..).step_by(16).zip(self.entries()) {
            let entry = DynamicValue { at, value, is_relro: self.relro.contains(&(at & !(PAGE_BYTES - 1))) };
            // SAFETY: the entry is the object's own, and the caller says that no other thread looks.
            let is_set = unsafe {
                match tag {
                    tag::INIT | tag::FINI => entry.set(instead),
                    tag::INIT_ARRAYSZ | tag::FINI_ARRAYSZ => entry.set(0),
                    _ => continue,
                }
            };
            if !is_set {
                destructors.restore();
                return None;
            }
            if matches!(tag, tag::FINI | tag::FINI_ARRAYSZ) {
                destructors.0.push(entry);
            }
        }
        Some(destructors)
    }

    /// Shows every slot of it to `visitor`.
    pub(super) fn for_each_slot(&self, mut visitor: impl FnMut(&ImportSlot<'_>)) {
        const RELOCATION_BYTES: u64 = 24;
        let symbols = self.at(tag::SYMTAB);
        if symbols == 0 || self.at(tag::STRTAB) == 0 {
            return;
        }
        for (table, size) in [(tag::JMPREL, tag::PLTRELSZ), (tag::RELA, tag::RELASZ)] {
            let (table, size) = (self.at(table), self.tags[size as usize]);
            let count = if table == 0 { 0 } else { size / RELOCATION_BYTES };
            for index in 0..count {
                // SAFETY: the dynamic section says that `size` bytes of such entries are here.
                let [offset, info, addend] = unsafe {
                    ptr::with_exposed_provenance::<[u64; 3]>(table as usize).add(index as usize).read()
                };
                let Some(kind) = host::loaded_slot(info as u32) else { continue };
                // SAFETY: relocations name entries of the symbol table, whose names are in the table of strings.
                let name = unsafe {
                    let symbol = ptr::with_exposed_provenance::<libc::Elf64_Sym>(symbols as usize);
                    self.text((*symbol.add((info >> 32) as usize)).st_name.into())
                };
                let address = self.base + offset;
                let addend = if kind == SlotKind::Pointer { addend } else { 0 };
                let read_only = self.relro.contains(&address);
                if address.is_multiple_of(8) {
                    visitor(&ImportSlot { kind, name, addend, address, read_only });
                }
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
