//! [`Dump`]: a directory that has everything a compiler makes of a module, for people to read.
//!
//! ```text
//!  0007-hello.c_square.O2.in.ll    the module as it came, made fit for this process
//!  0007-hello.c_square.O2.opt.ll   after the passes, from which code is generated
//!  0007-hello.c_square.O2.s        the code as assembly
//!  0007-hello.c_square.O2.o        the object that is linked
//! ```
//!
//! One number for each compilation, so a function that is compiled again has files of its own. A name that is taken, by an earlier run in the
//! same directory or by another process, is left alone: the next number is tried.
//!
//! Holds: a file that cannot be written changes nothing for the program. The first failure is kept, and ends the dump.

use std::borrow::Cow;
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use rustix::fs::Access;
use uruk_core::sync::Arc;
use uruk_core::sync::atomic::{AtomicUsize, Ordering};

use super::error::CompileError;
use super::module::LockedModule;
use super::target::JitTargetMachineBuilder;
use crate::object::ObjectBuffer;

/// How many bytes of a unit's name a file name keeps.
const NAME_BYTES_MAX: usize = 120;

/// A directory to which a compiler writes each module as it came, after optimization, as assembly and as an object.
///
/// # Examples
/// ```
/// use uruk_pipeline::ir::{Dump, IrCompiler, OptimizationLevel, ThreadSafeModule};
/// use uruk_pipeline::object::ObjectBuffer;
///
/// let directory = std::env::temp_dir().join(format!("uruk-dump-{}", std::process::id()));
/// let dump = Dump::to(&directory)?;
/// let compiler = IrCompiler::host(OptimizationLevel::O2)?.with_dump(dump.clone());
/// let text = "define i64 @answer() { %x = add i64 40, 2 ret i64 %x }";
/// compiler.compile(ThreadSafeModule::parse(&ObjectBuffer::new("answer.ll", text.as_bytes()))?)?;
/// let optimized = std::fs::read_to_string(directory.join("0001-answer.ll.O2.opt.ll"))?;
/// assert!(optimized.contains("ret i64 42"));
/// assert!(dump.failure().is_none());
/// # std::fs::remove_dir_all(directory)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Dump(Arc<DumpDirectory>);

#[derive(Debug)]
struct DumpDirectory {
    path: PathBuf,
    /// The number from which a free one is looked for.
    next: AtomicUsize,
    failure: OnceLock<DumpError>,
}

/// A file or directory of a [`Dump`] that cannot be written.
#[derive(Debug, thiserror::Error)]
#[error("cannot write {}", path.display())]
#[non_exhaustive]
pub struct DumpError {
    /// The file or the directory.
    pub path: PathBuf,
    /// The system's error.
    pub source: io::Error,
}

impl Dump {
    /// Writes to `directory`, which is made if it is not there.
    ///
    /// # Errors
    /// [`DumpError`] if its parent is not there, or files in it cannot be made.
    pub fn to(directory: impl Into<PathBuf>) -> Result<Self, DumpError> {
        let given = directory.into();
        // The program may change its directory.
        let path = std::path::absolute(&given).map_err(|source| DumpError { path: given, source })?;
        let refused = |source| DumpError { path: path.clone(), source };
        match std::fs::create_dir(&path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(refused(error)),
            _ => {}
        }
        if !path.is_dir() {
            return Err(refused(io::ErrorKind::NotADirectory.into()));
        }
        rustix::fs::access(&path, Access::WRITE_OK).map_err(|error| refused(error.into()))?;
        Ok(Self(Arc::new(DumpDirectory { path, next: AtomicUsize::new(1), failure: OnceLock::new() })))
    }

    /// The directory.
    pub fn directory(&self) -> &Path {
        &self.0.path
    }

    /// The first file that could not be written. None was written after it.
    pub fn failure(&self) -> Option<&DumpError> {
        self.0.failure.get()
    }

    /// The files of one compilation of `module` at a level, with the module as it came.
    pub(super) fn begin(&self, module: &LockedModule<'_>, level: &str) -> DumpedModule {
        let name = format!("{}.{level}", file_name(module.name()));
        let mut dumped = DumpedModule { dump: self.clone(), name, number: None };
        dumped.write("in.ll", || Ok(module.to_text()?.into_bytes()));
        dumped
    }
}

