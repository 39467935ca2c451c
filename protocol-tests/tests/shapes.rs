//! A hundred thousand symbols in the shapes that make naive dependency tracking quadratic, through real sessions.
//!
//! Run with `cargo test --release -p protocol-tests --test shapes -- --ignored --nocapture`: each shape runs at a tenth
//! of the size as well, and a symbol of the large one may cost little more than one of the small one.

use std::fmt::Write as _;
use std::io::Write as _;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use protocol_tests::random::Random;
use protocol_tests::*;
use uruk_core::{
    AliasTarget, DefinitionGenerator, DependenceGroup, Dependency, Detached, ExecutionSession,
    GenerateRequest, JitDylib, LookupRequest, LookupSet, MaterializationResponsibility,
    ResolvedResponsibility, SymbolName, absolute_symbols, shared_error, symbol_aliases,
};

const SYMBOLS: usize = 100_000;
/// The limit of a symbol's cost in a large graph against a small one: caches and table growth, not another power.
const GROWTH_MAX: u128 = 6;

/// A unit of its own for each symbol, all claimed and resolved, none emitted.
struct Staged {
    session: ExecutionSession,
    main: JitDylib,
    names: Vec<SymbolName>,
    resolved: Vec<Option<Detached<ResolvedResponsibility>>>,
    tokens: Vec<Dependency>,
    answer: mpsc::Receiver<bool>,
}

fn stage(count: usize) -> Staged {
    let (session, main) = session();
    let names: Vec<_> = (0..count).map(|index| session.intern(&format!("symbol_{index}"))).collect();
    let (send, parked) = mpsc::channel::<(usize, Detached<MaterializationResponsibility>)>();
    for (index, name) in names.iter().enumerate() {
        let send = send.clone();
        let symbols = [(name.clone(), EXPORTED)].into_iter().collect();
        let unit = TestUnit::new("unit", symbols, move |responsibility| {
            send.send((index, responsibility.detach())).unwrap();
        });
        main.define(unit.boxed()).unwrap();
    }
    let (told, answer) = mpsc::channel();
    let request = LookupRequest::new(order(&main), LookupSet::required(names.iter().cloned()));
    session.lookup_async(request, move |answer| told.send(answer.is_ok()).unwrap());
    let mut resolved: Vec<_> = (0..count).map(|_| None).collect();
    let mut tokens = vec![None; count];
    for (index, responsibility) in parked.try_iter() {
        let responsibility = responsibility.attach();
        let addresses = addresses(responsibility.symbols());
        let step = responsibility.notify_resolved(&addresses).unwrap();
        tokens[index] = step.dependency(&names[index]);
        resolved[index] = Some(step.detach());
    }
    let tokens = tokens.into_iter().map(Option::unwrap).collect();
    Staged { session, main, names, resolved, tokens, answer }
}

impl Staged {
    fn emit(&mut self, index: usize, dependencies: impl IntoIterator<Item = usize>) {
        let dependencies = dependencies.into_iter().map(|index| self.tokens[index]).collect();
        let group = DependenceGroup { symbols: vec![self.names[index].clone()], dependencies };
        self.resolved[index].take().unwrap().attach().notify_emitted(vec![group]).unwrap();
    }
}

/// Numbers that look random and are the same each time.
fn scramble(seed: usize) -> usize {
    Random(seed as u64).number() as usize
}

fn shuffled(count: usize) -> Vec<usize> {
    let mut order: Vec<_> = (0..count).collect();
    for index in (1..count).rev() {
        order.swap(index, scramble(index) % (index + 1));
    }
    order
}

type Shape = fn(&mut Staged);

fn chain_head_first(staged: &mut Staged) {
    let last = staged.names.len() - 1;
    (0..last).for_each(|index| staged.emit(index, [index + 1]));
    staged.emit(last, []);
}

fn ring(staged: &mut Staged) {
    let count = staged.names.len();
    (0..count).for_each(|index| staged.emit(index, [(index + 1) % count]));
}

fn ring_shuffled(staged: &mut Staged) {
    let count = staged.names.len();
    shuffled(count).into_iter().for_each(|index| staged.emit(index, [(index + 1) % count]));
}

fn fan_in(staged: &mut Staged) {
    let count = staged.names.len();
    (1..count).for_each(|index| staged.emit(index, [0]));
    staged.emit(0, []);
}

