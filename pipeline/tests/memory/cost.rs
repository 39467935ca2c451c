//! The cost of an object's memory, printed. Run by name: `cargo test --release -p uruk-pipeline --test memory cost -- --ignored
//! --nocapture`.

use std::time::Instant;

use uruk_pipeline::memory::{
    InProcessMemoryManager, MemoryManager, MemoryOptions, SegmentKind, SegmentRequest, ViewPolicy,
};

/// Allocates, writes, finalizes and runs `count` objects of `bytes`; nanoseconds an object.
fn cost(views: ViewPolicy, bytes: usize, count: usize) -> f64 {
    let manager =
        InProcessMemoryManager::with_options(MemoryOptions { views, ..MemoryOptions::default() }).unwrap();
    let request =
        SegmentRequest { kind: SegmentKind::Code, content_bytes: bytes, zero_fill_bytes: 0, align: 16 };
    let mut held = Vec::with_capacity(count);
    let start = Instant::now();
    for _ in 0..count {
        let mut flight = manager.allocate("unit", &[request]).unwrap();
        flight.working(0).fill(0xc3);
        let object = flight.finalize().unwrap();
        // SAFETY: the object is filled with `ret` instructions, finalized, and alive.
        let function: extern "C" fn() = unsafe { std::mem::transmute(object.address(0).to_ptr::<()>()) };
        function();
        held.push(object);
    }
    start.elapsed().as_nanos() as f64 / count as f64
}

#[test]
#[ignore = "prints measurements"]
#[expect(clippy::print_stdout, reason = "a measurement is printed for whoever asked for it by name")]
fn print_the_cost_of_an_object() {
    for (name, views) in [("two views", ViewPolicy::TwoViews), ("one view", ViewPolicy::OneView)] {
        for bytes in [256, 4096, 65536] {
            let count = if bytes > 4096 { 1000 } else { 10_000 };
            let best = (0..5).map(|_| cost(views, bytes, count)).fold(f64::INFINITY, f64::min);
            println!("{name}, {bytes} bytes: {best:.0} ns");
        }
    }
}
