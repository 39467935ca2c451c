//! A program that is compiled ahead, as a package of units: loaded, partly compiled anew, redefined, removed and loaded again.
//!
//! `cargo run --example images`

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::error::Error;

use uruk::prelude::*;
use uruk::{ImageBuilder, ImageOptions, LoadedImage, UnitState};

const REPORT: &str = "declare i64 @round(i64)
    define i64 @report(i64 %x) { %y = call i64 @round(i64 %x) %z = add i64 %y, 1 ret i64 %z }";
const ROUND: &str = "define i64 @round.1(i64 %x) { %y = mul i64 %x, 10 ret i64 %y }";

/// Stands in for the function that the image is going to meet.
extern "C" fn any_round(x: i64) -> i64 {
    x
}

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::temp_dir().join(format!("uruk-example-{}.uim", std::process::id()));
    let builder = ImageBuilder::new(Jit::builder())?.package();
    builder.add_ir_text("report.ll", REPORT)?;
    builder.add_ir_text("round.ll", ROUND)?;
    builder.define("round", any_round as extern "C" fn(i64) -> i64)?;
    builder.build()?.write(&path)?;

    let jit = Jit::builder().build()?;
    let bodies = jit.create_dylib("bodies")?;
    // Both sources are as they were, so nothing is compiled.
    let sources = |round: &str| {
        let source = |name: &str, text: &str| ObjectBuffer::new(name, text.as_bytes().to_vec());
        ImageOptions::new().source(source("report.ll", REPORT)).source(source("round.ll", round))
    };
    let tracker = bodies.create_tracker();
    let image = bodies.in_tracker(&tracker).load_image(&path, sources(ROUND))?;
    jit.add_lazy(&bodies, [("round", "round.1")])?;
    // SAFETY: that is the function's signature.
    let report = unsafe { bodies.get::<extern "C" fn(i64) -> i64>("report") }?;
    println!("from the image: report(4) = {}", report(4));
    assert_eq!((report(4), states(&image)), (41, "report.ll: used, round.ll: used".to_owned()));

    // Code of the image reaches `round` by way of a slot, which leads elsewhere from now on.
    let replacement = bodies.create_tracker();
    bodies
        .in_tracker(&replacement)
        .add_ir_text("round.2.ll", "define i64 @round.2(i64 %x) { %y = mul i64 %x, 100 ret i64 %y }")?;
    jit.redefine(&bodies, [("round", "round.2")])?;
    println!("redefined: report(4) = {}", report(4));
    assert_eq!(report(4), 401);

    // The code goes with its tracker, when the last handle is gone too.
    drop(report);
    tracker.remove()?;
    assert!(bodies.lookup("report").is_err());

    // `round.ll` was edited: this unit is compiled, and the other one comes from the image.
    let edited = ROUND.replace("10", "1000");
    let tracker = bodies.create_tracker();
    let options = sources(&edited).on_reject(|event| println!("{event}"));
    let image = bodies.in_tracker(&tracker).load_image(&path, options)?;
    jit.redefine(&bodies, [("round", "round.1")])?;
    // SAFETY: as above.
    let report = unsafe { bodies.get::<extern "C" fn(i64) -> i64>("report") }?;
    println!("with an edited source: report(4) = {}", report(4));
    assert_eq!((report(4), states(&image)), (4001, "report.ll: used, round.ll: rejected".to_owned()));
    std::fs::remove_file(&path)?;
    Ok(())
}

fn states(image: &LoadedImage) -> String {
    let state = |state| match state {
        UnitState::Unused => "unused",
        UnitState::Used => "used",
        _ => "rejected",
    };
    let units = image.units().into_iter().map(|(name, of)| format!("{name}: {}", state(of)));
    units.collect::<Vec<_>>().join(", ")
}