/// The files of one compilation.
pub(super) struct DumpedModule {
    dump: Dump,
    /// Of the unit and the level.
    name: String,
    /// Taken by the first file.
    number: Option<usize>,
}

impl DumpedModule {
    /// Writes the module after the passes, and its code. Assembly is made from a copy, so that the object is the same as without a dump.
    pub(super) fn optimized(&mut self, module: &LockedModule<'_>, target: &JitTargetMachineBuilder) {
        self.write("opt.ll", || Ok(module.to_text()?.into_bytes()));
        self.write("s", || {
            let copy = module.to_canonical()?;
            let assembly = target.assembly_of(&copy.lock()?)?;
            Ok(assembly.bytes().to_vec())
        });
    }

    /// Writes the object.
    pub(super) fn object(&mut self, object: &ObjectBuffer) {
        self.write("o", || Ok(object.bytes().to_vec()));
    }

    /// Writes what `make` makes; or why that could not be made, which is no failure of the dump.
    fn write(&mut self, extension: &str, make: impl FnOnce() -> Result<Vec<u8>, CompileError>) {
        if self.dump.failure().is_some() {
            return;
        }
        let bytes = make().unwrap_or_else(|error| format!("{error}\n").into_bytes());
        if let Err(failure) = self.write_file(extension, &bytes) {
            // Another thread may have failed a moment ago.
            _ = self.dump.0.failure.set(failure);
        }
    }

    fn write_file(&mut self, extension: &str, bytes: &[u8]) -> Result<(), DumpError> {
        let (mut file, path) = self.create(extension)?;
        file.write_all(bytes).map_err(|source| {
            // Half a file would be taken for a whole one. It may be gone already.
            _ = std::fs::remove_file(&path);
            DumpError { path, source }
        })
    }

    /// The first file takes the number, and no other compilation of the same name has it then.
    fn create(&mut self, extension: &str) -> Result<(File, PathBuf), DumpError> {
        loop {
            // Relaxed: each number is given out once. The file system says whether another process has it.
            let number = self.number.unwrap_or_else(|| self.dump.0.next.fetch_add(1, Ordering::Relaxed));
            let path = self.dump.0.path.join(format!("{number:04}-{}.{extension}", self.name));
            match OpenOptions::new().write(true).create_new(true).open(&path) {
                Ok(file) => {
                    self.number = Some(number);
                    return Ok((file, path));
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists && self.number.is_none() => {}
                Err(source) => return Err(DumpError { path, source }),
            }
        }
    }
}

/// A file name that tells people the unit. Numbers tell units apart.
fn file_name(unit: &str) -> Cow<'_, str> {
    let is_plain =
        |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'+' | b'_' | b'@');
    let mut name = String::with_capacity(unit.len().min(NAME_BYTES_MAX));
    // A function that is compiled by itself stands behind its file. Directories say least, and the end says most.
    let file = unit.split(": ").next().unwrap_or(unit);
    let from = file.rfind('/').map_or(0, |at| at + 1).max(unit.len().saturating_sub(NAME_BYTES_MAX));
    for byte in unit.as_bytes()[from..].iter().copied() {
        let byte = if is_plain(byte) { char::from(byte) } else { '_' };
        // A run of them says no more than one.
        if byte != '_' || !(name.is_empty() || name.ends_with('_')) {
            name.push(byte);
        }
    }
    if name.is_empty() { "unnamed".into() } else { name.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_name_of_a_unit_gives_a_name_of_a_file() {
        for (unit, file) in [
            ("hello.c", "hello.c"),
            ("/tmp/a b/hello.c: main", "hello.c_main"),
            ("../../etc/passwd: a/../b", "passwd_a_.._b"),
            ("lib.a(x.o): f<int>(é\0\n)", "lib.a_x.o_f_int_"),
            ("", "unnamed"),
            ("///", "unnamed"),
        ] {
            assert_eq!(file_name(unit), file);
        }
        let long = format!("{}end", "é".repeat(1_000));
        assert_eq!(file_name(&long), "end");
        assert_eq!(file_name(&"x".repeat(1_000)).len(), NAME_BYTES_MAX);
    }
}
