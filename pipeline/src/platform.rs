//! Initialisers and finalisers of linked objects: which units have some, the order in which they run, and which have run.
//!
//! A unit that has initialisers carries an *initializer symbol*: a symbol without an address whose lookup runs the unit.
//! [`Platform::declare`] hands these out and remembers the order of the calls, which is the order of a static linker. When the linker has
//! placed such a unit it records the unit's functions. [`Platform::initialize`] then runs each of them once, in the order of a process
//! start; [`Platform::take_initializers`] hands them out to a caller that runs them itself.
//!
//! ```text
//!   declared ──linked──▶ recorded ──its symbols are Ready──▶ run or handed out, once
//!      │ withdrawn           │ removed, or failed
//!      ▼                     ▼
//! ```
//!
//! **Architecture Invariant:** a record lies with the code it names, and is dropped before the code is. Functions that are handed out
//! belong to a unit that is Ready: neither it nor any unit that it calls can still fail.
//!
//! **Never:** no function runs under the lock, and none runs without a request. Functions that are registered for the end run then
//! (`runtime/endings`).

mod discovery;
mod initialize;
pub(crate) mod section_groups;
mod starts;
mod waiting_object;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::error::Error;
use std::mem;

use rustc_hash::FxHashMap;
use uruk_core::sync::{Arc, Mutex};
use uruk_core::{DefinitionWatch, ExecutorAddr, JitDylib, ResolvedResponsibility, Resource, SymbolName};

use crate::executor::{ArrayFunction, CodeNumber, FRAGMENT_PRIORITY, Home, Initializers, Startup, WeakHome};
use crate::object::UnitTraits;

pub use discovery::LatentUnit;
use discovery::{Discovery, Undiscovered};
use section_groups::SectionGroups;
use starts::{Startable, Starts, Unstarted};
pub(crate) use waiting_object::WaitingObject;

/// The priority of what is in `.preinit_array`.
const BEFORE_FRAGMENTS: i32 = FRAGMENT_PRIORITY - 1;

/// The initialisers of one session.
///
/// # Concurrency
/// Callable from any thread. One lock, held for map operations and sorts of plain numbers, never while anything
/// of the session's or the user's runs.
#[derive(Debug, Default)]
pub struct Platform {
    state: Arc<Mutex<PlatformState>>,
    section_groups: Arc<SectionGroups<WaitingObject>>,
    is_of_process: bool,
    uninitialized: Unstarted,
}

#[derive(Debug, Default)]
struct PlatformState {
    next_order: u32,
    /// The place in link order of each unit that was declared and not withdrawn, by initializer symbol.
    declared: FxHashMap<SymbolName, u32>,
    undiscovered: Discovery,
    /// Units that a program takes, whose functions are compiled when they are called.
    called: Vec<LatentUnit>,
    next_record: u64,
    recorded: BTreeMap<u64, UnitFunctions>,
    /// The dylibs that have code, by name; and how many there have to be for those that have none any more to be forgotten.
    homes: HashMap<Box<str>, WeakHome>,
    sweep_homes_at: usize,
    /// Units that have initializers and were not asked for yet, by their place in link order.
    unasked: BTreeMap<u32, (Home, SymbolName)>,
    /// Records with initializers that were not taken yet.
    unstarted: BTreeSet<u64>,
    starts: Starts<Home>,
}

/// The functions of one unit's code, as far as they were not taken yet.
#[derive(Debug)]
struct UnitFunctions {
    /// The unit's initializer symbol, by which its dylib lists it; any symbol of a unit that was not declared.
    watch: DefinitionWatch,
    home: Home,
    /// `None` for code that is there until the process ends.
    code: Option<CodeNumber>,
    preinitializers: Vec<ArrayFunction>,
    initializers: Vec<ArrayFunction>,
    finalizers: Vec<ArrayFunction>,
    indirect_functions: Vec<ExecutorAddr>,
}

/// The functions of one unit, recorded. Dropping it forgets those that were not taken.
#[must_use = "dropping it forgets the functions"]
#[derive(Debug)]
pub struct Recorded {
    state: Arc<Mutex<PlatformState>>,
    number: u64,
}

/// A declaration that ends with its unit. Dropping the last clone withdraws it: a unit that may be made once more has one too.
///
/// To be kept by the unit until it is materialized, and by the unit's tracker from then on
/// ([`add_resource`](uruk_core::MaterializationResponsibility::add_resource)).
#[must_use = "dropping it withdraws the declaration"]
#[derive(Clone, Debug)]
pub struct Declaration(Arc<Declared>);

