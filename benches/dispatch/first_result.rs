//! How long a symbol that is wanted takes while the pool has much to do that nobody waits for.
//!
//! The symbol's unit does nothing, so what is left is the way to a worker: the end of a task that runs already, of which
//! each spends [`TASK`]. It must not grow with the number of tasks that are queued.

use std::time::{Duration, Instant};

use uruk_core::sync::atomic::{AtomicBool, Ordering};
use uruk_core::sync::{Arc, hint};
use uruk_core::{
    ExecutionSession, ExecutorAddr, ExecutorSymbolDef, JitDylib, JitDylibLookupFlags,
    MaterializationInterface, MaterializationResponsibility, MaterializationUnit, SearchOrder, SymbolFlags,
    SymbolMap, SymbolName, Task, TaskDispatcher, TaskPriority,
};
use uruk_dispatch::WorkStealingTaskDispatcher;

use crate::Case;
use crate::measure::{Measured, Scale, Taken, processor_time};

/// How long a task that nobody waits for takes.
const TASK: Duration = Duration::from_micros(20);

/// Symbols looked up one after another in a repetition, so few that hardly any of the queue is worked off meanwhile.
const SYMBOLS: usize = 20;

const FEW: usize = 1_000;
const MANY: usize = 10_000;

pub(crate) fn cases() -> Vec<Case> {
    [1, 2]
        .map(|threads| Case {
            name: "first_result",
            threads,
            operation: "a lookup of a symbol, while so many speculative tasks of 20 us are queued",
            run: Box::new(move |scale| {
                vec![
                    Measured::alone(scale, SYMBOLS, || lookups(threads, 0)).with("queued", 0),
                    Measured::alone(scale, SYMBOLS, || lookups(threads, FEW)).with("queued", FEW),
                    many_beside_few(scale, threads).with("queued", MANY),
                ]
            }),
        })
        .into()
}

fn many_beside_few(scale: Scale, threads: usize) -> Measured {
    Measured::beside("1000 queued", scale, SYMBOLS, || lookups(threads, MANY), || lookups(threads, FEW))
}

fn lookups(threads: usize, queued: usize) -> Taken {
    let pool = WorkStealingTaskDispatcher::builder().workers(threads).build();
    let pool = Arc::new(pool.expect("a small pool"));
    let session = ExecutionSession::builder().dispatcher(pool.clone()).build();
    let main = session.create_jit_dylib("main").expect("the first dylib of a session");
    let order = SearchOrder::from_iter([(main.clone(), JitDylibLookupFlags::MatchAllSymbols)]);
    let names: Vec<SymbolName> = (0..=SYMBOLS).map(|index| session.intern(&format!("s{index}"))).collect();
    for name in &names {
        main.define(Box::new(NoopUnit(name.clone()))).expect("names are distinct");
    }
    // Starts a thread.
    session.lookup_symbol(&order, &names[SYMBOLS]).expect("it is defined");
    let over = Arc::new(AtomicBool::new(false));
    for _ in 0..queued {
        let over = over.clone();
        let task = Task::new("background", TaskPriority::Speculative, move || spend(TASK, &over));
        pool.dispatch(task).expect("the pool is open");
    }
    let (cpu, begun) = (processor_time(), Instant::now());
    for name in &names[..SYMBOLS] {
        session.lookup_symbol(&order, name).expect("it is defined");
    }
    let taken = Taken { wall: begun.elapsed(), cpu: processor_time() - cpu };
    // Relaxed: tasks see it sooner or later, and the close waits for them.
    over.store(true, Ordering::Relaxed);
    session.close().expect("there are no resources that could refuse");
    taken
}

fn spend(time: Duration, over: &AtomicBool) {
    let begun = Instant::now();
    // Relaxed: see `lookups`.
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
