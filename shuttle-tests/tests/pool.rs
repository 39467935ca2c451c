//! Pool: units that block on each other, in random graphs without cycles, on a pool of few workers.
//!
//! ```text
//!  unit i:    asks for some of s(i+1) .. s(n) and waits, then resolves and emits
//!  outside:   two threads ask for some of all
//! ```
//!
//! Held in every schedule tried: everybody is answered, though fewer workers than units that wait for each other run (I8, no
//! deadlock), each unit is started once (I1), and the pool shuts down with every thread joined.
#![cfg(uruk_shuttle)]

mod common;
mod scripted;

use common::explore;
use scripted::{Scripted, all_at};
use shuttle::rand::{Rng, thread_rng};
use shuttle::scheduler::RandomScheduler;
use uruk_core::sync::atomic::{AtomicUsize, Ordering};
use uruk_core::sync::{Arc, thread};
use uruk_core::{
    ExecutionSession, JitDylibLookupFlags, LookupRequest, LookupSet, SearchOrder, SymbolFlags, SymbolName,
};
use uruk_dispatch::WorkStealingTaskDispatcher;

const UNITS: usize = 5;

#[test]
fn units_that_block_on_each_other_all_end() {
    explore(RandomScheduler::new, 400, || {
        let workers = thread_rng().gen_range(1..=2);
        let pool = WorkStealingTaskDispatcher::builder().workers(workers).build().expect("so few workers");
        let session = ExecutionSession::builder().dispatcher(Arc::new(pool)).build();
        let dylib = session.create_jit_dylib("main").expect("it is new");
        let order: SearchOrder = [(dylib.clone(), JitDylibLookupFlags::MatchAllSymbols)].into();
        let names: Vec<_> = (0..UNITS).map(|index| session.intern(&format!("s{index}"))).collect();
        let started = Arc::new(AtomicUsize::new(0));
        for index in 0..UNITS {
            let needs = some_of(&names[index + 1..]);
            let (order, started) = (order.clone(), started.clone());
            let unit =
                Scripted::new([(names[index].clone(), SymbolFlags::EXPORTED)], move |responsibility| {
                    // Relaxed: shuttle's atomics are sequentially consistent.
                    started.fetch_add(1, Ordering::Relaxed);
                    let found = responsibility
                        .session()
                        .lookup(LookupRequest::new(&order, LookupSet::required(needs.clone())));
                    assert_eq!(found.expect("all of them are defined").len(), needs.len());
                    let addresses = all_at(&responsibility, index as u64 + 1);
                    let resolved = responsibility.notify_resolved(&addresses).expect("nothing is removed");
                    resolved.notify_emitted(Vec::new()).expect("nothing is removed");
                });
            dylib.define(unit).expect("it is new");
        }
        let ask = || {
            let (session, order, wanted) = (session.clone(), order.clone(), some_of(&names));
            thread::spawn(move || {
                let found = session.lookup(LookupRequest::new(&order, LookupSet::required(wanted.clone())));
                assert_eq!(found.expect("all of them are defined").len(), wanted.len());
            })
        };
        let askers = [ask(), ask()];
        let all = session
            .lookup(LookupRequest::new(&order, LookupSet::required(names.clone())))
            .expect("all are defined");
        for (index, name) in names.iter().enumerate() {
            assert_eq!(all[name].address.value(), index as u64 + 1);
        }
        for asker in askers {
            asker.join().expect("no panic");
        }
        assert_eq!(started.load(Ordering::Relaxed), UNITS, "each unit is started once");
        session.close().expect("nothing refuses to go");
    });
}

/// A random part of `names`.
fn some_of(names: &[SymbolName]) -> Vec<SymbolName> {
    names.iter().filter(|_| thread_rng().gen_bool(0.5)).cloned().collect()
}