#[derive(Debug)]
struct Declared {
    platform: Arc<Platform>,
    symbol: SymbolName,
}

impl Platform {
    /// Creates a platform without units. Functions that its code registers for the end run before the code goes.
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates a platform for a program that has the process for itself, like a native program: the C library keeps the functions that the
    /// program registers for the end. None of its code may be removed before the process ends.
    pub fn of_process() -> Self {
        Self { is_of_process: true, ..Self::default() }
    }

    /// Whether the program has the process for itself.
    pub fn is_of_process(&self) -> bool {
        self.is_of_process
    }

    /// Makes the initializer symbol of a unit that is about to be defined. Units are linked, and
    /// initialised, in the order of these calls.
    ///
    /// A unit that shares sections is linked together with all others of its dylib that do, as far as they are declared and defined when
    /// the first of them is linked. Their sections of one name then lie side by side, between `__start_X` and `__stop_X`.
    ///
    /// The declaration is remembered until [`Platform::withdraw`]; a [`Declaration`] sees to that.
    pub fn declare(&self, dylib: &JitDylib, unit: &str, traits: UnitTraits) -> SymbolName {
        let mut state = self.state.lock();
        let order = state.next_order;
        state.next_order += 1;
        let symbol = dylib.session().intern(&format!("<file {order}: {unit}>"));
        state.declared.insert(symbol.clone(), order);
        let UnitTraits {
            shares_sections,
            work_bytes,
            is_passive,
            runs_at_start,
            compiled_on_call,
            references,
        } = traits;
        if runs_at_start {
            let home = state.home(dylib);
            state.unasked.insert(order, (home, symbol.clone()));
            self.uninitialized.note();
        }
        let unit = Undiscovered { symbol: symbol.clone(), work_bytes, compiled_on_call, references };
        state.undiscovered.declare(order, unit, is_passive);
        drop(state);
        if shares_sections {
            self.section_groups.declare(symbol.clone(), order);
        }
        symbol
    }

    /// Forgets a declaration whose unit was refused by its dylib, or is gone from there.
    pub fn withdraw(&self, symbol: &SymbolName) {
        let mut state = self.state.lock();
        let order = state.declared.remove(symbol);
        let undiscovered = order.and_then(|order| state.undiscovered.withdraw(order));
        let unasked = order.and_then(|order| state.unasked.remove(&order));
        drop(state);
        drop((undiscovered, unasked));
        self.section_groups.withdraw(symbol);
    }

    /// Where objects that share sections wait for one another.
    pub(crate) fn section_groups(&self) -> &Arc<SectionGroups<WaitingObject>> {
        &self.section_groups
    }

    /// The initializer symbols of units that a program takes, declared since the last call: those that are not passive, those
    /// that have been materialized, and those that `entry` and these lead to. Looking them up materializes their units, which
    /// may declare more. The largest come first: a pool that is given the longest work first ends sooner.
    pub fn take_needed(&self, entry: Option<&SymbolName>) -> Vec<SymbolName> {
        let mut state = self.state.lock();
        let needed = state.undiscovered.take_needed(entry);
        let mut needed: Vec<_> = needed.into_values().collect();
        let called = needed.iter_mut().filter(|unit| unit.compiled_on_call.is_some());
        let called = called.map(|unit| LatentUnit {
            symbol: unit.symbol.clone(),
            undefined: mem::take(&mut unit.references.undefined),
            compiled_on_call: unit.compiled_on_call.take(),
        });
        state.called.extend(called);
        drop(state);
        needed.sort_by_key(|unit| std::cmp::Reverse(unit.work_bytes));
        needed.into_iter().map(|unit| unit.symbol).collect()
    }

    /// The needed units, taken since the last call, whose functions are compiled when they are called. Their references have not been
    /// checked yet.
    pub fn take_called(&self) -> Vec<LatentUnit> {
        mem::take(&mut self.state.lock().called)
    }

    /// The passive units declared since the last call that nothing has referred to so far. From now on they are materialized when their
    /// symbols are looked up, and not otherwise.
    pub fn take_latent(&self) -> Vec<LatentUnit> {
        let latent = self.state.lock().undiscovered.take_latent();
        let unit = |unit: Undiscovered| LatentUnit {
            symbol: unit.symbol,
            undefined: unit.references.undefined,
            compiled_on_call: unit.compiled_on_call,
        };
        latent.into_values().map(unit).collect()
    }

