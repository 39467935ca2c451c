//! Hints below an error about missing symbols: which shared library of the machine has them, and which name was meant.
//!
//! Looks at the machine's libraries, which takes some hundredths of a second: only an error does so.

use std::collections::HashSet;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use object::elf::FileHeader64;
use object::read::elf::{FileHeader as _, Sym as _, SymbolTable};
use object::{Endianness, ReadCache, elf};
use uruk::core::{LookupError, Readable, SymbolName, WithCauses, nearest_symbol};

/// The limit of each search in libraries. A slow disk does not delay an error for longer.
const SEARCHED_FOR_MAX: Duration = Duration::from_secs(2);

/// For so many missing symbols there are hints.
const SYMBOLS_MAX: usize = 8;

/// Runtimes of compilers that a program is linked with natively, by the beginnings of their names: where they are.
const RUNTIMES: [(&str, &str); 2] = [
    ("__zig_probe_stack", "in Zig's compiler_rt: compile with -fcompiler-rt, or with -fno-stack-check"),
    (
        "llvm_gcda_",
        "in clang's runtime of profiles: add libclang_rt.profile-x86_64.a of `clang-22 -print-resource-dir` (libclang-rt-22-dev on Debian)",
    ),
];

/// Things to try, a line each.
pub(super) fn of(error: &(dyn std::error::Error + 'static)) -> Vec<String> {
    let not_found = WithCauses(error).chain().find_map(|cause| match cause.downcast_ref() {
        Some(LookupError::NotFound { symbols, searched, near, .. }) => Some((symbols, searched, near)),
        _ => None,
    });
    let Some((symbols, searched, near)) = not_found else { return Vec::new() };
    let mut missing: Vec<&SymbolName> = symbols.iter().take(SYMBOLS_MAX).collect();
    let of_runtimes: Vec<_> =
        missing.extract_if(.., |symbol| of_runtime(symbol.as_str()).is_some()).collect();
    // One hint for each place, by the first symbol that is there.
    let mut places = HashSet::new();
    let hint = |symbol: &&SymbolName| {
        let place = of_runtime(symbol.as_str())?;
        places.insert(place).then(|| format!("`{symbol}` is {place}"))
    };
    let helpers: Vec<_> = of_runtimes.iter().filter_map(hint).collect();
    // The generator of a process's symbols is called by all its libraries.
    let generators = searched.iter().flat_map(|dylib| &dylib.generators);
    let searched: Vec<&str> = generators.flat_map(|name| name.split(", ")).collect();
    let libraries = Libraries::of_the_machine();
    let defined = libraries.that_define(&searched, &mut missing);
    let in_program = near.iter().filter(|(symbol, _)| missing.contains(&symbol));
    let mut near: Vec<_> = in_program.map(|(symbol, near)| (symbol, near.to_string())).collect();
    missing.retain(|symbol| !near.iter().any(|(known, _)| known == symbol));
    near.extend(libraries.with_near_names(&searched, missing));
    // Which symbol is meant is clear if there is no other.
    let quoted = |symbol: &SymbolName| match symbols.len() {
        1 => String::new(),
        _ => format!(" for `{}`", symbol.readable()),
    };
    let to_load = defined.into_iter().map(|(library, defined)| match symbols.len() {
        1 => format!("add --load {library}"),
        _ => {
            let defined: Vec<_> = defined.iter().map(|symbol| format!("`{}`", symbol.readable())).collect();
            format!("add --load {library} for {}", defined.join(", "))
        }
    });
    let meant =
        near.iter().map(|(symbol, near)| format!("did you mean `{}`{}?", Readable(near), quoted(symbol)));
    helpers.into_iter().chain(to_load).chain(meant).collect()
}

/// Where the runtime is that has `symbol`, if it is one of a compiler's.
fn of_runtime(symbol: &str) -> Option<&'static str> {
    const HELPERS: &str = "a function of compilers: install clang's library of them, libclang_rt.builtins (libclang-rt-22-dev on Debian), or add an archive that has it";
    let known = RUNTIMES.iter().find(|(begin, _)| symbol.starts_with(begin)).map(|(_, place)| *place);
    known.or_else(|| is_compilers(symbol).then_some(HELPERS))
}

/// Whether a name is one of the functions that code generation calls, and that compilers have a library of: `__truncsfbf2`, `__muloti4`.
fn is_compilers(name: &str) -> bool {
    const MODES: [&str; 9] = ["hf", "bf", "sf", "df", "xf", "tf", "si", "di", "ti"];
    let Some(name) = name.strip_prefix("__") else { return false };
    let Some(stem) = name.strip_suffix(['2', '3', '4']) else { return false };
    stem.bytes().all(|byte| byte.is_ascii_lowercase()) && MODES.iter().any(|mode| stem.ends_with(mode))
}

/// The shared libraries of the dynamic linker's directories, by the names under which it knows them.
struct Libraries {
    files: Vec<(String, PathBuf)>,
}

/// A library's own table of what it gives others.
struct Exports<'data> {
    symbols: SymbolTable<'data, FileHeader64<Endianness>, &'data ReadCache<File>>,
    hashes: object::read::elf::GnuHashTable<'data, FileHeader64<Endianness>>,
}

