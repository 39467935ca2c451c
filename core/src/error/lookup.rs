//! Why lookups fail.

use std::fmt;

use crate::deadlock::DeadlockPath;
use crate::symbol::readable::Quoted;
use crate::sync::Arc;
use crate::{DeadlockStep, Failure, SharedError, SymbolName, TaskPriority, WaitError, Why};

use super::{CAUSES_MAX, LimitReached, NAMES_MAX, NameList, WithCauses};

/// Where a lookup looked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SearchedDylib {
    /// The dylib.
    pub dylib: Arc<str>,
    /// The generators it asks for definitions it does not have.
    pub generators: Vec<Arc<str>>,
}

/// Why a lookup failed. Nothing it asked for is answered.
///
/// # Examples
/// ```
/// use uruk_core::{ExecutionSession, FnUnit, LookupError, SymbolMap, WithCauses};
///
/// let session = ExecutionSession::new();
/// let main = session.create_jit_dylib("main")?;
/// let f = session.intern("f");
/// main.define(Box::new(FnUnit::new([f.clone()], |_| Err::<SymbolMap, _>("line 3: no such opcode"))))?;
/// let error = session.lookup_symbol(&main.link_order(), &f).unwrap_err();
/// let LookupError::Failed(failure) = &error else { panic!("{error}") };
/// assert_eq!(*failure.symbol(), f);
/// assert_eq!(
///     WithCauses(&error).to_string(),
///     "`f` (dylib `main`) failed: line 3: no such opcode"
/// );
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LookupError {
    /// Required symbols have no definition that the lookup may see.
    #[error("{}", NotFound { symbols, searched, near, named: *named })]
    #[non_exhaustive]
    NotFound {
        /// The missing symbols.
        symbols: Vec<SymbolName>,
        /// The dylibs searched, in order.
        searched: Vec<SearchedDylib>,
        /// Of some missing symbols the name of one that is defined and may have been meant. Looked for a thousand times in a session,
        /// among its first definitions.
        near: Box<[(SymbolName, SymbolName)]>,
        /// The error that has this one as its source names the symbols, and this one only says where they were searched.
        named: bool,
        /// How often generators and link orders had changed when the search began.
        changes: u32,
    },
    /// A symbol failed, or one that it waits on. It stays so until it is [defined](crate::JitDylib::define) again, which needs no
    /// removal, or made once more ([`Failure::remedy`]).
    #[error(transparent)]
    Failed(Arc<Failure>),
    /// A definition generator failed.
    #[error("definition generator `{generator}` of dylib `{dylib}` failed")]
    Generator {
        /// The dylib the generator belongs to.
        dylib: Arc<str>,
        /// The generator.
        generator: Arc<str>,
        /// Its error.
        source: SharedError,
    },
    /// Aliases lead back to themselves.
    #[error("aliases form a cycle: {}; break it by defining one of them", Chain(cycle))]
    AliasCycle {
        /// The aliases in the order in which each names the next; the first is repeated at the end.
        cycle: Vec<SymbolName>,
    },
    /// A symbol is an alias, or a re-export, of one that was removed: its address leads nowhere.
    #[error(
        "`{}` is an alias of a symbol that was removed; remove the alias as well, and define it anew",
        alias.readable()
    )]
    AliasOfRemoved {
        /// The alias whose source is gone.
        alias: SymbolName,
    },
    /// A dylib of the search order was removed from its session.
    #[error("the search order names dylib `{dylib}`, which was removed from its session")]
    DylibRemoved {
        /// The dylib.
        dylib: Arc<str>,
    },
    /// A dylib of the search order belongs to another session.
    #[error("the search order names dylib `{dylib}`, which belongs to another session")]
    ForeignDylib {
        /// The dylib.
        dylib: Arc<str>,
    },
    /// The calling thread may not wait.
    #[error(transparent)]
    Wait(#[from] WaitError),
    /// The lookup would never end: what it needs waits, for certain, for the thread that asks.
    ///
    /// A thread that is blocked, and holds what others may need, looks for such a cycle when it begins to wait and now and then while it
    /// waits. The first of the cycle that looks is told.
    #[error(
        "the lookup would never end: {}; look up asynchronously there, or detach the responsibility or leave the serial queue before blocking",
        DeadlockPath(path)
    )]
    WouldDeadlock {
        /// The cycle: each step waits for the next, the last for the first.
        path: Arc<[DeadlockStep]>,
    },
    /// The lookup's time was over before it was answered. It has been withdrawn.
    #[error("the deadline of the lookup has passed{}", Late(waiting))]
    DeadlineExceeded {
        /// Symbols that were not ready, some of them if there are many; empty if an answer came too late.
        waiting: Arc<[Why]>,
    },
    /// The lookup would bring about work in the background, and the dispatcher has as much of that as it may. Nothing was claimed.
    #[error(
        "no more {priority} work is admitted: {reached}; wait with `ExecutionSession::wait_for_room({priority:?}, {})`, ask again \
         later, ask for it as demanded, or raise `{}` where the dispatcher is built",
        reached.asked, reached.set_by
    )]
    Overloaded {
        /// How urgent the lookup was.
        priority: TaskPriority,
        /// The limit that leaves no room, and where it stood.
        reached: LimitReached,
    },
    /// The session is closed, or was before the answer was there.
    #[error("the session is closed")]
    Closed,
}

