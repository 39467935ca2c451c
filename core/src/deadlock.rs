//! Certain deadlocks, step by step.

use std::fmt;

use crate::SymbolName;
use crate::symbol::readable::{Quoted, placed};
use crate::sync::Arc;

/// One link of a cycle of waits, each of which cannot end before the next.
///
/// The last waits for the first.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DeadlockStep {
    /// The thread that holds the symbol's responsibility is blocked in a lookup of the next one.
    LooksUp {
        /// The symbol.
        symbol: SymbolName,
        /// Its dylib.
        dylib: Arc<str>,
        /// The unit that is to provide it.
        unit: SymbolName,
    },
    /// The symbol's unit lies on the stack of a thread that is blocked in a lookup of the next one, further up.
    Beneath {
        /// The symbol.
        symbol: SymbolName,
        /// Its dylib.
        dylib: Arc<str>,
        /// The unit that is to provide it.
        unit: SymbolName,
    },
    /// The symbol is emitted and depends on the next one.
    DependsOn {
        /// The symbol.
        symbol: SymbolName,
        /// Its dylib.
        dylib: Arc<str>,
        /// The unit that provides it.
        unit: SymbolName,
    },
    /// The symbol is an alias of the next one.
    AliasOf {
        /// The symbol.
        symbol: SymbolName,
        /// Its dylib.
        dylib: Arc<str>,
        /// The unit of aliases.
        unit: SymbolName,
    },
    /// The symbol's unit waits in a serial queue, whose running task is blocked in a lookup of the next one.
    Queued {
        /// The symbol.
        symbol: SymbolName,
        /// Its dylib.
        dylib: Arc<str>,
        /// The unit that is to provide it.
        unit: SymbolName,
    },
    /// The definition generator that is to be asked is busy in a thread that is blocked in a lookup of the next one.
    Generator {
        /// The dylib of the generator.
        dylib: Arc<str>,
        /// The generator.
        generator: Arc<str>,
    },
}

impl DeadlockStep {
    /// The symbol, unless the step is a generator's.
    pub fn symbol(&self) -> Option<&SymbolName> {
        match self {
            Self::LooksUp { symbol, .. }
            | Self::Beneath { symbol, .. }
            | Self::DependsOn { symbol, .. }
            | Self::AliasOf { symbol, .. }
            | Self::Queued { symbol, .. } => Some(symbol),
            Self::Generator { .. } => None,
        }
    }

    /// The dylib of the symbol or of the generator.
    pub fn dylib(&self) -> &str {
        match self {
            Self::LooksUp { dylib, .. }
            | Self::Beneath { dylib, .. }
            | Self::DependsOn { dylib, .. }
            | Self::AliasOf { dylib, .. }
            | Self::Queued { dylib, .. }
            | Self::Generator { dylib, .. } => dylib,
        }
    }

    fn verb(&self) -> &'static str {
        match self {
            Self::LooksUp { .. } => "looks up",
            Self::Beneath { .. } => "lies on the stack of a thread that looks up",
            Self::DependsOn { .. } => "is emitted and depends on",
            Self::AliasOf { .. } => "is an alias of",
            Self::Queued { .. } => "waits in the serial queue of a task that looks up",
            Self::Generator { .. } => "is busy with a lookup of",
        }
    }
}

impl fmt::Display for DeadlockStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        After(None, self).fmt(f)
    }
}

/// A step behind another, whose dylib has just been named.
struct After<'a>(Option<&'a DeadlockStep>, &'a DeadlockStep);

impl fmt::Display for After<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(before, step) = *self;
        match step {
            DeadlockStep::LooksUp { symbol, dylib, unit }
            | DeadlockStep::Beneath { symbol, dylib, unit }
            | DeadlockStep::DependsOn { symbol, dylib, unit }
            | DeadlockStep::AliasOf { symbol, dylib, unit }
            | DeadlockStep::Queued { symbol, dylib, unit } => {
                let news =
                    Some(&**dylib).filter(|dylib| before.is_none_or(|before| before.dylib() != *dylib));
                write!(f, "{}{}", Quoted(symbol), placed(symbol, news, unit))
            }
            DeadlockStep::Generator { dylib, generator } => {
                write!(f, "generator `{generator}` of dylib `{dylib}`")
            }
        }
    }
}

/// How many steps of a cycle are printed.
const STEPS_MAX: usize = 32;

/// Prints a cycle, from the first step back to it.
pub(crate) struct DeadlockPath<'a>(pub(crate) &'a [DeadlockStep]);

impl fmt::Display for DeadlockPath<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(first) = self.0.first() else { return Ok(()) };
        write!(f, "{first} {}", first.verb())?;
        for (before, step) in self.0.iter().zip(&self.0[1..]).take(STEPS_MAX - 1) {
            write!(f, " {}, which {}", After(Some(before), step), step.verb())?;
        }
        if self.0.len() > STEPS_MAX {
            write!(f, " one of {} more that are not listed, and so on back to", self.0.len() - STEPS_MAX)?;
        }
        // Where it is has been said.
        match first.symbol() {
            Some(symbol) => write!(f, " {}", Quoted(symbol)),
            None => write!(f, " {first}"),
        }
    }
}
