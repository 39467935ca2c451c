//! Orders of first calls, written when the program ends, and traces, written while it runs: `--record-order`, `--trace-compile`, and the
//! options that read them.

use std::fs::{self, OpenOptions};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use uruk::pipeline::lazy::{
    CallOrder, CallOrderError, CompileTrace, CompileTraceError, CompileTraceFile, CompileTraceFileError,
};

/// Why an order was not read or written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OrderError {
    #[error("cannot read the order of calls {}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("{} is no order of calls; uruk run --lazy --record-order FILE writes one", path.display())]
    Foreign { path: PathBuf, source: CallOrderError },
    #[error(
        "{} is no trace; uruk run --lazy --trace-compile FILE writes one, and --record-order FILE another kind", path.display()
    )]
    ForeignTrace { path: PathBuf, source: CompileTraceError },
    #[error(transparent)]
    Trace(#[from] CompileTraceFileError),
    #[error("cannot write the order of calls {}", path.display())]
    Write { path: PathBuf, source: io::Error },
}

/// Where the trace goes if the command line does not say.
const VARIABLE: &str = "URUK_TRACE_COMPILE";

/// The order in a file, or of a trace.
pub(crate) fn read(path: &Path) -> Result<CallOrder, OrderError> {
    let text = text(path)?;
    if let Ok(trace) = text.parse::<CompileTrace>() {
        return Ok(trace.order());
    }
    text.parse().map_err(|source| OrderError::Foreign { path: path.into(), source })
}

/// The trace in a file, or made of an order.
pub(crate) fn read_trace(path: &Path) -> Result<CompileTrace, OrderError> {
    text(path)?.parse().map_err(|source| OrderError::ForeignTrace { path: path.into(), source })
}

/// Whether a file is one of the two.
pub(crate) fn is_trace(path: &Path) -> bool {
    let beginning = || {
        let mut bytes = [0; 4];
        fs::File::open(path).and_then(|mut file| file.read_exact(&mut bytes)).map(|()| bytes)
    };
    // Other files may be large.
    let may_be = beginning().is_ok_and(|bytes| str::from_utf8(&bytes).is_ok_and(|text| !text.contains('\0')));
    may_be && text(path).is_ok_and(|text| CompileTrace::is_trace(&text))
}

/// The file that functions are to be noted in, if they are.
pub(crate) fn trace_file(
    named: Option<&Path>,
    is_on_call: bool,
) -> Result<Option<CompileTraceFile>, OrderError> {
    let of_environment = || std::env::var_os(VARIABLE).filter(|value| is_on_call && !value.is_empty());
    let path = named.map(Path::to_owned).or_else(|| of_environment().map(PathBuf::from));
    Ok(path.map(CompileTraceFile::append).transpose()?)
}

fn text(path: &Path) -> Result<String, OrderError> {
    fs::read_to_string(path).map_err(|source| OrderError::Read { path: path.into(), source })
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
