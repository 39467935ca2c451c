//! The operations of a history. Numbers choose among what is there when an operation's turn comes.

use proptest::prelude::*;

use crate::protocol::removal::policy::OnDependants;
use crate::{RemovalPolicy, SymbolFlags};

use super::blocking::{Blocking, blocking};

/// How many names there are for symbols, and for dylibs.
pub(super) const NAMES: usize = 6;
pub(super) const DYLIBS: usize = 4;
/// How many serial queues there are.
pub(super) const QUEUES: usize = 2;

/// A symbol of a unit.
#[derive(Clone, Debug)]
pub(super) struct Symbol {
    pub(super) name: usize,
    pub(super) flags: SymbolFlags,
}

/// Dylibs by slot, and whether hidden symbols are seen there.
pub(super) type Order = Vec<(usize, bool)>;

/// The provider of a definition.
#[derive(Clone, Debug)]
pub(super) enum Source {
    Unit,
    /// Known addresses.
    Known,
    /// Aliases of these names in that dylib, or in their own.
    Aliases {
        of: Vec<usize>,
        from: usize,
        all: bool,
    },
    /// Aliases of some of the definitions there are, in the dylib of the first.
    AliasesOf {
        definitions: Vec<usize>,
        all: bool,
    },
}

/// The order that a lookup searches.
#[derive(Clone, Debug)]
pub(super) enum Along {
    LinkOrder(usize),
    These(Order),
    /// A dylib that generates, then these.
    Past(usize, Order),
    /// The dylib of some definition, seen like this, then these. The names wanted choose among definitions.
    Towards(bool, Order),
}

/// A group of an emission: of these names, depending on some of the definitions there are.
#[derive(Clone, Debug)]
pub(super) struct Group {
    pub(super) symbols: u8,
    pub(super) needs: Vec<usize>,
    /// Depends on some definition that is gone as well.
    pub(super) stale: bool,
}

/// How an embedder goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    None,
    LeavesOneOut,
    AddsOne,
    ChangesFlags,
}

/// A generator's manner when it is asked.
#[derive(Clone, Debug)]
pub(super) enum Manner {
    /// It defines these of what it is asked for, at once.
    Synchronous(Vec<Symbol>),
    /// Some [`Operation::Finish`] does it.
    Later,
}

/// One step of a transaction.
#[derive(Clone, Debug)]
pub(super) enum Change {
    Define { dylib: usize, tracker: Option<usize>, symbols: Vec<Symbol>, replaces: bool },
    Remove { dylib: usize, names: Vec<usize> },
    RemoveTracker { dylib: usize, tracker: Option<usize> },
    SetOrder { dylib: usize, order: Order },
    AddToOrder { dylib: usize, added: usize, all: bool },
    RemoveFromOrder { dylib: usize, removed: usize },
}

