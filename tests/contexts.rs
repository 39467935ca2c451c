//! LLVM contexts that several modules share: their units wait for their turn on no thread, and there is no deadlock.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use uruk::Jit;
use uruk_core::sync::{Condvar, Latch, Mutex};
use uruk_core::{
    ExecutionSession, ExecutorAddr, ExecutorSymbolDef, JitDylib, LookupRequest, LookupSet,
    MaterializationResponsibility, SearchOrder, TaskDispatcher,
};
use uruk_dispatch::WorkStealingTaskDispatcher;
use uruk_pipeline::ir::{
    IrCompileLayer, IrCompiler, IrLayer, IrMaterializationUnit, IrTransformLayer, JitTargetMachineBuilder,
    OptimizationLevel, OptimizationPipeline, ThreadSafeContext, ThreadSafeModule,
};
use uruk_pipeline::object::{ObjectBuffer, ObjectLayer};

/// Stands where the linker would: counts objects, and gives symbols an address that means nothing.
#[derive(Default)]
struct Counting(AtomicUsize);

impl Counting {
    /// How many objects came since this was last asked.
    fn take(&self) -> usize {
        self.0.swap(0, Ordering::Relaxed)
    }
}

impl ObjectLayer for Counting {
    fn emit(&self, responsibility: MaterializationResponsibility, _object: ObjectBuffer) {
        self.0.fetch_add(1, Ordering::Relaxed);
        let somewhere = |flags| ExecutorSymbolDef::new(ExecutorAddr::new(0x1000), flags);
        let symbols = responsibility.symbols().iter();
        let addresses = symbols.map(|(name, flags)| (name.clone(), somewhere(*flags))).collect();
        let resolved = responsibility.notify_resolved(&addresses).expect("every symbol has an address");
        resolved.notify_emitted(Vec::new()).expect("nothing to wait for");
    }
}

/// Where so many threads meet, again and again.
struct Meeting {
    threads: usize,
    arrived: Mutex<usize>,
    complete: Condvar,
}

impl Meeting {
    fn of(threads: usize) -> Self {
        Self { threads, arrived: Mutex::new(0), complete: Condvar::new() }
    }

    fn wait(&self) {
        let mut arrived = self.arrived.lock();
        *arrived += 1;
        let meeting = arrived.div_ceil(self.threads);
        self.complete.notify_all();
        while *arrived < meeting * self.threads {
            arrived = self.complete.wait(arrived);
        }
    }
}

/// A session that compiles, and has `objects` in the linker's place.
struct Compiling {
    session: ExecutionSession,
    main: JitDylib,
    target: JitTargetMachineBuilder,
    ir: Arc<dyn IrLayer>,
    pool: Arc<WorkStealingTaskDispatcher>,
}

impl Compiling {
    fn new(workers: usize, objects: Arc<dyn ObjectLayer>) -> Self {
        let pool = WorkStealingTaskDispatcher::builder().workers(workers).build();
        let pool = Arc::new(pool.expect("a possible number"));
        let dispatcher: Arc<dyn TaskDispatcher> = pool.clone();
        let session = ExecutionSession::builder()
            .dispatcher(dispatcher)
            .refuse_waits_while(ThreadSafeContext::held_resource)
            .build();
        let main = session.create_jit_dylib("main").expect("the first dylib");
        let target = JitTargetMachineBuilder::host().expect("host target");
        let compiler = IrCompiler::new(target.clone(), OptimizationPipeline::none());
        let ir = Arc::new(IrCompileLayer::new(compiler, objects));
        Self { session, main, target, ir, pool }
    }

    /// Defines `name`, a function in a module of its own in `context`.
    fn define(&self, layer: &Arc<dyn IrLayer>, context: &ThreadSafeContext, name: &str) {
        let text = format!("define i32 @{name}() {{ ret i32 1 }}");
        let module = parse_in(context, name, &text);
        let unit = IrMaterializationUnit::from_module(&self.session, layer.clone(), &self.target, module);
        self.main.define(Box::new(unit.expect("valid IR"))).expect("new");
    }

    fn names(&self, names: &[String]) -> LookupSet {
        LookupSet::required(names.iter().map(|name| self.session.intern(name)))
    }

    /// Asks for `names` and does not wait.
    fn demand(&self, names: &[String]) -> uruk_core::SymbolFuture {
        let request = uruk_core::LookupRequest::new(SearchOrder::of(&self.main), self.names(names));
        self.session.lookup_future(request)
    }