    /// Notes the functions that the linker found in a unit, each with its priority, in the order of their sections, and the
    /// descriptors of those that choose their implementation. Called before the unit's symbols become Ready.
    ///
    /// The record is to be kept beside the code, and dropped before the code is. `None` if there is nothing to record. Arrays of a unit
    /// that was never declared have no place in the order, and are not recorded.
    pub(crate) fn record(
        &self,
        unit: &ResolvedResponsibility,
        code: Option<CodeNumber>,
        initializers: Initializers,
        indirect_functions: Vec<ExecutorAddr>,
    ) -> Option<Recorded> {
        if initializers == Initializers::default() && indirect_functions.is_empty() {
            return None;
        }
        let symbol = unit.initializer_symbol().or_else(|| unit.symbols().keys().next())?;
        let watch = unit.watch(symbol)?;
        let mut state = self.state.lock();
        let mut functions = UnitFunctions {
            watch,
            home: state.home(unit.dylib()),
            code,
            preinitializers: Vec::new(),
            initializers: Vec::new(),
            finalizers: Vec::new(),
            indirect_functions,
        };
        if let Some(&order) = state.declared.get(symbol) {
            let before = initializers.preinitializers.into_iter().map(|address| (BEFORE_FRAGMENTS, address));
            functions.preinitializers = numbered(order, before);
            functions.initializers = numbered(order, initializers.initializers);
            functions.finalizers = numbered(order, initializers.finalizers);
            // Finalizers run from last to first, and fragments of `.fini` in link order: their places count backwards.
            for fragment in &mut functions.finalizers {
                if fragment.priority == FRAGMENT_PRIORITY {
                    (fragment.unit, fragment.index) = (u32::MAX - fragment.unit, u32::MAX - fragment.index);
                }
            }
        }
        let number = state.next_record;
        state.next_record += 1;
        if functions.has_initializers() {
            state.unstarted.insert(number);
            self.uninitialized.note();
        }
        state.recorded.insert(number, functions);
        Some(Recorded { state: self.state.clone(), number })
    }

    /// The descriptors of units that are Ready, each once. A process binds these functions before anything of the program runs. Without
    /// that, each function is bound by its first call.
    ///
    /// The caller is responsible for the taken functions: see [`Platform::take_initializers`].
    pub fn take_indirect_functions(&self) -> Vec<ExecutorAddr> {
        self.take(|functions| mem::take(&mut functions.indirect_functions))
    }

    /// Functions of Ready units that must run before the program and were not taken yet, in running order: first `.preinit_array`, which
    /// comes before everything else, then by priority, unit and place. Functions of a unit on its way come with a later call. Functions of
    /// a unit that failed or was removed never come.
    ///
    /// # Concurrency
    /// The caller is responsible for the taken functions. They may be called as long as the unit's tracker is not removed, and only the
    /// caller can know whether it will be.
    pub fn take_initializers(&self) -> Vec<ArrayFunction> {
        let mut taken = self.take(UnitFunctions::take_initializers);
        taken.sort_unstable();
        taken
    }

    /// Functions of Ready units that must run after the program and were not taken yet. They run from last to first.
    ///
    /// The caller is responsible for the taken functions, as with [`Platform::take_initializers`]: take them when the end has come, or keep
    /// the trackers until then.
    pub fn take_finalizers(&self) -> Vec<ArrayFunction> {
        let mut taken = self.take(|functions| mem::take(&mut functions.finalizers));
        taken.sort_unstable();
        taken
    }

    /// All of these that were not taken yet.
    ///
    /// The caller is responsible for the taken functions, as with [`Platform::take_initializers`].
    pub fn take_startup(&self) -> Startup {
        Startup {
            indirect: self.take_indirect_functions(),
            initializers: self.take_initializers(),
            finalizers: self.take_finalizers(),
        }
    }

