//! Ready: lookups while definitions, removals, redefinitions, link orders, generators and dylibs change underneath.
//!
//! ```text
//!  changers, one change at a time                       readers
//!    started += 1                                         first = completed
//!    one transaction                                      order = a dylib's link order
//!    ask the locked path for every name along every       look a few names up
//!      order: the answers of this version                 last = started
//!    completed += 1
//! ```
//!
//! Held in every schedule tried (I13): a reader's answer is that of the locked path for all its names together in one of the
//! versions `first..=last`. The error of a lookup that a removal has hit needs a removal among them.
//!
//! `gate.rs` has what takes the lock rarely.
//!
//! The locked path is reached by asking, besides, for a weakly referenced name that is never defined: such a lookup is never
//! answered from the records.
#![cfg(uruk_shuttle)]

mod common;
mod scripted;
mod weakenings;

use common::explore;
use scripted::{Scripted, all_at};
use shuttle::rand::{Rng, thread_rng};
use shuttle::scheduler::RandomScheduler;
use uruk_core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use uruk_core::sync::{Arc, Mutex, thread};
use uruk_core::{
    DefinitionGenerator, ExecutionSession, ExecutorAddr, ExecutorSymbolDef, FailureCause, GenerateRequest,
    GeneratorId, JitDylib, JitDylibLookupFlags, LookupError, LookupRequest, LookupResult, LookupSet,
    MaterializationResponsibility, ResourceTracker, SearchOrder, SymbolFlags, SymbolLookupFlags, SymbolName,
    absolute_symbols,
};

const DYLIBS: usize = 3;
const NAMES: usize = 3;
const ORDERS: usize = 3;
const CHANGERS: usize = 2;
const CHANGES_EACH: usize = 3;
const READERS: usize = 2;
const LOOKUPS_EACH: usize = 4;

#[test]
fn each_answer_is_one_that_the_locked_path_gave_within_the_call() {
    explore(RandomScheduler::new, 4000, || {
        let stage = Arc::new(Stage::new());
        stage.record(&stage.changing.lock(), Kind::Other);
        let spawn = |run: fn(&Arc<Stage>)| {
            let stage = stage.clone();
            thread::spawn(move || run(&stage))
        };
        let changers: Vec<_> = (0..CHANGERS).map(|_| spawn(change_a_few_times)).collect();
        let readers: Vec<_> = (0..READERS).map(|_| spawn(read_a_few_times)).collect();
        for thread in changers.into_iter().chain(readers) {
            thread.join().expect("no panic");
        }
        let history = stage.history.lock();
        for reading in &*stage.readings.lock() {
            reading.check(&history, &stage);
        }
    });
}

#[test]
fn it_notices_what_readers_are_not_told() {
    let steps = [
        "ready::answers_what_is_not_ready",
        "shadow::counts_no_change",
        "shadow::keeps_the_record",
        "shadow::tells_nobody_of_generators",
    ];
    weakenings::demand_noticed("each_answer_is_one_that_the_locked_path_gave_within_the_call", &steps);
}

/// A possible answer to a lookup.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Answer {
    Address(u64),
    NotFound,
    Failed,
    DylibRemoved,
    /// A removal or a generator's end has hit the lookup while it waited.
    Hit,
}

/// The effect of a change besides the answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// May hit a lookup that waits.
    Removal,
    Other,
}

/// The answers of the locked path between one change and the next.
struct Version {
    kind: Kind,
    /// The link order of the first dylib, by number; none once a dylib has been taken out of it.
    link_order: Option<usize>,
    /// Whether there is a generator, which makes an answer in the moment in which it is asked for.
    generates: bool,
    /// By order and name.
    answers: [[Answer; NAMES]; ORDERS],
}

#[derive(Debug)]
struct Reading {
    first: usize,
    last: usize,
    order: usize,
    by_link_order: bool,
    names: Vec<usize>,
    /// One for each name, or one error for all.
    told: Result<Vec<u64>, Answer>,
}

struct Stage {
    session: ExecutionSession,
    dylibs: Vec<JitDylib>,
    names: Vec<SymbolName>,
    nobody: SymbolName,
    orders: Vec<SearchOrder>,
    history: Mutex<Vec<Version>>,
    started: AtomicUsize,
    completed: AtomicUsize,
    changing: Mutex<Changing>,
    readings: Mutex<Vec<Reading>>,
    /// The next address that was never given out.
    address: Arc<AtomicU64>,
}

