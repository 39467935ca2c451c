//! The cost of a session that has nothing to do.

use std::time::Duration;

use uruk_core::sync::{Arc, Latch};
use uruk_core::{ExecutionSession, JitDylibLookupFlags, SearchOrder, SymbolName};
use uruk_dispatch::WorkStealingTaskDispatcher;

use crate::Case;
use crate::first_result::NoopUnit;
use crate::measure::{Measured, Scale, Taken, processor_time};

pub(crate) fn cases() -> Vec<Case> {
    vec![Case {
        name: "idle",
        threads: 2,
        operation: "processor time of the process in one second of a session that has nothing to do",
        run: Box::new(|scale| vec![idle(scale)]),
    }]
}

/// One second of an idle session, after it has worked; the thread that measures sleeps meanwhile, and its falling asleep and
/// waking up are all that the process should have run.
fn idle(scale: Scale) -> Measured {
    let pool = WorkStealingTaskDispatcher::builder().workers(2).build();
    let session = ExecutionSession::builder().dispatcher(Arc::new(pool.expect("a small pool"))).build();
    let main = session.create_jit_dylib("main").expect("the first dylib of a session");
    let order = SearchOrder::from_iter([(main.clone(), JitDylibLookupFlags::MatchAllSymbols)]);
    let names: Vec<SymbolName> = (0..1_000).map(|index| session.intern(&format!("s{index}"))).collect();
    for name in &names {
        main.define(Box::new(NoopUnit(name.clone()))).expect("names are distinct");
        session.lookup_symbol(&order, name).expect("it is defined");
    }
    let never = Latch::new();
    // First the workers go to sleep.
    never.wait_timeout(Duration::from_millis(100));
    let before = workers_nanos();
    let seconds = scale.pick(1, 5);
    let second = || {
        let begun = processor_time();
        never.wait_timeout(Duration::from_secs(1));
        let cpu = processor_time() - begun;
        Taken { wall: cpu, cpu }
    };
    let taken: Vec<Taken> = (0..seconds).map(|_| second()).collect();
    let workers = workers_nanos() - before;
    session.close().expect("there are no resources that could refuse");
    Measured::of(1, &taken).extra("workers_cpu_ns", workers as f64)
}

/// The processor time of this process's workers so far.
fn workers_nanos() -> u64 {
    let threads = std::fs::read_dir("/proc/self/task").expect("Linux");
    let nanos_of = |path: std::path::PathBuf| -> Option<u64> {
        let name = std::fs::read_to_string(path.join("comm")).ok()?;
        let schedule = std::fs::read_to_string(path.join("schedstat")).ok()?;
        name.starts_with("uruk-worker").then(|| schedule.split(' ').next()?.parse().ok())?
    };
    threads.filter_map(|thread| nanos_of(thread.ok()?.path())).sum()
}
