//! Redefine: functions that are called for the first time and ever again, get other bodies and better ones, and lose their old ones.
//!
//! ```text
//!  caller, inside            redefiner, of some functions at once     promoter
//!    slot: bound? call it      under each function's lock:              which body is bound?
//!    otherwise find the          define the next body; perhaps          define a better one, find it
//!    body, bind, call it           find it at once                      promote, or count again
//!    checkpoint, or leave        lead the stub there
//!                                remove the body before
//! ```
//!
//! Cells and guards are the pipeline's own files, and the session is real: bodies are units that are looked up on the thread that wants
//! them. A body's address is its number, and its code is freed when its tracker and everybody inside have let it go.
//!
//! Held in every schedule tried: a call fails for no removal and no redefinition; the body that it reaches is not freed; its
//! generation is at least the one defined when the call began, and its definition had begun before the call ended; no caller
//! sees an older or a worse body after a newer or a better one. In the end the slots lead to the better bodies of the last
//! generations, all code is freed, and nothing waits.
//!
//! **Fails if** one of these steps is left out (`it_notices_each_step_that_is_left_out` leaves them out):
//!
//! | weakening | in |
//! |---|---|
//! | `redirect::binds_an_older_body`, `redirect::fails_for_an_older_body`, `redirect::leaves_the_slot` | `pipeline/src/lazy/cell.rs` |
//! | `promote::binds_again`, `promote::overtakes_a_redirection` | `pipeline/src/lazy/cell.rs` |
//! | `guard::does_not_look_again` | `pipeline/src/guard/slots.rs` |
#![cfg(uruk_shuttle)]

#[expect(dead_code, reason = "nobody asks where a stub leads")]
#[path = "../../pipeline/src/lazy/cell.rs"]
mod cell;
mod common;
#[expect(dead_code, reason = "names of threads are for messages")]
#[path = "../../pipeline/src/guard/slots.rs"]
mod slots;
#[path = "../../loom-tests/support/stub.rs"]
mod stub;
mod weakenings;

use std::collections::BTreeMap;

use cell::{Cell, JumpWord as _};
use common::explore;
use shuttle::rand::{Rng, thread_rng};
use shuttle::scheduler::RandomScheduler;
use slots::ReaderSlots;
use stub::Word;
use uruk_core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use uruk_core::sync::{Arc, Mutex, thread};
use uruk_core::{
    ExecutionSession, ExecutorAddr, ExecutorSymbolDef, JitDylib, LookupError, LookupRequest, LookupSet,
    MaterializationInterface, MaterializationResponsibility, MaterializationUnit, ResourceTracker,
    SearchOrder, SymbolFlags, SymbolMap, SymbolName,
};
use uruk_dispatch::WorkStealingTaskDispatcher;

/// Shuttle's atomics are sequentially consistent, and threads are switched at accesses alone.
mod barrier {
    pub(super) fn light() {}
    pub(super) fn heavy() {}
}

const FUNCTIONS: usize = 2;
const CALLERS: usize = 2;
const REDEFINERS: usize = 2;
const REDEFINITIONS_EACH: usize = 2;
const CALLS_EACH: usize = 5;
const PROMOTIONS: usize = 3;
/// How often the promoter looks for something to promote.
const LOOKS: usize = 20;
const GENERATIONS: usize = REDEFINERS * REDEFINITIONS_EACH + 1;

#[test]
fn whoever_calls_reaches_what_is_defined() {
    explore(RandomScheduler::new, 1_500, || {
        let stage = Arc::new(Stage::new());
        let spawn = |run: fn(&Stage)| {
            let stage = stage.clone();
            thread::spawn(move || run(&stage))
        };
        let mut threads: Vec<_> = (0..CALLERS).map(|_| spawn(Stage::call)).collect();
        threads.extend((0..REDEFINERS).map(|_| spawn(Stage::redefine)));
        threads.push(spawn(Stage::promote));
        threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
        stage.end();
    });
}

#[test]
fn it_notices_each_step_that_is_left_out() {
    let steps = [
        "redirect::binds_an_older_body",
        "redirect::fails_for_an_older_body",
        "redirect::leaves_the_slot",
        "promote::binds_again",
        "promote::overtakes_a_redirection",
        "guard::does_not_look_again",
    ];
    weakenings::demand_noticed("whoever_calls_reaches_what_is_defined", &steps);
}

/// One body: of which function, which generation, and whether it is the better one. A caller sees the bodies of a function in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Body {
    function: usize,
    generation: usize,
    is_better: bool,
}

impl Body {
    const COUNT: usize = 2 * FUNCTIONS * GENERATIONS;

    fn first(function: usize, generation: usize) -> Self {
        Self { function, generation, is_better: false }
    }

    fn number(self) -> usize {
        2 * (self.function * GENERATIONS + self.generation) + usize::from(self.is_better)
    }

    /// The null address is no address.
    fn address(self) -> ExecutorAddr {
        ExecutorAddr::new(1 + self.number() as u64)
    }

