//! The naive model: what a session knows, as plain maps from number to entity.
//!
//! Everything has a number, none is given twice, and what is gone is in no map. Rules are functions over the maps
//! (`define.rs`, `search.rs`, `materialize.rs`, `remove.rs`) that look at everything each time; what all of them bring
//! about is in `follow.rs`. They follow what ORC documents and what DESIGN adds, and know nothing of the state under test.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::SymbolFlags;

use super::waits::Wait;

/// All that is the case.
#[derive(Clone, Debug, Default)]
pub(super) struct World {
    pub(super) stage: Stage,
    pub(super) dylibs: BTreeMap<usize, Dylib>,
    /// Those that are not defunct.
    pub(super) trackers: BTreeMap<usize, Tracker>,
    pub(super) definitions: BTreeMap<usize, Definition>,
    /// Units that wait in their definitions.
    pub(super) units: BTreeMap<usize, Unit>,
    /// Responsibilities, from the claim to the emission or failure.
    pub(super) duties: BTreeMap<usize, Duty>,
    /// Lookups that have not ended.
    pub(super) queries: BTreeMap<usize, Query>,
    pub(super) generators: BTreeMap<usize, Generator>,
    /// Lookups in which threads are blocked that hold something.
    pub(super) waits: BTreeMap<usize, Wait>,
    /// Which product each resource is part of that was registered for symbols.
    pub(super) part_of: BTreeMap<usize, usize>,
    /// Units and products that this operation has removed symbols of by name.
    pub(super) shrunk: BTreeSet<Shrunk>,
    /// Everything that ever broke something.
    pub(super) events: BTreeMap<usize, Event>,
    /// Every definition there ever was: its name and what it needs.
    pub(super) ever: BTreeMap<usize, (usize, BTreeSet<usize>)>,
    /// The news for the outside since it was last asked.
    pub(super) news: News,
    made: usize,
}

/// Whether work is taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Stage {
    #[default]
    Open,
    /// Only from the work in progress.
    Draining,
    /// None, and nothing starts.
    Cancelled,
    /// None, and everything goes.
    Closed,
}

#[derive(Clone, Debug)]
pub(super) struct Dylib {
    /// Which of the names for dylibs it has.
    pub(super) slot: usize,
    pub(super) order: Vec<Searched>,
    pub(super) generators: Vec<usize>,
    pub(super) default_tracker: usize,
    /// It keeps who depends on its symbols.
    pub(super) keeps_dependants: bool,
}

#[derive(Clone, Debug)]
pub(super) struct Tracker {
    pub(super) dylib: usize,
    pub(super) resources: Vec<usize>,
}

/// How far a definition is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    NeverSearched,
    Returned,
    Materializing,
    Resolved,
    Emitted,
    Ready,
    Failed,
}

/// A unit or product that has lost symbols by name: an initializer may be all that is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Shrunk {
    Unit(usize),
    Product(usize),
}

/// The present provider of a definition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Provider {
    Unit(usize),
    Known,
    Duty(usize),
    /// It is there, or never will be.
    Nobody,
}

#[derive(Clone, Debug)]
pub(super) struct Definition {
    pub(super) dylib: usize,
    pub(super) name: usize,
    pub(super) flags: SymbolFlags,
    pub(super) tracker: usize,
    /// The unit that errors name.
    pub(super) unit: usize,
    pub(super) provider: Provider,
    pub(super) standing: Standing,
    pub(super) address: u64,
    /// Its dependencies that were not Ready when it was emitted.
    pub(super) needs: BTreeSet<usize>,
    /// Its dependencies that are kept: on other units, in dylibs that keep them.
    pub(super) kept_needs: BTreeSet<usize>,
    /// The emission it belongs to.
    pub(super) emission: Option<usize>,
    /// The number of its initializer.
    pub(super) initializer: Option<usize>,
    /// Its product, shared with others: a responsibility for it has registered a resource.
    pub(super) product: Option<usize>,
    /// The events any of which may have felled it.
    pub(super) causes: BTreeSet<usize>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Unit {
    /// Names that other definitions have won.
    pub(super) discarded: BTreeSet<usize>,
    pub(super) initializer: Option<usize>,
    /// The serial queue in which it waits for its turn once it is claimed.
    pub(super) queue: Option<usize>,
}

#[derive(Clone, Debug)]
pub(super) struct Duty {
    pub(super) unit: usize,
    pub(super) dylib: usize,
    pub(super) tracker: usize,
    /// The names it covers, removed ones too.
    pub(super) covered: BTreeMap<usize, SymbolFlags>,
    pub(super) initializer: Option<usize>,
    /// Of its unit, in case that comes back.
    pub(super) discarded: BTreeSet<usize>,
    /// The same, and in which it waits until it begins.
    pub(super) queue: Option<usize>,
    pub(super) step: Step,
    /// Not all of its symbols have been removed.
    pub(super) lives: bool,
}

/// How far a responsibility is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Queued,
    Begun,
    Resolved,
}

#[derive(Clone, Debug)]
pub(super) struct Query {
    /// Names, and whether the lookup can do without.
    pub(super) symbols: Vec<(usize, bool)>,
    pub(super) order: Vec<Searched>,
    /// Addresses alone will not do.
    pub(super) ready: bool,
    pub(super) flags_only: bool,
    /// The alias whose source it looks up, which is all that it looks up.
    pub(super) alias: Option<usize>,
    /// The lookup whose generator makes it, to know what symbols are.
    pub(super) made_for: Option<usize>,
    pub(super) phase: Phase,
}

