//! The C compiler's own support library (`libgcc.a`), served where nothing else has a symbol.
//!
//! Compilers refer to functions and variables that no shared library exports, such as what `target_clones`
//! asks about the processor. A native link searches this library last; so does a program here. Most
//! programs need nothing of it, and then it is not even opened.

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
    /// The support library for the architecture that the code runs on, if this machine has it; `files` makes units of its members.
    pub(crate) fn find(files: Arc<Files>) -> Option<Self> {
        let path = find(files.linking.layer.architecture())?;
        Some(Self { name: path.display().to_string(), path, files, archive: std::sync::OnceLock::new() })
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
fn find(architecture: Architecture) -> Option<PathBuf> {
    let roots = match architecture {
        Architecture::X86_64 => &X86_64_ROOTS[..],
        Architecture::AArch64 => &AARCH64_ROOTS,
        _ => &[],
    };
    roots.iter().find_map(|root| newest(Path::new(root)))
}

fn newest(root: &Path) -> Option<PathBuf> {
    let versions = fs::read_dir(root).ok()?.flatten();
    let numbered = versions.filter_map(|entry| {
        let archive = entry.path().join("libgcc.a");
        let name = entry.file_name();
        let version: u32 = name.to_str()?.split('.').next()?.parse().ok()?;
        archive.is_file().then_some((version, archive))
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
        assert_eq!(newest(&root), Some(root.join("12/libgcc.a")));
        assert_eq!(newest(&root.join("9/none")), None);
        fs::remove_dir_all(&root).expect("it was made above");
    }
}