    /// Takes one kind of functions from the records of all units that are Ready.
    fn take<T>(&self, take: impl Fn(&mut UnitFunctions) -> Vec<T>) -> Vec<T> {
        let watched: Vec<(u64, DefinitionWatch)> = {
            let state = self.state.lock();
            state.recorded.iter().map(|(&number, functions)| (number, functions.watch.clone())).collect()
        };
        let ready = ready(watched);
        let mut state = self.state.lock();
        let mut taken = Vec::new();
        for number in ready {
            // One that was removed meanwhile is gone.
            let Some(functions) = state.recorded.get_mut(&number) else { continue };
            taken.append(&mut take(functions));
            if !functions.has_initializers() {
                state.unstarted.remove(&number);
            }
        }
        taken
    }

    /// The place in link order of a unit that was declared.
    pub(crate) fn order(&self, symbol: &SymbolName) -> Option<u32> {
        self.state.lock().declared.get(symbol).copied()
    }

    /// The number of a dylib whose code may go before the process does.
    pub(crate) fn home(&self, dylib: &JitDylib) -> Option<Home> {
        (!self.is_of_process).then(|| self.state.lock().home(dylib))
    }
}

impl Startable<Home> for PlatformState {
    fn starts(&mut self) -> &mut Starts<Home> {
        &mut self.starts
    }

    fn has_unstarted(&self) -> bool {
        !self.unasked.is_empty() || !self.unstarted.is_empty()
    }
}

impl PlatformState {
    fn home(&mut self, dylib: &JitDylib) -> Home {
        if let Some(home) = self.known_home(dylib) {
            return home;
        }
        if self.homes.len() >= self.sweep_homes_at {
            self.homes.retain(|_, home| home.upgrade().is_some());
            self.sweep_homes_at = 2 * self.homes.len() + 16;
        }
        let home = Home::default();
        self.homes.insert(dylib.name().into(), home.downgrade());
        home
    }

    fn known_home(&self, dylib: &JitDylib) -> Option<Home> {
        self.homes.get(dylib.name())?.upgrade()
    }
}

impl UnitFunctions {
    fn has_initializers(&self) -> bool {
        !self.preinitializers.is_empty() || !self.initializers.is_empty()
    }

    /// Takes what a start needs.
    fn take_for_start(&mut self) -> Self {
        Self {
            watch: self.watch.clone(),
            home: self.home.clone(),
            code: self.code,
            preinitializers: mem::take(&mut self.preinitializers),
            initializers: mem::take(&mut self.initializers),
            finalizers: mem::take(&mut self.finalizers),
            indirect_functions: Vec::new(),
        }
    }

    fn take_initializers(&mut self) -> Vec<ArrayFunction> {
        let mut taken = mem::take(&mut self.preinitializers);
        taken.append(&mut self.initializers);
        taken
    }
}

/// Those of the records whose units are Ready. Asked without our lock: the session's last handle may go here, and all records with it.
fn ready(watched: Vec<(u64, DefinitionWatch)>) -> Vec<u64> {
    watched.into_iter().filter(|(_, watch)| watch.is_ready()).map(|(number, _)| number).collect()
}

/// Elements of an array, with the unit's place in link order.
fn numbered(unit: u32, functions: impl IntoIterator<Item = (i32, ExecutorAddr)>) -> Vec<ArrayFunction> {
    let numbered = functions.into_iter().zip(0..);
    numbered.map(|((priority, address), index)| ArrayFunction { priority, unit, index, address }).collect()
}

impl Drop for Recorded {
    fn drop(&mut self) {
        let mut state = self.state.lock();
        let forgotten = state.recorded.remove(&self.number);
        state.unstarted.remove(&self.number);
        drop(state);
        drop(forgotten);
    }
}

impl Declaration {
    /// Lets the declaration of `symbol` end with this value.
    pub fn new(platform: Arc<Platform>, symbol: SymbolName) -> Self {
        Self(Arc::new(Declared { platform, symbol }))
    }

    /// Notes that the unit is materialized, for any reason: it takes part.
    pub fn note_materialized(&self) {
        let Declared { platform, symbol } = &*self.0;
        let mut state = platform.state.lock();
        let order = state.declared.get(symbol).copied();
        let references = order.map(|order| state.undiscovered.want(order));
        drop(state);
        drop(references);
    }

    /// The initializer symbol.
    pub fn symbol(&self) -> &SymbolName {
        &self.0.symbol
    }
}

impl Drop for Declared {
    fn drop(&mut self) {
        self.platform.withdraw(&self.symbol);
    }
}

