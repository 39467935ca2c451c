//! Which file LLVM is loaded from, found without loading it: its build id is part of the cache's keys.
//!
//! ```text
//!   URUK_LLVM=PATH     a file, or the directory that has it; nothing else counts then
//!   beside             ../lib, seen from the program's directory
//!   system             where the system's loader looks: LD_LIBRARY_PATH, its cache, its directories
//!   built with         where LLVM was when this program was built
//! ```

use std::path::{Path, PathBuf};
use std::{env, fs};

use memchr::memmem;

/// The variable that names the file, or its directory.
pub(super) const VARIABLE: &str = "URUK_LLVM";

/// Directories that the system's loader looks through last.
const DIRECTORIES: [&str; 6] =
    ["/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib64", "/usr/lib64", "/lib", "/usr/lib"];

/// The file called `name`. It may be missing if a user has named it, or if it is the one at `built_with`.
pub(super) fn find(name: &str, built_with: &str) -> PathBuf {
    if let Some(named) = env::var_os(VARIABLE).filter(|named| !named.is_empty()) {
        let named = PathBuf::from(named);
        return if named.is_dir() { named.join(name) } else { named };
    }
    let program = env::current_exe().ok();
    let beside = program.as_deref().and_then(Path::parent).map(|directory| directory.join("../lib"));
    let listed = env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    let listed = env::split_paths(&listed).filter(|directory| directory.is_absolute());
    let in_directory = |directory: PathBuf| directory.join(name);
    let cached = fs::read("/etc/ld.so.cache").unwrap_or_default();
    let first = beside.into_iter().chain(listed).map(in_directory);
    let last = DIRECTORIES.iter().map(|directory| in_directory(directory.into()));
    let mut places = first.chain(in_cache(&cached, name)).chain(last);
    places.find(|path| path.is_file()).unwrap_or_else(|| built_with.into())
}

/// Paths of files called `name` in the loader's cache: it has their texts, each up to a zero byte.
fn in_cache(cache: &[u8], name: &str) -> Vec<PathBuf> {
    let end = format!("/{name}\0");
    let ends = memmem::find_iter(cache, end.as_bytes()).map(|at| at + end.len() - 1);
    let texts = ends.filter_map(|end| {
        let start = memchr::memrchr(0, &cache[..end])? + 1;
        str::from_utf8(&cache[start..end]).ok()
    });
    texts.filter(|text| text.starts_with('/')).map(PathBuf::from).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loaders_cache_is_read_as_texts() {
        let cache = b"glibc-ld.so.cache1.1\x01\0libx.so.1\0/opt/a/libx.so.1\0libx.so.1\0/b/libx.so.1\0/b/mylibx.so.1\0";
        let found = in_cache(cache, "libx.so.1");
        assert_eq!(found, [Path::new("/opt/a/libx.so.1"), Path::new("/b/libx.so.1")]);
        assert!(in_cache(b"", "libx.so.1").is_empty());
    }

    #[test]
    fn a_library_that_is_nowhere_is_where_it_was() {
        assert_eq!(find("libof-no-system.so.3", "/built/with/it.so"), Path::new("/built/with/it.so"));
    }
}
