//! Sets of symbols: what a unit promises, what a lookup asks for, what it is answered.

use smallvec::SmallVec;

use crate::{ExecutorSymbolDef, NameMap, SymbolFlags, SymbolName};

/// The address and the flags of each symbol.
///
/// ORC: `SymbolMap`.
pub type SymbolMap = NameMap<ExecutorSymbolDef>;

/// The flags of each symbol, before its address is known.
///
/// ORC: `SymbolFlagsMap`.
pub type SymbolFlagsMap = NameMap<SymbolFlags>;

/// Whether a lookup can do without a symbol.
///
/// ORC: `SymbolLookupFlags`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum SymbolLookupFlags {
    /// The lookup fails if no definition is found.
    #[default]
    RequiredSymbol,
    /// A missing definition is left out of the answer.
    WeaklyReferencedSymbol,
}

/// Which definitions of a dylib a lookup may see.
///
/// ORC: `JITDylibLookupFlags`.
#[doc(alias = "JITDylibLookupFlags")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum JitDylibLookupFlags {
    /// Exported symbols only: how one library sees another.
    #[default]
    MatchExportedSymbolsOnly,
    /// Hidden symbols too: how a library sees itself.
    MatchAllSymbols,
}

/// On whose behalf a lookup runs; definition generators may treat the two differently.
///
/// ORC: `LookupKind`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum LookupKind {
    /// As a linker resolving references.
    #[default]
    Static,
    /// As a program calling `dlsym`.
    DlSym,
}

/// How far a symbol must have come before a lookup is answered.
///
/// ORC: `SymbolState`, as `lookup` uses it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RequiredState {
    /// Its address is known. Linkers ask for this.
    Resolved,
    /// It and everything it needs is safe to run. Clients ask for this.
    #[default]
    Ready,
}

/// The symbols a lookup asks for, each required or weakly referenced.
///
/// # Examples
/// ```
/// use uruk_core::{ExecutionSession, LookupRequest, LookupSet, SymbolLookupFlags};
///
/// let session = ExecutionSession::new();
/// let main = session.create_jit_dylib("main")?;
/// let mut symbols = LookupSet::default();
/// symbols.add(session.intern("hook"), SymbolLookupFlags::WeaklyReferencedSymbol);
/// assert_eq!(session.lookup(LookupRequest::along(&main, symbols.clone())).map(|found| found.len()).ok(), Some(0));
/// symbols.add(session.intern("main"), SymbolLookupFlags::RequiredSymbol);
/// assert!(session.lookup(LookupRequest::along(&main, symbols)).is_err());
/// # Ok::<(), uruk_core::DylibError>(())
/// ```
///
/// ORC: `SymbolLookupSet`.
#[doc(alias = "SymbolLookupSet")]
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LookupSet(pub(crate) LookupSymbols);

/// Symbols and what is asked of each; one needs no allocation.
pub(crate) type LookupSymbols = SmallVec<[(SymbolName, SymbolLookupFlags); 1]>;

impl LookupSet {
    /// An empty set. Looking it up succeeds at once.
    pub fn new() -> Self {
        Self::default()
    }

    /// A set of one required symbol.
    pub fn one(name: SymbolName) -> Self {
        Self(LookupSymbols::from_buf([(name, SymbolLookupFlags::RequiredSymbol)]))
    }

    /// A set of required symbols.
    pub fn required(names: impl IntoIterator<Item = SymbolName>) -> Self {
        names.into_iter().map(|name| (name, SymbolLookupFlags::RequiredSymbol)).collect()
    }

    /// A set of symbols the lookup can do without.
    pub fn weakly_referenced(names: impl IntoIterator<Item = SymbolName>) -> Self {
        names.into_iter().map(|name| (name, SymbolLookupFlags::WeaklyReferencedSymbol)).collect()
    }

    /// Adds a symbol. Adding one twice is harmless: required wins.
    pub fn add(&mut self, name: SymbolName, flags: SymbolLookupFlags) {
        self.0.push((name, flags));
    }

    /// The symbols in the order they were added.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&SymbolName, SymbolLookupFlags)> {
        self.0.iter().map(|(name, flags)| (name, *flags))
    }

    /// How many symbols were added.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether nothing was added.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl FromIterator<(SymbolName, SymbolLookupFlags)> for LookupSet {
    fn from_iter<I: IntoIterator<Item = (SymbolName, SymbolLookupFlags)>>(symbols: I) -> Self {
        Self(symbols.into_iter().collect())
    }
}

impl Extend<(SymbolName, SymbolLookupFlags)> for LookupSet {
    fn extend<I: IntoIterator<Item = (SymbolName, SymbolLookupFlags)>>(&mut self, symbols: I) {
        self.0.extend(symbols);
    }
}

impl IntoIterator for LookupSet {
    type Item = (SymbolName, SymbolLookupFlags);
    type IntoIter = IntoSymbols;

    fn into_iter(self) -> Self::IntoIter {
        IntoSymbols(self.0.into_iter())
    }
}

/// The symbols of a [`LookupSet`], in the order they were added.
#[derive(Clone, Debug)]
pub struct IntoSymbols(smallvec::IntoIter<[(SymbolName, SymbolLookupFlags); 1]>);

impl Iterator for IntoSymbols {
    type Item = (SymbolName, SymbolLookupFlags);

    fn next(&mut self) -> Option<Self::Item> {
        self.0.next()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.0.size_hint()
    }
}

impl ExactSizeIterator for IntoSymbols {}
