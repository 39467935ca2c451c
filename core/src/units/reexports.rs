//! Aliases and re-exports: names for symbols that others define.
//!
//! An alias takes its source's address as soon as that is known, and depends on the source, so that it is
//! Ready when the source is. Only aliases that somebody asked for are looked up; the rest go back to
//! wait.
//!
//! Aliases of one unit may name one another: they are taken in levels, those whose source lies outside
//! the unit first. A chain that leads back to itself, within a unit or across units, is an error that
//! names it.

use rustc_hash::FxHashMap;

use crate::protocol::ids::DylibId;
use crate::query::Completion;
use crate::session::SessionTag;
use crate::sync::Arc;
use crate::{
    DependenceGroup, Detached, ExecutionSession, ExecutorSymbolDef, JitDylib, JitDylibLookupFlags,
    LookupError, LookupKind, LookupRequest, LookupResult, LookupSet, MaterializationInterface,
    MaterializationResponsibility, MaterializationUnit, RequiredState, SymbolFlags, SymbolFlagsMap,
    SymbolMap, SymbolName,
};

/// What an alias names, and what the alias itself is.
///
/// Source: ORC `SymbolAliasMapEntry`.
#[doc(alias = "SymbolAliasMapEntry")]
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
#[doc(alias = "SymbolAliasMap")]
pub type AliasMap = FxHashMap<SymbolName, AliasTarget>;

/// A unit of aliases for symbols of the dylib it is defined in, hidden ones included.
///
/// Source: ORC `symbolAliases`.
#[doc(alias = "symbolAliases")]
pub fn symbol_aliases(aliases: AliasMap) -> Box<dyn MaterializationUnit> {
    Box::new(Reexports { source: None, aliases })
}

/// A unit of aliases for symbols of `source`.
///
/// Source: ORC `reexports`.
pub fn reexports(
    source: JitDylib,
    source_flags: JitDylibLookupFlags,
    aliases: AliasMap,
) -> Box<dyn MaterializationUnit> {
    Box::new(Reexports { source: Some((Source::of(&source), source_flags)), aliases })
}

/// The dylib whose symbols are re-exported, as something that lies in its session may know it: a handle would hold the session
/// that it lies in, which then nobody could drop.
#[derive(Clone, Debug)]
pub(super) struct Source {
    session: SessionTag,
    id: DylibId,
    name: Arc<str>,
}

impl Source {
    pub(super) fn of(dylib: &JitDylib) -> Self {
        Self { session: dylib.session().tag(), id: dylib.id(), name: dylib.shared_name() }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn is(&self, dylib: &JitDylib) -> bool {
        self.id == dylib.id() && self.session == dylib.session().tag()
    }

    /// The handle, for somebody who acts in `session`.
    pub(super) fn handle(&self, session: &ExecutionSession) -> Result<JitDylib, LookupError> {
        match self.session == session.tag() {
            true => Ok(JitDylib::new(session.clone(), self.id, self.name.clone())),
            false => Err(LookupError::ForeignDylib { dylib: self.name.clone() }),
        }
    }
}

struct Reexports {
    /// None for the unit's own dylib.
    source: Option<(Source, JitDylibLookupFlags)>,
    aliases: AliasMap,
}

impl MaterializationUnit for Reexports {
    fn name(&self) -> &str {
        match self.source {
            Some(_) => "<reexports>",
            None => "<symbol aliases>",
        }
    }

    fn interface(&self) -> MaterializationInterface {
        let flags = |(name, target): (&SymbolName, &AliasTarget)| (name.clone(), target.flags);
        MaterializationInterface::new(self.aliases.iter().map(flags).collect())
    }

    fn materialize(mut self: Box<Self>, responsibility: MaterializationResponsibility) {
        let dylib = responsibility.dylib().clone();
        let own = self.source.as_ref().is_none_or(|(source, _)| source.is(&dylib));
        let Some((responsibility, wanted)) = self.give_back_unwanted(responsibility, own) else { return };
        let (source, flags) = match self.source {
            None => (dylib, JitDylibLookupFlags::MatchAllSymbols),
            Some((source, flags)) => match source.handle(dylib.session()) {
                Ok(source) => (source, flags),
                Err(foreign) => return responsibility.fail(Arc::new(foreign)),
            },
        };
        match levels(wanted, own) {
            Ok(levels) => look_up_levels(responsibility, levels, &source, flags),
            Err(cycle) => responsibility.fail(Arc::new(LookupError::AliasCycle { cycle })),
        }
    }

