//! Objects that are in memory already become code: many small ones, each of which calls another, and one large one.
//!
//! The peer links them in four ways, of which each stands beside our one. The large object is the work of its C compiler, so it
//! is measured with `--data` alone; the small ones are compiled here if they are not to be had there.

use std::path::Path;
use std::time::Instant;
use uruk_core::LookupRequest;

use uruk::Jit;
use uruk::pipeline::ir::{IrCompiler, JitTargetMachineBuilder, OptimizationPipeline, ThreadSafeModule};
use uruk::pipeline::object::ObjectBuffer;

use crate::generate;
use crate::harness::{Row, Sample, Scale, millis, on_threads, repeat};
use crate::point::{Inputs, Point};
use crate::support::{order, set};

/// The input of the linker.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Input {
    /// So many objects of one function.
    Small(usize),
    Big,
}

pub(crate) fn points(inputs: &Inputs) -> Vec<Point> {
    let small = Input::Small(inputs.scale.pick(200, 1_000));
    let mut points = vec![point(inputs, "", 0, 0, small)];
    if inputs.data.is_some() {
        points.push(point(inputs, "", 0, 0, Input::Big));
    }
    points.push(point(inputs, "", 2, 2, small));
    for threads in [1, 2] {
        points.push(handles(inputs, threads));
    }
    let sizes = inputs.scale.pick(&[100, 400][..], &[250, 500, 1_000, 2_000, 4_000]);
    points.extend(sizes.iter().map(|&n| point(inputs, "grow", n, 0, Input::Small(n))));
    points
}

fn point(inputs: &Inputs, group: &'static str, n: usize, threads: usize, input: Input) -> Point {
    let inputs = inputs.clone();
    Point::new("link_objects", group, n, move || {
        let objects = load(inputs.data.as_deref(), input).unwrap_or_else(|mistake| panic!("{mistake}"));
        link(inputs.scale, threads, input, &objects);
    })
}

/// Gets a handle of each of some linked functions, again and again. `lookup_ns_per_op` is the time of a lookup of the same texts.
fn handles(inputs: &Inputs, threads: usize) -> Point {
    const FUNCTIONS: usize = 100;
    let scale = inputs.scale;
    Point::new("get_handle", "", 0, move || {
        let times = scale.pick(40_000, 200_000);
        let jit = Jit::builder().threads(0).build().expect("an engine for this machine");
        let objects = compiled(FUNCTIONS, "s", generate::small).unwrap_or_else(|mistake| panic!("{mistake}"));
        objects
            .into_iter()
            .for_each(|object| jit.add_object(object).expect("the compiler's objects are sound"));
        let texts: Vec<String> = (0..FUNCTIONS).map(|number| format!("s{number}")).collect();
        let measure = |ask: &(dyn Fn(&str) + Sync)| {
            texts.iter().for_each(|text| ask(text));
            on_threads(&mut vec![(); threads], |thread, ()| {
                (0..times).for_each(|index| ask(&texts[(thread * 37 + index * 7) % FUNCTIONS]));
            })
        };
        let lookup = |text: &str| _ = std::hint::black_box(jit.lookup(text).expect("it links"));
        // SAFETY: the generator gives every function this signature, and none is called.
        let get = |text: &str| unsafe {
            std::hint::black_box(jit.get::<extern "C" fn(u64) -> u64>(text).expect("it links"));
        };
        let samples = repeat(scale, |_| {
            let (beside, mut sample) = (measure(&lookup), measure(&get));
            sample.extra("lookup_ns_per_op", beside.wall.as_nanos() as f64 / (times * threads) as f64);
            sample
        });
        let operations = times * threads;
        Row { case: "get_handle", parameters: vec![], n: FUNCTIONS, threads: threads as i64, operations }
            .report(&samples);
    })
}

/// The objects, in memory of ours.
fn load(data: Option<&Path>, input: Input) -> Result<Vec<ObjectBuffer>, String> {
    match (data, input) {
        (Some(data), Input::Small(n)) => {
            (0..n).map(|number| read(&data.join(format!("small_obj/s{number:04}.o")))).collect()
        }
        (Some(data), Input::Big) => Ok(vec![read(&data.join("big.o"))?]),
        (None, Input::Small(n)) => compiled(n, "s", generate::small),
        (None, Input::Big) => Err("the large object is in --data".to_owned()),
    }
}

/// An object in memory of ours.
pub(crate) fn read(path: &Path) -> Result<ObjectBuffer, String> {
    let bytes = std::fs::read(path).map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(ObjectBuffer::new(path.display().to_string(), bytes))
}

/// Small objects as the peer's generator has them compiled: of the texts that `write` gives by number, named with `letter`.
pub(crate) fn compiled(
    n: usize,
    letter: &str,
    write: impl Fn(usize) -> String,
) -> Result<Vec<ObjectBuffer>, String> {
    let target = JitTargetMachineBuilder::host().map_err(|error| error.to_string())?;
    let compiler = IrCompiler::new(target, OptimizationPipeline::none());
    let compile = |number| {
        let source = ObjectBuffer::new(format!("{letter}{number:04}"), write(number).into_bytes());
        let object = ThreadSafeModule::parse(&source).and_then(|module| compiler.compile(module));
        object.map_err(|error| error.to_string())
    };
    (0..n).map(compile).collect()
}

/// Adds all objects and looks their functions up; calls the last one.
fn link(scale: Scale, threads: usize, input: Input, objects: &[ObjectBuffer]) {
    let bytes: usize = objects.iter().map(ObjectBuffer::size_bytes).sum();
    let samples = repeat(scale, |_| {
        let jit = Jit::builder().threads(threads).build().expect("an engine for this machine");
        let order = order([jit.main_dylib()]);
        let names: Vec<_> = match input {
            Input::Big => vec![jit.intern("big_main")],
            Input::Small(n) => (0..n).map(|number| jit.intern(&format!("s{number}"))).collect(),
        };
        let mut sample = Sample::default();
        sample.time(|| {
            for object in objects {
                jit.add_object(object.clone()).expect("the compiler's objects are sound");
            }
        });
        sample.extra("add_ms", millis(sample.wall));
        let found = sample
            .time(|| jit.session().lookup(LookupRequest::new(&order, set(&names))))
            .expect("every object links");
        assert_eq!(found.len(), names.len());
        sample.extra("mb_per_s", bytes as f64 / 1e6 / sample.wall.as_secs_f64());
        let last = names.last().expect("there are objects").as_str();
        // SAFETY: the generator gives every function this signature, and `jit` outlives the call.
        let function: extern "C" fn(u64) -> u64 =
            unsafe { jit.function(last) }.expect("it is Ready and callable");
        std::hint::black_box(function(1));
        let begun = Instant::now();
        drop(jit);
        sample.extra("teardown_ms", millis(begun.elapsed()));
        sample
    });
    let input = match input {
        Input::Small(_) => "\"small\"",
        Input::Big => "\"big\"",
    };
    Row {
        case: "link_objects",
        parameters: vec![("input", input.to_owned()), ("bytes", bytes.to_string())],
        n: objects.len(),
        threads: threads as i64,
        operations: objects.len(),
    }
    .report(&samples);
}
