//! The program as an image: what linkers and start files make of an executable, and programs refer to or look up.
//!
//! ```text
//!   __executable_start                    etext                                          edata, end
//!   │ ELF header │ constants, code ──▶    │ data ──▶                                     │
//!   └──────────── text ───────────────────┴──────────── data ────────────────────────────┘
//! ```
//! The memory manager keeps both stretches together (`memory/window.rs`, `memory/there.rs`); code and data for which they have no room lie
//! elsewhere. All of the data stretch can be read. `__bss_start` is where data begins, because zeroes lie among other data. The tables of work
//! that the engine does by itself, such as running initializers, are empty. Files of images have their segments there too.
//!
//! The image is made by the process that links, and lies where the code runs. There `dl_iterate_phdr` tells of all memory of the program, also
//! outside the stretches.

use std::ffi::{CStr, c_int, c_ulong, c_void};
use std::fmt;

use uruk_core::sync::Arc;
use uruk_core::{ExecutorAddr, ExecutorSymbolDef, SymbolFlags};

use super::forks::{self, LockOrder, RuntimeLock};
use crate::arch::Architecture;
use crate::executor::{Actions, Executor, PublishError, Published};
use crate::memory::{MappedSegments, SegmentKind, SegmentRequest};

const HEADER_BYTES: usize = 64;
/// Where the header says where the program starts.
const ENTRY_AT: usize = 24;
const PROGRAM_HEADER_BYTES: usize = 56;
const PROGRAM_HEADERS: usize = 5;
const DYNAMIC_AT: usize = HEADER_BYTES + PROGRAM_HEADERS * PROGRAM_HEADER_BYTES;
const DYNAMIC_ENTRIES: usize = 5;
/// Zeroes, in which all tables that are empty lie.
const EMPTY_AT: usize = DYNAMIC_AT + 16 * DYNAMIC_ENTRIES;
/// `_IO_stdin_used`, which says for which C library a program was made.
const STDIN_USED_AT: usize = EMPTY_AT + 32;
/// `_start`, in the code of start files.
const START_AT: u64 = 32;
/// A header of unwind tables that says that there are none.
const UNWIND_AT: usize = STDIN_USED_AT + 8;
const BYTES: usize = UNWIND_AT + 8;

/// The image of a program. Its memory is given back with it.
pub struct ProgramImage {
    symbols: Vec<(&'static str, ExecutorSymbolDef)>,
    header: ExecutorAddr,
    _published: [Box<dyn Published>; 2],
}

impl ProgramImage {
    /// Makes the image in the memory of `place`, of which nothing has been taken yet. The dynamic linker there has `debuggers_record`, for debuggers.
    /// `None` if the memory keeps no room for an image.
    ///
    /// # Errors
    /// [`PublishError`] if there is no memory for it, or if the place is gone.
    pub fn new(place: &dyn Executor, debuggers_record: u64) -> Result<Option<Self>, PublishError> {
        let memory = place.memory();
        let Some(window) = memory.program_window() else { return Ok(None) };
        let request =
            |kind, content_bytes, align| SegmentRequest { kind, content_bytes, zero_fill_bytes: 0, align };
        let mut header =
            memory.allocate("the program's header", &[request(SegmentKind::ReadOnly, BYTES, 4096)])?;
        let start = header.address(0);
        if start != window.text.start {
            return Ok(None);
        }
        let start_files = place.architecture().start_files();
        let mut code = memory
            .allocate("the program's start files", &[request(SegmentKind::Code, start_files.len(), 16)])?;
        code.working(0).copy_from_slice(start_files);
        let ends = (window.text.end.value(), window.data.end.value());
        let mut image = image(place.architecture(), start.value(), ends, debuggers_record);
        let entry = code.address(0).value() + START_AT - start.value();
        image[ENTRY_AT..ENTRY_AT + 8].copy_from_slice(&entry.to_le_bytes());
        header.working(0).copy_from_slice(&image);
        let header = place.publish(header, None, Actions::default())?;
        let code = place.publish(code, None, Actions::default())?;
        let in_header = |at: usize| ExecutorAddr::new(start.value() + at as u64);
        let data = |names: &[&'static str], address| {
            let data =
                move |name: &&'static str| (*name, ExecutorSymbolDef::new(address, SymbolFlags::EXPORTED));
            names.iter().map(data).collect::<Vec<_>>()
        };
        let mut symbols = data(&["__executable_start", "__ehdr_start"], start);
        symbols.extend(data(&["etext", "_etext", "__etext"], window.text.end));
        symbols.extend(data(&["data_start", "__data_start", "__bss_start"], window.data.start));
        symbols.extend(data(&["edata", "_edata", "end", "_end"], window.data.end));
        symbols.extend(data(&["_DYNAMIC"], in_header(DYNAMIC_AT)));
        symbols.extend(data(&["_IO_stdin_used"], in_header(STDIN_USED_AT)));
        symbols.extend(data(&["__GNU_EH_FRAME_HDR"], in_header(UNWIND_AT)));
        symbols.extend(data(&EMPTY, in_header(EMPTY_AT)));
        for (at, name) in [(0, "_init"), (16, "_fini"), (START_AT, "_start")] {
            let address = ExecutorAddr::new(code.address(0).value() + at);
            symbols
                .push((name, ExecutorSymbolDef::new(address, SymbolFlags::EXPORTED | SymbolFlags::CALLABLE)));
        }
        Ok(Some(Self { symbols, header: start, _published: [header, code] }))
    }