    fn at(address: u64) -> Self {
        let number = address as usize - 1;
        let (function, generation) = (number / 2 / GENERATIONS, number / 2 % GENERATIONS);
        Self { function, generation, is_better: number % 2 == 1 }
    }
}

/// Which code has been freed. Relaxed, in all of this file: shuttle's atomics are sequentially consistent.
type Freed = Arc<[AtomicBool; Body::COUNT]>;

/// The code of a body.
struct Code {
    body: Body,
    freed: Freed,
}

impl Drop for Code {
    fn drop(&mut self) {
        self.freed[self.body.number()].store(true, Ordering::Relaxed);
    }
}

/// Code that is linked: what the tracker of each body has.
type Linked = Arc<Mutex<BTreeMap<usize, Arc<Code>>>>;

struct Function {
    cell: Cell<Body, Word>,
    slot: Word,
    /// The generation that calls reach at least.
    reached: AtomicU64,
    /// The last generation whose definition has begun.
    begun: AtomicU64,
    /// The number after the last generation that went up.
    promoted: AtomicU64,
    /// Of the body that it has. Held while it is redefined.
    body: Mutex<(Body, ResourceTracker)>,
}

struct Stage {
    session: ExecutionSession,
    bodies: JitDylib,
    linked: Linked,
    freed: Freed,
    guards: ReaderSlots<Arc<Code>, u64>,
    functions: Vec<Function>,
    /// Trackers of bodies that were not removed, which may get better ones.
    trackers: Mutex<BTreeMap<usize, ResourceTracker>>,
}

impl Stage {
    fn new() -> Self {
        let pool = WorkStealingTaskDispatcher::builder().workers(1).build().expect("one worker");
        let session = ExecutionSession::builder().dispatcher(Arc::new(pool)).build();
        let bodies = session.create_jit_dylib("bodies").expect("it is new");
        let mut stage = Self {
            session,
            bodies,
            linked: Linked::default(),
            freed: Arc::new(std::array::from_fn(|_| AtomicBool::new(false))),
            guards: ReaderSlots::new(),
            functions: Vec::new(),
            trackers: Mutex::default(),
        };
        for function in 0..FUNCTIONS {
            let body = Body::first(function, 0);
            let tracker = stage.add_first(body);
            stage.functions.push(Function {
                cell: Cell::new(body),
                slot: Word::new(),
                reached: AtomicU64::new(0),
                begun: AtomicU64::new(0),
                promoted: AtomicU64::new(0),
                body: Mutex::new((body, tracker)),
            });
        }
        stage
    }

    fn name(&self, body: Body) -> SymbolName {
        self.session.intern(&format!("f{}", body.number()))
    }

    fn add_first(&self, body: Body) -> ResourceTracker {
        let tracker = self.bodies.create_tracker();
        self.bodies.define_with_tracker(self.unit(body), &tracker).expect("it is new");
        self.trackers.lock().insert(body.number(), tracker.clone());
        tracker
    }

    fn unit(&self, body: Body) -> Box<dyn MaterializationUnit> {
        let (linked, freed) = (self.linked.clone(), self.freed.clone());
        Box::new(Unit { name: self.name(body), body, linked, freed })
    }

    /// Finds a body on this thread, and holds its code.
    fn find(&self, body: Body) -> Result<(ExecutorAddr, Arc<Code>), LookupError> {
        let name = self.name(body);
        let request =
            || LookupRequest::new(SearchOrder::of(&self.bodies), LookupSet::required([name.clone()]));
        loop {
            let found = self.session.lookup(request().here())?;
            let definition = found.dependency(&name).expect("it was found");
            let hold = || self.linked.lock().get(&body.number()).cloned();
            if let Some(held) = self.session.while_present(definition, hold)? {
                be_slow();
                return Ok((found[&name].address, held.expect("what is present is linked")));
            }
        }
    }

    /// Removes a body, and the better one with it. Code that a thread inside runs stays.
    fn remove(&self, body: Body, tracker: &ResourceTracker) {
        self.trackers.lock().remove(&body.number());
        tracker.remove().expect("nothing of it objects");
        for body in [body, Body { is_better: true, ..body }] {
            let code = self.linked.lock().remove(&body.number());
            if let Some(code) = code {
                self.guards.retire(code, None, |code| code);
            }
        }
    }

    fn call(&self) {
        let reader = self.guards.register("caller".into());
        let mut last: [Option<Body>; FUNCTIONS] = [None; FUNCTIONS];
        self.guards.enter(&reader);
        for _ in 0..CALLS_EACH {
            let number = thread_rng().gen_range(0..FUNCTIONS);
            let function = &self.functions[number];
            let reached = function.reached.load(Ordering::Relaxed) as usize;
            let address = function.slot.body().unwrap_or_else(|| {
                let (find, calls) = (|&body: &Body| self.find(body), |_: &Body| Some(1));
                let bound = function.cell.bind(&function.slot, find, |_, held| held, calls);
                bound.expect("some body is always there").value()
            });
            let body = Body::at(address);
            assert!(!self.freed[body.number()].load(Ordering::Relaxed), "{body:?} is freed");
            let begun = function.begun.load(Ordering::Relaxed) as usize;
            assert_eq!(body.function, number);
            assert!((reached..=begun).contains(&body.generation), "{body:?} is not in {reached}..={begun}");
            assert!(last[number].is_none_or(|last| last <= body), "{body:?} after {:?}", last[number]);
            last[number] = Some(body);
            if thread_rng().gen_bool(0.5) {
                self.guards.checkpoint(&reader);
            }
        }
        self.guards.leave(&reader);
        self.guards.unregister(&reader);
    }

