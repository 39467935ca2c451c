//! Leads the state under test and the naive model through the same operations.
//!
//! Here is what both share: the numbers of the model and the ids of the state. Each operation on both is in
//! `drive_*.rs`; after each of them `compare.rs` holds them side by side.

use std::collections::{BTreeMap, VecDeque};

use crate::ids::{ClaimId, DylibId, GeneratorId, QueryId, RowId, TrackerId, WaitId};
use crate::protocol::state::SessionState;
use crate::protocol::state::effects::Effects;
use crate::protocol::state::payload::Payload;
use crate::protocol::state::pending::ClaimedUnit;
use crate::{SerialQueue, SymbolFlags, SymbolFlagsMap, SymbolName, SymbolStringPool};

use super::drive_aliases::{AliasAnswer, AliasUnit};
use super::operation::{DYLIBS, Manner, NAMES, Operation, QUEUES, Symbol};
use super::world::{Step, World};

/// Integers for everything: the model's numbers.
pub(super) enum Integers {}

impl Payload for Integers {
    type Unit = usize;
    type Handler = usize;
    type Generator = usize;
    type Resource = usize;
}

pub(super) struct Harness {
    pub(super) state: SessionState<Integers>,
    pub(super) world: World,
    pub(super) names: Vec<SymbolName>,
    pub(super) pool: SymbolStringPool,
    /// The dylib that was made last of each name; it may be gone.
    pub(super) slots: [usize; DYLIBS],
    pub(super) queues: [SerialQueue; QUEUES],
    pub(super) ids: Ids,
    pub(super) responsibilities: BTreeMap<usize, Responsibility>,
    /// The requests that generators have not finished.
    pub(super) requests: Vec<Request>,
    pub(super) manners: BTreeMap<usize, Manner>,
    /// Units of aliases.
    pub(super) aliases: BTreeMap<usize, AliasUnit>,
    /// The responsibilities that lookups of sources are made for.
    pub(super) alias_lookups: BTreeMap<usize, usize>,
    pub(super) chores: VecDeque<Chore>,
    /// The lookup that must be told of a cycle by this operation.
    pub(super) must_be_told: Option<usize>,
}

/// The state's ids of all there ever was, by number.
#[derive(Default)]
pub(super) struct Ids {
    pub(super) dylibs: BTreeMap<usize, DylibId>,
    /// The slots of dylibs.
    pub(super) slots: BTreeMap<usize, usize>,
    pub(super) trackers: BTreeMap<usize, TrackerId>,
    /// Trackers with handles, and their dylibs.
    pub(super) handles: Vec<(usize, usize)>,
    pub(super) definitions: BTreeMap<usize, RowId>,
    pub(super) numbers: BTreeMap<RowId, usize>,
    pub(super) queries: BTreeMap<usize, QueryId>,
    pub(super) waits: BTreeMap<usize, WaitId>,
    pub(super) generators: BTreeMap<usize, GeneratorId>,
    /// The dylibs of generators.
    pub(super) generates: BTreeMap<usize, usize>,
}

/// A unit's duty for its symbols.
#[derive(Debug)]
pub(super) struct Responsibility {
    pub(super) claim: ClaimId,
    pub(super) covered: SymbolFlagsMap,
    pub(super) unit_name: SymbolName,
    /// Until it has begun.
    pub(super) queued: Option<ClaimedUnit<usize>>,
    /// Its aliases are being looked up: it is in no other hands.
    pub(super) is_busy: bool,
}

/// A generator was asked for these names.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) generator: usize,
    pub(super) id: GeneratorId,
    pub(super) query: usize,
    pub(super) query_id: QueryId,
    pub(super) dylib: usize,
    pub(super) names: Vec<usize>,
}

/// A reaction to news that comes before anything else happens.
#[derive(Debug)]
pub(super) enum Chore {
    /// A synchronous generator was asked.
    Generate(Request, Vec<Symbol>),
    /// Aliases have begun.
    LookUpSources { duty: usize },
    /// A lookup of sources has ended.
    FinishAliases { duty: usize, answer: AliasAnswer },
}

impl Harness {
    pub(super) fn new() -> Self {
        let pool = SymbolStringPool::new();
        let mut harness = Self {
            state: SessionState::new(true),
            world: World::default(),
            names: (0..NAMES).map(|name| pool.intern(&format!("s{name}"))).collect(),
            pool,
            slots: [0; DYLIBS],
            queues: Default::default(),
            ids: Ids::default(),
            responsibilities: BTreeMap::new(),
            requests: Vec::new(),
            manners: BTreeMap::new(),
            aliases: BTreeMap::new(),
            alias_lookups: BTreeMap::new(),
            chores: VecDeque::new(),
            must_be_told: None,
        };
        for slot in 0..DYLIBS {
            harness.create_dylib(slot);
        }
        harness
    }

    pub(super) fn run(&mut self, operation: &Operation) {
        self.apply(operation);
        self.do_chores();
    }

    pub(super) fn do_chores(&mut self) {
        while let Some(chore) = self.chores.pop_front() {
            match chore {
                Chore::Generate(request, defines) => self.generate(&request, &defines, true),
                Chore::LookUpSources { duty } => self.look_up_sources(duty),
                Chore::FinishAliases { duty, answer } => self.finish_aliases(duty, answer),
            }
        }
    }