#[derive(Clone, Debug)]
pub(super) enum Phase {
    Walking(Walk),
    Lodged {
        /// Names and definitions that are not far enough.
        waits: Vec<(usize, usize)>,
        found: BTreeMap<usize, Found>,
        /// The alias that waits for it, and its source.
        edge: Option<(usize, usize)>,
    },
}

/// Where a lookup is that asks generators.
#[derive(Clone, Debug, Default)]
pub(super) struct Walk {
    pub(super) position: usize,
    /// The symbols that no dylib so far has.
    pub(super) remaining: Vec<(usize, bool)>,
    /// Generators of the dylib at the position that are still to be asked, as there were when it came there.
    pub(super) ahead: Option<VecDeque<usize>>,
    /// The generator that was asked last, or that it waits to ask.
    pub(super) at: Option<usize>,
    /// That one goes on with it, and serves others meanwhile.
    pub(super) apart: bool,
    /// Of the lookups that were made for it meanwhile, the last that came to a generator.
    pub(super) question: Option<usize>,
}

/// A dylib, and whether hidden symbols are seen there.
pub(super) type Searched = (usize, bool);

/// An address and what is there.
pub(super) type Found = (u64, SymbolFlags);

#[derive(Clone, Debug, Default)]
pub(super) struct Generator {
    pub(super) dylib: usize,
    /// The lookup it is busy with.
    pub(super) serves: Option<usize>,
    pub(super) queue: VecDeque<usize>,
}

/// Something broke.
#[derive(Clone, Debug)]
pub(super) struct Event {
    pub(super) kind: Broken,
    pub(super) unit: usize,
    /// The slot of the dylib.
    pub(super) dylib: usize,
    /// The names it began with.
    pub(super) names: BTreeSet<usize>,
    /// It has been told.
    pub(super) told: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Broken {
    /// The unit said so, with this number.
    Unit,
    Removed,
    Closed,
}

/// How a lookup ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Found(BTreeMap<usize, Found>),
    /// In one of these ways: what happens at one moment has no order.
    Wrong(Vec<Wrong>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Wrong {
    NotFound(BTreeSet<usize>),
    /// One of these definitions fell, by one of these events.
    Failed {
        fallen: BTreeSet<usize>,
        causes: BTreeSet<usize>,
    },
    Generator,
    DylibRemoved(usize),
    AliasCycle(Vec<usize>),
    /// It would wait for itself.
    Deadlock,
    /// Its deadline has passed.
    Late,
    Closed,
}

/// A unit on its way to be materialized.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Claimed {
    pub(super) duty: usize,
    pub(super) symbols: BTreeSet<usize>,
    pub(super) initializer: Option<usize>,
    pub(super) discarded: BTreeSet<usize>,
}

/// A generator is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Asked {
    pub(super) generator: usize,
    pub(super) query: usize,
    pub(super) symbols: Vec<(usize, bool)>,
}

/// The news for the outside.
#[derive(Clone, Debug, Default)]
pub(super) struct News {
    pub(super) ended: BTreeMap<usize, Outcome>,
    /// By unit.
    pub(super) claimed: BTreeMap<usize, Claimed>,
    /// Units of which nothing is left, and what they discard before they go.
    pub(super) left: BTreeMap<usize, BTreeSet<usize>>,
    pub(super) refused: BTreeSet<usize>,
    /// Handlers of lookups that were withdrawn.
    pub(super) withdrawn: BTreeSet<usize>,
    pub(super) generators_gone: BTreeSet<usize>,
    pub(super) resources_refused: BTreeSet<usize>,
    pub(super) asked: Vec<Asked>,
    pub(super) initializers_gone: BTreeSet<usize>,
}

/// Why an operation on definitions was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    Closed,
    DylibRemoved,
    TrackerDefunct,
    /// One of these names is taken.
    Duplicate(BTreeSet<usize>),
    NotCovered(BTreeSet<usize>),
    /// One of these is something else than promised.
    Flags(BTreeSet<usize>),
    NotFound(BTreeSet<usize>),
    InUse(BTreeSet<usize>),
    /// By these definitions, which stay.
    Needed(BTreeSet<usize>),
    DependantsNotKept,
}

impl World {
    /// The next number.
    pub(super) fn number(&mut self) -> usize {
        self.made += 1;
        self.made
    }

    /// The next number from [`World::number`].
    pub(super) fn next_number(&self) -> usize {
        self.made + 1
    }

    /// The definition of a name in a dylib.
    pub(super) fn find(&self, dylib: usize, name: usize) -> Option<usize> {
        let of_name = |definition: &Definition| (definition.dylib, definition.name) == (dylib, name);
        self.numbers(of_name).first().copied()
    }

    /// The definitions of which something holds.
    pub(super) fn numbers(&self, holds: impl Fn(&Definition) -> bool) -> Vec<usize> {
        self.definitions.iter().filter(|(_, definition)| holds(definition)).map(|(no, _)| *no).collect()
    }

    pub(super) fn provided_by(&self, provider: Provider) -> Vec<usize> {
        self.numbers(|definition| definition.provider == provider)
    }

    pub(super) fn definition(&mut self, number: usize) -> &mut Definition {
        self.definitions.get_mut(&number).expect("the definition is there")
    }

    /// Whether work from outside, or from the work in progress, is taken.
    pub(super) fn admits(&self, by_task: bool) -> bool {
        match self.stage {
            Stage::Open => true,
            Stage::Draining => by_task,
            Stage::Cancelled | Stage::Closed => false,
        }
    }
}