#[derive(Clone, Debug)]
pub(super) enum Operation {
    Define {
        dylib: usize,
        tracker: Option<usize>,
        symbols: Vec<Symbol>,
        source: Source,
        queue: Option<usize>,
        initializer: bool,
        by_task: bool,
    },
    LookUp {
        wanted: Vec<(usize, bool)>,
        along: Along,
        ready: bool,
        flags_only: bool,
        /// By a generator, for one of the lookups that wait for it.
        made_for: Option<usize>,
        by_task: bool,
    },
    Withdraw {
        query: usize,
    },
    Block(Blocking),
    /// A blocked thread goes on: one whose lookup has ended, or any.
    GoOn {
        wait: usize,
        gives_up: bool,
    },
    /// A blocked thread loses something that it holds, or is asked to lose a turn that it does not have.
    /// A blocked thread looks for a cycle.
    Look {
        wait: usize,
    },
    Lose {
        wait: usize,
        what: usize,
        queue: usize,
    },
    /// The next step of a responsibility: it begins, is resolved, or is emitted in these groups.
    Work {
        duty: usize,
        groups: Vec<Group>,
        fault: Fault,
    },
    Fail {
        duty: usize,
    },
    Delegate {
        duty: usize,
        names: u8,
    },
    DefineMore {
        duty: usize,
        symbols: Vec<Symbol>,
    },
    Replace {
        duty: usize,
        queue: Option<usize>,
        fault: Fault,
    },
    /// Definitions of the dylib that some definition is in.
    RemoveNames {
        definition: usize,
        names: Vec<usize>,
    },
    CreateTracker {
        dylib: usize,
    },
    RemoveTracker {
        tracker: usize,
        on_dependants: OnDependants,
    },
    Transfer {
        source: usize,
        destination: usize,
    },
    Release {
        tracker: usize,
    },
    AddResource {
        tracker: usize,
    },
    AddResourceOfDuty {
        duty: usize,
    },
    Clear {
        dylib: usize,
    },
    CreateDylib {
        dylib: usize,
    },
    RemoveDylib {
        dylib: usize,
    },
    SetOrder {
        dylib: usize,
        order: Order,
    },
    AddToOrder {
        dylib: usize,
        added: usize,
        all: bool,
    },
    RemoveFromOrder {
        dylib: usize,
        removed: usize,
    },
    AddGenerator {
        dylib: usize,
        manner: Manner,
    },
    RemoveGenerator {
        generator: usize,
    },
    /// A generator goes on with a lookup while it serves others, or again alone.
    ServeApart {
        request: usize,
        again_alone: bool,
    },
    /// A generator defines these, of what it was asked for, and has done; or has failed.
    Finish {
        request: usize,
        defines: Vec<Symbol>,
        succeeds: bool,
    },
    Commit {
        changes: Vec<Change>,
        by_task: bool,
    },
    Close {
        cancel: bool,
    },
}

fn symbol() -> impl Strategy<Value = Symbol> {
    let linkage = prop_oneof![
        6 => Just(SymbolFlags::empty()),
        3 => Just(SymbolFlags::WEAK),
        1 => Just(SymbolFlags::COMMON),
    ];
    let visibility = prop_oneof![5 => Just(SymbolFlags::EXPORTED), 1 => Just(SymbolFlags::empty())];
    let kind = prop_oneof![
        8 => Just(SymbolFlags::empty()),
        2 => Just(SymbolFlags::CALLABLE),
        1 => Just(SymbolFlags::MATERIALIZATION_SIDE_EFFECTS_ONLY),
    ];
    (0..NAMES, linkage, visibility, kind)
        .prop_map(|(name, linkage, visibility, kind)| Symbol { name, flags: linkage | visibility | kind })
}

fn symbols() -> impl Strategy<Value = Vec<Symbol>> {
    prop::collection::vec(symbol(), 1..4)
}

fn order() -> impl Strategy<Value = Order> {
    prop::collection::vec((0..DYLIBS, any::<bool>()), 0..4)
}

fn source(alias: u32) -> impl Strategy<Value = Source> {
    let aliases = (prop::collection::vec(0..NAMES, 3), 0..DYLIBS + 2, any::<bool>());
    prop_oneof![
        12 => Just(Source::Unit),
        4 => Just(Source::Known),
        alias => aliases.prop_map(|(of, from, all)| Source::Aliases { of, from, all }),
        alias => (prop::collection::vec(0usize..12, 3), prop::bool::weighted(0.8))
            .prop_map(|(definitions, all)| Source::AliasesOf { definitions, all }),
    ]
}

fn queue() -> impl Strategy<Value = Option<usize>> {
    prop::option::weighted(0.3, 0..QUEUES)
}

fn define(alias: u32) -> impl Strategy<Value = Operation> {
    let who = (0..DYLIBS, prop::option::of(0usize..8), symbols(), source(alias));
    (who, queue(), prop::bool::weighted(0.2), any::<bool>()).prop_map(
        |((dylib, tracker, symbols, source), queue, initializer, by_task)| Operation::Define {
            dylib,
            tracker,
            symbols,
            source,
            queue,
            initializer,
            by_task,
        },
    )
}

