//! Functions that are linked when they are first called: the cost of the first call of each, and of later calls.
//!
//! Later calls are measured twice, through the stub and directly, each cycling over all functions and with one of them alone. Every call
//! takes the answer of the one before.

use std::time::Instant;
use uruk_core::LookupRequest;

use uruk::Jit;
use uruk::core::SearchOrder;
use uruk::pipeline::object::ObjectBuffer;

use crate::generate;
use crate::harness::{Row, Sample, Scale, median, repeat};
use crate::linking::{compiled, read};
use crate::point::{Inputs, Point};
use crate::support::{order, set};

type Body = extern "C" fn(u64) -> u64;

pub(crate) fn points(inputs: &Inputs) -> Vec<Point> {
    let inputs = inputs.clone();
    let run = move || {
        let n = inputs.scale.pick(200, 1_000);
        let objects: Result<Vec<ObjectBuffer>, String> = match &inputs.data {
            Some(data) => (0..n).map(|i| read(&data.join(format!("lazy_obj/l{i:04}.o")))).collect(),
            None => compiled(n, "l", generate::lazy),
        };
        call(inputs.scale, &objects.unwrap_or_else(|mistake| panic!("{mistake}")));
    };
    vec![Point::new("lazy", "", 0, run)]
}

fn call(scale: Scale, objects: &[ObjectBuffer]) {
    let n = objects.len();
    let samples = repeat(scale, |_| sample(scale, objects));
    Row { case: "lazy", parameters: Vec::new(), n, threads: 1, operations: n }.report(&samples);
}

fn sample(scale: Scale, objects: &[ObjectBuffer]) -> Sample {
    let n = objects.len();
    let names: Vec<_> = (0..n).map(|number| format!("l{number}")).collect();
    let jit = Jit::builder().threads(0).build().expect("an engine for this machine");
    let bodies = jit.create_dylib("impl").expect("a new name");
    let mut sample = Sample::default();
    let micros = |begun: Instant| begun.elapsed().as_nanos() as f64 / 1e3;

    let begun = Instant::now();
    for object in objects {
        bodies.add_object(object.clone()).expect("the compiler's objects are sound");
    }
    sample.extra("add_bodies_us_per_op", micros(begun) / n as f64);
    let begun = Instant::now();
    jit.add_lazy(&bodies, names.iter().map(String::as_str)).expect("the bodies are there");
    let stubs = functions(&jit, &order([jit.main_dylib()]), &names);
    sample.extra("make_stub_us_per_op", micros(begun) / n as f64);

    let mut first = Vec::with_capacity(n);
    let sum = sample.time(|| {
        let call = |sum: u64, (argument, stub): (u64, &Body)| {
            let begun = Instant::now();
            let sum = sum.wrapping_add(stub(argument));
            first.push(micros(begun));
            sum
        };
        (0..).zip(&stubs).fold(0, call)
    });
    std::hint::black_box(sum);
    first.sort_by(f64::total_cmp);
    sample.extra("first_call_us_p99", first[n * 99 / 100]);
    sample.extra("first_call_us_median", median(first));

    let direct = functions(&jit, &order([bodies.dylib()]), &names);
    let calls = scale.pick(4_000_000, 20_000_000);
    sample.extra("steady_direct_ns", later_calls_ns(calls, &direct));
    sample.extra("steady_stub_ns", later_calls_ns(calls, &stubs));
    sample.extra("steady_direct_hot_ns", later_calls_ns(calls, &vec![direct[0]; n]));
    sample.extra("steady_stub_hot_ns", later_calls_ns(calls, &vec![stubs[0]; n]));
    sample
}

fn functions(jit: &Jit, order: &SearchOrder, names: &[String]) -> Vec<Body> {
    let names: Vec<_> = names.iter().map(|name| jit.intern(name)).collect();
    let found = jit.session().lookup(LookupRequest::new(order, set(&names))).expect("every object links");
    let function = |name| {
        let address = found.get(name).expect("it was asked for").address;
        // SAFETY: the generator gives every function this signature, and the engine outlives the calls.
        unsafe { std::mem::transmute::<*mut (), Body>(address.to_ptr::<()>()) }
    };
    names.iter().map(function).collect()
}

/// Nanoseconds of one call of many, which cycle over `functions`.
fn later_calls_ns(calls: usize, functions: &[Body]) -> f64 {
    let begun = Instant::now();
    let mut answer = 1;
    for _ in 0..calls / functions.len() {
        for function in functions {
            answer = function(answer);
        }
    }
    std::hint::black_box(answer);
    begun.elapsed().as_nanos() as f64 / (calls / functions.len() * functions.len()) as f64
}
