//! Aliases and re-exports: names for symbols that others define.
//!
//! An alias takes its source's address as soon as that is known, and depends on the source, so that it is
//! Ready when the source is. Only aliases that were asked for are looked up; the rest go back to wait.
//!
//! Each alias is looked up and finished by itself, however many its unit has. One that waited for the sources of those beside it
//! would close cycles that are not in the graph: two units may each have an alias of an alias of the other.
//!
//! A chain of aliases that leads back to itself, within a unit or across units, is an error that names it.

use rustc_hash::FxHashMap;

use crate::ids::DylibId;
use crate::ids::SessionTag;
use crate::session::lodge::Purpose;
use crate::session::query::Completion;
use crate::sync::Arc;
use crate::{
    DependenceGroup, ExecutionSession, ExecutorSymbolDef, JitDylib, JitDylibLookupFlags, LookupError,
    LookupRequest, LookupResult, LookupSet, MaterializationInterface, MaterializationResponsibility,
    MaterializationUnit, SearchOrder, SymbolFlags, SymbolName,
};

/// The source of an alias, and the flags of the alias itself.
///
/// ORC: `SymbolAliasMapEntry`.
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
/// ORC: `SymbolAliasMap`.
#[doc(alias = "SymbolAliasMap")]
pub type AliasMap = FxHashMap<SymbolName, AliasTarget>;

/// A unit of aliases for symbols of the dylib it is defined in, hidden ones included.
///
/// Each alias is finished as soon as its own source is. One whose source fails or is missing fails alone.
///
/// # Cost
/// A lookup for each alias that is asked for. Generators of the dylib are asked for each missing source by itself.
///
/// ORC: `symbolAliases`.
#[doc(alias = "symbolAliases")]
pub fn symbol_aliases(aliases: AliasMap) -> Box<dyn MaterializationUnit> {
    Box::new(Reexports { source: None, aliases })
}

/// A unit of aliases for symbols of `source`. The rest is as with [`symbol_aliases`].
///
/// ORC: `reexports`.
pub fn reexports(
    source: JitDylib,
    source_flags: JitDylibLookupFlags,
    aliases: AliasMap,
) -> Box<dyn MaterializationUnit> {
    Box::new(Reexports { source: Some((AliasSource::of(&source), source_flags)), aliases })
}

/// The dylib whose symbols are re-exported, without a handle: a handle inside its own session would keep that session alive
/// for ever.
#[derive(Clone, Debug)]
pub(super) struct AliasSource {
    session: SessionTag,
    id: DylibId,
    name: Arc<str>,
}

impl AliasSource {
    pub(super) fn of(dylib: &JitDylib) -> Self {
        Self { session: dylib.session().tag(), id: dylib.id(), name: dylib.shared_name() }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn is(&self, dylib: &JitDylib) -> bool {
        self.id == dylib.id() && self.session == dylib.session().tag()
    }

    /// The handle, for code that acts in `session`.
    pub(super) fn handle(&self, session: &ExecutionSession) -> Result<JitDylib, LookupError> {
        match self.session == session.tag() {
            true => Ok(JitDylib::new(session.clone(), self.id, self.name.clone())),
            false => Err(LookupError::ForeignDylib { dylib: self.name.clone() }),
        }
    }
}

struct Reexports {
    /// None for the unit's own dylib.
    source: Option<(AliasSource, JitDylibLookupFlags)>,
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
        look_up_each(responsibility, innermost_first(wanted), &source, flags);
    }

    fn discard(&mut self, _dylib: &JitDylib, symbol: &SymbolName) {
        self.aliases.remove(symbol);
    }
}

impl Reexports {
    /// Splits off the aliases that were not asked for, as a unit of their own. An alias that a wanted one
    /// of the same unit names is wanted too. Nothing if the symbols were removed meanwhile.
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

/// The aliases in an order in which each comes behind its source, where that is one of them. If they form a cycle, it begins somewhere.
fn innermost_first(mut aliases: AliasMap) -> Vec<(SymbolName, AliasTarget)> {
    let mut ordered = Vec::with_capacity(aliases.len());
    let names: Vec<_> = aliases.keys().cloned().collect();
    let mut chain = Vec::new();
    for mut cursor in names {
        // Up the chain to an alias that is in the order or in the chain, or out of the unit.
        while let Some((alias, target)) = aliases.remove_entry(&cursor) {
            cursor = target.source.clone();
            chain.push((alias, target));
        }
        ordered.extend(chain.drain(..).rev());
    }
    ordered
}

/// Looks up the source of each alias, each with a responsibility of its own.
fn look_up_each(
    mut responsibility: MaterializationResponsibility,
    aliases: Vec<(SymbolName, AliasTarget)>,
    source: &JitDylib,
    flags: JitDylibLookupFlags,
) {
    let mut aliases = aliases.into_iter();
    let Some(innermost) = aliases.next() else { return };
    // Outermost first: looking for a cycle then finds that the source waits for nothing yet.
    for alias in aliases.rev() {
        match responsibility.delegate([alias.0.clone()]) {
            Ok(part) => look_up(part, alias, source, flags),
            Err(error) => return responsibility.fail(Arc::new(error)),
        }
    }
    look_up(responsibility, innermost, source, flags);
}

fn look_up(
    responsibility: MaterializationResponsibility,
    (alias, target): (SymbolName, AliasTarget),
    source: &JitDylib,
    flags: JitDylibLookupFlags,
) {
    let row = responsibility.dependency(&alias).map(|alias| alias.row);
    let session = responsibility.session().clone();
    let order = SearchOrder::from([(source.clone(), flags)]);
    let request = LookupRequest::new(order, LookupSet::one(target.source.clone())).until_resolved();
    let parked = responsibility.detach();
    let completion =
        Completion::Handler(Box::new(move |found| finish(parked.attach(), alias, &target, found)));
    let purpose = row.map_or(Purpose::Definitions, Purpose::Alias);
    session.start(request, purpose, completion, &mut None);
}

fn finish(
    responsibility: MaterializationResponsibility,
    alias: SymbolName,
    target: &AliasTarget,
    found: Result<LookupResult, LookupError>,
) {
    let found = match found {
        Ok(found) => found,
        Err(error) => return responsibility.fail(Arc::new(error)),
    };
    // Before the alias is Ready: from then on it may be asked whether its source is there.
    if let (Some(alias), Some(source)) = (responsibility.dependency(&alias), found.dependency(&target.source))
    {
        responsibility.session().transact(|state, _| state.note_alias(alias.row, source.row));
    }
    let address = |definition: ExecutorSymbolDef| ExecutorSymbolDef::new(definition.address, target.flags);
    let addresses = found.get(&target.source).map(|definition| (alias.clone(), address(definition)));
    let group = DependenceGroup { symbols: vec![alias], dependencies: found.dependencies() };
    // A refusal can only fail the symbol itself.
    match responsibility.notify_resolved(&addresses.into_iter().collect()) {
        Ok(resolved) => {
            if let Err(refused) = resolved.notify_emitted(vec![group]) {
                refused.fail();
            }
        }
        Err(refused) => {
            refused.fail();
        }
    }
}
