//! Units that do nothing: what it costs to run one, on each dispatcher and from several threads.

use std::time::Instant;

use uruk_core::sync::Arc;
use uruk_core::{InPlaceTaskDispatcher, TaskDispatcher};
use uruk_dispatch::WorkStealingTaskDispatcher;

use crate::harness::{Row, Sample, Scale, on_threads, repeat};
use crate::point::Point;
use crate::support::Engine;

/// The dispatcher that runs the units.
#[derive(Clone, Copy)]
enum Dispatcher {
    InPlace,
    Pool(usize),
    /// As many workers as a pool has unless told otherwise.
    DefaultPool,
}

impl Dispatcher {
    fn build(self) -> Arc<dyn TaskDispatcher> {
        let pool = WorkStealingTaskDispatcher::builder();
        let pool = match self {
            Self::InPlace => return Arc::new(InPlaceTaskDispatcher::default()),
            Self::Pool(workers) => pool.workers(workers),
            Self::DefaultPool => pool,
        };
        Arc::new(pool.build().expect("a pool of one worker at least"))
    }

    /// Its name and number of threads in a line. The peer's pool without limit stands beside our default.
    fn named(self) -> (&'static str, i64) {
        match self {
            Self::InPlace => ("inplace", 0),
            Self::Pool(workers) => ("pool", workers as i64),
            Self::DefaultPool => ("pool_unlimited", -1),
        }
    }
}

pub(crate) fn noop_points(scale: Scale) -> Vec<Point> {
    let sizes = scale.pick(&[10_000][..], &[10_000, 100_000]);
    let dispatchers =
        [("noop0", Dispatcher::InPlace), ("noop1", Dispatcher::Pool(1)), ("noop2", Dispatcher::Pool(2))];
    let mut points = Vec::new();
    for (group, dispatcher) in dispatchers {
        for &n in sizes {
            points.push(Point::new("materialize_noop", group, n, move || noop(scale, n, dispatcher)));
        }
    }
    let n = 10_000;
    points.push(Point::new("materialize_noop", "", n, move || noop(scale, n, Dispatcher::DefaultPool)));
    points
}

pub(crate) fn contended_points(scale: Scale) -> Vec<Point> {
    let point = |threads| Point::new("lookup_contended", "", 0, move || contended(scale, threads));
    [1, 2, 4, 8].map(point).into()
}

/// Looks up the symbols of `n` units at once.
fn noop(scale: Scale, n: usize, dispatcher: Dispatcher) {
    let samples = repeat(scale, |_| {
        let engine = Engine::with_dispatcher(dispatcher.build());
        let names = engine.names(0, n);
        let begun = Instant::now();
        for (index, name) in names.iter().enumerate() {
            engine.define_noop(name, index);
        }
        let mut sample = Sample::default();
        sample.extra("define_ns_per_op", begun.elapsed().as_nanos() as f64 / n as f64);
        drop(sample.time(|| engine.look_up(&engine.order, &names)));
        sample
    });
    let (name, threads) = dispatcher.named();
    let parameters = vec![("dispatcher", format!("\"{name}\""))];
    Row { case: "materialize_noop", parameters, n, threads, operations: n }.report(&samples);
}

/// Each thread looks up symbols of its own, one by one, whose units run on it.
fn contended(scale: Scale, threads: usize) {
    let each = scale.pick(2_000, 10_000);
    let samples = repeat(scale, |_| {
        let engine = Engine::in_place();
        let names = engine.names(0, each * threads);
        for (index, name) in names.iter().enumerate() {
            engine.define_noop(name, index);
        }
        on_threads(&mut vec![(); threads], |thread, ()| {
            for name in &names[thread * each..(thread + 1) * each] {
                engine.session.lookup_symbol(&engine.order, name).expect("every symbol is defined");
            }
        })
    });
    let operations = each * threads;
    Row { case: "lookup_contended", parameters: vec![], n: each, threads: threads as i64, operations }
        .report(&samples);
}