    fn redefine(&self) {
        for _ in 0..REDEFINITIONS_EACH {
            // In order, so that two redefiners do not wait for each other.
            let chosen: Vec<_> = self.functions.iter().filter(|_| thread_rng().gen_bool(0.6)).collect();
            let mut bodies: Vec<_> = chosen.iter().map(|function| function.body.lock()).collect();
            let next =
                |(function, of): (&&Function, &uruk_core::sync::MutexGuard<'_, (Body, ResourceTracker)>)| {
                    let body = Body::first(of.0.function, of.0.generation + 1);
                    function.begun.store(body.generation as u64, Ordering::Relaxed);
                    (body, self.add_first(body))
                };
            let next: Vec<_> = chosen.iter().zip(&bodies).map(next).collect();
            let is_lazy = thread_rng().gen_bool(0.5);
            let ready = next
                .iter()
                .map(|(body, _)| (!is_lazy).then(|| self.find(*body).expect("nobody removes it")).unzip());
            let ready: Vec<(Option<ExecutorAddr>, Option<Arc<Code>>)> = ready.collect();
            for ((function, (body, _)), (address, held)) in chosen.iter().zip(&next).zip(ready) {
                drop((function.cell.redirect(*body, address, |_| (), Word::store), held));
            }
            for ((function, of), next) in chosen.iter().zip(&mut bodies).zip(next) {
                function.reached.store(next.0.generation as u64, Ordering::Relaxed);
                let (body, tracker) = std::mem::replace(&mut **of, next);
                self.remove(body, &tracker);
            }
        }
    }

    fn promote(&self) {
        for _ in 0..PROMOTIONS {
            let function = &self.functions[thread_rng().gen_range(0..FUNCTIONS)];
            let mut looks = (0..LOOKS).filter_map(|_| {
                thread::yield_now();
                function.cell.bound()
            });
            let Some((generation, body, _)) = looks.next() else { continue };
            let better = Body { is_better: true, ..body };
            let tracker = self.trackers.lock().get(&body.number()).cloned();
            // It may be defined already, if it was promoted before, or have been removed.
            let define = |tracker| self.bodies.define_with_tracker(self.unit(better), &tracker).ok();
            let found = tracker.and_then(define).and_then(|()| self.find(better).ok());
            match found {
                Some((address, held)) => {
                    if function.cell.promote(generation, address, || ()).is_some() {
                        function.promoted.store(body.generation as u64 + 1, Ordering::Relaxed);
                    }
                    drop(held);
                }
                None => function.cell.count_again(generation, Some(1)),
            }
        }
    }

    fn end(&self) {
        for function in &self.functions {
            let (body, tracker) = &*function.body.lock();
            if function.promoted.load(Ordering::Relaxed) == body.generation as u64 + 1 {
                let better = Body { is_better: true, ..*body }.address().value();
                assert_eq!(function.slot.body(), Some(better), "a better body stays");
            }
            self.remove(*body, tracker);
        }
        self.session.close().expect("nothing refuses to go");
        assert_eq!(self.guards.pending(|_| 0).0, 0, "something waits for nobody");
        assert!(self.linked.lock().is_empty(), "code is left that nobody removes");
    }
}

/// Now and then a thread is late with its result.
fn be_slow() {
    if thread_rng().gen_bool(0.3) {
        (0..thread_rng().gen_range(1..60)).for_each(|_| thread::yield_now());
    }
}

struct Unit {
    name: SymbolName,
    body: Body,
    linked: Linked,
    freed: Freed,
}

impl MaterializationUnit for Unit {
    fn name(&self) -> &str {
        self.name.as_str()
    }

    fn interface(&self) -> MaterializationInterface {
        MaterializationInterface::new([(self.name.clone(), SymbolFlags::EXPORTED)].into_iter().collect())
    }

    /// Links the code, and takes it back if it was removed meanwhile.
    fn materialize(self: Box<Self>, responsibility: MaterializationResponsibility) {
        let Self { name, body, linked, freed } = *self;
        let at = ExecutorSymbolDef::new(body.address(), SymbolFlags::EXPORTED);
        let addresses: SymbolMap = [(name, at)].into_iter().collect();
        linked.lock().insert(body.number(), Arc::new(Code { body, freed }));
        let resolved = responsibility.notify_resolved(&addresses).map_err(|refused| drop(refused.fail()));
        let emitted = resolved
            .and_then(|resolved| resolved.notify_emitted(Vec::new()).map_err(|refused| drop(refused.fail())));
        if emitted.is_err() {
            let code = linked.lock().remove(&body.number());
            drop(code);
        }
    }

    fn discard(&mut self, _: &JitDylib, _: &SymbolName) {}
}
