//! One error enum per operation.
//!
//! All are cheap to clone, because one failure reaches many queries, and name symbol, dylib and unit. Each says its own sentence. Its
//! cause is its source and not part of that sentence, so a printed chain says nothing twice.

mod complete;
mod cut;
mod limit;
mod lookup;
mod missing;
mod wait;

use std::fmt;

use crate::symbol::readable::Quoted;
use crate::sync::Arc;
use crate::{Failure, SharedError, SymbolFlags, SymbolName, WithCauses};

pub use complete::CompleteError;
pub use limit::LimitReached;
pub use lookup::{LookupError, SearchedDylib};
pub use wait::{HeldResource, WaitError};

pub(crate) use cut::cut_short;
pub(crate) use missing::{MissingSymbols, failure_in};

/// How many causes of an error are looked at. Errors of an embedder may go round in a circle.
pub(crate) const CAUSES_MAX: usize = 256;

/// Why a dylib could not be created or its link order not changed.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DylibError {
    /// The session has a dylib of that name.
    #[error("the session already has a dylib named `{name}`; choose another name")]
    Duplicate {
        /// The name asked for.
        name: Arc<str>,
    },
    /// The dylib was removed from its session.
    #[error("dylib `{name}` was removed from its session")]
    Removed {
        /// The dylib.
        name: Arc<str>,
    },
    /// The dylib belongs to another session.
    #[error("dylib `{name}` belongs to another session")]
    Foreign {
        /// The dylib.
        name: Arc<str>,
    },
    /// The session's platform objects to the dylib, which was removed again.
    #[error("the platform refused dylib `{name}`")]
    Platform {
        /// The dylib.
        name: Arc<str>,
        /// Its error.
        source: SharedError,
    },
    /// The session is closed.
    #[error("the session is closed")]
    Closed,
}

/// Why a unit was not defined. The unit has been dropped and the dylib is as it was.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DefineError {
    /// A symbol has a strong definition already, or one that a lookup has searched.
    #[error("`{}` of unit `{unit}` is already defined in dylib `{dylib}` by unit `{existing_unit}`", symbol.readable())]
    Duplicate {
        /// The symbol defined twice.
        symbol: SymbolName,
        /// The dylib in which it is.
        dylib: Arc<str>,
        /// The unit that was refused.
        unit: SymbolName,
        /// The unit that has the symbol.
        existing_unit: SymbolName,
    },
    /// The symbols were removed together with their tracker.
    #[error("the resource tracker of unit `{unit}` in dylib `{dylib}` was removed")]
    TrackerDefunct {
        /// The unit that was refused.
        unit: SymbolName,
        /// The dylib.
        dylib: Arc<str>,
    },
    /// The dylib was removed from its session.
    #[error("unit `{unit}` was defined in dylib `{dylib}`, which was removed from its session")]
    DylibRemoved {
        /// The unit that was refused.
        unit: SymbolName,
        /// The dylib.
        dylib: Arc<str>,
    },
    /// The tracker belongs to another dylib.
    #[error("unit `{unit}` was defined in dylib `{dylib}` with a resource tracker of another dylib")]
    ForeignTracker {
        /// The unit that was refused.
        unit: SymbolName,
        /// The dylib.
        dylib: Arc<str>,
    },
    /// A replacement names symbols its responsibility does not cover.
    #[error("unit `{unit}` names symbols that the responsibility does not cover: {}", NameList(symbols))]
    NotCovered {
        /// The unit that was refused.
        unit: SymbolName,
        /// The symbols that are not covered, or that are covered and missing.
        symbols: Vec<SymbolName>,
    },
    /// A replacement promises a symbol with other flags than the unit that it takes over from.
    #[error("unit `{unit}` provides `{}` as {given:?}, but was to take it over as {promised:?}", symbol.readable())]
    Flags {
        /// The unit that was refused.
        unit: SymbolName,
        /// The symbol.
        symbol: SymbolName,
        /// Its flags in the interface of the unit that gave it up.
        promised: SymbolFlags,
        /// Its flags in the interface of the unit that was refused.
        given: SymbolFlags,
    },
    /// The session's platform objects to the unit.
    #[error("the platform refused unit `{unit}` in dylib `{dylib}`")]
    Platform {
        /// The unit that was refused.
        unit: SymbolName,
        /// The dylib.
        dylib: Arc<str>,
        /// Its error.
        source: SharedError,
    },
    /// The session is closed.
    #[error("unit `{unit}` was not defined: the session is closed")]
    Closed {
        /// The unit that was refused.
        unit: SymbolName,
    },
}