fn look_up() -> impl Strategy<Value = Operation> {
    let wanted = prop::collection::vec((0usize..12, prop::bool::weighted(0.2)), 0..4);
    let along = prop_oneof![
        2 => (0..DYLIBS).prop_map(Along::LinkOrder),
        1 => order().prop_map(Along::These),
        2 => (0usize..4, order()).prop_map(|(generator, rest)| Along::Past(generator, rest)),
        9 => (prop::bool::weighted(0.8), order()).prop_map(|(all, rest)| Along::Towards(all, rest)),
    ];
    let made_for = prop::option::weighted(0.1, 0usize..4);
    (wanted, along, any::<bool>(), prop::bool::weighted(0.1), made_for, any::<bool>()).prop_map(
        |(wanted, along, ready, flags_only, made_for, by_task)| Operation::LookUp {
            wanted,
            along,
            ready,
            flags_only,
            made_for,
            by_task,
        },
    )
}

fn fault() -> impl Strategy<Value = Fault> {
    prop_oneof![
        12 => Just(Fault::None),
        1 => Just(Fault::LeavesOneOut),
        1 => Just(Fault::AddsOne),
        1 => Just(Fault::ChangesFlags),
    ]
}

/// Operations of a unit on its responsibility.
fn responsibility(resources: u32) -> impl Strategy<Value = Operation> {
    let duty = 0usize..8;
    let needs = prop::collection::vec(0usize..12, 0..3);
    let group = (any::<u8>(), needs, prop::bool::weighted(0.03)).prop_map(|(symbols, needs, stale)| Group {
        symbols,
        needs,
        stale,
    });
    let groups = prop::collection::vec(group, 0..3);
    prop_oneof![
        24 => (duty.clone(), groups, fault())
            .prop_map(|(duty, groups, fault)| Operation::Work { duty, groups, fault }),
        2 => duty.clone().prop_map(|duty| Operation::Fail { duty }),
        2 => (duty.clone(), any::<u8>()).prop_map(|(duty, names)| Operation::Delegate { duty, names }),
        2 => (duty.clone(), symbols()).prop_map(|(duty, symbols)| Operation::DefineMore { duty, symbols }),
        2 => (duty.clone(), queue(), fault())
            .prop_map(|(duty, queue, fault)| Operation::Replace { duty, queue, fault }),
        resources => duty.prop_map(|duty| Operation::AddResourceOfDuty { duty }),
    ]
}

/// Removals by name and by tracker.
fn removal(by_name: u32, by_tracker: u32) -> impl Strategy<Value = Operation> {
    let (dylib, tracker) = (0..DYLIBS, 0usize..8);
    prop_oneof![
        by_name => (0usize..12, prop::collection::vec(0..NAMES, 0..2))
            .prop_map(|(definition, names)| Operation::RemoveNames { definition, names }),
        4 => dylib.clone().prop_map(|dylib| Operation::CreateTracker { dylib }),
        by_tracker => (tracker.clone(), on_dependants())
            .prop_map(|(tracker, on_dependants)| Operation::RemoveTracker { tracker, on_dependants }),
        2 => (tracker.clone(), tracker.clone())
            .prop_map(|(source, destination)| Operation::Transfer { source, destination }),
        1 => tracker.clone().prop_map(|tracker| Operation::Release { tracker }),
        4 => tracker.prop_map(|tracker| Operation::AddResource { tracker }),
        1 => dylib.prop_map(|dylib| Operation::Clear { dylib }),
    ]
}

fn on_dependants() -> impl Strategy<Value = OnDependants> {
    prop_oneof![
        2 => Just(OnDependants::AsKept),
        1 => Just(OnDependants::Policy(RemovalPolicy::Refuse)),
        3 => Just(OnDependants::Policy(RemovalPolicy::Cascade)),
        2 => Just(OnDependants::Leave),
    ]
}

fn dylibs() -> impl Strategy<Value = Operation> {
    let dylib = 0..DYLIBS;
    prop_oneof![
        3 => dylib.clone().prop_map(|dylib| Operation::CreateDylib { dylib }),
        1 => dylib.clone().prop_map(|dylib| Operation::RemoveDylib { dylib }),
        2 => (dylib.clone(), order()).prop_map(|(dylib, order)| Operation::SetOrder { dylib, order }),
        4 => (dylib.clone(), dylib.clone(), any::<bool>())
            .prop_map(|(dylib, added, all)| Operation::AddToOrder { dylib, added, all }),
        1 => (dylib.clone(), dylib)
            .prop_map(|(dylib, removed)| Operation::RemoveFromOrder { dylib, removed }),
    ]
}

