//! The file that a program's trace goes to, while it runs.
//!
//! Each line is one `write` at the end of the file. So several processes may share the file, children of a fork among them, and lines are
//! whole after a kill. The file is opened for each line: a program may close all files that it does not know.

use std::fs::{self, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};

use uruk_core::sync::atomic::{AtomicI32, Ordering};

use super::trace::{HEAD, TracedFunction, has_head, line};
use crate::tiers::Tier;

/// A file that functions are noted in when they are compiled.
///
/// # Concurrency
/// Of any number of threads and processes each adds whole lines.
///
/// # Cost
/// Opening the file, writing a line and closing it for each function that is compiled.
#[derive(Debug)]
pub struct CompileTraceFile {
    /// From the root: the program may go to another directory.
    path: PathBuf,
    /// The system's number of the first error; zero is none.
    error: AtomicI32,
}

/// Why nothing can be noted in a file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CompileTraceFileError {
    /// It cannot be written.
    #[error("cannot write the trace {}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// It is something else.
    #[error("{}: it is there already and is no trace, so it is left as it is; name another file", path.display())]
    Occupied {
        /// The file.
        path: PathBuf,
    },
}

impl CompileTraceFile {
    /// Adds to a trace, or begins one.
    ///
    /// # Errors
    /// [`CompileTraceFileError`].
    pub fn append(path: impl AsRef<Path>) -> Result<Self, CompileTraceFileError> {
        let failed = |source| CompileTraceFileError::Write { path: path.as_ref().to_owned(), source };
        let file = Self { path: std::path::absolute(&path).map_err(failed)?, error: AtomicI32::new(0) };
        let about = fs::metadata(&file.path);
        match about.as_ref().ok().filter(|about| about.is_file()).map_or(0, fs::Metadata::len) {
            // Two processes that begin it at a time may both write the head, which may stand there twice.
            0 => file.write(&format!("{HEAD}\n")).map_err(failed)?,
            _ if file.is_trace().map_err(failed)? => file.write("").map_err(failed)?,
            _ => return Err(CompileTraceFileError::Occupied { path: file.path }),
        }
        Ok(file)
    }

    /// The error of the first line that could not be written.
    pub fn failure(&self) -> Option<CompileTraceFileError> {
        // Relaxed: nothing is read because of it.
        let error = Some(self.error.load(Ordering::Relaxed)).filter(|error| *error != 0)?;
        Some(CompileTraceFileError::Write {
            path: self.path.clone(),
            source: io::Error::from_raw_os_error(error),
        })
    }

    /// Notes a function that was compiled.
    pub(super) fn note(&self, function: &TracedFunction, tier: Tier) {
        if let Err(error) = self.write(&line(function, tier)) {
            let error = error.raw_os_error().unwrap_or(libc::EIO);
            // Relaxed: as in `failure`. The first error counts.
            _ = self.error.compare_exchange(0, error, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    fn write(&self, text: &str) -> io::Result<()> {
        let mut file = OpenOptions::new().append(true).create(true).open(&self.path)?;
        // A second write might end up behind the line of another process.
        match file.write(text.as_bytes())? {
            written if written < text.len() => Err(io::ErrorKind::WriteZero.into()),
            _ => Ok(()),
        }
    }

    fn is_trace(&self) -> io::Result<bool> {
        let mut bytes = Vec::new();
        fs::File::open(&self.path)?.read_to_end(&mut bytes)?;
        // An order of calls has other lines, and is none here.
        Ok(str::from_utf8(&bytes).is_ok_and(has_head))
    }
}
