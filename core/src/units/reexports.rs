//! Aliases and re-exports.
use rustc_hash::FxHashMap;

use crate::{JitDylib, JitDylibLookupFlags, MaterializationUnit, SymbolFlags, SymbolName};

/// What an alias names, and what the alias itself is.
///
/// Source: ORC `SymbolAliasMapEntry`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AliasTarget {
    /// The symbol the alias stands for.
    pub source: SymbolName,
    /// The flags of the alias.
    pub flags: SymbolFlags,
}

/// Aliases and what each names.
///
/// Source: ORC `SymbolAliasMap`.
pub type AliasMap = FxHashMap<SymbolName, AliasTarget>;

/// A unit of aliases for symbols of the same dylib.
///
/// Source: ORC `symbolAliases`.
#[doc(alias = "symbolAliases")]
pub fn symbol_aliases(aliases: AliasMap) -> Box<dyn MaterializationUnit> {
    todo!()
}

/// A unit of aliases for symbols of `source`.
///
/// Source: ORC `reexports`.
pub fn reexports(
    source: JitDylib,
    source_flags: JitDylibLookupFlags,
    aliases: AliasMap,
) -> Box<dyn MaterializationUnit> {
    todo!()
}