impl Resource for Declaration {
    fn remove(self: Box<Self>) -> Result<(), Box<dyn Error + Send + Sync>> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::object::References;
    use uruk_core::{
        Detached, ExecutionSession, LookupSet, MaterializationInterface, MaterializationResponsibility,
        MaterializationUnit, SearchOrder, shared_error,
    };

    use super::*;

    type Kept = Arc<Mutex<Vec<Detached<ResolvedResponsibility>>>>;

    /// A unit that has an initializer alone, resolves it and is kept.
    struct Resolving(SymbolName, Kept);

    impl MaterializationUnit for Resolving {
        fn name(&self) -> &str {
            "resolving"
        }

        fn interface(&self) -> MaterializationInterface {
            MaterializationInterface::default().with_initializer(self.0.clone())
        }

        fn materialize(self: Box<Self>, responsibility: MaterializationResponsibility) {
            let resolved = responsibility.notify_resolved(&Default::default()).expect("there is no address");
            self.1.lock().push(resolved.detach());
        }

        fn discard(&mut self, _: &JitDylib, _: &SymbolName) {}
    }

    /// A session whose units are linked by hand.
    struct Scene {
        session: ExecutionSession,
        dylib: JitDylib,
        platform: Arc<Platform>,
        kept: Kept,
    }

    impl Scene {
        fn new() -> Self {
            let session = ExecutionSession::new();
            let dylib = session.create_jit_dylib("main").expect("a new name");
            Self { session, dylib, platform: Arc::default(), kept: Kept::default() }
        }

        fn declare(&self, unit: &str) -> SymbolName {
            self.platform.declare(&self.dylib, unit, UnitTraits::default())
        }

        /// Defines the unit of `symbol` and starts it.
        fn start(&self, symbol: SymbolName) -> ResolvedResponsibility {
            let unit = Resolving(symbol.clone(), self.kept.clone());
            self.dylib.define(Box::new(unit)).expect("a new symbol");
            let wanted = LookupSet::weakly_referenced([symbol]);
            let request = uruk_core::LookupRequest::new(SearchOrder::of(&self.dylib), wanted);
            drop(self.session.lookup_future(request.until_resolved()));
            self.kept.lock().pop().expect("it has run on this thread").attach()
        }
    }

    fn at(addresses: &[u64]) -> Vec<(i32, ExecutorAddr)> {
        addresses.iter().map(|&address| (65535, ExecutorAddr::new(address))).collect()
    }

    fn addresses(list: &[ArrayFunction]) -> Vec<u64> {
        list.iter().map(|entry| entry.address.value()).collect()
    }

    #[test]
    fn initializers_run_by_priority_then_unit_then_position() {
        let scene = Scene::new();
        let (first, second) = (scene.declare("first.o"), scene.declare("second.o"));
        let numbered = |priority, address| (priority, ExecutorAddr::new(address));
        // Linked in the opposite order, as two workers may.
        let second = scene.start(second);
        let _second = scene.platform.record(
            &second,
            None,
            Initializers {
                preinitializers: vec![ExecutorAddr::new(5)],
                initializers: [at(&[21]), vec![numbered(101, 20)], at(&[22])].concat(),
                finalizers: at(&[21]),
            },
            Vec::new(),
        );
        let first = scene.start(first);
        let functions = [at(&[11]), vec![numbered(200, 10)]].concat();
        let _first = scene.platform.record(
            &first,
            None,
            Initializers {
                initializers: functions.clone(),
                finalizers: functions,
                ..Initializers::default()
            },
            Vec::new(),
        );
        for unit in [first, second] {
            unit.notify_emitted(Vec::new()).expect("nothing refuses it");
        }
        let platform = scene.platform;
        assert_eq!(addresses(&platform.take_initializers()), [5, 20, 10, 11, 21, 22]);
        assert_eq!(addresses(&platform.take_finalizers()), [10, 11, 21]);
        assert!(platform.take_initializers().is_empty());
    }