/// Why addresses were refused. The responsibility is as it was.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ResolveError {
    /// Symbols of the responsibility have no address.
    #[error("unit `{unit}` gave no address for: {}", NameList(symbols))]
    Missing {
        /// The unit.
        unit: SymbolName,
        /// The symbols without one.
        symbols: Vec<SymbolName>,
    },
    /// Addresses were given for symbols the responsibility does not cover, or that never have one.
    #[error("unit `{unit}` gave addresses for symbols it is not responsible for: {}", NameList(symbols))]
    Unexpected {
        /// The unit.
        unit: SymbolName,
        /// The symbols in question.
        symbols: Vec<SymbolName>,
    },
    /// A symbol is not what its unit promised.
    #[error("unit `{unit}` promised `{}` as {promised:?} and resolved it as {given:?}", symbol.readable())]
    Flags {
        /// The unit.
        unit: SymbolName,
        /// The symbol.
        symbol: SymbolName,
        /// The flags in the interface.
        promised: SymbolFlags,
        /// The flags that were given.
        given: SymbolFlags,
    },
    /// Symbols were resolved before, with other addresses or flags.
    #[error("unit `{unit}` answered otherwise than it had resolved: {}", NameList(symbols))]
    Changed {
        /// The unit.
        unit: SymbolName,
        /// The symbols in question.
        symbols: Vec<SymbolName>,
    },
    /// The symbols were removed together with their tracker.
    #[error("the resource tracker of unit `{unit}` was removed while the unit ran")]
    TrackerDefunct {
        /// The unit.
        unit: SymbolName,
    },
}

/// Why an emission was refused. The responsibility is as it was.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EmitError {
    /// Groups name symbols the responsibility does not cover, or one symbol twice.
    #[error(
        "unit `{unit}` emitted symbols it is not responsible for, or emitted them twice: {}",
        NameList(symbols)
    )]
    Unexpected {
        /// The unit.
        unit: SymbolName,
        /// The symbols in question.
        symbols: Vec<SymbolName>,
    },
    /// A dependency has failed.
    #[error("unit `{unit}` depends on a symbol that failed")]
    DependencyFailed {
        /// The unit.
        unit: SymbolName,
        /// The dependency's failure.
        #[source]
        failure: Arc<Failure>,
    },
    /// A dependency was removed.
    #[error("unit `{unit}`: a dependency of {} was removed after it was looked up", NameList(dependants))]
    DependencyRemoved {
        /// The unit.
        unit: SymbolName,
        /// The symbols of the group that has the dependency.
        dependants: Vec<SymbolName>,
    },
    /// A token comes from another session.
    #[error("unit `{unit}`: a dependency of {} is a token of another session", NameList(dependants))]
    ForeignDependency {
        /// The unit.
        unit: SymbolName,
        /// The symbols of the group that has the token.
        dependants: Vec<SymbolName>,
    },
    /// The symbols were removed together with their tracker.
    #[error("the resource tracker of unit `{unit}` was removed while the unit ran")]
    TrackerDefunct {
        /// The unit.
        unit: SymbolName,
    },
}

/// Why part of a responsibility could not be handed to another.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DelegateError {
    /// The responsibility does not cover the symbols.
    #[error("unit `{unit}` cannot delegate symbols it is not responsible for: {}", NameList(symbols))]
    NotCovered {
        /// The unit.
        unit: SymbolName,
        /// The symbols in question.
        symbols: Vec<SymbolName>,
    },
    /// The symbols were removed together with their tracker.
    #[error("the resource tracker of unit `{unit}` was removed while the unit ran")]
    TrackerDefunct {
        /// The unit.
        unit: SymbolName,
    },
}

/// Why nothing was removed.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RemoveError {
    /// Symbols are not defined in the dylib.
    #[error("cannot remove symbols that dylib `{dylib}` does not define: {}", NameList(symbols))]
    NotFound {
        /// The dylib.
        dylib: Arc<str>,
        /// The missing symbols.
        symbols: Vec<SymbolName>,
    },
    /// Symbols are being materialized; remove their tracker instead.
    #[error(
        "cannot remove symbols of dylib `{dylib}` by name while they materialize: {}; remove their resource tracker instead",
        NameList(symbols)
    )]
    InUse {
        /// The dylib.
        dylib: Arc<str>,
        /// The symbols.
        symbols: Vec<SymbolName>,
    },
    /// Symbols that would stay need some that would go. Nothing was removed.
    #[error(
        "cannot remove symbols of dylib `{dylib}` that others need, such as {}; needed by {}: remove those first, or all together with `RemovalPolicy::Cascade`",
        Quoted(symbol), FirstNames(dependants, *count)
    )]
    Needed {
        /// The dylib.
        dylib: Arc<str>,
        /// One that is needed.
        symbol: SymbolName,
        /// The first of those that need what would be removed, directly.
        dependants: Vec<SymbolName>,
        /// How many there are.
        count: usize,
    },
    /// A removal asks what depends on symbols of a dylib that does not keep it. Nothing was removed.
    #[error(
        "dylib `{dylib}` does not keep what depends on its symbols, so a removal cannot ask: create it with `create_jit_dylib_keeping_dependants`"
    )]
    DependantsNotKept {
        /// The dylib.
        dylib: Arc<str>,
    },
    /// Resources refused to go. The symbols are gone all the same.
    #[error("resources of dylib `{dylib}` could not be removed: {}", Joined(sources))]
    Resources {
        /// The dylib.
        dylib: Arc<str>,
        /// Their errors, newest resource first.
        sources: Vec<SharedError>,
    },
    /// The dylib itself was removed from its session.
    #[error("dylib `{dylib}` was removed from its session")]
    DylibRemoved {
        /// The dylib.
        dylib: Arc<str>,
    },
    /// The dylib belongs to another session.
    #[error("dylib `{dylib}` belongs to another session; remove it there")]
    Foreign {
        /// The dylib.
        dylib: Arc<str>,
    },
}

