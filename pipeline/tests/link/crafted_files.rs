//! Crafted files without number: what the fuzz targets try for minutes (`make fuzz`), a little of it in every run.
//!
//! The memory is the real manager's. Nothing that is linked here runs.

use crate::crafted::choices::{Choices, object, random_archive};
use crate::crafted::drive;
use uruk_pipeline::memory::InProcessMemoryManager;

/// Calls `action` with that many strings of random bytes, the same in every run. Says where one begins that it panics on.
fn with_random_bytes(count: usize, mut action: impl FnMut(&[u8])) {
    let mut state = 1_u64;
    for _ in 0..count {
        let seed = state;
        let mut bytes = [0; 600];
        for byte in &mut bytes {
            // A fixed multiplier of a linear congruential generator.
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            *byte = (state >> 56) as u8;
        }
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| action(&bytes)));
        assert!(outcome.is_ok(), "the bytes that begin with the state {seed} did it");
    }
}

#[test]
fn crafted_objects_are_refused_or_linked() {
    let memory = InProcessMemoryManager::new().expect("address space");
    with_random_bytes(10_000, |bytes| {
        let mut choices = Choices::new(bytes);
        let (first, second) = (object(&mut choices), object(&mut choices));
        drive::parse(&first);
        drive::link(&[&first, &second], &memory);
    });
}

#[test]
fn crafted_archives_are_refused_or_read() {
    with_random_bytes(10_000, |bytes| drive::archive(&random_archive(&mut Choices::new(bytes))));
}
