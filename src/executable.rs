//! Symbols that the executable of this process has, whether or not it exports them.
//!
//! Read when a lookup has missed a symbol, once in a process: the dynamic linker shows what is exported, and only the file's own table of
//! symbols has the rest. A stripped executable has none.

use std::fs::File;
use std::hash::BuildHasher;
use std::sync::OnceLock;

use object::elf::{self, FileHeader64};
use object::read::elf::{FileHeader as _, Sym as _};
use object::{Endianness, ReadCache};
use rustc_hash::FxBuildHasher;
use uruk_core::SymbolName;

/// The hashes of the names, sorted: a host may have a hundred thousand. Two names with one hash make a hint that leads nowhere.
static NAMES: OnceLock<Box<[u64]>> = OnceLock::new();

/// Those of `symbols` that the executable defines.
pub(crate) fn defined_of(symbols: &[SymbolName]) -> Vec<SymbolName> {
    let names = NAMES.get_or_init(|| read().unwrap_or_default());
    let is_defined = |symbol: &&SymbolName| names.binary_search(&hash(symbol.as_str().as_bytes())).is_ok();
    symbols.iter().filter(is_defined).cloned().collect()
}

fn hash(name: &[u8]) -> u64 {
    FxBuildHasher.hash_one(name)
}

fn read() -> Option<Box<[u64]>> {
    let data = ReadCache::new(File::open("/proc/self/exe").ok()?);
    let header = FileHeader64::<Endianness>::parse(&data).ok()?;
    let endian = header.endian().ok()?;
    let sections = header.sections(endian, &data).ok()?;
    let symbols = sections.symbols(endian, &data, elf::SHT_SYMTAB).ok()?;
    let is_named = |symbol: &&elf::Sym64<Endianness>| {
        symbol.st_shndx(endian) != elf::SHN_UNDEF
            && matches!(symbol.st_type(), elf::STT_FUNC | elf::STT_OBJECT)
    };
    let named =
        symbols.iter().filter(is_named).filter_map(|symbol| symbol.name(endian, symbols.strings()).ok());
    let mut hashes: Vec<u64> = named.filter(|name| !is_of_rust(name)).map(hash).collect();
    hashes.sort_unstable();
    hashes.dedup();
    Some(hashes.into())
}

/// Names that the Rust compiler has made: no code refers to them by chance.
fn is_of_rust(name: &[u8]) -> bool {
    let has_hash = || name.len() > 20 && name[name.len() - 20..].starts_with(b"17h") && name.ends_with(b"E");
    name.starts_with(b"_R") || name.starts_with(b"_ZN") && has_hash()
}
