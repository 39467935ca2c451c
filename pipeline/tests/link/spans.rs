//! A subscriber that panics as a span of the linker ends, while a panic of the embedder's unwinds through it, ends no process.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::link_support::assemble;
use tracing::span::{Attributes, Id, Record};
use uruk_pipeline::link::{Link, LinkOptions, elf};
use uruk_pipeline::memory::{InFlightAlloc, MemoryError, MemoryManager, SegmentRequest};

struct Panics;

impl tracing::Subscriber for Panics {
    fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, _: &tracing::Event<'_>) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {
        panic!("the subscriber, as a span is left");
    }

    fn try_close(&self, _: Id) -> bool {
        panic!("the subscriber, as a span is closed");
    }
}

struct NoMemory;

impl MemoryManager for NoMemory {
    fn allocate(&self, _: &str, _: &[SegmentRequest]) -> Result<InFlightAlloc, MemoryError> {
        panic!("the memory manager");
    }
}

#[test]
fn the_panic_of_a_memory_manager_comes_out_of_a_span_whose_subscriber_panics() {
    alone!();
    let object = assemble(".globl f\nf: ret\n");
    let graph = elf::parse("unit.o", &object).expect("a whole object");
    let built = Link::new(graph, &LinkOptions::default()).expect("nothing is undefined");
    let allocate = || tracing::subscriber::with_default(Panics, || built.allocate(&NoMemory));
    let payload = catch_unwind(AssertUnwindSafe(allocate)).map(drop).expect_err("it panics");
    assert_eq!(payload.downcast_ref(), Some(&"the memory manager"));
}