impl LookupError {
    /// The undefined symbols, if they are why the lookup failed: requested symbols, or symbols they refer to. Empty if it failed for
    /// another reason.
    ///
    /// Found by type among the error's [causes](WithCauses::chain). A unit that fails with an error of its own has the error of its
    /// lookup among them if that is its [source](std::error::Error::source).
    ///
    /// ```
    /// use uruk_core::{ExecutionSession, LookupError};
    ///
    /// let session = ExecutionSession::new();
    /// let main = session.create_jit_dylib("main")?;
    /// let absent = session.intern("absent");
    /// let error = session.lookup_symbol(&main.link_order(), &absent).unwrap_err();
    /// assert_eq!(error.missing_symbols(), [absent]);
    /// assert!(LookupError::Closed.missing_symbols().is_empty());
    /// # Ok::<(), uruk_core::DylibError>(())
    /// ```
    pub fn missing_symbols(&self) -> &[SymbolName] {
        let missing =
            WithCauses(self).chain().take(CAUSES_MAX).find_map(|error| match error.downcast_ref() {
                Some(Self::NotFound { symbols, .. }) => Some(symbols.as_slice()),
                _ => None,
            });
        missing.unwrap_or_default()
    }

    /// The same error, which says how the failed symbol can be made once more, if it can: see [`Failure::remedy`].
    #[must_use]
    pub fn with_remedy(self) -> Self {
        match self {
            Self::Failed(failure) => Self::Failed(Arc::new(Failure::clone(&failure).with_remedy())),
            other => other,
        }
    }

    /// The same as the source of an error that names the missing symbols: it does not name them once more.
    pub fn as_source_of_names(mut self) -> Self {
        if let Self::NotFound { named, .. } = &mut self {
            *named = true;
        }
        self
    }
}

struct NotFound<'a> {
    symbols: &'a [SymbolName],
    searched: &'a [SearchedDylib],
    near: &'a [(SymbolName, SymbolName)],
    named: bool,
}

impl fmt::Display for NotFound<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { symbols, searched, near, named } = self;
        let searched = Searched(searched);
        match named {
            true => write!(f, "searched {searched}")?,
            false => write!(f, "not found: {} (searched {searched})", NameList(symbols))?,
        }
        for (index, (symbol, near)) in near.iter().enumerate() {
            f.write_str(if index == 0 { "; did you mean " } else { ", " })?;
            write!(f, "{}", Quoted(near))?;
            if symbols.len() > 1 {
                write!(f, " for {}", Quoted(symbol))?;
            }
        }
        f.write_str(if near.is_empty() { "" } else { "?" })
    }
}

struct Searched<'a>(&'a [SearchedDylib]);

impl fmt::Display for Searched<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A name in angle brackets is one of the engine's own.
        let mut separated = self.0.iter().filter(|dylib| !dylib.dylib.starts_with('<')).enumerate();
        separated.try_for_each(|(index, dylib)| write!(f, "{}{dylib}", if index == 0 { "" } else { ", " }))
    }
}

impl fmt::Display for SearchedDylib {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}`", self.dylib)?;
        match self.generators.as_slice() {
            [] => Ok(()),
            generators => {
                // An archive is known by its path.
                let names = generators.iter().map(|name| name.rsplit('/').next().unwrap_or(name));
                write!(f, " with {}", names.collect::<Vec<_>>().join(", "))
            }
        }
    }
}

struct Chain<'a>(&'a [SymbolName]);

impl fmt::Display for Chain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, name) in self.0.iter().take(2 * NAMES_MAX).enumerate() {
            write!(f, "{}{}", if index == 0 { "" } else { " -> " }, Quoted(name))?;
        }
        match self.0.len().checked_sub(2 * NAMES_MAX) {
            Some(more) if more > 0 => write!(f, " -> ({more} more)"),
            _ => Ok(()),
        }
    }
}

struct Late<'a>(&'a [Why]);

impl fmt::Display for Late<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|why| write!(f, "\n{why}"))
    }
}