    fn apply(&mut self, operation: &Operation) {
        match operation {
            Operation::Define { dylib, tracker, symbols, source, queue, initializer, by_task } => {
                self.define(*dylib, *tracker, symbols, source, *queue, [*initializer, *by_task])
            }
            Operation::LookUp { wanted, along, ready, flags_only, made_for, by_task } => {
                self.look_up(wanted, along, *made_for, [*ready, *flags_only, *by_task])
            }
            Operation::Withdraw { query } => self.withdraw(*query),
            Operation::Block(blocking) => self.block(blocking),
            Operation::GoOn { wait, gives_up } => self.go_on(*wait, *gives_up),
            Operation::Look { wait } => self.look(*wait),
            Operation::Lose { wait, what, queue } => self.lose(*wait, *what, *queue),
            Operation::Work { duty, groups, fault } => self.work(*duty, groups, *fault),
            Operation::Fail { duty } => self.fail_one(*duty),
            Operation::Delegate { duty, names } => self.delegate_one(*duty, *names),
            Operation::DefineMore { duty, symbols } => self.define_more(*duty, symbols),
            Operation::Replace { duty, queue, fault } => self.replace_one(*duty, *queue, *fault),
            Operation::RemoveNames { definition, names } => self.remove_names(*definition, names),
            Operation::CreateTracker { dylib } => self.create_tracker(*dylib),
            Operation::RemoveTracker { tracker, on_dependants } => {
                self.remove_tracker(*tracker, *on_dependants)
            }
            Operation::Transfer { source, destination } => self.transfer(*source, *destination),
            Operation::Release { tracker } => self.release(*tracker),
            Operation::AddResource { tracker } => self.add_resource(*tracker),
            Operation::AddResourceOfDuty { duty } => self.add_resource_of_duty(*duty),
            Operation::Clear { dylib } => self.clear(self.slots[*dylib]),
            Operation::CreateDylib { dylib } => self.create_dylib(*dylib),
            Operation::RemoveDylib { dylib } => self.remove_dylib(self.slots[*dylib]),
            Operation::SetOrder { dylib, order } => self.set_order(*dylib, order),
            Operation::AddToOrder { dylib, added, all } => self.add_to_order(*dylib, *added, *all),
            Operation::RemoveFromOrder { dylib, removed } => self.remove_from_order(*dylib, *removed),
            Operation::AddGenerator { dylib, manner } => self.add_generator(*dylib, manner),
            Operation::RemoveGenerator { generator } => self.remove_generator(*generator),
            Operation::ServeApart { request, again_alone } => self.serve_apart(*request, *again_alone),
            Operation::Finish { request, defines, succeeds } => {
                self.finish_request(*request, defines, *succeeds)
            }
            Operation::Commit { changes, by_task } => self.commit(changes, *by_task),
            Operation::Close { cancel } => self.start_closing(*cancel),
        }
    }

    /// Everything that follows from an operation happens to both, and both are compared.
    pub(super) fn follow(&mut self, mut effects: Effects<Integers>) {
        self.state.settle_all(&mut effects);
        self.state.check();
        self.world.ripen();
        self.agree_on_deadlocks(&effects);
        self.compare(effects);
    }

    /// One of the responsibilities that have come to one of these steps and are in no hands.
    pub(super) fn pick(&self, choice: usize, steps: &[Step]) -> Option<usize> {
        let fits = |(number, responsibility): (&usize, &Responsibility)| {
            let is_free = !responsibility.is_busy && !self.world.is_held(*number);
            let fits = is_free && steps.contains(&self.world.duties[number].step);
            fits.then_some(*number)
        };
        let fitting: Vec<_> = self.responsibilities.iter().filter_map(fits).collect();
        pick(&fitting, choice)
    }

    /// One of the definitions.
    pub(super) fn aim(&self, choice: usize) -> Option<usize> {
        pick(&self.world.definitions.keys().copied().collect::<Vec<_>>(), choice)
    }

    /// The definitions among these symbols, the first of each name.
    pub(super) fn interface(symbols: &[Symbol]) -> BTreeMap<usize, SymbolFlags> {
        symbols.iter().rev().map(|symbol| (symbol.name, symbol.flags)).collect()
    }

    pub(super) fn name(&self, name: usize) -> SymbolName {
        self.names[name].clone()
    }

    pub(super) fn flags_map(&self, symbols: &BTreeMap<usize, SymbolFlags>) -> SymbolFlagsMap {
        symbols.iter().map(|(&name, &flags)| (self.name(name), flags)).collect()
    }

    /// The name of a unit, by which errors tell it from others.
    pub(super) fn unit_name(&self, unit: usize) -> SymbolName {
        self.pool.intern(&format!("u{unit}"))
    }

    pub(super) fn dylib_name(&self, dylib: usize) -> crate::sync::Arc<str> {
        dylib_name(self.ids.slots[&dylib])
    }
}

/// One of `these`, if there is any.
pub(super) fn pick<T: Copy>(these: &[T], choice: usize) -> Option<T> {
    these.get(choice.checked_rem(these.len())?).copied()
}

/// The name of the dylibs in a slot.
pub(super) fn dylib_name(slot: usize) -> crate::sync::Arc<str> {
    format!("d{slot}").into()
}

/// The number in the name of a symbol, a unit, a dylib or an error.
pub(super) fn number_in(name: &str) -> usize {
    name[1..].parse().expect("names are a letter and a number")
}