    #[test]
    fn functions_are_handed_out_once_their_unit_is_ready_and_until_their_record_goes() {
        let scene = Scene::new();
        let platform = &scene.platform;
        let functions = |address| Initializers {
            initializers: at(&[address]),
            finalizers: at(&[address + 1]),
            ..Initializers::default()
        };
        let unit = scene.start(scene.declare("unit.o"));
        let record = platform.record(&unit, None, functions(10), vec![ExecutorAddr::new(12)]);
        let failing = scene.start(scene.declare("failing.o"));
        let _failed = platform.record(&failing, None, functions(20), vec![ExecutorAddr::new(22)]);
        failing.fail(shared_error("a test"));
        assert!(platform.take_initializers().is_empty(), "one is on its way and the other has failed");
        unit.notify_emitted(Vec::new()).expect("nothing refuses it");
        assert_eq!(addresses(&platform.take_initializers()), [10]);
        assert_eq!(platform.take_indirect_functions(), [ExecutorAddr::new(12)]);
        drop(record);
        assert!(platform.take_finalizers().is_empty());
    }

    #[test]
    fn the_unit_with_the_most_work_is_asked_for_first() {
        let Scene { dylib, platform, .. } = Scene::new();
        let of = |work_bytes| UnitTraits { work_bytes, ..UnitTraits::default() };
        let declared = [("object.o", 0), ("small.bc", 10), ("large.bc", 1000), ("also_small.bc", 10)]
            .map(|(unit, work_bytes)| platform.declare(&dylib, unit, of(work_bytes)));
        let [object, small, large, also_small] = declared;
        assert_eq!(platform.take_needed(None), [large, small, also_small, object]);
    }

    /// Each was found when the one before it had been compiled: a program of many files kept one thread busy.
    #[test]
    fn what_is_needed_is_known_before_anything_is_compiled() {
        let scene = Scene::new();
        let names = |names: &[&str]| -> Box<[SymbolName]> {
            names.iter().map(|name| scene.session.intern(name)).collect()
        };
        let declare = |unit: &str, is_passive, defined: &[&str], undefined: &[&str]| {
            let references = References { defined: names(defined), undefined: names(undefined) };
            let traits = UnitTraits { is_passive, references, ..UnitTraits::default() };
            scene.platform.declare(&scene.dylib, unit, traits)
        };
        let main = declare("main.o", true, &["main"], &["first", "puts"]);
        let idle = declare("idle.o", true, &["idle"], &["main", "absent"]);
        let first = declare("first.o", true, &["first"], &["second"]);
        let second = declare("second.o", true, &["second"], &["first"]);
        let starts = declare("starts.o", false, &["starts"], &["helper"]);
        let helper = declare("helper.o", true, &["helper"], &[]);
        let entry = scene.session.intern("main");
        assert_eq!(scene.platform.take_needed(Some(&entry)), [main, first, second, starts, helper]);
        assert_eq!(scene.platform.take_needed(Some(&entry)), []);
        let latent = scene.platform.take_latent();
        assert_eq!(latent.iter().map(|unit| &unit.symbol).collect::<Vec<_>>(), [&idle]);
        assert_eq!(latent[0].undefined, names(&["main", "absent"]));
    }

    #[test]
    fn a_unit_that_was_materialized_takes_part() {
        let scene = Scene::new();
        let passive = || UnitTraits { is_passive: true, ..UnitTraits::default() };
        let declare = |unit| {
            let symbol = scene.platform.declare(&scene.dylib, unit, passive());
            Declaration::new(scene.platform.clone(), symbol)
        };
        let [materialized, _waits] = ["materialized.o", "waits.o"].map(declare);
        drop(declare("refused.o"));
        assert_eq!(scene.platform.take_needed(None), []);
        materialized.note_materialized();
        materialized.note_materialized();
        assert_eq!(scene.platform.take_needed(None), [materialized.symbol().clone()]);
        assert_eq!(scene.platform.take_latent().len(), 1);
    }

    #[test]
    fn a_declared_unit_is_asked_for_once() {
        let scene = Scene::new();
        let kept = scene.declare("kept.o");
        drop(Declaration::new(scene.platform.clone(), scene.declare("refused.o")));
        assert_eq!(scene.platform.take_needed(None), [kept]);
        assert!(scene.platform.take_needed(None).is_empty());
    }

    #[test]
    fn what_is_withdrawn_is_forgotten_whole() {
        let scene = Scene::new();
        let shares = UnitTraits { shares_sections: true, ..UnitTraits::default() };
        let symbol = scene.platform.declare(&scene.dylib, "shares.o", shares);
        scene.platform.withdraw(&symbol);
        let PlatformState { declared, undiscovered, .. } = &*scene.platform.state.lock();
        assert!(declared.is_empty() && undiscovered.is_empty());
        assert_eq!(scene.platform.section_groups.unlinked(), 0);
    }
}