/// Why a failed symbol is not made once more. All others that were asked for are.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RetryError {
    /// The units of the symbols were used up when they failed.
    #[error(
        "cannot retry symbols whose units have left nothing to make them from: {}; define them again",
        NameList(symbols)
    )]
    NoSpare {
        /// Failed symbols that were asked for, or that these have failed with.
        symbols: Vec<SymbolName>,
    },
    /// The order of the search is of another session.
    #[error("the search order names dylib `{dylib}`, which belongs to another session")]
    ForeignDylib {
        /// The dylib.
        dylib: Arc<str>,
    },
}

/// Why a resource tracker refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TrackerError {
    /// The tracker was removed, or transferred to another.
    #[error("a resource tracker of dylib `{dylib}` is defunct: it was removed or transferred")]
    Defunct {
        /// The dylib.
        dylib: Arc<str>,
    },
    /// The other tracker belongs to another dylib.
    #[error("a resource tracker of dylib `{dylib}` cannot be transferred to one of another dylib")]
    Foreign {
        /// The dylib.
        dylib: Arc<str>,
    },
}

/// A failure to close a session.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CloseError {
    /// A close waits for the work in progress, and the calling thread may not wait. Nothing has happened: the session is as open as
    /// before.
    #[error("the session was not closed, which would wait for its work")]
    Wait(#[source] WaitError),
    /// The session was still at work when its time was over. Units that had not started are cancelled; running ones end by themselves,
    /// and the session is closed then.
    #[error(
        "the session was not closed in time: tasks still run; what had not started is cancelled, and the rest ends in the background"
    )]
    TimedOut,
    /// Resources refused to go. The session is closed all the same.
    #[error("resources could not be removed: {}", Joined(sources))]
    Resources {
        /// Their errors.
        sources: Vec<SharedError>,
    },
}

/// Errors that no caller waits for: given to the session's error reporter.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SessionError {
    /// Code of the embedder panicked where no symbol could fail for it.
    #[error("{place} panicked: {message}")]
    Panicked {
        /// Whose code it was.
        place: &'static str,
        /// The panic's message.
        message: Arc<str>,
    },
    /// Symbols failed that no lookup waited for, and they are gone.
    #[error("nobody asked for what failed")]
    Failed(#[source] Arc<Failure>),
    /// Resources reported errors on removal, and no caller waited for it.
    #[error(transparent)]
    Remove(RemoveError),
}

/// At most this many names are printed.
const NAMES_MAX: usize = 16;

struct NameList<'a>(&'a [SymbolName]);

impl fmt::Display for NameList<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        FirstNames(self.0, self.0.len()).fmt(f)
    }
}

/// The first of so many names.
struct FirstNames<'a>(&'a [SymbolName], usize);

impl fmt::Display for FirstNames<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = &self.0[..self.0.len().min(NAMES_MAX)];
        for (index, name) in names.iter().enumerate() {
            write!(f, "{}{}", if index == 0 { "" } else { ", " }, Quoted(name))?;
        }
        match self.1.checked_sub(names.len()) {
            Some(more) if more > 0 => write!(f, " and {more} more"),
            _ => Ok(()),
        }
    }
}

struct Joined<'a>(&'a [SharedError]);

impl fmt::Display for Joined<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, error) in self.0.iter().take(NAMES_MAX).enumerate() {
            write!(f, "{}{}", if index == 0 { "" } else { "; " }, WithCauses(&**error))?;
        }
        match self.0.len().checked_sub(NAMES_MAX) {
            Some(more) if more > 0 => write!(f, "; and {more} more"),
            _ => Ok(()),
        }
    }
}
