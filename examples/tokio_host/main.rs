//! A host with a reactor of its own: units are compiled on tokio's blocking threads, lookups are awaited, and timers go on
//! meanwhile.
//!
//! `cargo run --example tokio_host --no-default-features`

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

mod dispatcher;

use std::error::Error;
use std::time::Duration;

use tokio::sync::watch;
use uruk::core::sync::Arc;
use uruk::core::{FnUnit, LookupRequest, LookupSet, MaterializationUnit, SearchOrder};
use uruk::prelude::*;

use dispatcher::TokioTaskDispatcher;

/// Takes its time: as long as the heart needs for three more beats. If the reactor stood still, it would never end.
fn slow_unit(
    name: SymbolName,
    address: u64,
    mut heart: watch::Receiver<u64>,
) -> Box<dyn MaterializationUnit> {
    let symbol = name.clone();
    Box::new(FnUnit::new([name], move |request| -> Result<_, Box<dyn Error + Send + Sync>> {
        let until = *heart.borrow() + 3;
        // This thread is one of the runtime's for work that blocks.
        tokio::runtime::Handle::current().block_on(heart.wait_for(|beats| *beats >= until))?;
        Ok(request.addresses([(symbol.as_str(), ExecutorAddr::new(address))])?)
    }))
}

fn main() -> Result<(), Box<dyn Error>> {
    // One thread for everything that is awaited.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    runtime.block_on(host())
}

async fn host() -> Result<(), Box<dyn Error>> {
    let (heart, beats) = watch::channel(0);
    tokio::spawn(async move {
        let mut interval = tokio::time::interval(Duration::from_millis(1));
        loop {
            interval.tick().await;
            heart.send_modify(|beats| *beats += 1);
        }
    });

    let dispatcher = TokioTaskDispatcher::new(tokio::runtime::Handle::current());
    let session = ExecutionSession::builder().dispatcher(Arc::new(dispatcher)).build();
    let main = session.create_jit_dylib("main")?;
    let names: Vec<_> = (0..20).map(|index| session.intern(&format!("function{index}"))).collect();
    for (name, address) in names.iter().zip((0x1000..).step_by(16)) {
        main.define(slow_unit(name.clone(), address, beats.clone()))?;
    }

    // Twenty awaited at once, on a reactor of one thread.
    let before = *beats.borrow();
    let look_up = |name: &SymbolName| {
        let request = LookupRequest::new(SearchOrder::of(&main), LookupSet::required([name.clone()]));
        tokio::spawn(session.lookup_future(request))
    };
    let lookups: Vec<_> = names.iter().map(look_up).collect();
    for (name, lookup) in names.iter().zip(lookups) {
        let found = lookup.await??;
        assert!(found.contains(name), "an answer names what was asked for");
    }
    let during = *beats.borrow() - before;
    assert!(during >= 3, "the reactor went on while units were compiled");
    println!("{} functions compiled while the heart beat {during} times", names.len());

    // A close waits for tasks, so it is no business of the reactor's either.
    tokio::task::spawn_blocking(move || session.close()).await??;
    println!("closed");
    Ok(())
}
