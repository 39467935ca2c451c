//! The answer of a lookup: the symbols it was asked for, in the order in which it was asked.

use std::hash::BuildHasher;
use std::ops::Index;
use std::sync::OnceLock;

use hashbrown::HashTable;
use rustc_hash::FxBuildHasher;

use crate::ids::RowId;
use crate::ids::SessionTag;
use crate::protocol::state::{Answer, FoundEntries};
use crate::ready_index::IndexedDefinition;
use crate::{Dependency, ExecutorSymbolDef, LookupSet, SymbolMap, SymbolName};

/// The answer of a lookup: the definition of each symbol it was asked for, in the order in which it was asked.
///
/// Weakly referenced symbols that are absent are left out. A symbol asked for twice is there twice.
///
/// # Cost
/// The names are those of the lookup set; a large answer is indexed the first time that a symbol is asked of it
/// by name.
///
/// # Examples
/// ```
/// use uruk_core::{ExecutionSession, ExecutorAddr, FnUnit, LookupRequest, LookupSet};
///
/// let session = ExecutionSession::new();
/// let main = session.create_jit_dylib("main")?;
/// let (f, g) = (session.intern("f"), session.intern("g"));
/// let unit = FnUnit::new([f.clone(), g.clone()], |request| {
///     request.addresses([("f", ExecutorAddr::new(0x1000)), ("g", ExecutorAddr::new(0x2000))])
/// });
/// main.define(Box::new(unit))?;
/// let found = session.lookup(LookupRequest::along(&main, LookupSet::required([g.clone(), f])))?;
/// assert_eq!(found.iter().next().map(|(name, _)| name), Some(&g));
/// assert_eq!(found.get(&g).map(|definition| definition.address), Some(ExecutorAddr::new(0x2000)));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct LookupResult {
    symbols: Symbols,
    /// Tells dependency tokens of this session from those of others.
    session: SessionTag,
    /// Positions by name, made when they are first wanted.
    index: OnceLock<HashTable<u32>>,
}

/// The definitions as they were collected: nothing is copied for the answer.
#[derive(Clone, Debug)]
enum Symbols {
    /// By the ready path, for the names of the lookup set: as many as definitions.
    Recorded { names: LookupSet, definitions: Vec<FoundDefinition> },
    /// By the locked path.
    Found(FoundEntries),
}

#[derive(Clone, Copy, Debug)]
struct FoundDefinition {
    row: RowId,
    symbol: ExecutorSymbolDef,
}

impl Symbols {
    fn len(&self) -> usize {
        match self {
            Self::Recorded { definitions, .. } => definitions.len(),
            Self::Found(entries) => entries.len(),
        }
    }

    fn get(&self, position: usize) -> Option<(&SymbolName, RowId, &ExecutorSymbolDef)> {
        match self {
            Self::Recorded { names, definitions } => {
                let (name, _) = names.0.get(position)?;
                definitions.get(position).map(|definition| (name, definition.row, &definition.symbol))
            }
            Self::Found(entries) => entries.get(position),
        }
    }

    fn iter(&self) -> impl Iterator<Item = (&SymbolName, RowId, &ExecutorSymbolDef)> {
        (0..self.len()).filter_map(|position| self.get(position))
    }

    fn names_equal(&self, position: u32, name: &SymbolName) -> bool {
        self.get(position as usize).is_some_and(|(other, ..)| other == name)
    }

    /// The first position of each name.
    fn index(&self) -> HashTable<u32> {
        let mut index = HashTable::with_capacity(self.len());
        for ((name, ..), position) in self.iter().zip(0..) {
            let hash_at = |&other: &u32| self.get(other as usize).map_or(0, |(name, ..)| hash(name));
            index.entry(hash(name), |&other| self.names_equal(other, name), hash_at).or_insert(position);
        }
        index
    }
}

/// An answer of so few symbols is walked over as fast as an index finds one.
const WALKED_MAX: usize = 8;

impl LookupResult {
    /// The answer of the locked path.
    pub(crate) fn new(answer: Answer, session: SessionTag) -> Self {
        Self { symbols: Symbols::Found(answer.into_entries()), session, index: OnceLock::new() }
    }

    /// The answer of the ready path: the definitions that `ready` found for `names`, in their order.
    pub(crate) fn of_ready(names: LookupSet, ready: ReadyDefinitions, session: SessionTag) -> Self {
        debug_assert_eq!(names.len(), ready.0.len());
        Self { symbols: Symbols::Recorded { names, definitions: ready.0 }, session, index: OnceLock::new() }
    }

    /// The definition of `name`.
    pub fn get(&self, name: &SymbolName) -> Option<ExecutorSymbolDef> {
        self.definition(name).map(|(_, symbol)| *symbol)
    }

    /// Whether `name` was found.
    pub fn contains(&self, name: &SymbolName) -> bool {
        self.definition(name).is_some()
    }

    /// The token by which an emission may depend on the definition of `name`.
    pub fn dependency(&self, name: &SymbolName) -> Option<Dependency> {
        self.definition(name).map(|(row, _)| self.token(row))
    }

    /// The tokens of all definitions, in the order of the names.
    pub fn dependencies(&self) -> Vec<Dependency> {
        self.symbols.iter().map(|(_, row, _)| self.token(row)).collect()
    }

    /// The names found, with their definitions, in the order in which they were asked for.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&SymbolName, ExecutorSymbolDef)> {
        (0..self.len()).map(|position| {
            let (name, _, symbol) = self.symbols.get(position).expect("there are so many symbols");
            (name, *symbol)
        })
    }

    /// How many symbols were found.
    pub fn len(&self) -> usize {
        self.symbols.len()
    }

    /// Whether nothing was found.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn token(&self, row: RowId) -> Dependency {
        Dependency { row, session: self.session }
    }

    fn definition(&self, name: &SymbolName) -> Option<(RowId, &ExecutorSymbolDef)> {
        let found = if self.len() <= WALKED_MAX {
            self.symbols.iter().find(|(other, ..)| *other == name)?
        } else {
            let index = self.index.get_or_init(|| self.symbols.index());
            let position = index.find(hash(name), |&position| self.symbols.names_equal(position, name))?;
            self.symbols.get(*position as usize)?
        };
        Some((found.1, found.2))
    }
}

fn hash(name: &SymbolName) -> u64 {
    FxBuildHasher.hash_one(name)
}

/// The definitions that the ready path has found so far.
pub(crate) struct ReadyDefinitions(Vec<FoundDefinition>);

impl ReadyDefinitions {
    /// None, with room for so many.
    pub(crate) fn with_room(symbols: usize) -> Self {
        Self(Vec::with_capacity(symbols))
    }

    pub(crate) fn push(&mut self, definition: &IndexedDefinition) {
        self.0.push(FoundDefinition { row: definition.row, symbol: definition.symbol() });
    }
}

impl Index<&SymbolName> for LookupResult {
    type Output = ExecutorSymbolDef;

    /// # Panics
    /// If the symbol was not found.
    fn index(&self, name: &SymbolName) -> &ExecutorSymbolDef {
        match self.definition(name) {
            Some((_, symbol)) => symbol,
            None => panic!("the lookup has not found `{name}`"),
        }
    }
}

impl From<LookupResult> for SymbolMap {
    fn from(result: LookupResult) -> Self {
        match result.symbols {
            Symbols::Recorded { names, definitions } => {
                let names = names.into_iter().map(|(name, _)| name);
                names.zip(definitions.into_iter().map(|definition| definition.symbol)).collect()
            }
            Symbols::Found(entries) => {
                entries.into_iter().map(|found| (found.name, found.definition)).collect()
            }
        }
    }
}
