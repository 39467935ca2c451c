//! A runtime that starts from an image: its methods were compiled before, so it compiles none. When a method is redefined, those are compiled
//! that contain its code, and no others.
//!
//! `cargo run --example image_instances`

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

mod methods;
mod runtime;

use std::error::Error;

use methods::{build, number_of};
use runtime::Runtime;

type Outcome<T> = Result<T, Box<dyn Error>>;

fn main() -> Outcome<()> {
    let path = std::env::temp_dir().join(format!("uruk-image-instances-{}.uim", std::process::id()));
    let numbers = [1, 20, 300, 4000];
    build(&path, &numbers)?;
    let runtime = Runtime::start(&path, numbers)?;
    std::fs::remove_file(&path)?; // It is mapped.
    assert_eq!(runtime.call_all()?, [1001, 1021, 1321, 5000]);
    assert_eq!(runtime.compiled.get(), 0);
    println!("four methods called, and none compiled");

    let ended = runtime.redefine(number_of("tax"), 50);
    assert_eq!(runtime.call_all()?, [1001, 1051, 1351, 5000]);
    assert_eq!((ended, runtime.compiled.get()), (2, 2));
    println!(
        "`tax` was redefined: {ended} instances ended, and {} methods were compiled",
        runtime.compiled.get()
    );
    Ok(())
}
