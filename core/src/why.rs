//! Why a symbol is not Ready: where it stands, who has it, what that waits for.

use std::fmt;

use crate::sync::Arc;
use crate::{ExecutorAddr, Failure, SymbolName, TaskPriority, WithCauses};

/// Where a symbol stands at one moment, and what it waits for.
///
/// Printed as a block of lines. It holds names and outlives the session.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Why {
    /// The symbol.
    pub symbol: SymbolName,
    /// The dylib that defines it; the one that was asked about, if none does.
    pub dylib: Arc<str>,
    /// Where it stands.
    pub state: WhyState,
    /// The lookups and symbols that wait for it.
    pub demand: Demand,
    /// Sentences of the dylib's generators [about](crate::DefinitionGenerator::about) it. None in errors.
    pub about: Vec<Box<str>>,
}

/// Where a symbol stands.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum WhyState {
    /// Not defined here, or hidden from the caller.
    Undefined {
        /// The generators that could still define it.
        generators: Vec<WhyGenerator>,
    },
    /// Defined, and never looked up.
    NeverSearched {
        /// The unit that would provide it.
        unit: SymbolName,
    },
    /// It was looked up and then no longer wanted: its unit went back before it began.
    Returned {
        /// The unit that would provide it.
        unit: SymbolName,
    },
    /// Its unit waits for its turn in a [`SerialQueue`](crate::SerialQueue).
    Queued {
        /// The unit.
        unit: SymbolName,
    },
    /// Its unit was claimed. It has begun, or waits for a worker.
    Materializing(Work),
    /// It has an address; its unit has still to emit it.
    Resolved {
        /// The address, not safe to use yet.
        address: ExecutorAddr,
        /// The state of its unit's work.
        work: Work,
    },
    /// Its code is in place; what it depends on is not.
    Emitted {
        /// The address, not safe to use yet.
        address: ExecutorAddr,
        /// The unit that provided it.
        unit: SymbolName,
        /// The symbols that are not Ready and that it, or a symbol in a cycle with it, depends on.
        waits_for: WaitedFor,
    },
    /// It failed, or something it depends on did.
    Failed(Arc<Failure>),
    /// It is Ready.
    Ready {
        /// The address.
        address: ExecutorAddr,
    },
    /// The dylib was removed from its session.
    DylibRemoved,
}

/// A lookup that was made outside of units and has not ended.
///
/// Given by [`ExecutionSession::waiting_lookups`](crate::ExecutionSession::waiting_lookups).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct WaitingLookup {
    /// Tells it from the other lookups of the session.
    pub id: u64,
    /// Symbols that are not far enough, some of them if there are many, without their [demand](Why::demand).
    pub waiting: Vec<Why>,
}

/// A definition generator that could define a symbol.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct WhyGenerator {
    /// Its dylib.
    pub dylib: Arc<str>,
    /// The generator.
    pub name: Arc<str>,
    /// It serves a lookup at this moment.
    pub is_busy: bool,
    /// How many lookups wait until it is free.
    pub queued: usize,
}

/// A unit that was claimed, and what is known of the owner of its responsibility.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Work {
    /// The unit.
    pub unit: SymbolName,
    /// The thread that has its responsibility is blocked in a lookup of these. `None` is "unknown": the unit runs or waits for a
    /// worker, or its responsibility was detached and any thread may finish it.
    pub blocked_in: Option<WaitedFor>,
    /// The symbols that the unit has asked for without blocking: its handlers and futures that have no answer yet.
    pub asked_for: WaitedFor,
}

/// Symbols that something waits for: at most 32 of them, and how many more there are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct WaitedFor {
    /// The symbols.
    pub symbols: Vec<WaitedSymbol>,
    /// How many are not listed; in an error of a deadline, whether there are any, for it stops looking.
    pub omitted: usize,
}

/// A symbol that something waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct WaitedSymbol {
    /// The symbol.
    pub symbol: SymbolName,
    /// Its dylib; none if it has not been found in any.
    pub dylib: Option<Arc<str>>,
    /// How far it is.
    pub stage: SymbolStage,
}

/// How far a symbol is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SymbolStage {
    /// A generator is being asked for it.
    Generating,
    /// It was never looked up.
    NeverSearched,
    /// Its unit went back before it began.
    Returned,
    /// Its unit waits for its turn in a serial queue.
    Queued,
    /// Its unit was claimed. It has begun, or waits for a worker.
    Materializing,
    /// It has an address.
    Resolved,
    /// Its code is in place.
    Emitted,
    /// It failed.
    Failed,
    /// It is Ready.
    Ready,
}