    fn discard(&mut self, _dylib: &JitDylib, symbol: &SymbolName) {
        self.aliases.remove(symbol);
    }
}

impl Reexports {
    /// Splits off the aliases nobody asked for, as a unit of their own. An alias that a wanted one of the
    /// same unit names is wanted too. Nothing if the symbols were removed meanwhile.
    fn give_back_unwanted(
        &mut self,
        mut responsibility: MaterializationResponsibility,
        own: bool,
    ) -> Option<(MaterializationResponsibility, AliasMap)> {
        let mut wanted = AliasMap::default();
        let mut reached = responsibility.requested_symbols();
        while let Some(name) = reached.pop() {
            if let Some((name, target)) = self.aliases.remove_entry(&name) {
                if own {
                    reached.push(target.source.clone());
                }
                wanted.insert(name, target);
            }
        }
        let unwanted = std::mem::take(&mut self.aliases);
        if unwanted.is_empty() {
            return Some((responsibility, wanted));
        }
        let names: Vec<_> = unwanted.keys().cloned().collect();
        match responsibility.delegate(names) {
            Ok(rest) => {
                let unit = Box::new(Self { source: self.source.clone(), aliases: unwanted });
                if let Err(refused) = rest.replace(unit) {
                    refused.fail();
                }
                Some((responsibility, wanted))
            }
            Err(error) => {
                responsibility.fail(Arc::new(error));
                None
            }
        }
    }
}

/// The aliases by how many others of them lie between each and its source outside: level 0 has none.
///
/// # Errors
/// A cycle, with its first alias repeated at the end.
fn levels(aliases: AliasMap, own: bool) -> Result<Vec<AliasMap>, Vec<SymbolName>> {
    if !own {
        return Ok(vec![aliases]);
    }
    let mut level_of: FxHashMap<&SymbolName, usize> = FxHashMap::default();
    for start in aliases.keys() {
        let mut chain = Vec::new();
        let mut cursor = start;
        // Up the chain to an alias whose level is known, or out of the unit.
        while let Some(target) = aliases.get(cursor)
            && !level_of.contains_key(cursor)
        {
            chain.push(cursor);
            cursor = &target.source;
            if chain.len() > aliases.len() {
                return Err(cycle_from(cursor, &aliases));
            }
        }
        let first = level_of.get(cursor).map_or(0, |level| level + 1);
        level_of.extend(chain.into_iter().rev().zip(first..));
    }
    let mut levels = vec![AliasMap::default(); level_of.values().max().map_or(0, |deepest| deepest + 1)];
    let placed: Vec<_> = aliases.keys().map(|name| (name.clone(), level_of[name])).collect();
    drop(level_of);
    let mut aliases = aliases;
    for (name, level) in placed {
        if let Some((name, target)) = aliases.remove_entry(&name) {
            levels[level].insert(name, target);
        }
    }
    Ok(levels)
}

/// The cycle that `member` is in, with its first alias repeated at the end.
fn cycle_from(member: &SymbolName, aliases: &AliasMap) -> Vec<SymbolName> {
    let mut cycle = vec![member.clone()];
    let mut cursor = member;
    while let Some(target) = aliases.get(cursor) {
        cycle.push(target.source.clone());
        cursor = &target.source;
        if cursor == member {
            break;
        }
    }
    cycle
}

/// Looks up the sources level by level, each with a responsibility of its own: the lookup of a deeper
/// level waits for what a shallower one resolves.
fn look_up_levels(
    mut responsibility: MaterializationResponsibility,
    levels: Vec<AliasMap>,
    source: &JitDylib,
    flags: JitDylibLookupFlags,
) {
    let mut levels = levels.into_iter();
    let first = levels.next().unwrap_or_default();
    // Deepest first: looking for a cycle then finds that the source waits for nothing yet.
    for aliases in levels.rev() {
        match responsibility.delegate(aliases.keys().cloned()) {
            Ok(part) => look_up(part, aliases, source, flags),
            Err(error) => return responsibility.fail(Arc::new(error)),
        }
    }
    look_up(responsibility, first, source, flags);
}

fn look_up(
    responsibility: MaterializationResponsibility,
    aliases: AliasMap,
    source: &JitDylib,
    flags: JitDylibLookupFlags,
) {
    let edges = responsibility.alias_edges(aliases.iter().map(|(alias, target)| (alias, &target.source)));
    let session = responsibility.session().clone();
    let request = LookupRequest {
        kind: LookupKind::Static,
        order: [(source.clone(), flags)].into(),
        symbols: LookupSet::required(aliases.values().map(|target| target.source.clone())),
        required_state: RequiredState::Resolved,
        deadline: None,
        priority: None,
    };
    let parked = responsibility.detach();
    session.start(
        request,
        Completion::Handler(Box::new(move |found| finish(parked, &aliases, found))),
        edges,
        &mut None,
    );
}

fn finish(
    parked: Detached<MaterializationResponsibility>,
    aliases: &AliasMap,
    found: Result<LookupResult, LookupError>,
) {
    let responsibility = parked.attach();
    let found = match found {
        Ok(found) => found,
        Err(error) => return responsibility.fail(Arc::new(error)),
    };
    let (addresses, groups) = resolve_aliases(aliases, responsibility.symbols(), &found);
    // A refusal has nobody to go to but the symbols themselves.
    match responsibility.notify_resolved(&addresses) {
        Ok(resolved) => {
            if let Err(refused) = resolved.notify_emitted(groups) {
                refused.fail();
            }
        }
        Err(refused) => {
            refused.fail();
        }
    }
}

/// The address of each alias, and its dependence on its source.
fn resolve_aliases(
    aliases: &AliasMap,
    covered: &SymbolFlagsMap,
    found: &LookupResult,
) -> (SymbolMap, Vec<DependenceGroup>) {
    let mut addresses = SymbolMap::default();
    let mut groups = Vec::with_capacity(aliases.len());
    for (alias, target) in aliases.iter().filter(|(alias, _)| covered.contains_key(alias)) {
        if let Some(definition) = found.get(&target.source) {
            addresses.insert(alias.clone(), ExecutorSymbolDef::new(definition.address, target.flags));
        }
        let dependencies = found.dependency(&target.source).into_iter().collect();
        groups.push(DependenceGroup { symbols: vec![alias.clone()], dependencies });
    }
    (addresses, groups)
}
