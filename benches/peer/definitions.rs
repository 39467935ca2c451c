//! Symbols that are there at once: what defining, finding and removing them costs.

use std::time::Instant;

use crate::harness::{Row, Sample, Scale, millis, repeat, resident_bytes};
use crate::point::Point;
use crate::support::{Engine, one_absolute};

pub(crate) fn absolute_points(scale: Scale) -> Vec<Point> {
    let sizes = scale.pick(&[10_000, 100_000][..], &[10_000, 100_000, 1_000_000]);
    let point = |&n| Point::new("define_absolute", "define_absolute", n, move || absolute(scale, n));
    sizes.iter().map(point).collect()
}

pub(crate) fn tracker_points(scale: Scale) -> Vec<Point> {
    let sizes = scale.pick(&[1_000, 10_000][..], &[1_000, 10_000, 100_000]);
    let point = |&n| Point::new("remove_trackers", "remove_trackers", n, move || trackers(scale, n));
    let mut points: Vec<_> = sizes.iter().map(point).collect();
    // The peer has no such case.
    let sizes = scale.pick(&[10_000, 100_000][..], &[10_000, 100_000, 1_000_000]);
    let point = |&n| Point::new("remove_tracker", "remove_tracker", n, move || tracker(scale, n));
    points.extend(sizes.iter().map(point));
    points
}

/// Removes one tracker of many symbols, all of them Ready.
fn tracker(scale: Scale, n: usize) {
    let remove_from = |engine: Engine| {
        let names = engine.names(0, n);
        let tracker = engine.main.create_tracker();
        for (index, name) in names.iter().enumerate() {
            engine.main.define_with_tracker(one_absolute(name, index), &tracker).expect("names are distinct");
        }
        engine.look_up(&engine.order, &names);
        engine.longest_hold_us();
        let mut sample = Sample::default();
        sample.time(|| tracker.remove().expect("there are no resources that could refuse"));
        let longest = engine.longest_hold_us();
        if longest > 0.0 {
            sample.extra("longest_hold_us", longest);
        }
        sample
    };
    let mut samples = repeat(scale, |_| remove_from(Engine::in_place()));
    samples.push(remove_from(Engine::measured()).untimed());
    Row { case: "remove_tracker", parameters: vec![], n, threads: 1, operations: n }.report(&samples);
}

/// Defines symbols one by one, then looks all of them up.
fn absolute(scale: Scale, n: usize) {
    let mut samples = repeat(scale, |repetition| {
        let engine = Engine::in_place();
        let names = engine.names(0, n);
        let before = resident_bytes();
        let mut sample = Sample::default();
        sample.time(|| {
            for (index, name) in names.iter().enumerate() {
                engine.define_absolute(name, index);
            }
        });
        let defining = sample.wall;
        let defined = resident_bytes();
        let found = sample.time(|| engine.look_up(&engine.order, &names));
        drop(found);
        let peak = resident_bytes();
        if repetition == 0 {
            let per_symbol = |bytes: f64| (bytes - before) / n as f64;
            sample.extra("bytes_per_op_defined", per_symbol(defined));
            sample.extra("bytes_per_op_peak", per_symbol(peak));
            sample.extra("bytes_per_op_ready", per_symbol(resident_bytes()));
        }
        sample.extra("define_ns_per_op", defining.as_nanos() as f64 / n as f64);
        sample.extra("lookup_ns_per_op", (sample.wall - defining).as_nanos() as f64 / n as f64);
        let begun = Instant::now();
        drop(engine);
        sample.extra("teardown_ms", millis(begun.elapsed()));
        sample
    });
    let mut holds = Sample::default();
    let engine = Engine::measured();
    let names = engine.names(0, n);
    names.iter().enumerate().for_each(|(index, name)| engine.define_absolute(name, index));
    holds.extra("longest_hold_us", engine.longest_hold_us());
    drop(engine.look_up(&engine.order, &names));
    holds.extra("lookup_longest_hold_us", engine.longest_hold_us());
    engine.main.clear().expect("there are no resources that could refuse");
    holds.extra("clear_longest_hold_us", engine.longest_hold_us());
    samples.push(holds.untimed());
    Row { case: "define_absolute", parameters: vec![], n, threads: 1, operations: n }.report(&samples);
}

/// Removes trackers of one symbol each, in the order of their creation.
fn trackers(scale: Scale, n: usize) {
    let samples = repeat(scale, |_| {
        let engine = Engine::in_place();
        let names = engine.names(0, n);
        let begun = Instant::now();
        let trackers: Vec<_> = names
            .iter()
            .enumerate()
            .map(|(index, name)| {
                let tracker = engine.main.create_tracker();
                let unit = one_absolute(name, index);
                engine.main.define_with_tracker(unit, &tracker).expect("names are distinct");
                tracker
            })
            .collect();
        let mut sample = Sample::default();
        sample.extra("define_ns_per_op", begun.elapsed().as_nanos() as f64 / n as f64);
        engine.look_up(&engine.order, &names);
        sample.time(|| {
            for tracker in &trackers {
                tracker.remove().expect("there are no resources that could refuse");
            }
        });
        sample
    });
    Row { case: "remove_trackers", parameters: vec![], n, threads: 1, operations: n }.report(&samples);
}
