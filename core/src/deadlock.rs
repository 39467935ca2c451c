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
        match self {
            Self::LooksUp { symbol, dylib, unit }
            | Self::Beneath { symbol, dylib, unit }
            | Self::DependsOn { symbol, dylib, unit }
            | Self::AliasOf { symbol, dylib, unit }
            | Self::Queued { symbol, dylib, unit } => {
                write!(f, "{} {}", Quoted(symbol), placed(symbol, dylib, unit))
            }
            Self::Generator { dylib, generator } => write!(f, "generator `{generator}` of dylib `{dylib}`"),
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
        for step in self.0.iter().take(STEPS_MAX).skip(1) {
            write!(f, " {step}, which {}", step.verb())?;
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
