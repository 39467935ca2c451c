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
    sizes.iter().map(point).collect()
}

/// Defines symbols one by one, then looks all of them up.
fn absolute(scale: Scale, n: usize) {
    let samples = repeat(scale, |repetition| {
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
    Row { case: "define_absolute", parameter: None, n, threads: 1, operations: n }.report(&samples);
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
    Row { case: "remove_trackers", parameter: None, n, threads: 1, operations: n }.report(&samples);
}