fn fan_out(staged: &mut Staged) {
    let count = staged.names.len();
    staged.emit(0, 1..count);
    (1..count).for_each(|index| staged.emit(index, []));
}

fn random_shuffled(staged: &mut Staged) {
    let count = staged.names.len();
    for index in shuffled(count) {
        staged.emit(index, (0..4).map(|edge| scramble(4 * index + edge) % count));
    }
}

fn chain_whose_end_fails(staged: &mut Staged) {
    let last = staged.names.len() - 1;
    (0..last).for_each(|index| staged.emit(index, [index + 1]));
    staged.resolved[last].take().unwrap().fail(shared_error("the end"));
}

/// Each symbol is removed while those before it wait.
fn chain_that_is_removed(staged: &mut Staged) {
    let last = staged.names.len() - 1;
    (0..last).for_each(|index| staged.emit(index, [index + 1]));
    staged.main.default_tracker().remove().unwrap();
}

fn everything_abandoned(staged: &mut Staged) {
    staged.resolved.iter_mut().for_each(|step| drop(step.take()));
}

fn measure(count: usize, shape: Shape, succeeds: bool) -> (Duration, Duration) {
    let start = Instant::now();
    let mut staged = stage(count);
    let staging = start.elapsed();
    let start = Instant::now();
    shape(&mut staged);
    assert_eq!(staged.answer.try_recv(), Ok(succeeds));
    let time = start.elapsed();
    staged.session.close().unwrap();
    (staging, time)
}

/// Runs once for this many symbols, all told.
type Whole = fn(usize);

fn names(session: &ExecutionSession, count: usize) -> Vec<SymbolName> {
    (0..count).map(|index| session.intern(&format!("symbol_{index}"))).collect()
}

/// One unit, each symbol in a group of its own that depends on the next; looked up, looked up again, removed.
fn one_unit(count: usize) {
    let (session, main) = session();
    let names = names(&session, count);
    let chain = names.clone();
    let symbols = names.iter().map(|name| (name.clone(), EXPORTED)).collect();
    let unit = TestUnit::new("unit", symbols, move |responsibility| {
        let token = |name: &SymbolName| responsibility.dependency(name).unwrap();
        let group = |pair: &[SymbolName]| DependenceGroup {
            symbols: vec![pair[0].clone()],
            dependencies: vec![token(&pair[1])],
        };
        let groups = chain.windows(2).map(group).collect();
        finish_with(responsibility, groups);
    });
    main.define(unit.boxed()).unwrap();
    let set = LookupSet::required(names);
    assert_eq!(session.lookup(LookupRequest::new(order(&main), set.clone())).unwrap().len(), count);
    assert_eq!(session.lookup(LookupRequest::new(order(&main), set)).unwrap().len(), count);
    main.clear().unwrap();
}

/// A responsibility that is split until each symbol has its own.
fn one_unit_split(count: usize) {
    let (session, main) = session();
    let names = names(&session, count);
    let each = names.clone();
    let symbols = names.iter().map(|name| (name.clone(), EXPORTED)).collect();
    let unit = TestUnit::new("unit", symbols, move |mut responsibility| {
        for name in each {
            finish(responsibility.delegate([name]).unwrap());
        }
        finish(responsibility);
    });
    main.define(unit.boxed()).unwrap();
    assert_eq!(
        session.lookup(LookupRequest::new(order(&main), LookupSet::required(names))).unwrap().len(),
        count
    );
}

fn aliases_of_one_unit(count: usize) {
    let (session, main) = session();
    let names = names(&session, count);
    define_simple(&main, "unit", &["symbol_0"]);
    let alias =
        |pair: &[SymbolName]| (pair[1].clone(), AliasTarget { source: pair[0].clone(), flags: EXPORTED });
    main.define(symbol_aliases(names.windows(2).map(alias).collect())).unwrap();
    session.lookup_symbol(&order(&main), &names[count - 1]).unwrap();
}

fn aliases_of_many_units(count: usize) {
    let (session, main) = session();
    let names = names(&session, count);
    define_simple(&main, "unit", &["symbol_0"]);
    for pair in names.windows(2) {
        let target = AliasTarget { source: pair[0].clone(), flags: EXPORTED };
        main.define(symbol_aliases([(pair[1].clone(), target)].into_iter().collect())).unwrap();
    }
    session.lookup_symbol(&order(&main), &names[count - 1]).unwrap();
}

