//! The entry of one name: all its definitions, in the form that suits their number.
//!
//! An entry is never changed, only replaced. One of many definitions shares most of them with its successor: a name that
//! every dylib of a long session defines must not cost each of them a copy of all.

use crate::ids::{DylibId, RowId};
use crate::sync::weakened;
use crate::{ExecutorAddr, ExecutorSymbolDef, JitDylibLookupFlags, SymbolFlags};

use super::many::ManyDefinitions;
use super::order::DylibOrder;

/// All definitions of one name.
#[derive(Debug)]
pub(super) enum NameEntry {
    /// The usual case, without a second allocation.
    One(IndexedDefinition),
    Several(Box<[IndexedDefinition]>),
    /// More than [`SEVERAL_MAX`] at some time, and more than [`SEVERAL_AGAIN`] since.
    ManyDefinitions(ManyDefinitions),
}

/// One definition of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct IndexedDefinition {
    pub(crate) dylib: DylibId,
    pub(crate) row: RowId,
    pub(crate) address: ExecutorAddr,
    pub(crate) flags: SymbolFlags,
    /// The address means nothing before.
    pub(crate) is_ready: bool,
}

/// So many definitions are looked through as fast as one of many is found.
const SEVERAL_MAX: usize = 16;

/// With so few left, an entry is looked through again; the distance keeps it from changing its form to and fro.
pub(crate) const SEVERAL_AGAIN: usize = 8;

impl NameEntry {
    /// The entry of these definitions; none if it would answer nothing.
    pub(super) fn of(definitions: Vec<IndexedDefinition>) -> Option<Self> {
        if !definitions.iter().any(|definition| definition.is_ready) {
            return None;
        }
        Some(match definitions[..] {
            [one] => Self::One(one),
            _ if definitions.len() <= SEVERAL_MAX => Self::Several(definitions.into()),
            _ => Self::ManyDefinitions(ManyDefinitions::of(definitions)),
        })
    }

    /// Gives the first definition that a search along `order` sees to `found`, if it is an answer and stands no
    /// further than `certain_until`. Says whether.
    pub(super) fn answer(
        &self,
        order: &impl DylibOrder,
        certain_until: usize,
        found: impl FnOnce(&IndexedDefinition),
    ) -> bool {
        if let Self::One(definition) = self {
            return definition.answer(order, certain_until, found);
        }
        let place = |definition: &IndexedDefinition| order.position_of(definition.dylib, definition.flags);
        let tell = |position: usize, definition: &IndexedDefinition| {
            let answers = position <= certain_until && definition.is_answer();
            answers.then(|| found(definition)).is_some()
        };
        match self {
            Self::One(_) => false,
            Self::Several(definitions) => {
                let seen = definitions.iter().filter_map(|definition| Some((place(definition)?, definition)));
                let first = seen.min_by_key(|(position, _)| *position);
                first.is_some_and(|(position, definition)| tell(position, definition))
            }
            Self::ManyDefinitions(many) => {
                let seen = |(dylib, flags)| many.get(dylib).filter(|definition| definition.is_seen(flags));
                let first = order.dylibs().enumerate().find_map(|(at, entry)| Some((at, seen(entry)?)));
                first.is_some_and(|(position, definition)| tell(position, definition))
            }
        }
    }

    /// The successor with `definition` instead of what this has for that dylib, if anything; none if it would answer
    /// nothing.
    pub(super) fn with(&self, definition: IndexedDefinition) -> Option<Self> {
        if let Self::ManyDefinitions(many) = self {
            return Some(Self::ManyDefinitions(many.with(definition)));
        }
        let mut definitions = self.definitions();
        match definitions.iter_mut().find(|other| other.dylib == definition.dylib) {
            Some(place) => *place = definition,
            None => definitions.push(definition),
        }
        Self::of(definitions)
    }

    /// The successor without what this has for `dylib`; none if it would answer nothing.
    pub(super) fn without(&self, dylib: DylibId) -> Option<Self> {
        if let Self::ManyDefinitions(many) = self
            && many.len() > SEVERAL_AGAIN + 1
        {
            return Some(Self::ManyDefinitions(many.without(dylib)));
        }
        let mut definitions = self.definitions();
        definitions.retain(|definition| definition.dylib != dylib);
        Self::of(definitions)
    }

    pub(super) fn definitions(&self) -> Vec<IndexedDefinition> {
        match self {
            Self::One(definition) => vec![*definition],
            Self::Several(definitions) => definitions.to_vec(),
            Self::ManyDefinitions(many) => many.iter().copied().collect(),
        }
    }
}

impl IndexedDefinition {
    /// See [`NameEntry::answer`]: the same where there is no other definition.
    #[inline]
    pub(super) fn answer(
        &self,
        order: &impl DylibOrder,
        certain_until: usize,
        found: impl FnOnce(&Self),
    ) -> bool {
        let seen = order.position_of(self.dylib, self.flags);
        let answers = seen.is_some_and(|position| position <= certain_until) && self.is_answer();
        answers.then(|| found(self)).is_some()
    }

    pub(crate) fn symbol(&self) -> ExecutorSymbolDef {
        ExecutorSymbolDef::new(self.address, self.flags)
    }

    /// Whether a lookup that sees it first has its answer.
    fn is_answer(&self) -> bool {
        (self.is_ready || weakened("ready::answers_what_is_not_ready"))
            && !self
                .flags
                .intersects(SymbolFlags::MATERIALIZATION_SIDE_EFFECTS_ONLY.union(SymbolFlags::STRANDED))
    }

    fn is_seen(&self, flags: JitDylibLookupFlags) -> bool {
        flags == JitDylibLookupFlags::MatchAllSymbols || self.flags.contains(SymbolFlags::EXPORTED)
    }
}