    /// The symbols of linkers and start files.
    pub fn symbols(&self) -> impl Iterator<Item = (&'static str, ExecutorSymbolDef)> {
        self.symbols.iter().copied()
    }

    /// Where its header is.
    pub const fn header(&self) -> ExecutorAddr {
        self.header
    }
}

impl fmt::Debug for ProgramImage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProgramImage").field("header", &self.header).finish_non_exhaustive()
    }
}

/// Lets `dl_iterate_phdr` of this process tell linked code of the program whose image has this header, for as long as the process is there.
/// `mapped` knows the memory of the program. Where the system cannot note what forks have to do, it does not.
pub fn publish(header: ExecutorAddr, mapped: MappedMemory) {
    if forks::watch().is_ok() {
        *PUBLISHED.lock() = Some(PublishedImage { header: header.value(), mapped, told: &[] });
    }
}

/// Tells the memory that is mapped for a program's code and data.
pub type MappedMemory = Arc<dyn Fn() -> MappedSegments + Send + Sync>;

/// The ends of tables that have nothing in them.
const EMPTY: [&str; 9] = [
    "__preinit_array_start",
    "__preinit_array_end",
    "__init_array_start",
    "__init_array_end",
    "__fini_array_start",
    "__fini_array_end",
    "__rela_iplt_start",
    "__rela_iplt_end",
    "__TMC_END__",
];

/// The header of a position-independent executable at `start`, and what it points to.
fn image(
    architecture: Architecture,
    start: u64,
    (text_end, data_end): (u64, u64),
    debuggers_record: u64,
) -> Vec<u8> {
    let mut image = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0".to_vec();
    [3_u16, architecture.machine().0]
        .into_iter()
        .for_each(|half| image.extend_from_slice(&half.to_le_bytes()));
    image.extend_from_slice(&1_u32.to_le_bytes());
    [0, HEADER_BYTES as u64, 0].into_iter().for_each(|word| image.extend_from_slice(&word.to_le_bytes()));
    image.extend_from_slice(&0_u32.to_le_bytes());
    for half in [HEADER_BYTES, PROGRAM_HEADER_BYTES, PROGRAM_HEADERS, 64, 0, 0] {
        image.extend_from_slice(&(half as u16).to_le_bytes());
    }
    let (text, data) = (text_end - start, data_end - text_end);
    let headers_bytes = (PROGRAM_HEADERS * PROGRAM_HEADER_BYTES) as u64;
    let dynamic_bytes = 16 * DYNAMIC_ENTRIES as u64;
    for (kind, flags, at, bytes) in [
        (libc::PT_PHDR, libc::PF_R, HEADER_BYTES as u64, headers_bytes),
        (libc::PT_LOAD, libc::PF_R | libc::PF_X, 0, text),
        (libc::PT_LOAD, libc::PF_R | libc::PF_W, text, data),
        (libc::PT_DYNAMIC, libc::PF_R, DYNAMIC_AT as u64, dynamic_bytes),
        (libc::PT_GNU_STACK, libc::PF_R | libc::PF_W, 0, 0),
    ] {
        let header = program_header(kind, flags, at, bytes);
        image.extend_from_slice(&header.p_type.to_le_bytes());
        image.extend_from_slice(&header.p_flags.to_le_bytes());
        let words = [header.p_offset, at, at, bytes, bytes, header.p_align];
        words.into_iter().for_each(|word| image.extend_from_slice(&word.to_le_bytes()));
    }
    let empty = start + EMPTY_AT as u64;
    // The debugger's record, by which programs find what is loaded; no names and no symbols.
    for [tag, value] in [[21, debuggers_record], [5, empty], [6, empty], [10, 1], [0, 0]] {
        image.extend_from_slice(&u64::to_le_bytes(tag));
        image.extend_from_slice(&value.to_le_bytes());
    }
    image.resize(STDIN_USED_AT, 0);
    image.extend_from_slice(&0x2_0001_u64.to_le_bytes());
    image.extend_from_slice(&[1, 0xff, 0xff, 0xff, 0, 0, 0, 0]);
    image
}

