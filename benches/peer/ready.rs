//! Lookups of symbols that are Ready: one through many dylibs, and a thousand at once. And of names that are not there.

use std::hint::black_box;

use uruk::Jit;
use uruk_core::{ExecutorSymbolDef, LookupRequest, LookupSet, SymbolMap, absolute_symbols};

use crate::harness::{Row, Sample, Scale, on_threads, repeat};
use crate::point::Point;
use crate::support::{Engine, definition, order, symbol_name};

/// Ready symbols of each dylib.
const SYMBOLS: usize = 1000;

pub(crate) fn points(scale: Scale) -> Vec<Point> {
    let mut points = Vec::new();
    for depth in [1, 10, 100] {
        for threads in [1, 2, 4] {
            points.push(Point::new("lookup_ready", "", 0, move || one_by_one(scale, threads, depth)));
        }
    }
    for threads in [1, 4] {
        points.push(Point::new("lookup_ready_by_text", "", 0, move || by_text(scale, threads)));
    }
    points.push(Point::new("lookup_ready_batch", "", 0, move || batch(scale)));
    points.push(Point::new("lookup_missing", "", 0, move || missing(scale)));
    points
}

/// Looks up symbols of the last of `depth` dylibs.
fn one_by_one(scale: Scale, threads: usize, depth: usize) {
    let times = scale.pick(40_000, 200_000) / if depth >= 100 { 10 } else { 1 };
    let engine = Engine::in_place();
    let mut dylibs = Vec::new();
    let mut last = Vec::new();
    for index in 0..depth {
        let dylib = engine.session.create_jit_dylib(&format!("jd{index}")).expect("names are distinct");
        let names = engine.names(1_000_000 + index * SYMBOLS, SYMBOLS);
        let symbols: SymbolMap =
            names.iter().enumerate().map(|(at, name)| (name.clone(), definition(at))).collect();
        dylib.define(absolute_symbols(symbols)).expect("names are distinct");
        engine.look_up(&order([&dylib]), &names);
        dylibs.push(dylib);
        last = names;
    }
    let order = order(&dylibs);
    let samples = repeat(scale, |_| {
        on_threads(&mut vec![(); threads], |thread, ()| {
            let mut index = thread * 37;
            for _ in 0..times {
                index = (index + 7) % SYMBOLS;
                let found = engine.session.lookup_symbol(&order, &last[index]);
                black_box(&found.expect("every symbol is ready"));
            }
        })
    });
    let row = Row {
        case: "lookup_ready",
        parameters: vec![("depth", depth.to_string())],
        n: SYMBOLS,
        threads: threads as i64,
        operations: times * threads,
    };
    row.report(&samples);
}

/// Looks up symbols of the main dylib as most programs do, by their texts. `kept_ns_per_op` is the time of the same lookup with
/// a kept name and a kept order.
fn by_text(scale: Scale, threads: usize) {
    let times = scale.pick(40_000, 200_000);
    let jit = Jit::builder().threads(0).build().expect("an engine for this machine");
    let texts: Vec<String> = (0..SYMBOLS).map(|at| symbol_name(1_000_000 + at)).collect();
    let names: Vec<_> = texts.iter().map(|text| jit.intern(text)).collect();
    let symbols: SymbolMap =
        names.iter().enumerate().map(|(at, name)| (name.clone(), definition(at))).collect();
    jit.main_dylib().define(absolute_symbols(symbols)).expect("names are distinct");
    let order = jit.main_dylib().link_order();
    let all = LookupSet::required(names.iter().cloned());
    jit.session().lookup(LookupRequest::new(&order, all)).expect("every symbol is defined");
    let measure = |look_up: &(dyn Fn(usize) -> ExecutorSymbolDef + Sync)| {
        on_threads(&mut vec![(); threads], |thread, ()| {
            let mut index = thread * 37;
            for _ in 0..times {
                index = (index + 7) % SYMBOLS;
                black_box(look_up(index));
            }
        })
    };
    let kept = |index: usize| jit.session().lookup_symbol(&order, &names[index]).expect("it is ready");
    let by_text = |index: usize| jit.lookup(&texts[index]).expect("it is ready");
    let samples = repeat(scale, |_| {
        let (beside, mut sample) = (measure(&kept), measure(&by_text));
        sample.extra("kept_ns_per_op", beside.wall.as_nanos() as f64 / (times * threads) as f64);
        sample
    });
    let operations = times * threads;
    Row { case: "lookup_ready_by_text", parameters: vec![], n: SYMBOLS, threads: threads as i64, operations }
        .report(&samples);
}

/// Looks up all symbols of a dylib with one query, which makes a set of their names.
fn batch(scale: Scale) {
    let queries = scale.pick(100, 500);
    let operations = queries * SYMBOLS;
    let engine = Engine::in_place();
    let names = engine.names(0, SYMBOLS);
    let symbols: SymbolMap =
        names.iter().enumerate().map(|(at, name)| (name.clone(), definition(at))).collect();
    engine.main.define(absolute_symbols(symbols)).expect("names are distinct");
    engine.look_up(&engine.order, &names);
    let samples = repeat(scale, |_| {
        let mut sample = Sample::default();
        sample.time(|| {
            for _ in 0..queries {
                black_box(engine.look_up(&engine.order, &names));
            }
        });
        sample
    });
    Row { case: "lookup_ready_batch", parameters: vec![], n: SYMBOLS, threads: 1, operations }
        .report(&samples);
}

/// Looks a hundred names up that are not there, again and again. `first_ns_per_op` is the time of the first pass, which asks the libraries of the
/// process.
fn missing(scale: Scale) {
    const NAMES: usize = 100;
    let passes = scale.pick(200, 1_000);
    let jit = Jit::builder().threads(0).build().expect("an engine for this machine");
    let names = (0..SYMBOLS).map(|at| jit.intern(&symbol_name(1_000_000 + at)));
    let symbols: SymbolMap = names.enumerate().map(|(at, name)| (name, definition(at))).collect();
    jit.main_dylib().define(absolute_symbols(symbols)).expect("names are distinct");
    let mut round = 0;
    let samples = repeat(scale, |_| {
        round += 1;
        let texts: Vec<String> = (0..NAMES).map(|at| format!("absent_{round}_{at}")).collect();
        let pass = || texts.iter().for_each(|text| assert!(black_box(jit.lookup(text)).is_err()));
        let (mut first, mut again) = (Sample::default(), Sample::default());
        first.time(pass);
        again.time(|| (0..passes).for_each(|_| pass()));
        again.extra("first_ns_per_op", first.wall.as_nanos() as f64 / NAMES as f64);
        again
    });
    let operations = passes * NAMES;
    Row { case: "lookup_missing", parameters: vec![], n: NAMES, threads: 1, operations }.report(&samples);
}
