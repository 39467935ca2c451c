//! Blocked workers and those that replace them, as a trace to look at.
//!
//! `cargo run --features trace --example blocked_workers -- trace.json`, then open the file in <https://ui.perfetto.dev>.
//!
//! Three units, each of which blocks in a lookup of the next, on a pool of one worker. Each time another thread goes on with
//! the worker's slot: the trace shows a slice `dispatch.block` on the track of the one. The other's work has a track of its
//! own, which begins with `replaces a blocked worker`.

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::error::Error;
use std::path::Path;

use tracing_subscriber::layer::SubscriberExt as _;
use uruk::core::sync::Arc;
use uruk::core::{
    DependenceGroup, JitDylibLookupFlags, MaterializationInterface, MaterializationResponsibility,
    MaterializationUnit, SearchOrder, SharedError, SymbolFlags,
};
use uruk::dispatch::WorkStealingTaskDispatcher;
use uruk::prelude::*;
use uruk::trace::TraceLayer;

/// Promises a symbol, and looks up another one while it makes it.
struct Blocking {
    name: SymbolName,
    needs: Option<SymbolName>,
    order: SearchOrder,
}

impl Blocking {
    /// Looks up what it needs; to be found right after that.
    fn make(&self, session: &ExecutionSession) -> Result<ExecutorSymbolDef, LookupError> {
        let address = match &self.needs {
            Some(needed) => session.lookup_symbol(&self.order, needed)?.address.offset(16),
            None => ExecutorAddr::new(0x1000),
        };
        Ok(ExecutorSymbolDef::new(address, SymbolFlags::EXPORTED))
    }
}

impl MaterializationUnit for Blocking {
    fn name(&self) -> &str {
        self.name.as_str()
    }

    fn interface(&self) -> MaterializationInterface {
        MaterializationInterface::new([(self.name.clone(), SymbolFlags::EXPORTED)].into_iter().collect())
    }

    fn materialize(self: Box<Self>, responsibility: MaterializationResponsibility) {
        let session = responsibility.dylib().session().clone();
        let definition = match self.make(&session) {
            Ok(definition) => definition,
            Err(error) => return responsibility.fail(Arc::new(error) as SharedError),
        };
        match responsibility.notify_resolved(&[(self.name.clone(), definition)].into_iter().collect()) {
            Ok(resolved) => {
                if let Err(refused) = resolved.notify_emitted(Vec::<DependenceGroup>::new()) {
                    refused.fail();
                }
            }
            Err(refused) => {
                refused.fail();
            }
        }
    }

    fn discard(&mut self, _dylib: &JitDylib, _symbol: &SymbolName) {}
}

/// Looks up `first`, which needs `second`, which needs `third`, and writes what happens to `trace`.
fn run(trace: &Path) -> Result<ExecutorSymbolDef, Box<dyn Error>> {
    let (layer, file) = TraceLayer::create(trace)?;
    tracing::subscriber::set_global_default(tracing_subscriber::registry().with(layer))?;
    let pool = WorkStealingTaskDispatcher::builder().workers(1).build()?;
    let session = ExecutionSession::builder().dispatcher(Arc::new(pool)).build();
    let main = session.create_jit_dylib("main")?;
    let order = SearchOrder::from_iter([(main.clone(), JitDylibLookupFlags::MatchAllSymbols)]);
    let names = ["first", "second", "third"].map(|name| session.intern(name));
    for (index, name) in names.iter().enumerate() {
        let needs = names.get(index + 1).cloned();
        main.define(Box::new(Blocking { name: name.clone(), needs, order: order.clone() }))?;
    }
    let found = session.lookup_symbol(&order, &names[0]);
    session.close()?;
    file.finish()?;
    Ok(found?)
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<_> = std::env::args_os().skip(1).collect();
    let [trace] = &arguments[..] else { return Err("usage: blocked_workers TRACE.json".into()) };
    let first = run(Path::new(trace))?;
    println!("first is at {}; the trace is in {}", first.address, Path::new(trace).display());
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    /// A slice of the trace.
    #[derive(Debug)]
    struct Slice {
        track: u64,
        begin: f64,
        end: f64,
    }

    fn slices(trace: &[Value], wanted: impl Fn(&Value) -> bool) -> Vec<Slice> {
        let slices = trace.iter().filter(|event| event["ph"] == "X" && wanted(event));
        let slice = |event: &Value| {
            let begin = event["ts"].as_f64()?;
            Some(Slice { track: event["tid"].as_u64()?, begin, end: begin + event["dur"].as_f64()? })
        };
        slices.map(|event| slice(event).expect("a slice has a track and a time")).collect()
    }

    fn is_blocked_in(event: &Value, lookup: &str) -> bool {
        event["name"] == "dispatch.block" && event["args"]["lookup"] == *lookup
    }

    fn named<'a>(trace: &'a [Value], kind: &str, track: u64) -> Option<&'a str> {
        let of_track = |event: &&Value| event["ph"] == "M" && event["name"] == kind && event["tid"] == track;
        trace.iter().find(of_track)?["args"]["name"].as_str()
    }

    #[test]
    fn a_blocked_worker_and_its_replacement_are_seen_side_by_side() {
        let place = std::env::temp_dir().join(format!("uruk-blocked-workers-{}.json", std::process::id()));
        let first = run(&place).expect("the units make their symbols");
        assert_eq!(first.address, ExecutorAddr::new(0x1020));
        let text = std::fs::read(&place).expect("the trace was written");
        std::fs::remove_file(&place).expect("it is ours");
        let trace: Vec<Value> = serde_json::from_slice(&text).expect("the trace is a list in JSON");

        let mut tracks = Vec::new();
        for (waiting, needed) in [("first", "second"), ("second", "third")] {
            let blocked = slices(&trace, |event| is_blocked_in(event, needed));
            let [blocked] = &blocked[..] else { panic!("blocked in {needed}: {blocked:?}") };
            let made = |unit: &str| {
                let of_unit =
                    |event: &Value| event["name"] == "unit.materialize" && event["args"]["unit"] == *unit;
                let mut found = slices(&trace, of_unit);
                assert_eq!(found.len(), 1, "{unit}: {found:?}");
                found.remove(0)
            };
            let (outer, inner) = (made(waiting), made(needed));
            // The wait lies inside the unit of the blocked worker, on its track.
            assert_eq!(blocked.track, outer.track);
            assert!(outer.begin <= blocked.begin && blocked.end <= outer.end, "{outer:?} {blocked:?}");
            // Another thread makes what it waits for, meanwhile.
            assert_ne!(blocked.track, inner.track, "{needed} was made on the stack of its waiter");
            assert!(blocked.begin < inner.begin && inner.begin < blocked.end, "{blocked:?} {inner:?}");
            let replaces = |event: &Value| event["ph"] == "i" && event["name"] == "replaces a blocked worker";
            let told = trace.iter().filter(|event| replaces(event) && event["tid"] == inner.track);
            assert!(told.count() >= 1, "nothing says that the maker of {needed} replaces a worker");
            tracks.extend([outer.track, inner.track]);
        }
        tracks.sort_unstable();
        tracks.dedup();
        let names: Vec<_> = tracks.iter().filter_map(|&track| named(&trace, "thread_name", track)).collect();
        assert_eq!(names, ["uruk-worker-0", "uruk-worker-1", "uruk-worker-2"]);
        // The thread that began waits as well.
        let outside = slices(&trace, |event| is_blocked_in(event, "first"));
        assert_eq!(outside.len(), 1);
        assert!(!tracks.contains(&outside[0].track));
    }
}
