//! The cost of a note: while nothing is recorded, in a file, and with a name; and of a flight recorder's beginning and end.
//!
//! ```text
//! cargo bench --bench note
//! ```
//!
//! Prints nanoseconds: the least and the median of the rounds.

#![expect(clippy::print_stdout, reason = "a bench reports on stdout")]

use std::hint::black_box;
use std::process::Command;
use std::time::Instant;

use uruk_recorder::{Entry, Flight, Kind, Options, disable, note, static_name, write_name};

const ROUNDS: usize = 31;
const NOTES: u64 = 100_000;

fn main() {
    // Under `cargo test --benches` it is only built, and measures nothing.
    if std::env::args().any(|argument| argument == "--test") {
        return;
    }
    if std::env::args().any(|argument| argument == START) {
        return start();
    }
    starts();
    row("nothing is recorded", |number| note(|| mark(number)));
    let flight = Flight::begin(Options::small()).expect("there is a directory for it");
    row("recorded", |number| note(|| mark(number)));
    row("with a name that stands in code", |number| note(|| mark(number).named(static_name!("a name"))));
    let texts: Vec<_> = (0..64).map(|number| format!("a name of some length {number}")).collect();
    row("with a name that is looked for", |number| {
        let text = &texts[number as usize % texts.len()];
        note(|| mark(number).named(write_name(text)));
    });
    disable();
    row("recorded no more", |number| note(|| mark(number)));
    flight.remove();
}

fn mark(number: u64) -> Entry {
    Entry::new(Kind::Mark).with(number, 0)
}

fn row(what: &str, work: impl Fn(u64)) {
    let mut rounds = [(); ROUNDS].map(|()| {
        let begun = Instant::now();
        (0..NOTES).for_each(|number| work(black_box(number)));
        begun.elapsed().as_nanos() as f64 / NOTES as f64
    });
    print(what, &mut rounds);
}

fn print(what: &str, rounds: &mut [f64]) {
    rounds.sort_unstable_by(f64::total_cmp);
    println!("{what:<34} {:>9.1} ns, median {:>9.1} ns", rounds[0], rounds[rounds.len() / 2]);
}

/// How a process asks for another that begins to record.
const START: &str = "--start";

/// A process has one recording, so each beginning is that of another.
fn starts() {
    let this = std::env::current_exe().expect("it has a path");
    let took = |_| {
        let output = Command::new(&this).arg(START).output().expect("it starts").stdout;
        String::from_utf8_lossy(&output).trim().parse().expect("it prints a number")
    };
    let mut rounds: Vec<f64> = (0..ROUNDS).map(took).collect();
    print("begin, 100 notes with names, end", &mut rounds);
}

fn start() {
    let begun = Instant::now();
    let flight = Flight::begin(Options::small()).expect("there is a directory for it");
    for number in 0..100 {
        note(|| mark(number).named(write_name(&format!("a name of some length {number}"))));
    }
    flight.remove();
    println!("{}", begun.elapsed().as_nanos());
}
