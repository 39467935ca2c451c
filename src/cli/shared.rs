//! `uruk image build --emit so`: objects become a shared library, by the system's linker.

use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use object::Endianness;
use object::elf::{self, FileHeader64};
use object::read::elf::{FileHeader as _, Sym as _};
use uruk::Emitted;

/// Why there is no shared library.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SharedError {
    #[error("cannot start `{}`, which links shared libraries; name a C compiler in CC, or leave it to others: --emit o", driver.display())]
    NoDriver { driver: PathBuf, source: io::Error },
    #[error("`{}` has not linked {}:\n{said}", driver.display(), output.display())]
    Refused { driver: PathBuf, output: PathBuf, said: String },
    #[error("cannot write {}", path.display())]
    Write { path: PathBuf, source: io::Error },
}

/// A directory for objects, which goes at the end.
struct Objects(PathBuf);

impl Objects {
    fn new() -> Result<Self, SharedError> {
        let mut number = 0;
        loop {
            let path = std::env::temp_dir().join(format!("uruk-objects-{}-{number}", std::process::id()));
            match fs::DirBuilder::new().mode(0o700).create(&path) {
                Ok(()) => return Ok(Self(path)),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => number += 1,
                Err(source) => return Err(SharedError::Write { path, source }),
            }
        }
    }
}

impl Drop for Objects {
    fn drop(&mut self) {
        // Nothing is left to say.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The libraries of C++ that objects refer to: a C compiler names none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Runtimes {
    /// The one of GCC, and of clang where nothing else is said.
    gnu: bool,
    /// The one of LLVM.
    llvm: bool,
}

/// Functions that C++ code calls by names of C, and that the C library has.
const OF_C: [&str; 4] = ["__cxa_atexit", "__cxa_at_quick_exit", "__cxa_finalize", "__cxa_thread_atexit_impl"];

impl Runtimes {
    /// # Cost
    /// A pass over the names that the objects refer to.
    fn of(objects: &Emitted) -> Self {
        // An object that cannot be read is refused by the linker.
        objects.members().fold(Self::default(), |found, object| found.with_object(object).unwrap_or(found))
    }

    fn with_object(self, object: &[u8]) -> Option<Self> {
        let header = FileHeader64::<Endianness>::parse(object).ok()?;
        let endian = header.endian().ok()?;
        let symbols = header.sections(endian, object).ok()?.symbols(endian, object, elf::SHT_SYMTAB).ok()?;
        let undefined = symbols.iter().filter(|symbol| symbol.is_undefined(endian));
        let names = undefined.filter_map(|symbol| symbol.name(endian, symbols.strings()).ok());
        Some(names.filter_map(|name| std::str::from_utf8(name).ok()).fold(self, Self::with_name))
    }

    fn with_name(self, name: &str) -> Self {
        let is_runtimes =
            name.starts_with("__cxa_") || name.starts_with("__gxx_") || name == "__dynamic_cast";
        if name.starts_with("_Z") && name.contains("St3__1") {
            Self { llvm: true, ..self }
        } else if name.starts_with("_Z") || is_runtimes && !OF_C.contains(&name) {
            Self { gnu: true, ..self }
        } else {
            self
        }
    }

    /// Arguments for the linker, beside `named` libraries. Their files are found without those that only developers have.
    fn libraries(self, named: &[PathBuf]) -> &'static [&'static str] {
        let is_llvms = |library: &PathBuf| {
            library.file_name().is_some_and(|name| name.to_string_lossy().starts_with("libc++"))
        };
        match self {
            // It has these functions too, or was named with one that has.
            _ if named.iter().any(is_llvms) => &[],
            Self { llvm: true, .. } => &["-l:libc++.so.1", "-l:libc++abi.so.1"],
            Self { gnu: true, .. } => &["-l:libstdc++.so.6"],
            _ => &[],
        }
    }
}

/// Links the objects, and `libraries`, into `output`, which is the old file or the new one at every moment.
///
/// Definitions are bound within the library: its code refers to them by distances.
pub(crate) fn link(objects: &Emitted, libraries: &[PathBuf], output: &Path) -> Result<(), SharedError> {
    let directory = Objects::new()?;
    let driver = PathBuf::from(std::env::var_os("CC").filter(|name| !name.is_empty()).unwrap_or("cc".into()));
    let mut name = output.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.new", std::process::id()));
    let new = output.with_file_name(name);
    let mut command = Command::new(&driver);
    command.args(["-shared", "-Wl,-Bsymbolic", "-o"]).arg(&new);
    for (number, object) in objects.members().enumerate() {
        let path = directory.0.join(format!("{number}.o"));
        fs::write(&path, object).map_err(|source| SharedError::Write { path: path.clone(), source })?;
        command.arg(path);
    }
    command.args(libraries).arg("-Wl,--as-needed").args(["-lm", "-lpthread", "-ldl"]);
    command.args(Runtimes::of(objects).libraries(libraries)).stdin(Stdio::null());
    let linked =
        command.output().map_err(|source| SharedError::NoDriver { driver: driver.clone(), source })?;
    let written = if linked.status.success() {
        fs::rename(&new, output).map_err(|source| SharedError::Write { path: output.to_owned(), source })
    } else {
        let said = String::from_utf8_lossy(&linked.stderr).trim_end().to_owned();
        Err(SharedError::Refused { driver, output: output.to_owned(), said })
    };
    if written.is_err() {
        // The first error is the one that counts.
        let _ = fs::remove_file(&new);
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_say_which_library_of_cpp_is_meant() {
        let of = |names: &[&str]| names.iter().copied().fold(Runtimes::default(), Runtimes::with_name);
        assert_eq!(of(&["puts", "sin", "__cxa_atexit", "__cxa_finalize"]).libraries(&[]), [""; 0]);
        let gnu = ["-l:libstdc++.so.6"];
        for name in ["_ZSt4cout", "_Znwm", "__cxa_throw", "__gxx_personality_v0", "__dynamic_cast"] {
            assert_eq!(of(&["puts", name]).libraries(&[]), gnu, "{name}");
        }
        let llvm = of(&["_Znwm", "_ZNSt3__14coutE", "__cxa_throw"]);
        assert_eq!(llvm.libraries(&[]), ["-l:libc++.so.1", "-l:libc++abi.so.1"]);
        assert_eq!(llvm.libraries(&["/usr/lib/llvm-22/lib/libc++.so.1".into()]), [""; 0]);
    }
}
