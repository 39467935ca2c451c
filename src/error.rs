//! The errors between a program and its first instruction.

use std::fmt;
use std::path::PathBuf;

use uruk_core::sync::Arc;
use uruk_core::{DefineError, DylibError, LookupError, Readable, RetryError, SymbolName, WithCauses};
use uruk_dispatch::BuildError;
#[cfg(feature = "cache")]
use uruk_pipeline::cache::CacheOpenError;
use uruk_pipeline::executor::PublishError;
use uruk_pipeline::image::{HostPartError, ImageError};
#[cfg(feature = "llvm")]
use uruk_pipeline::ir::CompileError;
use uruk_pipeline::lazy::RedirectError;
use uruk_pipeline::link::LinkError;
use uruk_pipeline::memory::MemoryError;
use uruk_pipeline::object::{CommonError, ObjectError};
#[cfg(feature = "llvm")]
use uruk_pipeline::remote::RemoteError;
use uruk_pipeline::runtime::process::LoadLibraryError;

use crate::image_unit::UnitRejected;

/// How many causes of an error are looked at. A chain of an embedder's errors may go round in a circle.
const CAUSES_MAX: usize = 256;

/// Why [`crate::Jit`] could not do what it was asked.
///
/// # Examples
/// ```
/// use uruk::prelude::*;
/// use uruk::core::WithCauses;
///
/// # fn main() -> Result<(), JitError> {
/// let jit = Jit::builder().threads(1).build()?;
/// let error = jit.add_file("/nonexistent/a.o").unwrap_err();
/// assert!(matches!(error, JitError::Read { .. }));
/// assert_eq!(
///     WithCauses(&error).to_string(),
///     "/nonexistent/a.o: cannot be read: No such file or directory (os error 2)"
/// );
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JitError {
    /// A file could not be read.
    #[error("{}: cannot be read", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: Arc<std::io::Error>,
    },
    /// A file is of no kind the engine can take in.
    #[error("{}: {what}", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
        /// Its kind, and the kinds that would do.
        what: Box<str>,
    },
    /// LLVM refused a module, a pass pipeline or the target.
    #[cfg(feature = "llvm")]
    #[error(transparent)]
    Compile(#[from] CompileError),
    /// An object or archive is broken.
    #[error(transparent)]
    Object(#[from] ObjectError),
    /// A shared library could not be loaded.
    #[error(transparent)]
    LoadLibrary(#[from] LoadLibraryError),
    /// A tentative definition came too late.
    #[error(transparent)]
    Common(#[from] CommonError),
    /// A unit's symbols were refused.
    #[error(transparent)]
    Define(#[from] DefineError),
    /// Symbols were not found or could not be made.
    #[error(transparent)]
    Lookup(#[from] LookupError),
    /// A symbol was not found that the executable defines and does not export.
    #[error(transparent)]
    Unexported(Box<Unexported>),
    /// Failed symbols cannot be made once more.
    #[error(transparent)]
    Retry(#[from] RetryError),
    /// A symbol is data, and was asked for as a function.
    #[error("`{}` is not a function", Readable(symbol))]
    NotCallable {
        /// The symbol.
        symbol: Box<str>,
    },
    /// A symbol is a function or a thread-local variable, and was asked for as data.
    #[error("`{}` is a function or a thread-local variable, not data", Readable(symbol))]
    NotData {
        /// The symbol.
        symbol: Box<str>,
    },
    /// A function was to be given another body that is not a lazy one.
    #[error(
        "`{}` was not added as a lazy function, so its callers cannot be led elsewhere",
        Readable(symbol)
    )]
    NotLazy {
        /// The symbol.
        symbol: Box<str>,
    },
    /// No memory for code could be reserved.
    #[error("cannot reserve memory for code")]
    Memory(#[from] MemoryError),
    /// The place that runs the code did not take the header of its program.
    #[error("cannot make the program's header where its code runs")]
    ProgramImage {
        /// Why.
        source: Arc<PublishError>,
    },
    /// The file that a profiler reads cannot be made.
    #[error("cannot make the file that perf reads")]
    Perf {
        /// Why.
        source: Arc<std::io::Error>,
    },
    /// The compile threads could not be started.
    #[error("cannot start the compile threads")]
    Threads(#[from] BuildError),
    /// The directory of a cache that has to hit cannot be used.
    #[cfg(feature = "cache")]
    #[error(transparent)]
    Cache(#[from] Arc<CacheOpenError>),
    /// A file cannot be loaded as an image.
    #[error(transparent)]
    Image(#[from] ImageError),
    /// A unit of an image is needed that was rejected, and that cannot be compiled.
    #[error(transparent)]
    UnitRejected(Box<UnitRejected>),
    /// An image is to be what a dylib begins with, and the dylib has one of its definitions already.
    #[error(
        "{}: `{}` is defined in `{dylib}` already: load a system image before anything else",
        path.display(), Readable(symbol)
    )]
    ImageNotFirst {
        /// The image.
        path: PathBuf,
        /// The definition.
        symbol: Box<str>,
        /// The dylib.
        dylib: Box<str>,
    },
    /// A section or a code instance cannot be in an image.
    #[error(transparent)]
    ImagePart(#[from] HostPartError),
    /// Files cannot be linked as an image.
    #[error("cannot link the image")]
    LinkImage(#[source] LinkError),
    /// The process that runs the code did not do what it was asked.
    #[cfg(feature = "llvm")]
    #[error(transparent)]
    Remote(#[from] RemoteError),
    /// Something is not possible where another process runs the code.
    #[error("{what} is not possible where another process runs the code")]
    NotThere {
        /// The thing that was asked for.
        what: Box<str>,
    },
    /// A file has nothing of the form that was asked for.
    #[error("{file}: {why}")]
    Emit {
        /// The file.
        file: Box<str>,
        /// Why.
        why: Box<str>,
    },
    /// The targets of an image are none.
    #[error("the targets `{targets}`: {message}")]
    Targets {
        /// As they were given.
        targets: Box<str>,
        /// The defect.
        message: String,
    },
    /// An image could not be written.
    #[error("{}: cannot be written", path.display())]
    WriteImage {
        /// The file.
        path: PathBuf,
        /// Why.
        source: Arc<std::io::Error>,
    },
    /// A dylib could not be made.
    #[error(transparent)]
    Dylib(#[from] DylibError),
}

/// A lookup missed symbols that the executable defines and does not export: [`Scope::define`](crate::Scope::define) hands them to the program.
///
/// They are looked for in the executable's own table of symbols, which is read once, when the first symbol is missing.
#[derive(Clone, Debug, thiserror::Error)]
#[error(
    "this executable has {} without exporting it: hand it over by `define` or `define_data`",
    Quoted(symbols)
)]
#[non_exhaustive]
pub struct Unexported {
    /// The symbols.
    pub symbols: Vec<SymbolName>,
    /// The lookup's own error.
    pub source: LookupError,
}

impl From<RedirectError> for JitError {
    fn from(error: RedirectError) -> Self {
        match error {
            RedirectError::Lookup(error) => Self::Lookup(error),
            RedirectError::NotCallable { function } => Self::NotCallable { symbol: function.as_str().into() },
            RedirectError::NotLazy { function } => Self::NotLazy { symbol: function.as_str().into() },
        }
    }
}

impl JitError {
    /// The undefined symbols, if they are the cause: symbols that were looked up, or that what was looked up refers to.
    /// Empty if it was something else.
    ///
    /// # Examples
    /// ```
    /// # fn main() -> Result<(), uruk::JitError> {
    /// let jit = uruk::Jit::builder().threads(1).build()?;
    /// let error = jit.lookup("absent").unwrap_err();
    /// assert_eq!(error.missing_symbols(), [jit.intern("absent")]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn missing_symbols(&self) -> &[SymbolName] {
        // What this type wraps is no source of it, and units may fail with it.
        let lookups =
            WithCauses(self).chain().take(CAUSES_MAX).filter_map(|error| match error.downcast_ref() {
                Some(Self::Lookup(lookup)) => Some(lookup),
                Some(Self::Unexported(unexported)) => Some(&unexported.source),
                _ => error.downcast_ref::<LookupError>(),
            });
        lookups.map(LookupError::missing_symbols).find(|missing| !missing.is_empty()).unwrap_or_default()
    }

    /// Whether a unit came too late for its tracker.
    pub(crate) fn is_of_removed_tracker(&self) -> bool {
        let defunct = |error: &DefineError| matches!(error, DefineError::TrackerDefunct { .. });
        match self {
            Self::Define(error) | Self::Common(CommonError::Define(error)) => defunct(error),
            _ => false,
        }
    }
}

struct Quoted<'s>(&'s [SymbolName]);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separated = self.0.iter().enumerate();
        separated.try_for_each(|(index, symbol)| {
            write!(f, "{}`{}`", if index == 0 { "" } else { ", " }, symbol.readable())
        })
    }
}
