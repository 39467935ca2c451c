//! How long a line takes, from its text to its answer: an expression, a function's first call, a redefinition.

#![expect(clippy::print_stdout, reason = "a bench says what it has measured")]

#[path = "../../src/cli/repl/session/mod.rs"]
#[expect(dead_code, reason = "the command asks more of it than this bench does")]
mod session;

use std::sync::Arc;
use std::time::{Duration, Instant};

use session::{Outcome, Session};
use uruk::pipeline::ir::OptimizationLevel;
use uruk_kaleidoscope::Source;

/// Does what a text says.
fn run(session: &mut Session, text: &str) -> f64 {
    let source = Arc::new(Source { name: "bench".into(), first_line: 1, text: text.to_owned() });
    let mut last = 0.0;
    for item in session.parse(&source).expect("it is right") {
        if let Outcome::Value(value) = session.run(item).expect("it runs") {
            last = value.number;
        }
    }
    last
}

const LINES: u32 = 2_000;

/// The text of the line with that number.
type Line = fn(u32) -> String;

const CASES: [(&str, Line); 4] = [
    ("expression", |line| format!("1 + {line} * 2")),
    ("expression that calls", |line| format!("old({line})")),
    ("new function and its first call", |line| {
        format!("def new{line}(n) if n < 3 then 1 else old(n-1) * n new{line}(5)")
    }),
    ("redefinition and a call", |line| format!("def changing(x) x + {line} changing(1)")),
];

fn main() {
    println!("{:<36} {:>9} {:>9} {:>9}", "line to answer", "10 %", "median", "99 %");
    for level in [OptimizationLevel::O0, OptimizationLevel::O2] {
        for (name, line) in CASES {
            let mut session = Session::new(level, &[]).expect("an engine for this machine");
            run(&mut session, "def old(x) if x < 1 then 1 else x * 2 old(1)");
            let mut times: Vec<Duration> = Vec::new();
            for number in 0..LINES {
                let text = line(number);
                let begun = Instant::now();
                run(&mut session, &text);
                times.push(begun.elapsed());
            }
            times.sort_unstable();
            let of = |hundredths: usize| format!("{:.2?}", times[times.len() * hundredths / 100]);
            println!("{:<36} {:>9} {:>9} {:>9}", format!("{level}: {name}"), of(10), of(50), of(99));
        }
    }
}
