//! The steps of the histories of twins. Numbers choose among what is there when a step's turn comes.

use proptest::prelude::*;

use crate::SymbolFlags;

pub(super) const NAMES: usize = 5;
pub(super) const DYLIBS: usize = 3;
pub(super) const QUEUES: usize = 2;

/// Of which name, and what it is.
pub(super) type Symbol = (usize, SymbolFlags);

/// Dylibs, and whether hidden symbols are seen there.
pub(super) type Along = Vec<(usize, bool)>;

/// The properties of a lookup besides its symbols.
#[derive(Clone, Debug)]
pub(super) struct Asking {
    pub(super) along: Along,
    pub(super) by_task: bool,
    /// Some claim that asks.
    pub(super) asker: Option<usize>,
    pub(super) priority: Option<usize>,
    /// A thread blocks in it, holding the responsibility for some claim, and the turn of some queue.
    pub(super) holding: Option<(usize, Option<usize>)>,
}

#[derive(Clone, Debug)]
pub(super) enum Step {
    Define {
        dylib: usize,
        symbols: Vec<Symbol>,
        own: usize,
        queue: Option<usize>,
        known: bool,
        tracked: bool,
    },
    LookUpOne(usize, Asking),
    LookUp {
        names: Vec<usize>,
        ready: bool,
        asking: Asking,
    },
    Withdraw(usize),
    GoOn(usize),
    Begin(usize),
    Resolve(usize),
    Emit {
        claim: usize,
        needs: Vec<(usize, usize)>,
    },
    Fail(usize),
    Delegate {
        claim: usize,
        name: usize,
    },
    RemoveName {
        dylib: usize,
        name: usize,
    },
    RemoveTracker(usize),
    Clear(usize),
    ReplaceDylib {
        dylib: usize,
        anew: bool,
    },
    AddGenerator(usize),
    RemoveGenerator(usize),
    Generated {
        request: usize,
        succeeds: bool,
    },
    Slice,
    Drain,
    Close(bool),
}

fn symbol() -> impl Strategy<Value = Symbol> {
    let flags = prop_oneof![
        6 => Just(SymbolFlags::EXPORTED),
        3 => Just(SymbolFlags::EXPORTED | SymbolFlags::WEAK),
        2 => Just(SymbolFlags::empty()),
        1 => Just(SymbolFlags::EXPORTED | SymbolFlags::MATERIALIZATION_SIDE_EFFECTS_ONLY),
    ];
    (0..NAMES, flags)
}

fn asking() -> impl Strategy<Value = Asking> {
    let along = prop::collection::vec((0..DYLIBS, prop::bool::weighted(0.7)), 0..4);
    let holding = prop::option::weighted(0.3, (0usize..8, prop::option::weighted(0.3, 0..QUEUES)));
    let (asker, priority) = (prop::option::weighted(0.4, 0usize..8), prop::option::weighted(0.8, 0usize..4));
    (along, prop::bool::weighted(0.3), asker, priority, holding).prop_map(
        |(along, by_task, asker, priority, holding)| Asking { along, by_task, asker, priority, holding },
    )
}

pub(super) fn step() -> impl Strategy<Value = Step> {
    let define = (
        (0..DYLIBS, prop::collection::vec(symbol(), 1..3), prop_oneof![2 => Just(3usize), 1 => 0usize..4]),
        (prop::option::weighted(0.3, 0..QUEUES), prop::bool::weighted(0.15), prop::bool::weighted(0.3)),
    );
    let define = define.prop_map(|((dylib, symbols, own), (queue, known, tracked))| Step::Define {
        dylib,
        symbols,
        own,
        queue,
        known,
        tracked,
    });
    let names = prop::collection::vec(0..NAMES, 1..4);
    let needs = prop::collection::vec((0..DYLIBS, 0..NAMES), 0..3);
    let claim = 0usize..8;
    prop_oneof![
        30 => define,
        40 => (0..NAMES, asking()).prop_map(|(name, asking)| Step::LookUpOne(name, asking)),
        8 => (names, any::<bool>(), asking())
            .prop_map(|(names, ready, asking)| Step::LookUp { names, ready, asking }),
        6 => (0usize..8).prop_map(Step::Withdraw),
        6 => (0usize..8).prop_map(Step::GoOn),
        10 => claim.clone().prop_map(Step::Begin),
        12 => claim.clone().prop_map(Step::Resolve),
        12 => (claim.clone(), needs).prop_map(|(claim, needs)| Step::Emit { claim, needs }),
        3 => claim.clone().prop_map(Step::Fail),
        2 => (claim, 0..NAMES).prop_map(|(claim, name)| Step::Delegate { claim, name }),
        3 => (0..DYLIBS, 0..NAMES).prop_map(|(dylib, name)| Step::RemoveName { dylib, name }),
        2 => (0usize..8).prop_map(Step::RemoveTracker),
        1 => (0..DYLIBS).prop_map(Step::Clear),
        2 => (0..DYLIBS, any::<bool>()).prop_map(|(dylib, anew)| Step::ReplaceDylib { dylib, anew }),
        2 => (0..DYLIBS).prop_map(Step::AddGenerator),
        1 => (0usize..4).prop_map(Step::RemoveGenerator),
        4 => (0usize..4, any::<bool>())
            .prop_map(|(request, succeeds)| Step::Generated { request, succeeds }),
        8 => Just(Step::Slice),
        3 => Just(Step::Drain),
        1 => any::<bool>().prop_map(Step::Close),
    ]
}