/// The lookups and symbols that wait for a symbol.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Demand {
    /// How many lookups wait for it.
    pub lookups: usize,
    /// The highest priority with which it, or its unit, was needed since the unit was claimed; `None` if no work on it is under
    /// way.
    pub priority: Option<TaskPriority>,
    /// Symbols whose unit asked for it or is blocked in a lookup of it, and emitted symbols that depend on it.
    pub symbols: WaitedFor,
}

impl Demand {
    /// Whether nothing waits for it.
    pub fn is_empty(&self) -> bool {
        self.lookups == 0 && self.symbols.symbols.is_empty()
    }
}

/// How many symbols are listed.
pub(crate) const SYMBOLS_MAX: usize = 32;

impl WaitedFor {
    pub(crate) fn push(&mut self, symbol: impl FnOnce() -> WaitedSymbol) {
        match self.symbols.len() < SYMBOLS_MAX {
            true => self.symbols.push(symbol()),
            false => self.omitted += 1,
        }
    }

    /// How many there are, listed or not.
    pub fn len(&self) -> usize {
        self.symbols.len() + self.omitted
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` (dylib `{}`) {}", self.symbol, self.dylib, self.state)?;
        self.about.iter().try_for_each(|sentence| write!(f, "\n  {sentence}"))?;
        if self.demand.is_empty() {
            return Ok(());
        }
        write!(f, "\n  wanted by {} lookups", self.demand.lookups)?;
        if let Some(priority) = self.demand.priority.filter(|&priority| priority < TaskPriority::Demanded) {
            write!(f, ", {priority} at most,")?;
        }
        if !self.demand.symbols.is_empty() {
            write!(f, " and by {}", self.demand.symbols)?;
        }
        Ok(())
    }
}

impl fmt::Display for WhyState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Undefined { generators } => {
                f.write_str("is not defined here")?;
                match generators.is_empty() {
                    true => f.write_str(", and no generator could define it"),
                    false => generators.iter().try_for_each(|generator| write!(f, "\n  {generator}")),
                }
            }
            Self::NeverSearched { unit } => {
                write!(f, "is defined by unit `{unit}`; nobody has looked for it")
            }
            Self::Returned { unit } => write!(f, "is defined by unit `{unit}`, which nobody wants any more"),
            Self::Queued { unit } => write!(f, "waits for unit `{unit}` to begin"),
            Self::Materializing(work) => write!(f, "is being made by {work}"),
            Self::Resolved { address, work } => {
                write!(f, "is at {address} and waits to be emitted by {work}")
            }
            Self::Emitted { address, waits_for, .. } => {
                write!(f, "is emitted at {address} and waits for {waits_for}")
            }
            Self::Failed(failure) => write!(f, "failed: {}", WithCauses(&**failure)),
            Self::Ready { address } => write!(f, "is ready at {address}"),
            Self::DylibRemoved => f.write_str("is gone with its dylib"),
        }
    }
}

impl fmt::Display for WhyGenerator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { dylib, name, is_busy, queued } = self;
        write!(f, "generator `{name}` of dylib `{dylib}` could define it")?;
        match is_busy {
            true => write!(f, "; it serves a lookup, and {queued} more wait for it"),
            false => Ok(()),
        }
    }
}

impl fmt::Display for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unit `{}`", self.unit)?;
        match &self.blocked_in {
            Some(symbols) => write!(f, "; its thread is blocked in a lookup of {symbols}")?,
            None => f.write_str(
                "; it runs, waits for a worker, or was detached and another thread may finish it",
            )?,
        }
        match self.asked_for.is_empty() {
            true => Ok(()),
            false => write!(f, "\n  it has asked for {} and is not blocked", self.asked_for),
        }
    }
}

impl fmt::Display for WaitedFor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plural = if self.len() == 1 { "" } else { "s" };
        write!(f, "{} symbol{plural}:", self.len())?;
        for symbol in &self.symbols {
            write!(f, "\n    {symbol}")?;
        }
        match self.omitted {
            0 => Ok(()),
            omitted => write!(f, "\n    and {omitted} more"),
        }
    }
}

impl fmt::Display for WaitedSymbol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` ", self.symbol)?;
        if let Some(dylib) = &self.dylib {
            write!(f, "(dylib `{dylib}`) ")?;
        }
        write!(f, "{}", self.stage)
    }
}

impl fmt::Display for SymbolStage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Generating => "is looked for by a generator",
            Self::NeverSearched => "has never been looked for",
            Self::Returned => "is not wanted any more",
            Self::Queued => "is queued",
            Self::Materializing => "is materializing",
            Self::Resolved => "is resolved",
            Self::Emitted => "is emitted",
            Self::Failed => "failed",
            Self::Ready => "is ready",
        })
    }
}
