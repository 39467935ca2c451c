//! Objects in ranges that do not reach each other: calls go through stubs, addresses through tables, and what can go through
//! neither is an error. Processes of their own: they take the addresses next to the libraries, which others count on.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::link_support::*;
use crate::running::*;
use uruk_pipeline::link::LinkError;
use uruk_pipeline::memory::{
    InFlightAlloc, InProcessMemoryManager, MemoryError, MemoryManager, MemoryOptions, SegmentRequest,
};
use uruk_pipeline::runtime::process::ProcessSymbols;

/// Places objects in turn into two ranges that do not reach each other, as the first and the third of a program are
/// that has more than 4 GiB of code.
struct FarApart {
    ranges: [InProcessMemoryManager; 2],
    next: AtomicUsize,
}

impl FarApart {
    fn new() -> Self {
        let mut ranges: Vec<_> =
            (0..4).map(|_| InProcessMemoryManager::new().expect("address space")).collect();
        ranges.sort_by_key(|range| range.reserved_range().start);
        // Between the lowest and the highest lie two of nearly 2 GiB, whose addresses are not needed any more.
        let (Some(highest), Some(lowest)) = (ranges.pop(), ranges.drain(..1).next()) else { unreachable!() };
        assert!(highest.reserved_range().start.value() - lowest.reserved_range().end.value() > 2 << 30);
        Self { ranges: [lowest, highest], next: AtomicUsize::new(0) }
    }
}

impl MemoryManager for FarApart {
    fn allocate(&self, owner: &str, segments: &[SegmentRequest]) -> Result<InFlightAlloc, MemoryError> {
        // Relaxed: a count.
        self.ranges[self.next.fetch_add(1, Ordering::Relaxed) % 2].allocate(owner, segments)
    }
}

fn far_apart(objects: &[Vec<u8>]) -> Result<Running, LinkError> {
    start_in(Box::new(FarApart::new()), &ProcessSymbols::new(), objects)
}

/// A program larger than a range, each of whose objects calls the one before it.
#[test]
fn a_chain_of_objects_runs_through_many_ranges() {
    alone!();
    let options = MemoryOptions { range_bytes: Some(4 << 20), ..MemoryOptions::default() };
    let memory = InProcessMemoryManager::with_options(options).expect("address space");
    let mut objects = vec![compile(CC, "c", "long f0(void) { return 2; }", &["-fPIC"])];
    for number in 1..60 {
        let source = format!(
            "long f{}(void); static long own = 1; long {}(void) {{ return f{}() + own; }} __asm__(\".skip 300000, 0xcc\");",
            number - 1,
            if number == 59 { "run".into() } else { format!("f{number}") },
            number - 1
        );
        objects.push(compile(CC, "c", &source, &["-fPIC", "-O1"]));
    }
    let running = start_in(Box::new(memory), &ProcessSymbols::new(), &objects);
    let running = running.unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(running.call("run"), 61);
    assert!(running.memory_usage().reserved_bytes > 16 << 20);
}

#[test]
fn objects_in_ranges_that_do_not_reach_each_other_call_catch_and_share() {
    alone!();
    if cpp_compilers().is_empty() {
        return;
    }
    for tool in compilers() {
        for flags in [&["-fPIC"][..], &["-fPIC", "-O2"], &["-fPIC", "-O2", "-fno-plt"]] {
            let objects = [compile(tool, "cpp", THROWER, flags), compile(tool, "cpp", CATCHER, flags)];
            let running = far_apart(&objects).unwrap_or_else(|error| panic!("{tool:?} {flags:?}: {error}"));
            let running = Box::leak(Box::new(running)); // As above.
            let expected = 7 + 50 + 100 + 11 * 1000 + 200_000 + 1_000_000 + 30_000_000;
            assert_eq!(running.call("run"), expected, "{tool:?} {flags:?}");
        }
    }
}

/// Objects of executables read each other's variables directly. That reaches 2 GiB, and beyond is told; their calls
/// and addresses go through stubs and the table.
#[test]
fn a_variable_that_is_too_far_away_is_an_error_that_says_how_far() {
    alone!();
    let variable = "int variable = 5; int function(int x) { return x + 1; } int (*pointer(void))(int) { return function; }";
    let calls = "int function(int); int (*pointer(void))(int);
        long run(void) { return function(3) + (pointer() == function) * 10 + pointer()(6) * 100; }";
    let reads = "extern int variable; long run(void) { return variable; }";
    for tool in compilers() {
        let object = |source| compile(tool, "c", source, &["-fPIE", "-O2"]);
        let running = far_apart(&[object(variable), object(calls)]).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(running.call("run"), 714, "{tool:?}");
        match far_apart(&[object(variable), object(reads)]).map(drop) {
            Err(error @ LinkError::OutOfRange { value, bits: 32, signed: true, .. }) => {
                assert!(value.unsigned_abs() > 1 << 31, "{value:#x}");
                let text = error.to_string();
                assert!(text.contains("`variable`") && text.contains("-fPIC"), "{text}");
            }
            // Some compilers go through the table even so.
            other => assert!(other.is_ok() && tool != CC, "{tool:?} {other:?}"),
        }
    }
}