/// All wait for one symbol; half of them lose interest, in an order of their own.
fn many_lookups_of_one(count: usize) {
    let (session, main) = session();
    let parked = define_parked(&main, "unit", &["a"]);
    let mut futures: Vec<_> =
        (0..count).map(|_| Some(session.lookup_future(request(&main, &["a"])))).collect();
    for index in shuffled(count).into_iter().take(count / 2) {
        futures[index] = None;
    }
    finish(parked.recv().unwrap().attach());
}

/// The same name in a thousandth as many dylibs, each Ready, each removed.
fn many_dylibs(count: usize) {
    let (session, _main) = session();
    let name = session.intern("a");
    let dylibs: Vec<_> =
        (0..count / 20).map(|index| session.create_jit_dylib(&format!("d{index}")).unwrap()).collect();
    for dylib in &dylibs {
        define_simple(dylib, "unit", &["a"]);
        session.lookup_symbol(&order(dylib), &name).unwrap();
    }
    for dylib in &dylibs {
        dylib.clear().unwrap();
    }
}

/// Each symbol is missing, and a generator of its own lookup defines it.
fn generated_one_by_one(count: usize) {
    let (session, main) = session();
    main.add_generator(Arc::new(Defines));
    for name in names(&session, count) {
        session.lookup_symbol(&order(&main), &name).unwrap();
    }
}

/// Defines what it is asked for.
struct Defines;

impl DefinitionGenerator for Defines {
    fn name(&self) -> &str {
        "defines"
    }

    fn generate(&self, request: GenerateRequest) {
        let symbols = request.symbols().iter().map(|(name, _)| (name.clone(), at(1))).collect();
        request.dylib().define(absolute_symbols(symbols)).unwrap();
        request.finish(Ok(()));
    }
}

#[test]
#[ignore = "measures: to be run in release, on a quiet machine"]
fn a_symbol_costs_the_same_in_whatever_else_there_are_many() {
    let shapes: [(&str, Whole); 7] = [
        ("one unit", one_unit),
        ("one unit, split", one_unit_split),
        ("aliases of one unit", aliases_of_one_unit),
        ("aliases of many units", aliases_of_many_units),
        ("many lookups of one", many_lookups_of_one),
        ("many dylibs", many_dylibs),
        ("generated one by one", generated_one_by_one),
    ];
    let mut report = String::new();
    for (name, shape) in shapes {
        let each = |count: usize| {
            let start = Instant::now();
            shape(count);
            start.elapsed().as_nanos() / count as u128
        };
        let (small, large) = (each(SYMBOLS / 10), each(SYMBOLS));
        writeln!(report, "{name:24} {small:>6} -> {large:>6} ns a symbol").unwrap();
        assert!(large < small * GROWTH_MAX + 1000, "{report}");
    }
    std::io::stderr().write_all(report.as_bytes()).unwrap();
}

#[test]
#[ignore = "measures: to be run in release, on a quiet machine"]
fn a_symbol_costs_the_same_however_many_there_are() {
    let shapes: [(&str, Shape, bool); 9] = [
        ("chain, head first", chain_head_first, true),
        ("ring", ring, true),
        ("ring, shuffled", ring_shuffled, true),
        ("fan-in", fan_in, true),
        ("fan-out", fan_out, true),
        ("random, shuffled", random_shuffled, true),
        ("chain whose end fails", chain_whose_end_fails, false),
        ("chain that is removed", chain_that_is_removed, false),
        ("everything abandoned", everything_abandoned, false),
    ];
    let mut report = String::new();
    for (name, shape, succeeds) in shapes {
        let each = |count: usize| {
            let (staging, time) = measure(count, shape, succeeds);
            (staging.as_nanos() / count as u128, time.as_nanos() / count as u128)
        };
        let ((_, small), (staging, large)) = (each(SYMBOLS / 10), each(SYMBOLS));
        writeln!(report, "{name:24} {small:>8.0?} -> {large:>8.0?} a symbol (staging {staging:.0?})")
            .unwrap();
        assert!(large < small * GROWTH_MAX + 1000, "{report}");
    }
    std::io::stderr().write_all(report.as_bytes()).unwrap();
}