fn program_header(kind: u32, flags: u32, at: u64, bytes: u64) -> libc::Elf64_Phdr {
    let align = if kind == libc::PT_LOAD { 4096 } else { 8 };
    libc::Elf64_Phdr {
        p_type: kind,
        p_flags: flags,
        p_offset: at,
        p_vaddr: at,
        p_paddr: at,
        p_filesz: bytes,
        p_memsz: bytes,
        p_align: align,
    }
}

/// `_r_debug` of this process's dynamic linker.
pub fn debuggers_record() -> u64 {
    // SAFETY: dlsym with a terminated name has no other obligation.
    unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"_r_debug".as_ptr()) }.expose_provenance() as u64
}

/// The value of an entry of the auxiliary vector, as a program finds it: of its own image, if one is published, or of the process. `None` if the
/// system gives none.
pub(super) fn auxiliary_value(kind: u64) -> Option<u64> {
    let header = || PUBLISHED.lock().as_ref().map(|published| published.header);
    let of_image = match kind {
        libc::AT_PHDR => header().map(|header| header + HEADER_BYTES as u64),
        libc::AT_PHNUM => header().map(|_| PROGRAM_HEADERS as u64),
        libc::AT_ENTRY => header().map(|header| {
            // SAFETY: the header stays, and has its entry there.
            header + unsafe { ExecutorAddr::new(header + ENTRY_AT as u64).to_ptr::<u64>().read_unaligned() }
        }),
        _ => None,
    };
    of_image.or_else(|| {
        // SAFETY: `errno` is this thread's, and asking for an entry has no other obligation.
        unsafe {
            *libc::__errno_location() = 0;
            let value = libc::getauxval(kind);
            (value != 0 || *libc::__errno_location() == 0).then_some(value)
        }
    })
}

/// `getauxval` for linked code, and for libraries that were loaded for it.
pub(super) extern "C" fn getauxval(kind: c_ulong) -> c_ulong {
    let is_of_image = matches!(kind, libc::AT_PHDR | libc::AT_PHNUM | libc::AT_ENTRY);
    let known = if is_of_image { auxiliary_value(kind) } else { None };
    // SAFETY: it has no obligation, and sets `errno` where there is no entry.
    known.unwrap_or_else(|| unsafe { libc::getauxval(kind) })
}

/// The program's header and memory, as `dl_iterate_phdr` tells them.
struct PublishedImage {
    header: u64,
    mapped: MappedMemory,
    /// The headers as they were told last. Callers keep pointers to them, so they stay.
    told: &'static [libc::Elf64_Phdr],
}

/// Held for one look; never while a callback runs.
static PUBLISHED: RuntimeLock<Option<PublishedImage>> = RuntimeLock::new(LockOrder::ProgramImage, None);

type Callback = unsafe extern "C" fn(*mut libc::dl_phdr_info, usize, *mut c_void) -> c_int;

/// `dl_iterate_phdr` for linked code, and for libraries that were loaded for it: the program comes first, under the empty name that
/// programs have, and then all other objects of the process.
///
/// # Safety
/// As for the C library's: the callback takes what it is given.
pub(super) unsafe extern "C" fn dl_iterate_phdr(callback: Option<Callback>, data: *mut c_void) -> c_int {
    if let (Some(callback), Some(mut info)) = (callback, describe()) {
        // SAFETY: the caller's obligation; the description is whole, and its headers stay.
        let answer = unsafe { callback(&raw mut info, size_of::<libc::dl_phdr_info>(), data) };
        if answer != 0 {
            return answer;
        }
    }
    // SAFETY: the caller's obligation, passed on.
    unsafe { libc::dl_iterate_phdr(callback, data) }
}

