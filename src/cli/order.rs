//! `--record-order` and `--speculate`: the order of first calls, written when the program ends, and read before it begins.

use std::fs::{self, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

use uruk::pipeline::lazy::{CallOrder, CallOrderError};

/// Why an order was not read or written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OrderError {
    #[error("cannot read the order of calls {}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("{} is no order of calls; uruk run --lazy --record-order FILE writes one", path.display())]
    Foreign { path: PathBuf, source: CallOrderError },
    #[error("cannot write the order of calls {}", path.display())]
    Write { path: PathBuf, source: io::Error },
}

/// The order in a file.
pub(crate) fn read(path: &Path) -> Result<CallOrder, OrderError> {
    let text = fs::read_to_string(path).map_err(|source| OrderError::Read { path: path.into(), source })?;
    text.parse().map_err(|source| OrderError::Foreign { path: path.into(), source })
}

/// A file that an order is to be written to.
#[derive(Debug)]
pub(crate) struct Recording {
    /// From the root: the program may go to another directory.
    path: PathBuf,
    /// A forked child runs the same exit handlers, and records nothing.
    process: u32,
}

impl Recording {
    /// Sees whether the file can be written. Its old text stays until there is an order. It is not kept open, because a program may close
    /// all files that it does not know.
    pub(crate) fn begin(path: &Path) -> Result<Self, OrderError> {
        let open = |path: PathBuf| OpenOptions::new().append(true).create(true).open(&path).map(|_| path);
        let path = std::path::absolute(path)
            .and_then(open)
            .map_err(|source| OrderError::Write { path: path.into(), source })?;
        Ok(Self { path, process: std::process::id() })
    }

    /// Writes the order. Does nothing in a forked child.
    pub(crate) fn end(&self, order: impl FnOnce() -> CallOrder) -> Result<(), OrderError> {
        if std::process::id() != self.process {
            return Ok(());
        }
        let written = fs::write(&self.path, order().to_string());
        written.map_err(|source| OrderError::Write { path: self.path.clone(), source })
    }
}