    fn lookup(&self, names: &[String]) {
        self.session
            .lookup(LookupRequest::new(SearchOrder::of(&self.main), self.names(names)))
            .expect("found");
    }
}

fn parse_in(context: &ThreadSafeContext, name: &str, text: &str) -> ThreadSafeModule {
    let source = ObjectBuffer::new(format!("{name}.ll"), text.as_bytes().to_vec());
    ThreadSafeModule::parse_in(context, &source).expect("valid IR")
}

fn numbered(prefix: &str, count: usize) -> Vec<String> {
    (0..count).map(|number| format!("{prefix}{number}")).collect()
}

/// ```text
///  worker 1: shared 0: held open in its turn ──────────────────────────▶ shared 1 … shared 99
///  worker 2: own 0, own 1, … own 99
/// ```
#[test]
fn modules_of_one_context_hold_up_nobody_but_each_other() {
    let recorded = Arc::new(Counting::default());
    let compiling = Compiling::new(2, recorded.clone());
    let (begun, go_on, turns) =
        (Arc::new(Latch::new()), Arc::new(Latch::new()), Arc::new(AtomicUsize::new(0)));
    let held_open: Arc<dyn IrLayer> = Arc::new(IrTransformLayer::new(compiling.ir.clone(), {
        let (begun, go_on, turns) = (begun.clone(), go_on.clone(), turns.clone());
        move |module, _: &MaterializationResponsibility| {
            turns.fetch_add(1, Ordering::Relaxed);
            begun.open();
            go_on.wait();
            Ok(module)
        }
    }));
    let (shared, own) = (numbered("shared", 100), numbered("own", 100));
    let context = ThreadSafeContext::new();
    shared.iter().for_each(|name| compiling.define(&held_open, &context, name));
    own.iter().for_each(|name| compiling.define(&compiling.ir, &ThreadSafeContext::new(), name));
    let asked = compiling.demand(&shared);
    begun.wait();
    compiling.lookup(&own);
    assert_eq!(recorded.take(), 100);
    // One of the shared ones has its turn; no thread waits with the others, and none was started for them.
    assert_eq!((turns.load(Ordering::Relaxed), context.serial_queue().waiting()), (1, 99));
    let metrics = compiling.pool.metrics();
    assert_eq!((metrics.started_threads, metrics.blocked), (2, 0));
    go_on.open();
    compiling.lookup(&shared);
    drop(asked);
    assert_eq!(recorded.take(), 100);
    assert_eq!(context.contentions(), 0, "nobody has ever waited for the context");
    compiling.session.close().expect("nothing is left open");
}

/// ```text
///  worker 1: a: compile, leave the turn ─ link: wait until b is there too
///  worker 2:                              b: compile ─ link
/// ```
#[test]
fn a_module_is_linked_while_the_next_of_its_context_is_compiled() {
    struct Meets(Meeting, Counting);
    impl ObjectLayer for Meets {
        fn emit(&self, responsibility: MaterializationResponsibility, object: ObjectBuffer) {
            self.0.wait();
            self.1.emit(responsibility, object);
        }
    }
    let meets = Arc::new(Meets(Meeting::of(2), Counting::default()));
    let compiling = Compiling::new(2, meets.clone());
    let context = ThreadSafeContext::new();
    let both = numbered("meets", 2);
    both.iter().for_each(|name| compiling.define(&compiling.ir, &context, name));
    compiling.lookup(&both);
    assert_eq!(meets.1.take(), 2);
    assert_eq!(context.contentions(), 0);
    compiling.session.close().expect("nothing is left open");
}

#[test]
fn dropping_a_module_waits_for_nobody_who_has_its_context() {
    let context = ThreadSafeContext::new();
    let used = parse_in(&context, "used", "@used = global i32 1");
    let dropped = numbered("dropped", 3);
    let mut dropped = dropped.iter().map(|name| parse_in(&context, name, &format!("@{name} = global i32 1")));
    let (first, second, third) = (dropped.next().unwrap(), dropped.next().unwrap(), dropped.next().unwrap());
    used.with_module(|_| {
        std::thread::scope(|scope| {
            scope.spawn(|| drop(first)).join().expect("no panic");
        });
        drop(second);
    })
    .expect("the context is sound");
    drop(third);
    assert_eq!(context.contentions(), 0);
    used.verify().expect("untouched");
}

fn jit(workers: usize) -> Jit {
    Jit::builder().threads(workers).optimization(OptimizationLevel::O0).build().expect("an engine")
}

