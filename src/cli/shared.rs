//! `uruk image build --emit so`: objects become a shared library, by the system's linker.

use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

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
    command.args(libraries).arg("-Wl,--as-needed").arg("-lm").stdin(Stdio::null());
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