impl Libraries {
    fn of_the_machine() -> Self {
        let named = std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
        let standard = [
            "/usr/local/lib",
            "/lib/x86_64-linux-gnu",
            "/usr/lib/x86_64-linux-gnu",
            "/lib64",
            "/usr/lib64",
            "/usr/lib",
        ];
        let directories = std::env::split_paths(&named).chain(standard.map(PathBuf::from));
        let mut files = Vec::new();
        for directory in directories.filter(|directory| !directory.as_os_str().is_empty()) {
            let entries = fs::read_dir(directory).into_iter().flatten().flatten();
            let libraries = entries.filter_map(|entry| {
                let name = entry.file_name().into_string().ok()?;
                is_library(&name).then(|| (name, entry.path()))
            });
            files.extend(libraries);
        }
        // A library has several names: the shortest with a version is the one that programs ask for.
        files.sort_by_cached_key(|(name, _)| (name.ends_with(".so"), name.len(), name.clone()));
        let mut seen = HashSet::new();
        files.retain(|(_, path)| fs::canonicalize(path).is_ok_and(|file| seen.insert(file)));
        Self { files }
    }

    /// Which library defines which of `missing`, of which those remain that none defines.
    fn that_define<'s>(
        &self,
        searched: &[&str],
        missing: &mut Vec<&'s SymbolName>,
    ) -> Vec<(&str, Vec<&'s SymbolName>)> {
        let (mut found, until) = (Vec::new(), Instant::now() + SEARCHED_FOR_MAX);
        for (name, path) in self.files.iter().filter(|(name, _)| !searched.contains(&name.as_str())) {
            if missing.is_empty() || Instant::now() > until {
                break;
            }
            let defined = with_exports(path, |exports| {
                let (defined, others) = missing.iter().partition(|symbol| exports.defines(symbol.as_str()));
                *missing = others;
                defined
            });
            let defined: Vec<&SymbolName> = defined.unwrap_or_default();
            if !defined.is_empty() {
                found.push((name.as_str(), defined));
            }
        }
        found
    }

    /// The nearest name in the `searched` libraries for each of `missing`. It has a limit of its own: these libraries are few, and their names matter most.
    fn with_near_names<'s>(
        &self,
        searched: &[&str],
        mut missing: Vec<&'s SymbolName>,
    ) -> Vec<(&'s SymbolName, String)> {
        let (mut found, until) = (Vec::new(), Instant::now() + SEARCHED_FOR_MAX);
        for library in searched {
            if missing.is_empty() || Instant::now() > until {
                break;
            }
            let known = self.files.iter().find(|(name, _)| name == *library).map(|(_, path)| path.as_path());
            let near = with_exports(known.unwrap_or(Path::new(library)), |exports| {
                let nearest = |symbol: &&'s SymbolName| Some((*symbol, exports.nearest(symbol.as_str())?));
                missing.iter().filter_map(nearest).collect::<Vec<_>>()
            });
            found.extend(near.unwrap_or_default());
            missing.retain(|symbol| !found.iter().any(|(known, _)| known == symbol));
        }
        found
    }
}

/// `libz.so`, `libz.so.1`.
fn is_library(name: &str) -> bool {
    let version = name.split_once(".so").map(|(_, version)| version);
    let is_version = |version: &str| version.bytes().all(|byte| byte == b'.' || byte.is_ascii_digit());
    name.starts_with("lib") && version.is_some_and(is_version)
}

/// Nothing if the file is no library.
fn with_exports<T>(path: &Path, act: impl FnOnce(Exports<'_>) -> T) -> Option<T> {
    let data = ReadCache::new(File::open(path).ok()?);
    let header = FileHeader64::<Endianness>::parse(&data).ok()?;
    let endian = header.endian().ok()?;
    let is_ours = header.e_machine(endian) == elf::EM_X86_64 && header.e_type(endian) == elf::ET_DYN;
    let sections = header.sections(endian, &data).ok()?;
    let (hashes, of) = sections.gnu_hash(endian, &data).ok()??;
    let symbols = sections.symbol_table_by_index(endian, &data, of).ok()?;
    is_ours.then(|| act(Exports { symbols, hashes }))
}

impl Exports<'_> {
    fn defines(&self, name: &str) -> bool {
        let endian = Endianness::Little;
        let hash = elf::gnu_hash(name.as_bytes());
        let versions = Default::default();
        let found = self.hashes.find(endian, name.as_bytes(), hash, None, &self.symbols, &versions);
        found.is_some_and(|(_, symbol)| is_code_or_data(symbol))
    }

    fn nearest(&self, name: &str) -> Option<String> {
        let endian = Endianness::Little;
        let is_defined = |symbol: &&elf::Sym64<Endianness>| symbol.st_shndx(endian) != elf::SHN_UNDEF;
        let defined = self.symbols.iter().filter(is_defined).filter(|symbol| is_code_or_data(symbol));
        let names = defined.filter_map(|symbol| {
            let name = symbol.name(endian, self.symbols.strings()).ok()?;
            std::str::from_utf8(name).ok()
        });
        nearest_symbol(name, names).map(str::to_owned)
    }
}

/// Marks of the linker, such as `_edata`, have no type: each library has its own.
fn is_code_or_data(symbol: &elf::Sym64<Endianness>) -> bool {
    matches!(symbol.st_type(), elf::STT_FUNC | elf::STT_OBJECT | elf::STT_TLS | elf::STT_GNU_IFUNC)
}

#[cfg(test)]
mod tests {
    use super::{is_compilers, of_runtime};

    #[test]
    fn functions_of_compilers_are_known_by_their_names() {
        for name in ["__truncsfbf2", "__powitf2", "__mulodi4", "__udivti3", "__extendhfsf2"] {
            assert!(is_compilers(name), "{name}");
        }
        for name in ["puts", "__cxa_throw", "__mine2", "_udivti3", "__Zti2", "sf2"] {
            assert!(of_runtime(name).is_none(), "{name}");
        }
        for (name, place) in
            [("__zig_probe_stack", "-fcompiler-rt"), ("llvm_gcda_end_file", "libclang_rt.profile")]
        {
            assert!(of_runtime(name).is_some_and(|hint| hint.contains(place)), "{name}");
        }
    }
}
