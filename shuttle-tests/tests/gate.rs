//! Gate: sets of names looked up while each is redefined, shadowed and unshadowed, with nothing else in the way.
//!
//! ```text
//!   d0 shadows d1; every definition is an absolute symbol at the number of its version
//!
//!   changer, for each version                        readers
//!     started += 1                                     first = completed
//!     in one transaction, for each name: redefine      look all names up along d0, d1
//!       it in d1 or in d0, or remove it from d0        last = started
//!     completed += 1
//!     look all names up: they are Ready
//! ```
//!
//! Held in every schedule tried (I13): all names of an answer are of one version, and that is one of `first..=last`. Each
//! transaction changes the names step by step, so an answer of two versions would show any moment in between.
//!
//! A failure here takes a reader that sleeps while a whole transaction runs, or the other way round. Schedules that switch at
//! each step hardly ever do that: these switch at a few random places. `URUK_SHUTTLE_SEED` sets their seed, which a failure
//! prints.
//!
//! `ready.rs` has the larger scenario, in which the lock is taken most of the time; here nearly every lookup is answered
//! without it, by records that are about to change.
#![cfg(uruk_shuttle)]

mod common;
mod weakenings;

use std::hash::{BuildHasher, RandomState};

use common::explore;
use shuttle::rand::{Rng, thread_rng};
use shuttle::scheduler::PctScheduler;
use uruk_core::sync::atomic::{AtomicUsize, Ordering};
use uruk_core::sync::{Arc, thread};
use uruk_core::{
    ExecutionSession, ExecutorAddr, ExecutorSymbolDef, JitDylib, JitDylibLookupFlags, LookupRequest,
    LookupSet, MaterializationUnit, SearchOrder, SymbolFlags, SymbolName, Transaction, absolute_symbols,
};

/// At so many places a schedule leaves a thread that could go on.
const SWITCHES: usize = 4;
const NAMES: usize = 2;
const VERSIONS: usize = 3;
const READERS: usize = 2;
const LOOKUPS_EACH: usize = 3;

#[test]
fn all_names_of_an_answer_are_of_one_version() {
    let seed = std::env::var("URUK_SHUTTLE_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or_else(|| RandomState::new().hash_one(NAMES));
    let schedules = |iterations| PctScheduler::new_from_seed(seed, SWITCHES, iterations);
    let scenario = || {
        let stage = Arc::new(Stage::new());
        let spawn = |run: fn(&Stage)| {
            let stage = stage.clone();
            thread::spawn(move || run(&stage))
        };
        let mut threads = vec![spawn(Stage::change)];
        threads.extend((0..READERS).map(|_| spawn(Stage::read)));
        for thread in threads {
            thread.join().expect("no panic");
        }
    };
    let explored = std::panic::catch_unwind(|| explore(schedules, 30_000, scenario));
    assert!(
        explored.is_ok(),
        "a schedule failed, see above; URUK_SHUTTLE_SEED={seed} runs the same ones again"
    );
}

#[test]
fn it_notices_a_gate_that_does_not_hold() {
    let steps = [
        "publish::gate_stays_open",
        "publish::looks_once",
        "publish::version_stays",
        "ready::answers_what_is_not_ready",
        "transaction::opens_the_gate_between_steps",
    ];
    weakenings::demand_noticed("all_names_of_an_answer_are_of_one_version", &steps);
}

struct Stage {
    session: ExecutionSession,
    dylibs: [JitDylib; 2],
    order: SearchOrder,
    names: [SymbolName; NAMES],
    /// The changes, version by version.
    plan: Vec<Change>,
    started: AtomicUsize,
    completed: AtomicUsize,
}

/// The change that a transaction makes to all names.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Change {
    /// They are new, in the dylib that others shadow.
    Redefine,
    /// They are new, in front of the others.
    Shadow,
    /// The definitions behind them are found again.
    Unshadow,
}

impl Stage {
    fn new() -> Self {
        let session = ExecutionSession::new();
        let dylibs = ["d0", "d1"].map(|name| session.create_jit_dylib(name).expect("it is new"));
        let all = JitDylibLookupFlags::MatchAllSymbols;
        let stage = Self {
            order: dylibs.iter().map(|dylib| (dylib.clone(), all)).collect(),
            names: ["a", "b"].map(|name| session.intern(name)),
            plan: plan(),
            started: AtomicUsize::new(0),
            completed: AtomicUsize::new(0),
            dylibs,
            session,
        };
        for name in &stage.names {
            stage.dylibs[1].define(Self::at(name, 0)).expect("it is new");
        }
        stage.look_up();
        stage
    }

    /// A unit of one name, at the number of a version.
    fn at(name: &SymbolName, version: usize) -> Box<dyn MaterializationUnit> {
        // The null address is no address.
        let address = ExecutorAddr::new(1 + version as u64);
        let definition = ExecutorSymbolDef::new(address, SymbolFlags::EXPORTED);
        absolute_symbols([(name.clone(), definition)].into_iter().collect())
    }

    /// The version in which all names were defined.
    fn look_up(&self) -> usize {
        let found = self
            .session
            .lookup(LookupRequest::new(&self.order, LookupSet::required(self.names.iter().cloned())));
        let found = found.expect("each name is always defined somewhere");
        let versions = self.names.each_ref().map(|name| found[name].address.value() as usize - 1);
        assert!(
            versions.iter().all(|version| *version == versions[0]),
            "one answer of versions {versions:?}"
        );
        versions[0]
    }

    /// The version whose definitions are seen after `version`.
    fn seen_after(&self, version: usize) -> usize {
        let (mut behind, mut shadow) = (0, None);
        for (version, change) in (1..=version).zip(&self.plan) {
            match change {
                Change::Redefine => behind = version,
                Change::Shadow => shadow = Some(version),
                Change::Unshadow => shadow = None,
            }
        }
        shadow.unwrap_or(behind)
    }

    fn change(&self) {
        let [shadow, behind] = &self.dylibs;
        for (version, change) in (1..).zip(&self.plan) {
            // Relaxed, here and below: shuttle's atomics are sequentially consistent.
            self.started.store(version, Ordering::Relaxed);
            let step = |transaction: Transaction, name: &SymbolName| match change {
                Change::Redefine => transaction.redefine(behind, Self::at(name, version)),
                Change::Shadow => transaction.redefine(shadow, Self::at(name, version)),
                Change::Unshadow => transaction.remove(shadow, [name.clone()]),
            };
            let transaction = self.names.iter().fold(self.session.transaction(), step);
            transaction.commit().expect("nothing is at work, and nothing is missing");
            self.completed.store(version, Ordering::Relaxed);
            assert_eq!(self.look_up(), self.seen_after(version), "nobody else changes anything");
        }
    }

    fn read(&self) {
        for _ in 0..LOOKUPS_EACH {
            // Relaxed, here and below: shuttle's atomics are sequentially consistent.
            let first = self.completed.load(Ordering::Relaxed);
            let told = self.look_up();
            let last = self.started.load(Ordering::Relaxed);
            let seen = |version| self.seen_after(version) == told;
            assert!((first..=last).any(seen), "{told} was not seen from {first} to {last}");
        }
    }
}

/// Random changes, in which a removal follows its definition.
fn plan() -> Vec<Change> {
    let mut shadows = false;
    let change = |_| {
        let change = match (shadows, thread_rng().gen_bool(0.5)) {
            (false, true) => Change::Redefine,
            (false, false) | (true, true) => Change::Shadow,
            (true, false) => Change::Unshadow,
        };
        shadows = change == Change::Shadow;
        change
    };
    (0..VERSIONS).map(change).collect()
}
