//! Code: the memory of it, what is compiled in which tier, what a cache had.

use std::fmt;

use prometheus_client::registry::Unit;
use uruk_pipeline::memory::KindUsage;

use super::families::{ALONE, Families};
use crate::engine::Engine;

pub(super) fn write(engine: &Engine, families: &mut Families<'_>) -> fmt::Result {
    write_memory(engine, families)?;
    write_speculation(engine, families)?;
    #[cfg(feature = "llvm")]
    write_tiers(engine, families)?;
    #[cfg(feature = "cache")]
    write_cache(engine, families)?;
    Ok(())
}

fn write_memory(engine: &Engine, families: &mut Families<'_>) -> fmt::Result {
    let usage = engine.memory.usage();
    let kinds = [("code", usage.code), ("read_only", usage.read_only), ("data", usage.data)];
    type Figure = fn(&KindUsage) -> u64;
    let figures: [(&str, &str, Figure); 4] = [
        ("uruk_memory_allocated", "Bytes of linked code that is alive", |usage| usage.allocated_bytes),
        ("uruk_memory_resident", "Bytes that occupy physical memory", |usage| usage.resident_bytes),
        ("uruk_memory_mapped", "Bytes of address space in use, allocated or free", |usage| usage.slab_bytes),
        ("uruk_memory_withheld", "Bytes that no fork's other side may see change", |usage| {
            usage.withheld_bytes
        }),
    ];
    for (name, help, figure) in figures {
        let rows = kinds.iter().map(|(kind, usage)| ([("kind", *kind)], figure(usage)));
        families.gauges((name, Some(Unit::Bytes)), help, rows)?;
    }
    families.gauges(
        ("uruk_memory_reserved", Some(Unit::Bytes)),
        "Bytes of reserved addresses",
        [(ALONE, usage.reserved_bytes)],
    )?;
    families.gauges(
        ("uruk_memory_allocations", None),
        "Allocations that are alive; objects that were linked together share one",
        [(ALONE, usage.allocations)],
    )?;
    let pending = engine.files.linking.layer.guards().pending_reclaim();
    families.gauges(
        ("uruk_pending_reclaim_pieces", None),
        "Pieces of removed code that threads may still run",
        [(ALONE, pending.pieces)],
    )?;
    families.gauges(
        ("uruk_pending_reclaim", Some(Unit::Bytes)),
        "Bytes of their memory",
        [(ALONE, pending.bytes)],
    )?;
    families.gauges(
        ("uruk_pending_reclaim_threads", None),
        "Threads that hold removed code back",
        [(ALONE, pending.held_back_by.len())],
    )
}

fn write_speculation(engine: &Engine, families: &mut Families<'_>) -> fmt::Result {
    let stats = engine.files.linking.lazy.speculator().stats();
    let outcomes = [("ahead", stats.ahead), ("failed", stats.failed), ("unknown", stats.unknown)];
    families.counters(
        ("uruk_speculation_functions", None),
        "Functions that were compiled before they were called, could not be, or are in no file",
        outcomes.map(|(outcome, count)| ([("outcome", outcome)], count)),
    )?;
    families.gauges(
        ("uruk_speculation_used_functions", None),
        "Functions that were compiled ahead and have been called since",
        [(ALONE, stats.used)],
    )?;
    families.counters(
        ("uruk_speculation_time", Some(Unit::Seconds)),
        "Time of compiling ahead",
        [(ALONE, stats.time.as_secs_f64())],
    )
}

#[cfg(feature = "llvm")]
fn write_tiers(engine: &Engine, families: &mut Families<'_>) -> fmt::Result {
    let Some((_, tiers)) = &engine.files.modules.tiers else { return Ok(()) };
    let stats = tiers.stats();
    families.counters(
        ("uruk_tier_functions", None),
        "Functions by the tier in which they began",
        [("lower", stats.lower), ("upper", stats.upper)].map(|(tier, count)| ([("tier", tier)], count)),
    )?;
    let outcomes =
        [("promoted", stats.promoted), ("failed", stats.failed), ("over_budget", stats.over_budget)];
    families.counters(
        ("uruk_tier_promotions", None),
        "Functions that were to be compiled better, by what became of it",
        outcomes.map(|(outcome, count)| ([("outcome", outcome)], count)),
    )?;
    let times = [("lower", stats.lower_time), ("upper", stats.upper_time), ("promotion", stats.promoting)];
    families.counters(
        ("uruk_tier_time", Some(Unit::Seconds)),
        "Time of compiling, in each tier and for promotions",
        times.map(|(step, time)| ([("step", step)], time.as_secs_f64())),
    )
}

#[cfg(feature = "cache")]
fn write_cache(engine: &Engine, families: &mut Families<'_>) -> fmt::Result {
    let Some(entries) = &engine.files.cache.entries else { return Ok(()) };
    let stats = entries.store.stats();
    let origins = [
        ("memory", stats.in_memory),
        ("stored", stats.stored),
        ("shared", stats.shared),
        ("made", stats.made),
    ];
    families.counters(
        ("uruk_cache_entries", None),
        "Entries by their origin: the cache's memory, its store, another thread that made them, this one",
        origins.map(|(origin, count)| ([("origin", origin)], count)),
    )?;
    families.counters(
        ("uruk_cache_waits_given_up", None),
        "Waits for another process that took too long",
        [(ALONE, stats.waits_given_up)],
    )
}
