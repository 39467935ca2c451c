//! The cost of tracking dependences, by shape and by order, and the cost of a failure.

use std::time::Instant;

use uruk_core::shared_error;

use crate::graph::Graph;
use crate::harness::{Row, Sample, Scale, median, millis, repeat};
use crate::parked::{Answer, Units};
use crate::point::Point;
use crate::support::Engine;

/// A case, its group, the name of its order, and its graph.
type Shape = (&'static str, &'static str, &'static str, fn(usize) -> Graph);

const SHAPES: [Shape; 7] = [
    ("dep_chain", "chain_head", "head_first", Graph::chain),
    ("dep_chain", "chain_tail", "tail_first", Graph::chain_tail_first),
    ("dep_ring", "ring", "forward", Graph::ring),
    ("dep_fan_in", "fan_in", "dependant_first", Graph::fan_in),
    ("dep_fan_out", "fan_out", "dependee_last", Graph::fan_out),
    ("dep_random", "random", "shuffled", Graph::random_shuffled),
    ("dep_random", "random_topo", "topological", Graph::random_topological),
];

pub(crate) fn points(scale: Scale) -> Vec<Point> {
    // The peer ends at 100,000.
    let sizes = scale.pick(&[1_000, 3_000][..], &[1_000, 3_000, 10_000, 30_000, 100_000, 1_000_000]);
    let mut points = Vec::new();
    for (case, group, order, graph) in SHAPES {
        for &n in sizes {
            points.push(Point::new(case, group, n, move || shape(scale, case, order, &graph(n))));
        }
    }
    let ordered = scale.pick(3_000, 100_000);
    points.push(Point::new("dep_orders", "", ordered, move || orders(scale, ordered)));
    let failing = |&n| Point::new("fail_chain", "fail_chain", n, move || fail_chain(scale, n));
    points.extend(sizes.iter().map(failing));
    points
}

/// Emits every unit of `graph` in its order; the lookup of all symbols is answered by the last.
fn shape(scale: Scale, case: &str, order: &str, graph: &Graph) {
    let mut samples = repeat(scale, |_| emit_all(Engine::in_place(), graph));
    samples.extend(measured(samples.len(), || emit_all(Engine::measured(), graph)));
    let n = graph.len();
    let parameters = vec![("order", format!("\"{order}\""))];
    Row { case, parameters, n, threads: 1, operations: n }.report(&samples);
}

/// Emits one graph in orders of all kinds: what it costs does not depend on them.
fn orders(scale: Scale, n: usize) {
    let mut graph = Graph::random_topological(n);
    let (mut costs, mut floors) = (Vec::new(), Vec::new());
    let mut samples = Vec::new();
    let per_operation = |sample: &Sample| sample.wall.as_nanos() as f64 / n as f64;
    for order in 0..10 {
        match order {
            0 => {}
            1 => graph.order.reverse(),
            seed => graph.shuffle(seed),
        }
        let of_order = repeat(scale.few(), |_| emit_all(Engine::in_place(), &graph));
        costs.push(median(of_order.iter().map(per_operation).collect()));
        let floor = repeat(scale.few(), |_| walk_all(Engine::silent(false), &graph));
        floors.push(median(floor.iter().map(per_operation).collect()));
        samples.extend(of_order);
    }
    let least = |figures: &[f64]| figures.iter().copied().fold(f64::INFINITY, f64::min);
    let most = |figures: &[f64]| figures.iter().copied().fold(0.0, f64::max);
    for sample in &mut samples {
        sample.extra("orders", costs.len() as f64);
        sample.extra("order_ns_per_op_min", least(&costs));
        sample.extra("order_ns_per_op_median", median(costs.clone()));
        sample.extra("order_ns_per_op_max", most(&costs));
        sample.extra("floor_ns_per_op_min", least(&floors));
        sample.extra("floor_ns_per_op_median", median(floors.clone()));
        sample.extra("floor_ns_per_op_max", most(&floors));
    }
    Row { case: "dep_orders", parameters: vec![], n, threads: 1, operations: n }.report(&samples);
}

/// Up to three more repetitions whose times do not count, because measuring the lock costs some: their other figures
/// do. Of the longest holds the shortest is kept: a hold that is really long is so each time, while a thread may be
/// preempted at any moment.
fn measured(repetitions: usize, run: impl Fn() -> Sample) -> Option<Sample> {
    let least = |mut least: Sample, other: Sample| {
        for name in ["longest_hold_us", "last_emit_longest_hold_us"] {
            least.keep_least(name, &other);
        }
        least
    };
    (0..repetitions.min(3)).map(|_| run().untimed()).reduce(least)
}

fn emit_all(engine: Engine, graph: &Graph) -> Sample {
    let mut sample = Sample::default();
    let units = Units::new(engine, graph.len());
    let begun = Instant::now();
    units.define();
    sample.extra("define_ms", millis(begun.elapsed()));
    let answer = Answer::default();
    let request = units.request(&units.names);
    let begun = Instant::now();
    units.engine.session.lookup_async(request, answer.handler());
    sample.extra("lookup_ms", millis(begun.elapsed()));
    let mut parked = units.park(graph);
    units.engine.longest_hold_us();

    let (first_half, rest) = graph.order.split_at(graph.len() / 2);
    let (last, second_half) = rest.split_last().expect("a graph has units");
    let mut before = 0.0;
    let (half, end) = sample.time(|| {
        let begun = Instant::now();
        first_half.iter().for_each(|&unit| parked.emit(unit));
        let half = begun.elapsed();
        second_half.iter().for_each(|&unit| parked.emit(unit));
        before = units.engine.longest_hold_us();
        let begun = Instant::now();
        parked.emit(*last);
        (half, begun.elapsed())
    });
    assert_eq!(answer.get(), Some(true), "the last emission answers the lookup");
    let of_last = units.engine.longest_hold_us();
    if of_last > 0.0 {
        // The last emission makes many symbols Ready at once, in most shapes.
        sample.extra("longest_hold_us", before.max(of_last));
        sample.extra("last_emit_longest_hold_us", of_last);
    }
    let metrics = units.engine.session.metrics();
    if metrics.edges > 0 {
        sample.extra("edges_visited_per_edge", metrics.edge_visits as f64 / metrics.edges as f64);
        sample.extra("root_steps_per_edge", metrics.root_steps as f64 / metrics.edges as f64);
    }
    sample.extra("first_half_ms", millis(half));
    sample.extra("last_emit_ms", millis(end));
    drop(parked);
    let begun = Instant::now();
    drop(units.engine);
    sample.extra("teardown_ms", millis(begun.elapsed()));
    sample
}

/// The same walk without the engine: what reading and dropping the units' own memory costs in that order.
fn walk_all(engine: Engine, graph: &Graph) -> Sample {
    let mut sample = Sample::default();
    let units = Units::new(engine, graph.len());
    units.define();
    units.engine.session.lookup_async(units.request(&units.names), Answer::default().handler());
    let mut luggage = units.park(graph).into_luggage();
    sample.time(|| {
        for &unit in &graph.order {
            let luggage = luggage[unit].take().expect("a unit is emitted once");
            std::hint::black_box(luggage.look());
        }
    });
    sample
}

/// Fails the last unit of a chain whose other units are all emitted.
fn fail_chain(scale: Scale, n: usize) {
    let graph = Graph::chain(n);
    let mut samples = repeat(scale, |_| fail_the_leaf(Engine::silent(false), &graph));
    samples.extend(measured(samples.len(), || fail_the_leaf(Engine::silent(true), &graph)));
    Row { case: "fail_chain", parameters: vec![], n, threads: 1, operations: n }.report(&samples);
}

fn fail_the_leaf(engine: Engine, graph: &Graph) -> Sample {
    let n = graph.len();
    let mut sample = Sample::default();
    let units = Units::new(engine, n);
    units.define();
    let (resolved, ready) = (Answer::default(), Answer::default());
    let session = &units.engine.session;
    // The first lookup starts every unit; the second one is the lookup whose failure is timed.
    session.lookup_async(units.request(&units.names).until_resolved(), resolved.handler());
    session.lookup_async(units.request(&units.names[..1]), ready.handler());
    let mut parked = units.park(graph);
    let begun = Instant::now();
    (0..n - 1).for_each(|unit| parked.emit(unit));
    let leaf = parked.resolve(n - 1);
    sample.extra("setup_emit_ms", millis(begun.elapsed()));
    assert_eq!(resolved.get(), Some(true), "every symbol has an address");
    assert_eq!(ready.get(), None, "the head waits for the leaf");
    let error = shared_error("the leaf of the chain is broken");
    units.engine.longest_hold_us();
    sample.time(|| leaf.fail(error));
    assert_eq!(ready.get(), Some(false), "the failure reaches the head");
    let longest = units.engine.longest_hold_us();
    if longest > 0.0 {
        sample.extra("longest_hold_us", longest);
    }
    sample
}
