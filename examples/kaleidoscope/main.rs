//! Kaleidoscope in a program of one's own: what a user writes runs at once, is compiled when it is called, and may be replaced.
//!
//! `cargo run -p uruk-kaleidoscope --example kaleidoscope`
//!
//! The session is that of `uruk repl`, in `src/cli/repl/session`: begin with its `mod.rs`. The language is the crate `uruk-kaleidoscope`.

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

#[expect(dead_code, reason = "the command asks more of it than this program does")]
#[path = "../../src/cli/repl/session/mod.rs"]
mod session;

use std::error::Error;
use std::sync::Arc;

use session::{Outcome, Session};
use uruk::pipeline::ir::OptimizationLevel;
use uruk_kaleidoscope::Source;

/// The temperature outside, a function that users of this program call.
extern "C" fn outside(hour: f64) -> f64 {
    20.0 - (hour - 14.0).abs()
}

/// Does what a text says; what its last expression was.
fn run(session: &mut Session, text: &str) -> Result<Option<f64>, Box<dyn Error>> {
    let source = Arc::new(Source { name: "rules".into(), first_line: 1, text: text.to_owned() });
    let mut last = None;
    for item in session.parse(&source)? {
        if let Outcome::Value(value) = session.run(item)? {
            last = Some(value.number);
        }
    }
    Ok(last)
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut session = Session::new(OptimizationLevel::O2, &[("outside", outside)])?;
    // `limit` is not there yet, which does not matter before `heats` is called.
    run(&mut session, "def heats(hour) outside(hour) < limit(hour)")?;
    run(&mut session, "def limit(hour) 15")?;
    let hours = "def binary: 1 (a b) b
                 def hours() var sum in (for hour = 1, hour < 24 in sum = sum + heats(hour)) : sum";
    run(&mut session, hours)?;
    let before = run(&mut session, "hours()")?;

    // The rule changes while the program runs. Its callers stay as they are.
    run(&mut session, "def limit(hour) if hour < 7 then 10 else 18")?;
    let after = run(&mut session, "hours()")?;
    println!("hours of heating a day: {before:?}, and with the new rule {after:?}");
    assert_eq!((before, after), (Some(13.0), Some(16.0)));

    // A mistake is an error with its place, and the session goes on.
    let error = run(&mut session, "heats(1, 2)").expect_err("there is one hour too many");
    println!("{error}");
    assert_eq!(run(&mut session, "heats(3)")?, Some(1.0));
    Ok(())
}
