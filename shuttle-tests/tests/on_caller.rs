//! On the caller: lookups that run on their own thread what they claim, beside workers that do the same, and a close.
//!
//! ```text
//!  unit i:    needs some of s(i+1) .. s(n), one after another, each by a lookup on its own thread or by one for the dispatcher;
//!             its address is one more than the sum of theirs
//!  before:    some symbols are asked for, by handlers
//!  outside:   threads look some up on themselves           closer: close
//! ```
//!
//! Held in every schedule tried: what was asked for before the close is answered; a unit's lookups are served to the end; threads
//! outside are answered, or told of the closing; all addresses are those that a plain sum over the graph gives; no unit starts in a session
//! that is closed.
//!
//! Each lookup asks for one symbol. The units of one that asks for several lie on one stack in some order, which may be a cycle of the
//! stack's (`core/src/session/README.md`, *In place*).
//!
//! **Fails if** this step is left out (`it_notices_a_close_that_overtakes` leaves it out):
//!
//! | weakening | in |
//! |---|---|
//! | `close::excuses_who_has_its_answer`: a task that has its answer is excused until it wakes | `core/src/session/drain.rs` |
#![cfg(uruk_shuttle)]

mod common;
mod weakenings;

use common::explore;
use shuttle::rand::{Rng, thread_rng};
use shuttle::scheduler::RandomScheduler;
use uruk_core::sync::atomic::{AtomicBool, Ordering};
use uruk_core::sync::{Arc, Mutex, thread};
use uruk_core::{
    ExecutionSession, ExecutorAddr, ExecutorSymbolDef, JitDylib, LookupError, LookupRequest, LookupSet,
    MaterializationInterface, MaterializationResponsibility, MaterializationUnit, SearchOrder, SymbolFlags,
    SymbolMap, SymbolName,
};
use uruk_dispatch::WorkStealingTaskDispatcher;

#[test]
fn units_on_their_callers_end_with_the_same_answers_or_the_close() {
    explore(RandomScheduler::new, 500, || {
        let stage = Arc::new(Stage::new());
        let mut random = thread_rng();
        let before: Vec<_> =
            some_of(0..stage.names.len()).into_iter().map(|index| stage.ask(index)).collect();
        let askers: Vec<_> = (0..random.gen_range(1..=3))
            .map(|_| {
                let (stage, wanted) = (stage.clone(), some_of(0..stage.names.len()));
                thread::spawn(move || wanted.into_iter().for_each(|index| stage.look_up_here(index)))
            })
            .collect();
        stage.session.close().expect("nothing refuses to go");
        // Relaxed, here and below: shuttle's atomics are sequentially consistent.
        stage.closed.store(true, Ordering::Relaxed);
        for answer in before {
            let answer = answer.lock().take().expect("told when the close returns");
            answer.expect("it was asked for before the close");
        }
        askers.into_iter().for_each(|asker| asker.join().expect("no panic"));
        assert!(!stage.late.load(Ordering::Relaxed), "a unit has started in a closed session");
    });
}

#[test]
fn it_notices_a_close_that_overtakes() {
    let steps = ["close::excuses_who_has_its_answer"];
    weakenings::demand_noticed("units_on_their_callers_end_with_the_same_answers_or_the_close", &steps);
}

struct Stage {
    session: ExecutionSession,
    dylib: JitDylib,
    names: Vec<SymbolName>,
    addresses: Vec<u64>,
    closed: Arc<AtomicBool>,
    late: Arc<AtomicBool>,
}

type Told = Arc<Mutex<Option<Result<(), LookupError>>>>;

impl Stage {
    /// A graph of units without a cycle, on a pool.
    fn new() -> Self {
        let mut random = thread_rng();
        let units = random.gen_range(1..=5);
        let pool = WorkStealingTaskDispatcher::builder().workers(random.gen_range(1..=3)).build();
        let pool = Arc::new(pool.expect("so few workers"));
        let session = ExecutionSession::builder().dispatcher(pool).build();
        let dylib = session.create_jit_dylib("main").expect("it is new");
        let names: Vec<_> = (0..units).map(|index| session.intern(&format!("s{index}"))).collect();
        let (closed, late) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let mut addresses = vec![0; units];
        for index in (0..units).rev() {
            let needs = some_of(index + 1..units);
            addresses[index] = 1 + needs.iter().map(|&need| addresses[need]).sum::<u64>();
            let unit = Unit {
                name: names[index].clone(),
                needs: needs.into_iter().map(|need| (names[need].clone(), random.gen_bool(0.5))).collect(),
                closed: closed.clone(),
                late: late.clone(),
            };
            dylib.define(Box::new(unit)).expect("it is new");
        }
        Self { session, dylib, names, addresses, closed, late }
    }

    fn request(&self, index: usize) -> LookupRequest {
        request(&self.dylib, &self.names[index])
    }

    /// Asks for a symbol, and checks what is told of it.
    fn ask(&self, index: usize) -> Told {
        let told = Told::default();
        let (tell, name, address) = (told.clone(), self.names[index].clone(), self.addresses[index]);
        self.session.lookup_async(self.request(index), move |found| {
            let found = found.map(|found| assert_eq!(found[&name].address.value(), address));
            assert!(tell.lock().replace(found).is_none(), "told once");
        });
        told
    }

    fn look_up_here(&self, index: usize) {
        match self.session.lookup(self.request(index).here()) {
            Ok(found) => assert_eq!(found[&self.names[index]].address.value(), self.addresses[index]),
            Err(LookupError::Closed) => {}
            Err(error) => panic!("neither found nor closed: {error}"),
        }
    }
}

fn request(dylib: &JitDylib, name: &SymbolName) -> LookupRequest {
    LookupRequest::new(SearchOrder::of(dylib), LookupSet::one(name.clone()))
}

struct Unit {
    name: SymbolName,
    /// The symbols it needs, and whether it looks them up on its own thread.
    needs: Vec<(SymbolName, bool)>,
    closed: Arc<AtomicBool>,
    /// Set by a unit that starts when the session is closed: a panic of the unit would end with it.
    late: Arc<AtomicBool>,
}

impl MaterializationUnit for Unit {
    fn name(&self) -> &str {
        self.name.as_str()
    }

    fn interface(&self) -> MaterializationInterface {
        MaterializationInterface::new([(self.name.clone(), SymbolFlags::EXPORTED)].into_iter().collect())
    }

    fn materialize(self: Box<Self>, responsibility: MaterializationResponsibility) {
        self.late.fetch_or(self.closed.load(Ordering::Relaxed), Ordering::Relaxed);
        let (session, dylib) = (responsibility.session().clone(), responsibility.dylib().clone());
        let address = |(name, here): &(SymbolName, bool)| {
            let found = match here {
                true => session.lookup(request(&dylib, name).here()),
                false => session.lookup(request(&dylib, name)),
            };
            found.expect("what a unit asks for is served")[name].address.value()
        };
        let sum: u64 = self.needs.iter().map(address).sum();
        let at = ExecutorSymbolDef::new(ExecutorAddr::new(sum + 1), SymbolFlags::EXPORTED);
        let addresses: SymbolMap = [(self.name.clone(), at)].into_iter().collect();
        let resolved = responsibility.notify_resolved(&addresses).expect("its session waits for it");
        resolved.notify_emitted(Vec::new()).expect("its session waits for it");
    }

    fn discard(&mut self, _: &JitDylib, _: &SymbolName) {}
}

/// A random part of a range.
fn some_of(range: std::ops::Range<usize>) -> Vec<usize> {
    range.filter(|_| thread_rng().gen_bool(0.5)).collect()
}
