//! A small library that stands for the program in the dynamic linker, while that opens a library which refers to the program.
//!
//! It needs that library, so both are opened at once. It defines the names that are missing, by addresses that nothing lies at.
//! Once the program is linked they become the program's ([`StandIn::set`]): what the dynamic linker binds later is bound rightly.
//!
//! Its own initializer runs before all others (`DF_1_INITFIRST`): when everything is relocated, and no constructor has run.
//!
//! ```text
//!  0x0000  ELF header │ 4 program headers │ code: a jump to FUNCTION with DATA                   R-X
//!  0x1000  symbols │ hash table │ strings │ dynamic section                                      RW-
//! ```

use std::ffi::{CStr, CString, c_void};
use std::io::{self, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::ptr;

use uruk_core::sync::atomic::{AtomicU64, Ordering};

use super::library::{last_error, open};
use crate::arch::{Architecture, host};
use crate::memory::TemporaryFile;
use crate::runtime::loaded::older_hash;

const CODE_AT: usize = 64 + HEADERS * 56;
const HEADERS: usize = 4;
const TABLES_AT: usize = 0x1000;
const SYMBOL_BYTES: usize = 24;
const SHN_ABS: u16 = 0xfff1;
/// A path may have 4096 bytes.
const SLASHES_MAX: usize = 3000;
/// The number of the next one.
static NEXT: AtomicU64 = AtomicU64::new(0);

/// The beginning of the message where no such file can be opened. The library is not the reason.
pub(super) const CANNOT_STAND_IN: &str = "a file beside it cannot be loaded";

/// One that is open. It stays.
#[derive(Debug)]
pub(super) struct StandIn {
    names: Vec<CString>,
    base: u64,
}

impl StandIn {
    /// Opens one that defines `names` and needs `library`. `begin` is called with `data` before any constructor runs.
    ///
    /// # Errors
    /// What the dynamic linker says, or the system.
    pub(super) fn open(
        names: Vec<CString>,
        library: &CStr,
        begin: extern "C" fn(*mut c_void),
        data: *mut c_void,
    ) -> Result<Self, String> {
        let image = image(&names, Some((library, begin as *const () as usize, data.expose_provenance())));
        Self::open_image(names, &image)
    }

    /// Opens one that defines `name` at `address`, and does nothing else.
    ///
    /// # Errors
    /// As [`StandIn::open`].
    pub(super) fn define(name: CString, address: u64) -> Result<(), String> {
        let names = vec![name];
        let image = image(&names, None);
        Self::open_image(names, &image)?.set(0, address);
        Ok(())
    }

    fn open_image(names: Vec<CString>, image: &[u8]) -> Result<Self, String> {
        let opened = TemporaryFile::with(|file| {
            file.file().write_all(image)?;
            let path = path_of(file)?;
            match open(&path, libc::RTLD_LAZY | libc::RTLD_GLOBAL).ok_or_else(last_error) {
                // Another place may allow what this one does not.
                Err(message) if message.starts_with(&*path.to_string_lossy()) => {
                    Err(io::Error::other(message))
                }
                opened => Ok(opened),
            }
        });
        let handle = opened.map_err(|error| format!("{CANNOT_STAND_IN}: {error}"))??;
        let base = base_of(handle).ok_or("the dynamic linker does not say where a library lies")?;
        Ok(Self { names, base })
    }

    /// Its place: the offset that is added to its addresses.
    pub(super) fn base(&self) -> u64 {
        self.base
    }

    /// The names.
    pub(super) fn names(&self) -> &[CString] {
        &self.names
    }

    /// Gives the name at `index` its address.
    ///
    /// # Concurrency
    /// One aligned store: the dynamic linker finds the old or the new address.
    pub(super) fn set(&self, index: usize, address: u64) {
        let value = self.base as usize + TABLES_AT + (index + 1) * SYMBOL_BYTES + 8;
        // SAFETY: the file's own symbols, in its private writable segment, which stays.
        unsafe { ptr::with_exposed_provenance_mut::<u64>(value).write_volatile(address) };
    }
}

/// The place of an open library: the offset that is added to its addresses.
pub(super) fn base_of(handle: usize) -> Option<u64> {
    let mut map: *const u64 = ptr::null();
    // SAFETY: the handle is open; the call stores a pointer to the description of the library, whose first field is its base.
    unsafe {
        let handle = ptr::with_exposed_provenance_mut(handle);
        let answer = libc::dlinfo(handle, libc::RTLD_DI_LINKMAP, (&raw mut map).cast());
        (answer == 0 && !map.is_null()).then(|| *map)
    }
}

/// The path of a file that no earlier one has had: by its path the dynamic linker knows it, and numbers of files come again.
fn path_of(file: &TemporaryFile) -> io::Result<CString> {
    let path = file.path()?;
    let (directory, name) = (path.parent().unwrap_or(Path::new("/")), path.file_name().unwrap_or_default());
    // Relaxed: numbers that only have to differ. One slash is the path of other files of ours.
    let slashes = "/".repeat(2 + NEXT.fetch_add(1, Ordering::Relaxed) as usize % SLASHES_MAX);
    let path = [directory.as_os_str().as_bytes(), slashes.as_bytes(), name.as_bytes()].concat();
    CString::new(path).map_err(io::Error::other)
}

/// `library` is the one that is needed, with the address of a function to be called first, and of its argument.
fn image(names: &[CString], library: Option<(&CStr, usize, usize)>) -> Vec<u8> {
    let mut strings = vec![0_u8];
    let mut text = |name: &CStr| {
        let at = strings.len();
        strings.extend_from_slice(name.to_bytes_with_nul());
        at as u64
    };
    let needed = library.map(|(library, ..)| text(library));
    let mut tables = vec![0; SYMBOL_BYTES];
    for (index, name) in names.iter().enumerate() {
        const GLOBAL: u8 = 1 << 4;
        tables.extend_from_slice(&(text(name) as u32).to_le_bytes());
        tables.extend_from_slice(&[GLOBAL, 0]);
        tables.extend_from_slice(&SHN_ABS.to_le_bytes());
        // Not zero, and below all that can be mapped.
        tables.extend_from_slice(&(16 * (index as u64 % 64) + 16).to_le_bytes());
        tables.extend_from_slice(&[0; 8]);
    }
    let hash_at = TABLES_AT + tables.len();
    hash_table(names).into_iter().for_each(|word| tables.extend_from_slice(&word.to_le_bytes()));
    let strings_at = TABLES_AT + tables.len();
    tables.extend_from_slice(&strings);
    tables.resize(tables.len().next_multiple_of(8), 0);
    let dynamic_at = TABLES_AT + tables.len();
    let mut entries = vec![
        [4, hash_at as u64],
        [5, strings_at as u64],
        [6, TABLES_AT as u64],
        [10, strings.len() as u64],
        [11, SYMBOL_BYTES as u64],
    ];
    if let Some(needed) = needed {
        // Initialized first, and never unloaded.
        entries.extend([[1, needed], [12, CODE_AT as u64], [0x6fff_fffb, 0x28]]);
    }
    entries.push([0, 0]);
    entries.iter().flatten().for_each(|word| tables.extend_from_slice(&word.to_le_bytes()));
    let mut image = header();
    let (end, dynamic_bytes) = (tables.len() as u64, (16 * entries.len()) as u64);
    let (code_bytes, tables_at, dynamic_at) = (0x200, TABLES_AT as u64, dynamic_at as u64);
    for (kind, flags, at, bytes, align) in [
        (libc::PT_LOAD, libc::PF_R | libc::PF_X, 0, code_bytes, 0x1000_u64),
        (libc::PT_LOAD, libc::PF_R | libc::PF_W, tables_at, end, 0x1000),
        (libc::PT_DYNAMIC, libc::PF_R | libc::PF_W, dynamic_at, dynamic_bytes, 8),
        (0x6474_e551, libc::PF_R | libc::PF_W, 0, 0, 16), // The stack need not be executable.
    ] {
        image.extend_from_slice(&kind.to_le_bytes());
        image.extend_from_slice(&flags.to_le_bytes());
        [at, at, at, bytes, bytes, align]
            .into_iter()
            .for_each(|word| image.extend_from_slice(&word.to_le_bytes()));
    }
    let (_, begin, data) = library.unwrap_or_default();
    image.extend_from_slice(&host::jump_with_argument(begin as u64, data as u64));
    image.resize(TABLES_AT, 0);
    image.extend_from_slice(&tables);
    image
}

/// The header of a shared library for this processor, behind which program headers follow.
fn header() -> Vec<u8> {
    let mut header = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0".to_vec();
    [3_u16, Architecture::HOST.machine().0]
        .into_iter()
        .for_each(|half| header.extend_from_slice(&half.to_le_bytes()));
    header.extend_from_slice(&1_u32.to_le_bytes());
    [0_u64, 64, 0].into_iter().for_each(|word| header.extend_from_slice(&word.to_le_bytes()));
    header.extend_from_slice(&0_u32.to_le_bytes());
    [64_u16, 56, HEADERS as u16, 64, 0, 0]
        .into_iter()
        .for_each(|half| header.extend_from_slice(&half.to_le_bytes()));
    header
}

/// The hash table of System V over the names, which are the symbols from 1 on.
fn hash_table(names: &[CString]) -> Vec<u32> {
    let (buckets, symbols) = (names.len().max(1), names.len() + 1);
    let mut table = vec![0_u32; 2 + buckets + symbols];
    (table[0], table[1]) = (buckets as u32, symbols as u32);
    for (index, name) in names.iter().enumerate() {
        let bucket = 2 + older_hash(name) as usize % buckets;
        table[2 + buckets + index + 1] = table[bucket];
        table[bucket] = index as u32 + 1;
    }
    table
}
