//! A host that survives its plugins. Each runs in a process of its own, and is compiled in another one: a plugin that crashes, never returns, or
//! exits ends its executor alone, and one that LLVM gives up on fails alone. The host gets an error, and goes on.
//!
//! This program is the executor and the helper too, when the engine starts it with an argument that says so.
//!
//! `cargo run --example contained_plugins`

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

mod plugins;

use std::error::Error;
use std::path::PathBuf;
use std::time::Duration;

use plugins::{PLUGINS, Plugin};
use uruk::core::WithCauses;
use uruk::pipeline::helpers::Helpers;
use uruk::pipeline::ir::serve_compiles;
use uruk::pipeline::remote::{RemoteProgram, serve_executor};
use uruk::{Jit, JitError};

type Outcome<T> = Result<T, Box<dyn Error>>;

fn main() -> Outcome<()> {
    match std::env::args().nth(1).as_deref() {
        Some("executor") => Ok(serve_executor()?),
        Some("compile-helper") => Ok(serve_compiles()?),
        _ => host(std::env::current_exe()?),
    }
}

fn host(this_program: PathBuf) -> Outcome<()> {
    let mut loaded = Vec::new();
    for plugin in &PLUGINS {
        let jit = contained(&this_program)?;
        let told = match load_and_price(&jit, plugin, 100) {
            Ok(price) => format!("gives {price}"),
            Err(error) => one_line(&WithCauses(&error).to_string()),
        };
        println!("{:>8}: {told}", plugin.name);
        assert!(
            told.contains(plugin.outcome),
            "{} has another outcome than `{}`",
            plugin.name,
            plugin.outcome
        );
        loaded.push(jit);
    }
    // Its process has seen nothing of what the others did.
    assert_eq!(loaded[0].call_there::<u64>("price", (1000_u64,))?, 1019);
    println!("the host goes on, and so does `{}`", PLUGINS[0].name);
    Ok(())
}

/// An engine whose code runs, and is compiled, elsewhere.
fn contained(program: &PathBuf) -> Result<Jit, JitError> {
    let executor = RemoteProgram::new(program).argument("executor").call_limit(Duration::from_millis(200));
    let helpers = Helpers::new(program).argument("compile-helper").count(1).memory(1 << 30);
    Jit::builder().threads(1).executor(executor).compile_in(helpers).build()
}

fn load_and_price(jit: &Jit, plugin: &Plugin, net: u64) -> Result<u64, JitError> {
    jit.add_ir_text(plugin.name, plugin.code)?;
    jit.call_there("price", (net,))
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
