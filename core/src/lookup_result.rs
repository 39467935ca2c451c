//! What a lookup answers: the symbols it was asked for, in the order in which it was asked.

use std::hash::BuildHasher;
use std::ops::Index;
use std::sync::OnceLock;

use hashbrown::HashTable;
use rustc_hash::FxBuildHasher;

use crate::protocol::ids::RowId;
use crate::protocol::query::{Answer, Found};
use crate::record::RecordedDefinition;
use crate::session::SessionTag;
use crate::{Dependency, ExecutorSymbolDef, LookupSet, SymbolLookupFlags, SymbolMap, SymbolName};

/// What a lookup answers: the definition of each symbol it was asked for, in the order in which it was asked.
///
/// Weakly referenced symbols that are absent are left out. A symbol asked for twice is there twice.
///
/// # Cost
/// The names are those of the lookup set; a large answer is indexed the first time that a symbol is asked of it
/// by name.
#[derive(Clone, Debug)]
pub struct LookupResult {
    /// As many names as definitions.
    names: LookupSet,
    definitions: Vec<Definition>,
    /// Tells dependency tokens of this session from those of others.
    session: SessionTag,
    /// Positions by name, made when they are first wanted.
    index: OnceLock<HashTable<u32>>,
}

#[derive(Clone, Copy, Debug)]
struct Definition {
    row: RowId,
    symbol: ExecutorSymbolDef,
}

/// An answer of so few symbols is walked over as fast as an index finds one.
const WALKED_MAX: usize = 8;

impl LookupResult {
    /// The answer of the locked path.
    pub(crate) fn new(answer: Answer, session: SessionTag) -> Self {
        let mut result = Self::with_room(answer.len(), session);
        result.names.0.reserve_exact(answer.len());
        for Found { name, row, definition } in answer.into_found() {
            result.names.0.push((name, SymbolLookupFlags::RequiredSymbol));
            result.definitions.push(Definition { row, symbol: definition });
        }
        result
    }

    /// An empty answer with room for `symbols` definitions, whose names follow with `name`.
    pub(crate) fn with_room(symbols: usize, session: SessionTag) -> Self {
        Self {
            names: LookupSet::new(),
            definitions: Vec::with_capacity(symbols),
            session,
            index: OnceLock::new(),
        }
    }

    pub(crate) fn push(&mut self, definition: &RecordedDefinition) {
        self.definitions.push(Definition { row: definition.row, symbol: definition.symbol() });
    }

    /// The names of what was pushed.
    #[must_use]
    pub(crate) fn name(mut self, names: LookupSet) -> Self {
        debug_assert_eq!(names.len(), self.definitions.len());
        self.names = names;
        self
    }

    /// The definition of `name`.
    pub fn get(&self, name: &SymbolName) -> Option<ExecutorSymbolDef> {
        self.definition(name).map(|definition| definition.symbol)
    }

    /// Whether `name` was found.
    pub fn contains(&self, name: &SymbolName) -> bool {
        self.definition(name).is_some()
    }

    /// The token by which an emission may depend on the definition of `name`.
    pub fn dependency(&self, name: &SymbolName) -> Option<Dependency> {
        self.definition(name).map(|definition| self.token(definition))
    }

    /// The tokens of all definitions, in the order of the names.
    pub fn dependencies(&self) -> Vec<Dependency> {
        self.definitions.iter().map(|definition| self.token(definition)).collect()
    }

    /// The names found, with their definitions, in the order in which they were asked for.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&SymbolName, ExecutorSymbolDef)> {
        self.names.0.iter().zip(&self.definitions).map(|((name, _), definition)| (name, definition.symbol))
    }

    /// How many symbols were found.
    pub fn len(&self) -> usize {
        self.definitions.len()
    }

    /// Whether nothing was found.
    pub fn is_empty(&self) -> bool {
        self.definitions.is_empty()
    }

    fn token(&self, definition: &Definition) -> Dependency {
        Dependency { row: definition.row, session: self.session }
    }

    fn definition(&self, name: &SymbolName) -> Option<&Definition> {
        let names = &self.names.0;
        let position = if names.len() <= WALKED_MAX {
            names.iter().position(|(other, _)| other == name)?
        } else {
            let index = self.index.get_or_init(|| index_of(names));
            *index.find(hash(name), |&position| names[position as usize].0 == *name)? as usize
        };
        self.definitions.get(position)
    }
}

/// The first position of each name.
fn index_of(names: &[(SymbolName, SymbolLookupFlags)]) -> HashTable<u32> {
    let mut index = HashTable::with_capacity(names.len());
    let hash_at = |&position: &u32| hash(&names[position as usize].0);
    for ((name, _), position) in names.iter().zip(0..) {
        let same = |&other: &u32| names[other as usize].0 == *name;
        index.entry(hash(name), same, hash_at).or_insert(position);
    }
    index
}

fn hash(name: &SymbolName) -> u64 {
    FxBuildHasher.hash_one(name)
}

impl Index<&SymbolName> for LookupResult {
    type Output = ExecutorSymbolDef;

    /// # Panics
    /// If the symbol was not found.
    fn index(&self, name: &SymbolName) -> &ExecutorSymbolDef {
        match self.definition(name) {
            Some(definition) => &definition.symbol,
            None => panic!("the lookup has not found `{name}`"),
        }
    }
}

impl From<LookupResult> for SymbolMap {
    fn from(result: LookupResult) -> Self {
        let LookupResult { names, definitions, .. } = result;
        let names = names.into_iter().map(|(name, _)| name);
        names.zip(definitions.into_iter().map(|definition| definition.symbol)).collect()
    }
}
