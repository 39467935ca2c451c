//! [`RemoteError`]: why another process did not run code.

use std::fmt;
use std::io;
use std::path::PathBuf;

use uruk_core::sync::Arc;

use super::address::ExecutorAddress;
use crate::debug::SymbolAt;
use crate::peer::{PeerError, ProcessEnd};

/// Why an executor did not do what it was asked.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RemoteError {
    /// It could not be started.
    #[error("{}: cannot run code there", program.display())]
    Start {
        /// The program.
        program: PathBuf,
        /// The system's error.
        source: Arc<io::Error>,
    },
    /// There is no connection to it, or it was none of this version that answered.
    #[error("{address}: no executor runs code for this process there")]
    Connect {
        /// Where it should listen.
        address: ExecutorAddress,
        /// The reason.
        source: Arc<io::Error>,
    },
    /// The system lets this process start no thread that reads the executor's messages.
    #[error("cannot read what the executor says")]
    NoThread {
        /// The system's error.
        source: Arc<io::Error>,
    },
    /// It has ended, was late, or broke the protocol. All later requests fail with the same error.
    #[error("the executor has gone{}", At(at))]
    Gone {
        /// How.
        #[source]
        end: PeerError,
        /// The place in linked code where its end came from, if that was a fault there.
        at: Option<Arc<SymbolAt>>,
    },
    /// The library could not be loaded there.
    #[error("{}: {message}", path.display())]
    LoadLibrary {
        /// The library.
        path: PathBuf,
        /// The message of the executor's dynamic linker.
        message: String,
    },
    /// The program that it runs has closed the connection: it is about to end, or another file is executed in its place.
    #[error("the executor's program takes no more code")]
    LetGo,
    /// The request was made in a child of the host.
    #[error("the executor belongs to the process that has started it, and not to a child of that")]
    Forked,
}

impl RemoteError {
    /// How the executor's process ended, if this is what happened.
    pub fn process_end(&self) -> Option<ProcessEnd> {
        match self {
            Self::Gone { end: PeerError::Ended { end, .. }, .. } => Some(*end),
            _ => None,
        }
    }
}

struct At<'a>(&'a Option<Arc<SymbolAt>>);

impl fmt::Display for At<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(at) = self.0 else { return Ok(()) };
        write!(f, ", in `{}` + {:#x} of {}", at.symbol, at.offset, at.unit)?;
        match &at.place {
            Some(place) => write!(f, ", {}:{}", place.file, place.line),
            None => Ok(()),
        }
    }
}