/// The state that the changers share, each in its turn.
struct Changing {
    trackers: Vec<ResourceTracker>,
    generators: Vec<(usize, GeneratorId)>,
    link_order: Option<usize>,
}

impl Stage {
    fn new() -> Self {
        let session = ExecutionSession::new();
        let dylib = |index: usize| session.create_jit_dylib(&format!("d{index}")).expect("it is new");
        let dylibs: Vec<_> = (0..DYLIBS).map(dylib).collect();
        let orders: Vec<SearchOrder> = (0..ORDERS).map(|_| random_order(&dylibs)).collect();
        dylibs[0].set_link_order(orders[0].clone()).expect("its dylibs are there");
        let changing = Changing { trackers: Vec::new(), generators: Vec::new(), link_order: Some(0) };
        let stage = Self {
            names: (0..NAMES).map(|index| session.intern(&format!("s{index}"))).collect(),
            nobody: session.intern("nobody"),
            orders,
            history: Mutex::default(),
            started: AtomicUsize::new(0),
            completed: AtomicUsize::new(0),
            changing: Mutex::new(changing),
            readings: Mutex::default(),
            address: Arc::new(AtomicU64::new(1)),
            dylibs,
            session,
        };
        // Most names are there at first: what is missing everywhere is soon asked for and never Ready.
        for (dylib, name) in (0..DYLIBS).flat_map(|dylib| (0..NAMES).map(move |name| (dylib, name))) {
            if thread_rng().gen_bool(0.6) {
                stage.define(&mut stage.changing.lock(), dylib, name);
            }
        }
        stage
    }

    /// Asks the locked path for everything, as the answers of a version that is complete then.
    fn record(&self, changing: &Changing, kind: Kind) {
        let ask = |order: usize, name: usize| self.ask_locked(&self.orders[order], name);
        let answers = std::array::from_fn(|order| std::array::from_fn(|name| ask(order, name)));
        let (link_order, generates) = (changing.link_order, !changing.generators.is_empty());
        self.history.lock().push(Version { kind, link_order, generates, answers });
        // Relaxed: shuttle's atomics are sequentially consistent.
        self.completed.fetch_add(1, Ordering::Relaxed);
    }

    fn ask_locked(&self, order: &SearchOrder, name: usize) -> Answer {
        let mut set = LookupSet::one(self.names[name].clone());
        set.add(self.nobody.clone(), SymbolLookupFlags::WeaklyReferencedSymbol);
        match self.session.lookup(LookupRequest::new(order, set)) {
            Ok(found) => Answer::Address(found[&self.names[name]].address.value()),
            Err(error) => Answer::of(&error),
        }
    }

    /// Defines one name; several flags, several fates.
    fn define(&self, changing: &mut Changing, dylib: usize, name: usize) {
        let mut flags = SymbolFlags::empty();
        flags.set(SymbolFlags::EXPORTED, thread_rng().gen_bool(0.8));
        flags.set(SymbolFlags::WEAK, thread_rng().gen_bool(0.2));
        // Relaxed: shuttle's atomics are sequentially consistent.
        let address = self.address.fetch_add(1, Ordering::Relaxed);
        let fate = Fate::random();
        let unit = Scripted::new([(self.names[name].clone(), flags)], move |responsibility| {
            fate.befall(responsibility, address)
        });
        let dylib = &self.dylibs[dylib];
        // Refused if the name is defined, or the dylib gone: a change that changes nothing.
        if thread_rng().gen_bool(0.5) {
            let tracker = dylib.create_tracker();
            let _ = dylib.define_with_tracker(unit, &tracker);
            changing.trackers.push(tracker);
        } else {
            let _ = dylib.define(unit);
        }
    }

