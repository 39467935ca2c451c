//! How long a demanded symbol takes while the pool has much background work.
//!
//! The result is the time until a worker is free: the rest of a running task, of which each takes [`TASK`]. It must not grow
//! with the number of queued tasks. `first_result` looks up symbols that were not queued before. `raised_result` looks up those
//! whose units are the last of the queue, so that the lookup has to make them urgent.
//!
//! If other programs keep the processors busy, `raised_result` measures them more than us. The thread that looks up is answered
//! within two tasks, and then waits for a processor, milliseconds if it was put onto that of the worker. So the case also
//! reports when the wanted unit began (`begun_after_ns`, `begun_after_ns_of_1000`): up to there the time is the scheduler's,
//! and the rest is the system's. A worker that turns from demanded tasks to the background yields; without that it took 3 ms
//! behind 300 tasks.

use std::cell::RefCell;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use uruk_core::sync::atomic::{AtomicBool, Ordering};
use uruk_core::sync::{Arc, hint};
use uruk_core::{
    ExecutionSession, ExecutorAddr, ExecutorSymbolDef, JitDylib, JitDylibLookupFlags, LookupRequest,
    LookupSet, MaterializationInterface, MaterializationResponsibility, MaterializationUnit, SearchOrder,
    SymbolFlags, SymbolMap, SymbolName, Task, TaskDispatcher, TaskPriority,
};
use uruk_dispatch::WorkStealingTaskDispatcher;

use crate::Case;
use crate::measure::{Measured, Scale, Taken, processor_time};
use crate::measuring::median;

/// The duration of a background task.
const TASK: Duration = Duration::from_micros(20);

/// Symbols looked up one after another in a repetition, so few that hardly any of the queue is worked off meanwhile.
const SYMBOLS: usize = 20;

/// Engines of which each is asked for one symbol whose unit is queued.
const RAISED: usize = 9;

const FEW: usize = 1_000;
const MANY: usize = 10_000;

pub(crate) fn cases() -> Vec<Case> {
    let first = |threads| Case {
        name: "first_result",
        threads,
        operation: "a lookup of a symbol, while so many speculative tasks of 20 us are queued",
        run: Box::new(move |scale| {
            vec![
                Measured::alone(scale, SYMBOLS, || first(threads, 0)).with("queued", 0),
                many_beside_few(scale, SYMBOLS, |queued| first(threads, queued)),
            ]
        }),
    };
    let raised = |threads| Case {
        name: "raised_result",
        threads,
        operation: "a lookup of a symbol whose unit is among the last of so many speculative ones of 20 us",
        run: Box::new(move |scale| {
            let begun = [const { RefCell::new(Vec::new()) }; 2];
            let measured = many_beside_few(scale, RAISED, |queued| {
                raised(threads, queued, &mut begun[usize::from(queued == FEW)].borrow_mut())
            });
            let [many, few] = begun.map(|begun| median(begun.into_inner()));
            vec![measured.extra("begun_after_ns", many).extra("begun_after_ns_of_1000", few)]
        }),
    };
    vec![first(1), first(2), raised(1), raised(2)]
}

fn many_beside_few(scale: Scale, operations: usize, run: impl Fn(usize) -> Taken) -> Measured {
    Measured::beside("1000 queued", scale, operations, || run(MANY), || run(FEW)).with("queued", MANY)
}

fn first(threads: usize, queued: usize) -> Taken {
    let engine = Engine::new(threads);
    let names = engine.names("wanted", SYMBOLS);
    for name in &names {
        engine.main.define(Box::new(NoopUnit(name.clone()))).expect("names are distinct");
    }
    for _ in 0..queued {
        let over = engine.over.clone();
        let task = Task::new("background", TaskPriority::Speculative, move || spend(TASK, &over));
        engine.pool.dispatch(task).expect("the pool is open");
    }
    engine.look_up_each(&names)
}

/// Adds to `begun` after how many nanoseconds each of the wanted units began.
fn raised(threads: usize, queued: usize, begun: &mut Vec<f64>) -> Taken {
    let cpu = processor_time();
    // One lookup for each engine: after a wait for the last unit of a queue that runs in order, all others would be Ready.
    let each = (0..RAISED).map(|_| raise_last(threads, queued, begun)).collect();
    Taken::median(each, processor_time() - cpu)
}