/// The program as the C library describes objects. Its thread-local variables are in the executable's block, where there is room.
fn describe() -> Option<libc::dl_phdr_info> {
    const EMPTY_NAME: &CStr = c"";
    let executable = executable()?;
    let (start, mapped) = {
        let published = PUBLISHED.lock();
        let published = published.as_ref()?;
        (published.header, published.mapped.clone())
    };
    let headers = headers(start, mapped(), &executable);
    let words = |header: &libc::Elf64_Phdr| (header.p_type, header.p_vaddr, header.p_memsz);
    let mut published = PUBLISHED.lock();
    let published = published.as_mut()?;
    if !published.told.iter().map(words).eq(headers.iter().map(words)) {
        published.told = Box::leak(headers.into_boxed_slice()); // callers may keep pointers; it changes with slabs alone
    }
    let told = published.told;
    Some(libc::dl_phdr_info {
        dlpi_addr: start,
        dlpi_name: EMPTY_NAME.as_ptr(),
        dlpi_phdr: told.as_ptr(),
        dlpi_phnum: u16::try_from(told.len()).unwrap_or(u16::MAX),
        ..executable.info
    })
}

/// The headers of all memory of the program. Callers compare addresses with them, and scan what can be written.
fn headers(base: u64, mut mapped: MappedSegments, executable: &Executable) -> Vec<libc::Elf64_Phdr> {
    let segment =
        |kind, flags, start: u64, bytes| program_header(kind, flags, start.wrapping_sub(base), bytes);
    mapped.sort_unstable_by_key(|(range, _)| range.start);
    let loaded = mapped.into_iter().map(|(range, kind)| {
        let flags = match kind {
            SegmentKind::Code => libc::PF_R | libc::PF_X,
            SegmentKind::ReadOnly => libc::PF_R,
            SegmentKind::Data | SegmentKind::FarData => libc::PF_R | libc::PF_W,
        };
        segment(libc::PT_LOAD, flags, range.start.value(), range.end.value() - range.start.value())
    });
    let dynamic =
        segment(libc::PT_DYNAMIC, libc::PF_R, base + DYNAMIC_AT as u64, 16 * DYNAMIC_ENTRIES as u64);
    let thread_locals = executable.thread_locals.map(|mut header| {
        header.p_vaddr = header.p_vaddr.wrapping_sub(base);
        header
    });
    loaded.chain([dynamic]).chain(thread_locals).collect()
}

/// The executable of the process, as the C library describes it.
struct Executable {
    info: libc::dl_phdr_info,
    thread_locals: Option<libc::Elf64_Phdr>,
}

fn executable() -> Option<Executable> {
    unsafe extern "C" fn first(info: *mut libc::dl_phdr_info, _: usize, found: *mut c_void) -> c_int {
        // SAFETY: dl_iterate_phdr passes a valid description with its headers, and the pointer given to it.
        unsafe {
            let info = *info;
            let headers = std::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum));
            let mut thread_locals = headers.iter().copied().find(|header| header.p_type == libc::PT_TLS);
            if let Some(header) = &mut thread_locals {
                header.p_vaddr = header.p_vaddr.wrapping_add(info.dlpi_addr);
            }
            *found.cast::<Option<Executable>>() = Some(Executable { info, thread_locals });
        }
        1
    }
    let mut found: Option<Executable> = None;
    // SAFETY: the callback gets back the pointer to `found`, which outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(first), (&raw mut found).cast()) };
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::{InProcessMemoryManager, MemoryOptions};
    use crate::object::DEFINED_FOR_PROGRAM;
    use crate::runtime::in_process::InProcessExecutor;

    #[test]
    fn all_symbols_are_known_to_be_within_reach() {
        let options = MemoryOptions { keeps_program: true, ..MemoryOptions::default() };
        let memory = InProcessMemoryManager::with_options(options).expect("addresses are free");
        let image = ProgramImage::new(&InProcessExecutor::new(Arc::new(memory)), 0);
        let image = image.expect("there is memory").expect("the manager keeps room");
        let mut names: Vec<_> = image.symbols().map(|(name, _)| name).collect();
        let mut known = DEFINED_FOR_PROGRAM.to_vec();
        names.sort_unstable();
        known.sort_unstable();
        assert_eq!(names, known);
    }
}