    fn change(&self, changing: &mut Changing) -> Kind {
        let (dylib, name) = (thread_rng().gen_range(0..DYLIBS), thread_rng().gen_range(0..NAMES));
        match thread_rng().gen_range(0..12) {
            0..4 => {
                self.define(changing, dylib, name);
                Kind::Other
            }
            4..7 => {
                let _ = self.dylibs[dylib].remove(&[self.names[name].clone()]);
                Kind::Removal
            }
            7 if !changing.trackers.is_empty() => {
                let chosen = thread_rng().gen_range(0..changing.trackers.len());
                let _ = changing.trackers.swap_remove(chosen).remove();
                Kind::Removal
            }
            8 => {
                let order = thread_rng().gen_range(0..ORDERS);
                if self.dylibs[0].set_link_order(self.orders[order].clone()).is_ok() {
                    changing.link_order = self.number_of(&self.orders[order]);
                }
                Kind::Other
            }
            9 => {
                let generator =
                    Arc::new(Generates { address: self.address.clone(), names: self.names.clone() });
                let id = self.dylibs[dylib].add_generator(generator);
                changing.generators.extend(id.map(|id| (dylib, id)));
                Kind::Other
            }
            10 if !changing.generators.is_empty() => {
                let (dylib, id) = changing.generators.swap_remove(0);
                self.dylibs[dylib].remove_generator(id);
                Kind::Removal
            }
            11 if thread_rng().gen_bool(0.3) => {
                // Never the first, whose link order is read.
                let _ = self.session.remove_jit_dylib(&self.dylibs[1 + dylib % (DYLIBS - 1)]);
                changing.link_order = None;
                Kind::Removal
            }
            _ => {
                let _ = self.dylibs[dylib].clear();
                Kind::Removal
            }
        }
    }

    /// The first order that says the same: two may by chance.
    fn number_of(&self, order: &SearchOrder) -> Option<usize> {
        self.orders.iter().position(|other| other == order)
    }
}

fn random_order(dylibs: &[JitDylib]) -> SearchOrder {
    let mut dylibs = dylibs.to_vec();
    dylibs.rotate_left(thread_rng().gen_range(0..DYLIBS));
    if thread_rng().gen_bool(0.3) {
        dylibs.swap(0, 1);
    }
    dylibs.truncate(thread_rng().gen_range(1..=DYLIBS));
    let flags = |exported_only| match exported_only {
        true => JitDylibLookupFlags::MatchExportedSymbolsOnly,
        false => JitDylibLookupFlags::MatchAllSymbols,
    };
    dylibs.into_iter().map(|dylib| (dylib, flags(thread_rng().gen_bool(0.3)))).collect()
}

fn change_a_few_times(stage: &Arc<Stage>) {
    for _ in 0..CHANGES_EACH {
        let mut changing = stage.changing.lock();
        // Relaxed: shuttle's atomics are sequentially consistent.
        stage.started.fetch_add(1, Ordering::Relaxed);
        let kind = stage.change(&mut changing);
        stage.record(&changing, kind);
    }
}

fn read_a_few_times(stage: &Arc<Stage>) {
    for _ in 0..LOOKUPS_EACH {
        // Relaxed, here and below: shuttle's atomics are sequentially consistent.
        let first = stage.completed.load(Ordering::Relaxed) - 1;
        let linked = stage.number_of(&stage.dylibs[0].link_order()).filter(|_| thread_rng().gen_bool(0.5));
        let order = linked.unwrap_or_else(|| thread_rng().gen_range(0..ORDERS));
        let chosen: Vec<_> = match thread_rng().gen_bool(0.5) {
            true => vec![thread_rng().gen_range(0..NAMES)],
            false => (0..NAMES).filter(|_| thread_rng().gen_bool(0.7)).collect(),
        };
        let told = stage.read(&stage.orders[order], &chosen);
        let last = stage.started.load(Ordering::Relaxed);
        let by_link_order = linked.is_some();
        stage.readings.lock().push(Reading { first, last, order, by_link_order, names: chosen, told });
    }
}

impl Stage {
    /// Looks names up as programs do, one at a time or together.
    fn read(&self, order: &SearchOrder, chosen: &[usize]) -> Result<Vec<u64>, Answer> {
        let told = match chosen {
            [one] => {
                self.session.lookup_symbol(order, &self.names[*one]).map(|found| vec![found.address.value()])
            }
            several => {
                let set = LookupSet::required(several.iter().map(|&name| self.names[name].clone()));
                let found = self.session.lookup(LookupRequest::new(order, set));
                let address = |found: &LookupResult, name: usize| found[&self.names[name]].address.value();
                found.map(|found| several.iter().map(|&name| address(&found, name)).collect())
            }
        };
        told.map_err(|error| Answer::of(&error))
    }
}