fn raise_last(threads: usize, queued: usize, begun_after: &mut Vec<f64>) -> Duration {
    let engine = Engine::new(threads);
    let names = engine.names("queued", queued);
    let wanted_began = Arc::new(OnceLock::new());
    for (index, name) in names.iter().enumerate() {
        let began = (index == queued - 1).then(|| wanted_began.clone());
        let unit = SpeculativeUnit { inner: NoopUnit(name.clone()), over: engine.over.clone(), began };
        engine.main.define(Box::new(unit)).expect("names are distinct");
    }
    let all = LookupRequest::new(engine.order.clone(), LookupSet::required(names.iter().cloned()));
    engine.session.lookup_async(all, drop);
    let begun = Instant::now();
    engine.look_up(&names[queued - 1]);
    let taken = begun.elapsed();
    let began = wanted_began.get().expect("it is there");
    begun_after.push(began.saturating_duration_since(begun).as_nanos() as f64);
    engine.end();
    taken
}

/// A session on a pool of its own, with a dylib.
struct Engine {
    pool: Arc<WorkStealingTaskDispatcher>,
    session: ExecutionSession,
    main: JitDylib,
    order: SearchOrder,
    /// Background tasks need not go on.
    over: Arc<AtomicBool>,
}

impl Engine {
    /// With a thread that has started.
    fn new(threads: usize) -> Self {
        let pool = WorkStealingTaskDispatcher::builder().workers(threads).build();
        let pool = Arc::new(pool.expect("a small pool"));
        let session = ExecutionSession::builder().dispatcher(pool.clone()).build();
        let main = session.create_jit_dylib("main").expect("the first dylib of a session");
        let order = SearchOrder::from_iter([(main.clone(), JitDylibLookupFlags::MatchAllSymbols)]);
        let engine = Self { pool, session, main, order, over: Arc::new(AtomicBool::new(false)) };
        let first = engine.session.intern("first");
        engine.main.define(Box::new(NoopUnit(first.clone()))).expect("the first name");
        engine.look_up(&first);
        engine
    }

    fn names(&self, prefix: &str, count: usize) -> Vec<SymbolName> {
        (0..count).map(|index| self.session.intern(&format!("{prefix}{index}"))).collect()
    }

    /// Looks up one after another, then ends what is left.
    fn look_up_each(self, names: &[SymbolName]) -> Taken {
        let cpu = processor_time();
        let look_up = |name| {
            let begun = Instant::now();
            self.look_up(name);
            begun.elapsed()
        };
        let taken = Taken::median(names.iter().map(look_up).collect(), processor_time() - cpu);
        self.end();
        taken
    }

    fn look_up(&self, name: &SymbolName) {
        self.session.lookup_symbol(&self.order, name).expect("it is defined");
    }

    fn end(self) {
        // Relaxed: tasks see it sooner or later, and the close waits for them.
        self.over.store(true, Ordering::Relaxed);
        self.session.close().expect("there are no resources that could refuse");
    }
}

fn spend(time: Duration, over: &AtomicBool) {
    let begun = Instant::now();
    // Relaxed: see `Engine::end`.
    while begun.elapsed() < time && !over.load(Ordering::Relaxed) {
        hint::spin_loop();
    }
}

/// One symbol that depends on nothing and is there as soon as it is asked for.
pub(crate) struct NoopUnit(pub(crate) SymbolName);

impl MaterializationUnit for NoopUnit {
    fn name(&self) -> &str {
        "noop"
    }

    fn interface(&self) -> MaterializationInterface {
        MaterializationInterface::new([(self.0.clone(), SymbolFlags::EXPORTED)].into_iter().collect())
    }

    fn materialize(self: Box<Self>, responsibility: MaterializationResponsibility) {
        let definition = ExecutorSymbolDef::new(ExecutorAddr::new(0x1000), SymbolFlags::EXPORTED);
        let resolved = responsibility
            .notify_resolved(&SymbolMap::from_iter([(self.0.clone(), definition)]))
            .unwrap_or_else(|refused| panic!("refused: {refused}"));
        resolved.notify_emitted(Vec::new()).unwrap_or_else(|refused| panic!("refused: {refused}"));
    }

    fn discard(&mut self, _: &JitDylib, _: &SymbolName) {}
}

/// The same after some time, and only if nothing else is to be done.
struct SpeculativeUnit {
    inner: NoopUnit,
    over: Arc<AtomicBool>,
    /// To be told when it begins.
    began: Option<Arc<OnceLock<Instant>>>,
}

impl MaterializationUnit for SpeculativeUnit {
    fn name(&self) -> &str {
        "speculative"
    }

    fn interface(&self) -> MaterializationInterface {
        self.inner.interface()
    }

    fn priority(&self) -> TaskPriority {
        TaskPriority::Speculative
    }

    fn materialize(self: Box<Self>, responsibility: MaterializationResponsibility) {
        if let Some(began) = &self.began {
            began.get_or_init(Instant::now);
        }
        spend(TASK, &self.over);
        Box::new(self.inner).materialize(responsibility);
    }

    fn discard(&mut self, _: &JitDylib, _: &SymbolName) {}
}