fn call(jit: &Jit, name: &str) -> i32 {
    let found = jit.lookup(name).unwrap_or_else(|error| panic!("{name}: {error}"));
    // SAFETY: the definitions of these tests take nothing and return an i32, and the engine outlives the call.
    let function: extern "C" fn() -> i32 = unsafe { std::mem::transmute(found.address.value() as usize) };
    function()
}

/// A case that ORC's documentation warns of: modules that need each other share a context and are compiled on two threads. There
/// each compile waits for the other while it has the context.
///
/// Source: `ORCv2.rst`, the note on sharing a `ThreadSafeContext` under concurrent compilation.
#[test]
fn interdependent_modules_of_one_context_are_compiled_on_two_threads() {
    for workers in [0, 1, 2, 4] {
        for _ in 0..10 {
            let (jit, context) = (jit(workers), ThreadSafeContext::new());
            let half = |this: &str, other: &str| {
                format!(
                    "declare i32 @{other}_part()
                     define i32 @{this}_part() {{ ret i32 20 }}
                     define i32 @{this}() {{
                       %r = call i32 @{other}_part()
                       %s = add i32 %r, 1
                       ret i32 %s
                     }}"
                )
            };
            for (this, other) in [("a", "b"), ("b", "a")] {
                jit.add_module(parse_in(&context, this, &half(this, other))).expect("new");
            }
            let start = Meeting::of(2);
            std::thread::scope(|scope| {
                for name in ["a", "b"] {
                    let (jit, start) = (&jit, &start);
                    scope.spawn(move || {
                        start.wait();
                        assert_eq!(call(jit, name), 21);
                    });
                }
            });
            assert_eq!(context.contentions(), 0);
        }
    }
}

/// A sequence of numbers that is the same in every run.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % limit
    }
}

const CLIENTS: usize = 4;
const ROUNDS: usize = 6;
const MODULES: usize = 5;

/// The module `index` of a client's round: a value, and a function that adds up its own and those of others, which are defined
/// by then: earlier ones of anybody, any of this round and client.
fn module(client: usize, round: usize, index: usize, numbers: &mut Numbers) -> (String, String, i32) {
    let value = |client: usize, round: usize, index: usize| (client * 10_000 + round * 100 + index) as i32;
    let name = |client: usize, round: usize, index: usize| format!("m{client}_{round}_{index}");
    let this = name(client, round, index);
    let mut text = format!("@v_{this} = constant i32 {}\n", value(client, round, index));
    let mut others = std::collections::BTreeSet::new();
    for _ in 0..3 {
        let own = round == 0 || numbers.below(2) == 0;
        let (of, at) = if own { (client, round) } else { (numbers.below(CLIENTS), numbers.below(round)) };
        others.insert((of, at, numbers.below(MODULES)));
    }
    others.remove(&(client, round, index));
    let mut sum = value(client, round, index);
    let mut body = format!("define i32 @f_{this}() {{\n  %s0 = load i32, ptr @v_{this}\n");
    for (place, &(client, round, index)) in others.iter().enumerate() {
        let other = name(client, round, index);
        text += &format!("@v_{other} = external constant i32\n");
        body += &format!("  %l{place} = load i32, ptr @v_{other}\n");
        body += &format!("  %s{} = add i32 %s{place}, %l{place}\n", place + 1);
        sum += value(client, round, index);
    }
    (this, text + &body + &format!("  ret i32 %s{}\n}}\n", others.len()), sum)
}

#[test]
fn clients_define_and_look_up_random_graphs_over_shared_contexts() {
    for (seed, workers) in [(1, 0), (2, 1), (3, 2), (4, 4)] {
        let jit = jit(workers);
        let contexts: Vec<_> = (0..3).map(|_| ThreadSafeContext::new()).collect();
        let round_over = Meeting::of(CLIENTS);
        std::thread::scope(|scope| {
            for client in 0..CLIENTS {
                let (jit, contexts, round_over) = (&jit, &contexts, &round_over);
                scope.spawn(move || {
                    let mut numbers = Numbers(seed * 100 + client as u64);
                    for round in 0..ROUNDS {
                        let defined: Vec<_> = (0..MODULES)
                            .map(|index| {
                                let (name, text, sum) = module(client, round, index, &mut numbers);
                                let context = &contexts[numbers.below(contexts.len())];
                                jit.add_module(parse_in(context, &name, &text)).expect("new");
                                (name, sum)
                            })
                            .collect();
                        for (name, sum) in defined {
                            assert_eq!(call(jit, &format!("f_{name}")), sum, "{name}, seed {seed}");
                        }
                        round_over.wait();
                    }
                });
            }
        });
    }
}
