//! [`TemporaryFile`]: a file in memory, or on disk where the system refuses that. It is gone when it is dropped.
//!
//! Sandboxes may forbid files in memory (`memfd_create`), and may have no `/proc` by which one is named. A directory for temporary files
//! may allow no code to be mapped. So a use says itself whether it has worked, and is tried with one file after another.

use std::cell::Cell;
use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::hash::{BuildHasher as _, RandomState};
use std::io;
use std::os::fd::{AsRawFd as _, IntoRawFd as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::{Errno, fcntl_dupfd_cloexec};
use rustix::process::{Resource, getrlimit};

/// An empty file for a while.
#[derive(Debug)]
pub struct TemporaryFile {
    /// There until the drop.
    file: Option<File>,
    stays_open: Cell<bool>,
    /// Nothing if it is in memory.
    path: Option<PathBuf>,
}

/// The number of a file in memory lies below this one, and as high as is allowed: few programs open a file of this number. A debugger may
/// look for the file by its number as long as the loaded library is there, and would find theirs.
const NUMBER_END: u64 = 1024;

impl TemporaryFile {
    /// Uses a file that is made for it: in memory, else in the directories for temporary files. The first use that works counts.
    ///
    /// # Errors
    /// If none works. The message says why for each place.
    pub fn with<T>(mut use_it: impl FnMut(&Self) -> io::Result<T>) -> io::Result<T> {
        let mut why_not = String::new();
        let mut failed = |place: &str, error: io::Error| {
            let separator = if why_not.is_empty() { "" } else { "; " };
            // Writing to a string does not fail.
            let _ = write!(why_not, "{separator}{place}: {error}");
        };
        match Self::in_memory().and_then(|file| use_it(&file)) {
            Ok(used) => return Ok(used),
            Err(error) => failed("a file in memory", error),
        }
        for directory in directories() {
            match Self::in_directory(&directory).and_then(|file| use_it(&file)) {
                Ok(used) => return Ok(used),
                Err(error) => failed(&format!("a file in {}", directory.display()), error),
            }
        }
        Err(io::Error::other(why_not))
    }

    /// The file.
    pub fn file(&self) -> &File {
        self.file.as_ref().expect("it is there until the drop")
    }

    /// Keeps the number of the file open until the process ends. gdb reads parts of a loaded library late, and by the name that
    /// [`path`](Self::path) has given.
    pub fn stay_open(&self) {
        self.stays_open.set(true);
    }

    /// By which name any process can open it, while it is there.
    ///
    /// # Errors
    /// What the system says if it has no name for files in memory.
    pub fn path(&self) -> io::Result<PathBuf> {
        match &self.path {
            Some(path) => Ok(path.clone()),
            // Not `/proc/self`: that would be the debugger's own file of this number.
            None => Ok(Path::new("/proc")
                .join(std::fs::read_link("/proc/self")?)
                .join(format!("fd/{}", self.file().as_raw_fd()))),
        }
    }

    /// Whether its contents take room on no disk.
    pub fn is_in_memory(&self) -> bool {
        self.path.is_none()
    }

    fn in_memory() -> io::Result<Self> {
        // A system may insist that files in memory say they are no programs; older ones do not know how that is said. Both can be sealed.
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::NOEXEC_SEAL;
        let file = match memfd_create("uruk", flags) {
            Err(Errno::INVAL) => memfd_create("uruk", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?,
            made => made?,
        };
        let numbers = getrlimit(Resource::Nofile).current.unwrap_or(NUMBER_END).min(NUMBER_END);
        let highest = i32::try_from(numbers).expect("it is small").saturating_sub(1);
        let file = fcntl_dupfd_cloexec(&file, highest).unwrap_or(file);
        Ok(Self { file: Some(file.into()), stays_open: Cell::new(false), path: None })
    }

    fn in_directory(directory: &Path) -> io::Result<Self> {
        // No name that others could have taken before.
        let number = RandomState::new().hash_one(std::process::id());
        let path = directory.join(format!("uruk-{number:016x}.tmp"));
        let file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&path)?;
        Ok(Self { file: Some(file), stays_open: Cell::new(false), path: Some(path) })
    }
}

impl Drop for TemporaryFile {
    fn drop(&mut self) {
        if let Some(path) = &self.path {
            // A directory from which nothing can be removed keeps it.
            let _ = std::fs::remove_file(path);
        }
        if self.stays_open.get()
            && let Some(file) = self.file.take()
        {
            let _ = file.into_raw_fd();
        }
    }
}

/// Where files for a while may be made.
fn directories() -> Vec<PathBuf> {
    let named = [std::env::temp_dir(), "/tmp".into(), "/var/tmp".into(), "/dev/shm".into()];
    let of_session = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let mut directories: Vec<PathBuf> =
        named.into_iter().chain(of_session).filter(|path| path.is_absolute()).collect();
    directories.dedup();
    directories
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_use_is_tried_on_disk_if_it_fails_in_memory() {
        let mut seen = Vec::new();
        let path = TemporaryFile::with(|file| {
            seen.push(file.is_in_memory());
            if file.is_in_memory() { Err(Errno::PERM.into()) } else { file.path() }
        });
        let path = path.expect("there is a directory for temporary files");
        assert_eq!((&*seen, path.exists()), (&[true, false][..], false));
        let error =
            TemporaryFile::with(|_| Err::<(), _>(Errno::PERM.into())).expect_err("none will do").to_string();
        assert!(
            error.starts_with("a file in memory: Operation not permitted") && error.contains("in /tmp: "),
            "{error}"
        );
    }

    #[test]
    fn a_file_in_memory_is_named_for_other_processes_too() {
        let named = TemporaryFile::with(TemporaryFile::path).expect("there is memory");
        let own = format!("/proc/{}/fd/", std::process::id());
        assert!(named.to_string_lossy().starts_with(&own), "{}", named.display());
    }
}
