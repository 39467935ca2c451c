//! `/metrics` and the collector: the names that dashboards of others are built on, and who may read them.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use uruk::CacheOptions;
use uruk::dashboard::DashboardOptions;
use uruk::dispatch::WorkStealingTaskDispatcher;
use uruk::pipeline::cache::MemoryCache;
use uruk::pipeline::tiers::CallCounting;
use uruk::prelude::*;

use crate::client::{get, status};
use crate::recording::{Recording, chain};

/// How often a function is called before it is compiled better.
const CALLS: u32 = 5;

/// An engine that has all there are figures of: a pool that measures, tiers, a cache.
pub(crate) fn engine() -> Jit {
    let pool = WorkStealingTaskDispatcher::builder().workers(2).measure_waits().build().expect("a pool");
    let tiers = CallCounting::new().with_threshold(CALLS).with_quiet(Duration::ZERO);
    let builder = Jit::builder().dispatcher(Arc::new(pool)).tiers(tiers);
    builder.cache(CacheOptions::store(Arc::new(MemoryCache::new(1 << 20)))).build().expect("an engine")
}

/// Compiles a function, calls it, and removes it.
pub(crate) fn work(jit: &Jit) {
    let tracker = jit.create_tracker();
    let text = "define i64 @next(i64 %x) { %y = add i64 %x, 1 ret i64 %y }";
    jit.in_tracker(&tracker).add_ir_text("next.ll", text).expect("the name is free");
    // SAFETY: that is its type, and no pointer is copied out of its handle.
    let next = unsafe { jit.get::<extern "C" fn(i64) -> i64>("next") }.expect("it is there");
    (0..2 * CALLS).for_each(|_| assert_eq!(next(41), 42));
    drop(next);
    jit.remove_tracker(&tracker).expect("nothing needs it");
}

/// The samples of a text: a name and its labels, and a value.
fn samples(text: &str) -> impl Iterator<Item = (&str, f64)> {
    text.lines().filter(|line| !line.starts_with('#')).map(|line| {
        let (sample, value) = line.rsplit_once(' ').unwrap_or_else(|| panic!("no value: {line}"));
        (sample, value.parse().unwrap_or_else(|_| panic!("no number: {line}")))
    })
}

fn value(text: &str, sample: &str) -> f64 {
    samples(text).find(|(name, _)| *name == sample).unwrap_or_else(|| panic!("no {sample}\n{text}")).1
}

/// A name without what a histogram adds, and the names of its labels.
fn family(sample: &str) -> (String, Vec<String>) {
    let (name, labels) = sample.split_once('{').unwrap_or((sample, ""));
    let parts = ["_bucket", "_sum", "_count"];
    let name = parts.iter().find_map(|part| name.strip_suffix(part)).unwrap_or(name);
    let labels = labels.split(',').filter_map(|label| Some(label.split_once('=')?.0.to_owned()));
    (name.to_owned(), labels.filter(|label| label != "le").collect())
}

/// A metric was renamed, and the panels that asked for it stayed empty.
#[test]
fn every_metric_is_in_the_table_with_its_labels() {
    let jit = engine();
    work(&jit);
    let text = jit.metrics().text();
    assert!(text.ends_with("# EOF\n"), "{text}");
    let found: BTreeSet<_> = samples(&text).map(|(sample, _)| family(sample)).collect();
    let table = include_str!("../../src/metrics/README.md");
    let rows = table.lines().filter_map(|line| line.strip_prefix("| `")).map(|line| {
        let mut cells = line.split('|');
        let name = cells.next().unwrap_or_default().trim().trim_end_matches('`').to_owned();
        let labels = cells.next().unwrap_or_default().split('`').skip(1).step_by(2);
        (name, labels.map(str::to_owned).collect::<Vec<_>>())
    });
    let listed: BTreeSet<_> = rows.collect();
    assert_eq!(found, listed);
    assert!(samples(&text).count() < 150, "labels are few: {text}");
}

#[test]
fn the_figures_are_those_of_the_engine() {
    let jit = engine();
    jit.add_ir_text("f.ll", "define i32 @f() { ret i32 42 }").expect("the name is free");
    jit.lookup("f").expect("it compiles");
    let text = jit.metrics().text();
    assert_eq!(value(&text, "uruk_pool_workers"), 2.0);
    let usage = jit.memory_usage();
    assert!(usage.code.allocated_bytes > 0);
    assert_eq!(value(&text, "uruk_memory_allocated_bytes{kind=\"code\"}"), usage.code.allocated_bytes as f64);
    assert_eq!(value(&text, "uruk_memory_allocations"), usage.allocations as f64);
    let waits = value(&text, "uruk_pool_wait_seconds_count{priority=\"demanded\"}");
    assert!(waits > 0.0, "{text}");
    assert_eq!(value(&text, "uruk_pool_wait_seconds_bucket{le=\"+Inf\",priority=\"demanded\"}"), waits);
    assert!(value(&text, "uruk_pool_wait_seconds_sum{priority=\"demanded\"}") < 60.0);
    assert!(value(&text, "uruk_pool_finished_tasks_total") >= 1.0);
}

/// A registry that outlives the engine neither keeps it nor asks it.
#[test]
fn an_engine_that_is_gone_has_no_figures() {
    let jit = engine();
    let metrics = jit.metrics();
    drop(jit);
    assert!(!metrics.has_engine());
    assert_eq!(metrics.text(), "# EOF\n");
}

#[test]
fn a_scrape_follows_the_rules_of_the_page() {
    let jit = engine();
    let token = "correct horse battery";
    let dashboard = jit.dashboard(DashboardOptions::at("127.0.0.1:0").token(token)).expect("a port is free");
    let address = dashboard.local_addr();
    assert_eq!(status(&get(address, "/metrics", "")), "401");
    let bearer = format!("Authorization: Bearer {token}\r\n");
    assert_eq!(status(&get(address, "/metrics", &format!("{bearer}Host: evil.example\r\n"))), "421");
    let answer = get(address, "/metrics", &bearer);
    assert_eq!(status(&answer), "200");
    assert!(answer.contains("content-type: application/openmetrics-text; version=1.0.0"), "{answer}");
    assert!(answer.contains("uruk_pool_workers 2\n"), "{answer}");
    drop(jit);
    assert_eq!(status(&get(address, "/metrics", &bearer)), "404");
    let recording = Recording::of("metrics", &chain());
    assert_eq!(status(&get(recording.dashboard().local_addr(), "/metrics", "")), "404");
}