impl Answer {
    fn of(error: &LookupError) -> Self {
        match error {
            LookupError::NotFound { .. } => Self::NotFound,
            LookupError::DylibRemoved { .. } => Self::DylibRemoved,
            LookupError::Generator { .. } => Self::Hit,
            LookupError::Failed(failure) if matches!(failure.cause, FailureCause::Removed) => Self::Hit,
            LookupError::Failed(_) => Self::Failed,
            other => panic!("no lookup of this scenario ends with: {other}"),
        }
    }
}

impl Reading {
    fn check(&self, history: &[Version], stage: &Stage) {
        let versions = &history[self.first..=self.last];
        if self.by_link_order {
            let was = |version: &Version| version.link_order.is_none_or(|order| order == self.order);
            assert!(versions.iter().any(was), "{self:?}: no version had this link order");
        }
        let order = &stage.orders[self.order];
        let removal = versions[1..].iter().any(|version| version.kind == Kind::Removal);
        let generates = versions.iter().any(|version| version.generates);
        let told_by = |version: &Version| version.told(self.order, &self.names) == self.told;
        let explained = match &self.told {
            // A lookup of nothing asks about the order alone.
            _ if versions.iter().any(told_by) => true,
            Err(Answer::Hit) => removal,
            // A definition that a generator has just made may be gone when all names are matched.
            Err(Answer::NotFound) => removal && generates,
            // While a generator defines one name after the other, names are told of one by one.
            Ok(told) if generates => told.iter().zip(&self.names).all(|(address, &name)| {
                versions.iter().any(|version| version.answers[self.order][name] == Answer::Address(*address))
            }),
            _ => false,
        };
        let answers: Vec<_> = versions.iter().map(|version| &version.answers[self.order]).collect();
        assert!(explained, "{self:?} along {order:?}: the locked path said {answers:?}");
    }
}

impl Version {
    /// The answer to a lookup of these names together: missing symbols come before failed ones.
    fn told(&self, order: usize, names: &[usize]) -> Result<Vec<u64>, Answer> {
        let answers = || names.iter().map(|&name| &self.answers[order][name]);
        if self.answers[order].contains(&Answer::DylibRemoved) {
            return Err(Answer::DylibRemoved);
        }
        for error in [Answer::NotFound, Answer::Failed] {
            if answers().any(|answer| *answer == error) {
                return Err(error);
            }
        }
        answers()
            .map(|answer| match answer {
                Answer::Address(address) => Ok(*address),
                error => Err(error.clone()),
            })
            .collect()
    }
}

/// The fate of a unit that a lookup asks for.
#[derive(Clone, Copy)]
enum Fate {
    Emitted,
    /// By another thread, which others may overtake.
    EmittedLater,
    Abandoned,
}

impl Fate {
    fn random() -> Self {
        match thread_rng().gen_range(0..10) {
            0..7 => Self::Emitted,
            7..9 => Self::EmittedLater,
            _ => Self::Abandoned,
        }
    }

    fn befall(self, responsibility: MaterializationResponsibility, address: u64) {
        match self {
            Self::Emitted => emit(responsibility, address),
            Self::EmittedLater => {
                let parked = responsibility.detach();
                thread::spawn(move || emit(parked.attach(), address));
            }
            Self::Abandoned => drop(responsibility),
        }
    }
}

/// Resolves and emits; both are refused if the symbols were removed meanwhile.
fn emit(responsibility: MaterializationResponsibility, address: u64) {
    let addresses = all_at(&responsibility, address);
    match responsibility.notify_resolved(&addresses) {
        Ok(resolved) => drop(resolved.notify_emitted(Vec::new())),
        Err(refused) => drop(refused),
    }
}

/// Defines every symbol that it is asked for, each at an address of its own.
struct Generates {
    address: Arc<AtomicU64>,
    names: Vec<SymbolName>,
}

impl DefinitionGenerator for Generates {
    fn name(&self) -> &str {
        "generates"
    }

    fn generate(&self, request: GenerateRequest) {
        for (name, _) in request.symbols().iter().filter(|(name, _)| self.names.contains(name)) {
            // Relaxed: shuttle's atomics are sequentially consistent.
            let address = self.address.fetch_add(1, Ordering::Relaxed);
            let definition = ExecutorSymbolDef::new(ExecutorAddr::new(address), SymbolFlags::EXPORTED);
            // Refused if another thread has defined it, which serves as well.
            let _ =
                request.dylib().define(absolute_symbols([(name.clone(), definition)].into_iter().collect()));
        }
        request.finish(Ok(()));
    }
}
