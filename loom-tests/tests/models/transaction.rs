//! Transaction: a reader beside one that changes two names at once sees both as they were or both as they are.
//!
//! ```text
//!  writer                                        reader of { one, two } along front, back
//!  transact                                       read the gate
//!    remove `one` from front                      read the record of `one`
//!    remove `two` from front                      read the record of `two`
//!    open the gate: one step of the version ──▶   the gate has moved? take the lock
//! ```
//!
//! Both names are Ready in `front`, which the reader searches first, and in `back` behind it, so that either half of
//! the transaction would be an answer that needs no lock.
//!
//! Proven, in every order with at most four preemptions: a lookup of both names finds both in one dylib; a lookup of
//! a name that is redefined finds a definition, the old one or the new one; a refused transaction is not
//! seen at all.
//!
//! **Fails if** one of these steps is changed:
//!
//! | weakening | in | caught by |
//! |---|---|---|
//! | `transaction::opens_the_gate_between_steps`: each step is a version of its own | `core/src/protocol/removal/transaction.rs` | `a_lookup_of_two_names_sees_a_transaction_whole` |
//! | `transaction::commits_step_by_step`: each step takes the lock anew | `core/src/transaction.rs` | `a_refused_transaction_is_not_seen` |
//! | `transaction::commits_step_by_step`: the same: between its removal and its definition the name is missing | `core/src/transaction.rs` | `a_name_that_is_redefined_is_defined_at_every_moment` |
#![cfg(uruk_loom)]

use loom_tests::stage::{Stage, model};
use uruk_core::sync::{Arc, thread};
use uruk_core::{
    ExecutionSession, ExecutorAddr, ExecutorSymbolDef, JitDylib, JitDylibLookupFlags, LookupRequest,
    LookupSet, MaterializationUnit, SearchOrder, SymbolFlags, SymbolName, absolute_symbols,
};

const FRONT: ExecutorAddr = ExecutorAddr::new(1);
const BACK: ExecutorAddr = ExecutorAddr::new(2);

fn at(names: &[SymbolName], address: ExecutorAddr) -> Box<dyn MaterializationUnit> {
    let definition = ExecutorSymbolDef::new(address, SymbolFlags::EXPORTED);
    absolute_symbols(names.iter().map(|name| (name.clone(), definition)).collect())
}

/// Two dylibs that define the same names, all Ready.
struct Layers {
    stage: Arc<Stage>,
    back: JitDylib,
    names: [SymbolName; 2],
}

impl Layers {
    fn new() -> Arc<Self> {
        let stage = Stage::new();
        let back = stage.session.create_jit_dylib("back").expect("a name of its own");
        let names = ["one", "two"].map(|name| stage.session.intern(name));
        for (dylib, address) in [(&stage.dylib, FRONT), (&back, BACK)] {
            dylib.define(at(&names, address)).expect("names are new");
            let order = SearchOrder::of(dylib);
            stage
                .session
                .lookup(LookupRequest::new(&order, LookupSet::required(names.clone())))
                .expect("defined");
        }
        Arc::new(Self { stage, back, names })
    }

    fn session(&self) -> &ExecutionSession {
        &self.stage.session
    }

    fn order(&self) -> SearchOrder {
        let mut order = self.stage.order();
        order.push(self.back.clone(), JitDylibLookupFlags::MatchAllSymbols);
        order
    }

    /// A thread of its own for the reader: the main thread's first look at the gate is never moved behind another
    /// thread's steps by the exploration.
    fn read_on_a_thread(self: Arc<Self>) -> thread::JoinHandle<[ExecutorAddr; 2]> {
        thread::spawn(move || self.addresses())
    }

    fn addresses(&self) -> [ExecutorAddr; 2] {
        let found =
            self.session().lookup(LookupRequest::new(self.order(), LookupSet::required(self.names.clone())));
        let found = found.expect("both names are defined at every moment");
        [0, 1].map(|index: usize| found[&self.names[index]].address)
    }
}

#[test]
fn a_lookup_of_two_names_sees_a_transaction_whole() {
    model(|| {
        let layers = Layers::new();
        let reader = layers.clone().read_on_a_thread();
        let ([one, two], front) = (layers.names.clone(), &layers.stage.dylib);
        layers.session().transaction().remove(front, [one]).remove(front, [two]).commit().expect("Ready");
        let seen = reader.join().expect("no panic");
        assert!(seen == [FRONT; 2] || seen == [BACK; 2], "half a transaction: {seen:?}");
        assert_eq!(layers.addresses(), [BACK; 2]);
    });
}

#[test]
fn a_name_that_is_redefined_is_defined_at_every_moment() {
    const NEW: ExecutorAddr = ExecutorAddr::new(3);
    model(|| {
        let stage = Stage::new();
        let name = stage.session.intern("name");
        stage.dylib.define(at(std::slice::from_ref(&name), FRONT)).expect("a new name");
        stage.lookup(&name).expect("defined");
        let reader = stage.lookup_beside(&name);
        let remove = stage.session.transaction().remove(&stage.dylib, [name.clone()]);
        remove.define(&stage.dylib, at(std::slice::from_ref(&name), NEW)).commit().expect("Ready");
        let seen = reader.join().expect("no panic").expect("defined at every moment").address;
        assert!(seen == FRONT || seen == NEW);
        assert_eq!(stage.lookup(&name).expect("defined").address, NEW);
    });
}

#[test]
fn a_refused_transaction_is_not_seen() {
    model(|| {
        let layers = Layers::new();
        let reader = layers.clone().read_on_a_thread();
        let ([one, _], front) = (layers.names.clone(), &layers.stage.dylib);
        let missing = layers.session().intern("missing");
        let refused = layers.session().transaction().remove(front, [one]).remove(front, [missing]).commit();
        assert!(refused.is_err());
        assert_eq!(reader.join().expect("no panic"), [FRONT; 2]);
    });
}

loom_tests::catches_its_weakenings!();
