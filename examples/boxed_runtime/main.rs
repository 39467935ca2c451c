//! A small dynamic runtime: eight threads call a method, which is interpreted, compiled, compiled better and made invalid while they do.
//!
//! `cargo run --example boxed_runtime`

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

mod methods;
mod runtime;

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use uruk::core::ExecutorAddr;
use uruk::instances::CodeInstanceState;

use methods::{expected, weigh};
use runtime::{Outcome, Runtime, Site};

const THREADS: u64 = 8;

/// Of each thread.
const CALLS: u64 = 200_000;

/// After so many calls of all threads together `weigh` is compiled better, or `scale` redefined.
const STEP: u64 = THREADS * CALLS / 15;

/// So many interpreted calls of one thread make an instance worth compiling.
const HOT: u32 = 100;

/// The observations of one thread.
#[derive(Default)]
struct Seen {
    interpreted: u64,
    worlds: HashSet<u64>,
    code: HashSet<ExecutorAddr>,
}

/// Calls as often as it shall, checks every value, and does what is due at some calls of all threads together.
fn call(runtime: &Runtime, calls: &AtomicU64, knows_types: bool) -> Outcome<Seen> {
    let mut seen = Seen::default();
    let mut guard = runtime.jit.enter();
    let mut site: Option<Site> = None;
    for number in 0..CALLS {
        // The instance is valid while the world is the same: no table is asked, and no lock taken.
        let world = runtime.table.world();
        let site = match &mut site {
            Some(site) if site.world == world => site,
            site => site.insert(runtime.site(world)?),
        };
        let (x, weight) = ((number % 1000) as i64, 0.5 * (number % 7) as f64);
        let state = site.instance.read();
        if let (CodeInstanceState::Specialized { specptr, .. }, true) = (state, knows_types) {
            seen.code.insert(specptr);
        }
        let value = weigh(&site.instance, state, knows_types, x, weight);
        if value.to_bits() != expected(site.factor, x, weight).to_bits() {
            return Err(format!("weigh({x}, {weight}) = {value} in world {world}").into());
        }
        seen.worlds.insert(world.number());
        if let CodeInstanceState::InvokeOnly { .. } = state {
            seen.interpreted += 1;
            site.interpreted += 1;
            if site.interpreted == HOT {
                runtime.compile(site)?;
            }
        }
        // Relaxed: each thread only has to get numbers of its own.
        let total = calls.fetch_add(1, Ordering::Relaxed) + 1;
        if total.is_multiple_of(STEP) {
            runtime.step(total / STEP, site)?;
        }
        if number % 1000 == 0 {
            guard.checkpoint(); // Code removed before may go: this thread no longer runs it.
        }
    }
    Ok(seen)
}

fn main() -> Outcome<()> {
    let (runtime, calls) = (Runtime::new()?, AtomicU64::new(0));
    let seen = thread::scope(|scope| {
        let start = |number| {
            let (runtime, calls) = (&runtime, &calls);
            scope.spawn(move || call(runtime, calls, number % 2 == 0))
        };
        let threads: Vec<_> = (0..THREADS).map(start).collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect::<Outcome<Vec<_>>>()
    })?;
    let worlds: HashSet<u64> = seen.iter().flat_map(|seen| seen.worlds.iter().copied()).collect();
    let code: HashSet<ExecutorAddr> = seen.iter().flat_map(|seen| seen.code.iter().copied()).collect();
    let interpreted: u64 = seen.iter().map(|seen| seen.interpreted).sum();
    println!("{} calls in {} worlds, each value that of its world", THREADS * CALLS, worlds.len());
    println!("{interpreted} interpreted, the others in compiled code, in {} pieces", code.len());
    println!("{} instances were invalidated, and their code is gone", runtime.finish()?);
    Ok(())
}
