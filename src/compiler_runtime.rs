//! The compilers' own support libraries (`libgcc.a`, and clang's `libclang_rt.builtins.a`), served where nothing else has a symbol.
//!
//! Compilers refer to functions and variables that no shared library exports, such as what `target_clones`
//! asks about the processor. LLVM's code generation calls helpers that only clang's library has (`__truncsfbf2`). A native link searches one of
//! them last; so does a program here, GCC's first. Most programs need nothing of them, and then they are not even opened.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use uruk_core::sync::Arc;
use uruk_core::{DefinitionGenerator, GenerateRequest, SharedError};
use uruk_pipeline::arch::Architecture;
use uruk_pipeline::object::{ObjectBuffer, ObjectLayer as _, StaticArchiveGenerator};

use crate::error::JitError;
use crate::files::Files;

/// Opens the library when the first symbol is missing everywhere else.
pub(crate) struct CompilerRuntime {
    path: PathBuf,
    name: String,
    files: Arc<Files>,
    archive: std::sync::OnceLock<Result<StaticArchiveGenerator, JitError>>,
}

impl CompilerRuntime {
    /// The support libraries for the architecture that the code runs on, those that this machine has; `files` makes units of their members.
    pub(crate) fn find(files: &Arc<Files>) -> Vec<Self> {
        let architecture = files.linking.layer.architecture();
        let paths = [gcc(architecture), clang(architecture)].into_iter().flatten();
        let library = |path: PathBuf| Self {
            name: path.display().to_string(),
            path,
            files: files.clone(),
            archive: std::sync::OnceLock::new(),
        };
        paths.map(library).collect()
    }

    fn open(&self) -> Result<StaticArchiveGenerator, JitError> {
        let archive = ObjectBuffer::open(&self.path)
            .map_err(|source| JitError::Read { path: self.path.clone(), source: Arc::new(source) })?;
        Ok(self.files.archive(self.files.archive_index(&archive)?, None))
    }
}

impl DefinitionGenerator for CompilerRuntime {
    fn name(&self) -> &str {
        &self.name
    }

    fn generate(&self, request: GenerateRequest) {
        match self.archive.get_or_init(|| self.open()) {
            Ok(archive) => archive.generate(request),
            Err(error) => request.finish(Err(Arc::new(error.clone()) as SharedError)),
        }
    }
}

impl fmt::Debug for CompilerRuntime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CompilerRuntime").field("path", &self.path).finish_non_exhaustive()
    }
}

/// Directories that hold one directory for each version of GCC, as Debian, Fedora and Arch have them.
const X86_64_ROOTS: [&str; 3] =
    ["/usr/lib/gcc/x86_64-linux-gnu", "/usr/lib/gcc/x86_64-redhat-linux", "/usr/lib/gcc/x86_64-pc-linux-gnu"];

/// The same for AArch64; the second is for code that is compiled on another machine.
const AARCH64_ROOTS: [&str; 2] = ["/usr/lib/gcc/aarch64-linux-gnu", "/usr/lib/gcc-cross/aarch64-linux-gnu"];

/// The newest `libgcc.a` for an architecture.
fn gcc(architecture: Architecture) -> Option<PathBuf> {
    let roots = match architecture {
        Architecture::X86_64 => &X86_64_ROOTS[..],
        Architecture::AArch64 => &AARCH64_ROOTS,
        _ => &[],
    };
    roots.iter().find_map(|root| newest(Path::new(root), &["libgcc.a"]))
}

/// Where clang of a version has its libraries: on most systems, and where each version of LLVM has a directory of its own, as on Debian.
const CLANG_ROOTS: [&str; 3] = ["/usr/lib/clang", "/usr/lib64/clang", "/usr/local/lib/clang"];
const LLVM_VERSIONS: &str = "/usr/lib";

/// The newest support library of clang for an architecture.
fn clang(architecture: Architecture) -> Option<PathBuf> {
    let names: &[&str] = match architecture {
        Architecture::X86_64 => &[
            "lib/linux/libclang_rt.builtins-x86_64.a",
            "lib/x86_64-pc-linux-gnu/libclang_rt.builtins.a",
            "lib/x86_64-redhat-linux-gnu/libclang_rt.builtins.a",
            "lib/x86_64-unknown-linux-gnu/libclang_rt.builtins.a",
        ],
        Architecture::AArch64 => &["lib/linux/libclang_rt.builtins-aarch64.a"],
        _ => &[],
    };
    clang_of_debian(Path::new(LLVM_VERSIONS), names)
        .or_else(|| CLANG_ROOTS.iter().find_map(|root| newest(Path::new(root), names)))
}

/// The same in directories `llvm-22`.
fn clang_of_debian(root: &Path, names: &[&str]) -> Option<PathBuf> {
    let entries = fs::read_dir(root).ok()?.flatten();
    let versions = entries.filter_map(|entry| {
        let version: u32 = entry.file_name().to_str()?.strip_prefix("llvm-")?.parse().ok()?;
        Some((version, newest(&entry.path().join("lib/clang"), names)?))
    });
    versions.max().map(|(_, archive)| archive)
}

/// The first of `names` that the directory of the highest version has, of those that have one.
fn newest(root: &Path, names: &[&str]) -> Option<PathBuf> {
    let versions = fs::read_dir(root).ok()?.flatten();
    let numbered = versions.filter_map(|entry| {
        let name = entry.file_name();
        let version: u32 = name.to_str()?.split('.').next()?.parse().ok()?;
        let archives = names.iter().map(|name| entry.path().join(name));
        Some((version, archives.into_iter().find(|archive| archive.is_file())?))
    });
    numbered.max().map(|(_, archive)| archive)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_highest_version_with_the_library_is_taken() {
        let root = std::env::temp_dir().join(format!("uruk-compiler-runtime-{}", std::process::id()));
        for (version, has_library) in [("9", true), ("12", true), ("13", false), ("plugins", true)] {
            let directory = root.join(version);
            fs::create_dir_all(&directory).expect("the temporary directory is writable");
            if has_library {
                fs::write(directory.join("libgcc.a"), b"").expect("the temporary directory is writable");
            }
        }
        assert_eq!(newest(&root, &["none.a", "libgcc.a"]), Some(root.join("12/libgcc.a")));
        assert_eq!(newest(&root.join("9/none"), &["libgcc.a"]), None);
        fs::remove_dir_all(&root).expect("it was made above");
    }
}
