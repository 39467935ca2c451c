//! From nothing to the answer of the smallest function: once in a process that has done nothing before, and again.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use uruk::Jit;
use uruk::pipeline::ir::JitTargetMachineBuilder;

use crate::harness::{Row, Sample, Scale, millis, repeat};
use crate::modules::Level;
use crate::point::{Inputs, Point};

const SOURCE: &str = "define i32 @f() {\n  ret i32 42\n}\n";

/// The figures of a start that have names of their own, in the order in which a process tells them after its times.
const STAGES: [&str; 3] = ["init_ms", "create_ms", "compile_link_ms"];

pub(crate) fn points(inputs: &Inputs) -> Vec<Point> {
    let scale = inputs.scale;
    let of_level = |level: Level| {
        [
            Point::new("startup", level.label(), 0, move || cold(scale, level)),
            Point::new("startup", level.label(), 1, move || warm(scale, level)),
        ]
    };
    [Level::O0, Level::O2].into_iter().flat_map(of_level).collect()
}

/// Starts once and says how long it took: what a process for [`cold`] does.
pub(crate) fn tell(level: Level) {
    let sample = start(level);
    let stages = STAGES.map(|name| sample.figure(name).to_string());
    println!("{} {} {}", sample.wall.as_nanos(), sample.cpu.as_nanos(), stages.join(" "));
}

/// Each start in a process of its own. Its loader has mapped LLVM before the clock starts, as the peer's parent has.
fn cold(scale: Scale, level: Level) {
    let samples: Vec<Sample> = (0..scale.pick(7, 21)).map(|_| start_elsewhere(level)).collect();
    report("cold", level, &samples);
}

fn warm(scale: Scale, level: Level) {
    start(level);
    report("warm", level, &repeat(scale, |_| start(level)));
}

fn start(level: Level) -> Sample {
    let mut sample = Sample::default();
    let mut stages = [Duration::ZERO; 3];
    sample.time(|| {
        let begun = Instant::now();
        // The first of a process makes the code generator ready.
        drop(JitTargetMachineBuilder::host().expect("a code generator for this machine"));
        let ready = Instant::now();
        let builder = Jit::builder().threads(0).optimization(level.optimization()).pipeline(level.pipeline());
        let jit = builder.build().expect("an engine for this machine");
        let made = Instant::now();
        jit.add_ir_text("startup", SOURCE).expect("valid IR");
        // SAFETY: the source gives it this signature, and `jit` outlives the call.
        let function: extern "C" fn() -> i32 = unsafe { jit.function("f") }.expect("it compiles");
        stages = [ready - begun, made - ready, made.elapsed()];
        assert_eq!(function(), 42);
        // The peer's engine, too, goes when the clock is read.
        jit
    });
    for (name, stage) in STAGES.into_iter().zip(stages) {
        sample.extra(name, millis(stage));
    }
    sample
}

fn start_elsewhere(level: Level) -> Sample {
    let program = std::env::current_exe().expect("this program");
    let output = Command::new(program).args(["--start", level.name()]).stdin(Stdio::null()).output();
    let output = output.expect("this program starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).expect("figures");
    let figures: Vec<f64> = text.split_whitespace().map(|word| word.parse().expect("a figure")).collect();
    let nanos = |figure: f64| Duration::from_nanos(figure as u64);
    let mut sample = Sample::of(nanos(figures[0]), nanos(figures[1]));
    for (name, &figure) in STAGES.into_iter().zip(&figures[2..]) {
        sample.extra(name, figure);
    }
    sample
}

fn report(state: &str, level: Level, samples: &[Sample]) {
    let parameters = vec![("state", format!("\"{state}\"")), ("opt", level.json())];
    Row { case: "startup", parameters, n: 1, threads: 0, operations: 1 }.report(samples);
}
