//! Interning: names the pool has, and names it has not.

use std::hint::black_box;

use uruk_core::{SymbolName, SymbolStringPool};

use crate::harness::{Row, Scale, on_threads, repeat, resident_bytes};
use crate::point::Point;
use crate::support::symbol_name;

pub(crate) fn points(scale: Scale) -> Vec<Point> {
    let hit = [1, 2, 4].map(|threads| Point::new("intern_hit", "", 0, move || hit(scale, threads)));
    let unique = [1, 2, 4].map(|threads| Point::new("intern_unique", "", 0, move || unique(scale, threads)));
    hit.into_iter().chain(unique).collect()
}

/// Interns and drops names that the pool has already.
fn hit(scale: Scale, threads: usize) {
    const NAMES: usize = 4096;
    let times = scale.pick(500_000, 2_000_000);
    let pool = SymbolStringPool::new();
    let texts: Vec<String> = (0..NAMES).map(symbol_name).collect();
    let kept: Vec<SymbolName> = texts.iter().map(|text| pool.intern(text)).collect();
    let samples = repeat(scale, |_| {
        on_threads(&mut vec![(); threads], |thread, ()| {
            let mut index = thread * 997;
            for _ in 0..times {
                index = (index + 1663) & (NAMES - 1);
                black_box(&pool.intern(&texts[index]));
            }
        })
    });
    drop(kept);
    row("intern_hit", NAMES, threads, times * threads).report(&samples);
}

/// Interns names that are new to the pool, and keeps them.
fn unique(scale: Scale, threads: usize) {
    let n = scale.pick(200_000, 1_000_000);
    let texts: Vec<String> = (0..n).map(symbol_name).collect();
    let samples = repeat(scale, |repetition| {
        let pool = SymbolStringPool::new();
        let room = || (0..n.div_ceil(threads)).map(|_| None::<SymbolName>).collect::<Vec<_>>();
        let mut kept: Vec<Vec<Option<SymbolName>>> = (0..threads).map(|_| room()).collect();
        let before = resident_bytes();
        let mut sample = on_threads(&mut kept, |thread, kept| {
            for (text, place) in texts.iter().skip(thread).step_by(threads).zip(kept) {
                *place = Some(pool.intern(text));
            }
        });
        if repetition == 0 {
            sample.extra("bytes_per_op", (resident_bytes() - before) / n as f64);
        }
        drop(kept);
        sample
    });
    row("intern_unique", n, threads, n).report(&samples);
}

fn row(case: &str, n: usize, threads: usize, operations: usize) -> Row<'_> {
    Row { case, parameters: vec![], n, threads: threads as i64, operations }
}
