//! C and C++ sources on the command line: clang turns them into bitcode, the engine does the rest.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The names clang goes by, newest first. Bitcode of a newer clang than the engine's LLVM may not parse,
/// so the matching version comes before the unversioned name.
const CLANGS: [&str; 2] = ["clang-22", "clang"];

/// The language of a source file, by its extension; `None` for what is not a source.
pub(crate) fn language(path: &Path) -> Option<&'static str> {
    match path.extension().and_then(OsStr::to_str)? {
        "c" => Some("c"),
        "cc" | "cpp" | "cxx" | "C" => Some("c++"),
        _ => None,
    }
}

/// Why a source did not become bitcode.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ClangError {
    #[error("{}: compiling a source needs clang, and none of {} is on the PATH; install clang-22, or pass bitcode", path.display(), CLANGS.join(", "))]
    NotFound { path: PathBuf },
    #[error("{}: clang could not be started", path.display())]
    Start { path: PathBuf, source: std::io::Error },
    #[error("{}: clang reported errors:\n{}", path.display(), messages.trim_end())]
    Rejected { path: PathBuf, messages: String },
}

/// Compiles one source to bitcode in memory.
///
/// Clang's own IR passes are left out: the engine runs its pipeline on the module anyway. The module is
/// made position independent, which is what the linker places anywhere.
pub(crate) fn compile_to_bitcode(path: &Path, language: &str, optimize: u8) -> Result<Vec<u8>, ClangError> {
    let clang = CLANGS
        .iter()
        .find(|name| on_path(name))
        .ok_or_else(|| ClangError::NotFound { path: path.to_owned() })?;
    let output = Command::new(clang)
        .args(["-x", language, "-fPIC", "-emit-llvm", "-c", "-o", "-"])
        .args([&format!("-O{optimize}"), "-Xclang", "-disable-llvm-passes"])
        .arg(path)
        .output()
        .map_err(|source| ClangError::Start { path: path.to_owned(), source })?;
    if output.status.success() {
        Ok(output.stdout)
    } else {
        let messages = String::from_utf8_lossy(&output.stderr).into_owned();
        Err(ClangError::Rejected { path: path.to_owned(), messages })
    }
}

fn on_path(name: &str) -> bool {
    std::env::var_os("PATH")
        .is_some_and(|path| std::env::split_paths(&path).any(|directory| directory.join(name).is_file()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_are_known_by_their_extension() {
        assert_eq!(language(Path::new("a/b.c")), Some("c"));
        assert_eq!(language(Path::new("b.cpp")), Some("c++"));
        assert_eq!(language(Path::new("b.bc")), None);
        assert_eq!(language(Path::new("c")), None);
    }
}