fn generators() -> impl Strategy<Value = Operation> {
    let manner = prop_oneof![
        1 => symbols().prop_map(Manner::Synchronous),
        2 => Just(Manner::Later),
    ];
    prop_oneof![
        1 => (0..DYLIBS, manner).prop_map(|(dylib, manner)| Operation::AddGenerator { dylib, manner }),
        1 => (0usize..4).prop_map(|generator| Operation::RemoveGenerator { generator }),
        2 => (0usize..4, prop::bool::weighted(0.3))
            .prop_map(|(request, again_alone)| Operation::ServeApart { request, again_alone }),
        3 => (0usize..4, symbols(), prop::bool::weighted(0.8)).prop_map(|(request, defines, succeeds)| {
            Operation::Finish { request, defines, succeeds }
        }),
    ]
}

fn change() -> impl Strategy<Value = Change> {
    let (dylib, tracker) = (0..DYLIBS, 0usize..8);
    prop_oneof![
        4 => (dylib.clone(), prop::option::of(tracker.clone()), symbols(), any::<bool>()).prop_map(
            |(dylib, tracker, symbols, replaces)| Change::Define { dylib, tracker, symbols, replaces }
        ),
        2 => (dylib.clone(), prop::collection::vec(0..NAMES, 1..3))
            .prop_map(|(dylib, names)| Change::Remove { dylib, names }),
        1 => (dylib.clone(), prop::option::of(tracker))
            .prop_map(|(dylib, tracker)| Change::RemoveTracker { dylib, tracker }),
        1 => (dylib.clone(), order()).prop_map(|(dylib, order)| Change::SetOrder { dylib, order }),
        1 => (dylib.clone(), dylib.clone(), any::<bool>())
            .prop_map(|(dylib, added, all)| Change::AddToOrder { dylib, added, all }),
        1 => (dylib.clone(), dylib)
            .prop_map(|(dylib, removed)| Change::RemoveFromOrder { dylib, removed }),
    ]
}

/// The main theme of a history; all of them have a little of everything.
#[derive(Clone, Copy, Debug)]
pub(super) enum Theme {
    Work,
    Generators,
    Aliases,
    Dylibs,
    Trackers,
    Products,
    Dependants,
    BlockedThreads,
    WaitsForAliases,
    WaitsForGenerators,
}

/// Any operation.
pub(super) fn operation(theme: Theme) -> impl Strategy<Value = Operation> {
    let commit = (prop::collection::vec(change(), 1..4), any::<bool>())
        .prop_map(|(changes, by_task)| Operation::Commit { changes, by_task });
    let (work, generating, dylib, alias, removing, waits) = match theme {
        Theme::Work => (240, 10, 15, 3, 30, 15),
        Theme::Generators => (120, 120, 20, 3, 20, 30),
        Theme::Aliases => (160, 10, 15, 30, 20, 30),
        Theme::Dylibs => (120, 15, 80, 5, 30, 15),
        Theme::Trackers => (150, 10, 10, 3, 180, 30),
        Theme::Products => (240, 5, 5, 3, 70, 5),
        Theme::Dependants => (300, 2, 1, 10, 30, 2),
        Theme::BlockedThreads => (140, 45, 5, 20, 5, 120),
        Theme::WaitsForAliases => (160, 5, 5, 60, 5, 80),
        Theme::WaitsForGenerators => (60, 140, 5, 5, 5, 120),
    };
    let (resources, by_name) = match theme {
        Theme::Products => (12, 12),
        Theme::Dependants => (6, 3),
        _ => (1, 3),
    };
    prop_oneof![
        60 => define(alias),
        80 => look_up(),
        8 => (0usize..8).prop_map(|query| Operation::Withdraw { query }),
        work => responsibility(resources),
        waits => blocking(),
        removing => removal(by_name, if let Theme::Dependants = theme { 20 } else { 2 }),
        dylib => dylibs(),
        generating => generators(),
        12 => commit,
        1 => any::<bool>().prop_map(|cancel| Operation::Close { cancel }),
    ]
}
