//! Why symbols failed: one record per event, and the path along which it spread.

use std::error::Error;
use std::fmt;

use crate::symbol::readable::{Quoted, placed};
use crate::sync::Arc;
use crate::{Readable, SharedError, SymbolName, WithCauses};

/// How many steps of the path from the symbol asked for to the failed one an error names.
pub(crate) const PATH_STEPS_MAX: usize = 32;

/// A failure as seen from one symbol: what broke, and who waited on whom.
///
/// Printed as `a waits on b waits on c, which failed`. The unit's error is its [source](Error::source). It holds names, not rows, and so
/// outlives the session.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Failure {
    /// From the symbol asked for to the one that failed; at most 32 of them, the failed one is last.
    pub path: Vec<SymbolName>,
    /// How many symbols between the last but one and the last are not listed.
    pub path_omitted: usize,
    /// The unit that was to provide the failed symbol.
    pub unit: SymbolName,
    /// The dylib of the failed symbol.
    pub dylib: Arc<str>,
    /// What broke.
    pub cause: FailureCause,
    pub(crate) remedy: Option<Remedy>,
    /// Whether its text names the remedy.
    pub(crate) names_remedy: bool,
}

/// How a failed symbol can be made once more without being defined again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Remedy {
    /// By a lookup, once a definition of what it misses has come.
    LookUpAgain,
    /// By [`ExecutionSession::retry`](crate::ExecutionSession::retry).
    Retry,
}

impl Failure {
    /// The symbol that failed first.
    pub fn symbol(&self) -> &SymbolName {
        self.path.last().expect("a failure names at least the failed symbol")
    }

    /// How the symbol can be made once more, if its unit has left what is needed for that
    /// ([`MaterializationUnit::spare`](crate::MaterializationUnit::spare)). If not, it has to be defined again.
    pub fn remedy(&self) -> Option<Remedy> {
        self.remedy
    }

    /// The same failure, whose text names the remedy.
    #[must_use]
    pub(crate) fn with_remedy(self) -> Self {
        Self { names_remedy: true, ..self }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (last, before) = self.path.split_last().expect("a failure names at least the failed symbol");
        for (name, next) in before.iter().zip(&self.path[1..]) {
            // A function waits on its own body, which goes by the same name.
            if Readable(name.as_str()).of() != Readable(next.as_str()).of() {
                write!(f, "{} waits on ", Quoted(name))?;
            }
        }
        if self.path_omitted > 0 {
            write!(f, "({} more, not listed) which wait on ", self.path_omitted)?;
        }
        let Self { dylib, unit, cause, .. } = self;
        let which = if before.is_empty() { "" } else { ", which" };
        write!(f, "{}{}{which} failed", Quoted(last), placed(last, Some(dylib), unit))?;
        match self.remedy.filter(|_| self.names_remedy) {
            Some(Remedy::LookUpAgain) => f.write_str(" (add what is missing and look it up again)")?,
            Some(Remedy::Retry) => f.write_str(" (`retry` makes it once more)")?,
            None => {}
        }
        match cause {
            FailureCause::Unit(_) => Ok(()),
            cause => write!(f, ": {cause}"),
        }
    }
}

impl Error for Failure {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match &self.cause {
            FailureCause::Unit(error) => Some(error.as_ref()),
            _ => None,
        }
    }
}

/// What broke.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum FailureCause {
    /// The unit said so.
    Unit(SharedError),
    /// The unit panicked; the panic's message.
    Panicked(Arc<str>),
    /// The responsibility for the symbol was dropped before the symbol was emitted.
    Abandoned,
    /// The symbol was removed while others waited for it or depended on it.
    Removed,
    /// The dispatcher took no more tasks.
    NotDispatched,
    /// The session was closed. Lookups that end for it say [`LookupError::Closed`](crate::LookupError::Closed).
    Closed,
}

impl fmt::Display for FailureCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unit(error) => write!(f, "{}", WithCauses(&**error)),
            Self::Panicked(message) => write!(f, "the unit panicked: {message}"),
            Self::Abandoned => f.write_str("its responsibility was dropped before it was emitted"),
            Self::Removed => f.write_str("it was removed while others waited on it"),
            Self::NotDispatched => f.write_str("the dispatcher takes no more tasks"),
            Self::Closed => f.write_str("the session was closed"),
        }
    }
}
