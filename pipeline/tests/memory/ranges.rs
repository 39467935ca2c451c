//! More code than one range holds: further ranges come and go, and each object lies in one of them.

use uruk_core::ExecutorAddr;
use uruk_pipeline::memory::{
    FinalizedAlloc, InProcessMemoryManager, MemoryError, MemoryManager, MemoryOptions, SegmentKind,
    SegmentRequest, ViewPolicy,
};

/// `mov eax, 42; ret`
const RETURN_42: [u8; 6] = [0xb8, 42, 0, 0, 0, 0xc3];
const RANGE_BYTES: u64 = 4 << 20;

fn manager(views: ViewPolicy) -> InProcessMemoryManager {
    let options = MemoryOptions { views, range_bytes: Some(RANGE_BYTES), ..MemoryOptions::default() };
    InProcessMemoryManager::with_options(options).unwrap()
}

fn request(kind: SegmentKind, content_bytes: usize) -> SegmentRequest {
    SegmentRequest { kind, content_bytes, zero_fill_bytes: 0, align: 16 }
}

fn object(manager: &InProcessMemoryManager, code_bytes: usize) -> FinalizedAlloc {
    let requests = [
        request(SegmentKind::Code, code_bytes),
        request(SegmentKind::ReadOnly, 600),
        request(SegmentKind::Data, 100),
    ];
    let mut flight = manager.allocate("object.o", &requests).unwrap();
    flight.working(0)[..6].copy_from_slice(&RETURN_42);
    flight.finalize().unwrap()
}

fn call(address: ExecutorAddr) -> i32 {
    // SAFETY: the callers pass the address of `RETURN_42` in finalized code memory that is still alive.
    let function: extern "C" fn() -> i32 = unsafe { std::mem::transmute(address.to_ptr::<()>()) };
    function()
}

/// The manager once ended at the end of its range: "no room", after 2 GiB of code.
#[test]
fn a_full_range_is_followed_by_another_which_goes_with_its_last_object() {
    for views in [ViewPolicy::TwoViews, ViewPolicy::TwoViewsOfFile, ViewPolicy::OneView] {
        let manager = manager(views);
        let first = manager.reserved_range();
        let objects: Vec<_> = (0..100).map(|_| object(&manager, 200_000)).collect();
        let inside =
            |object: &FinalizedAlloc| [0, 1, 2].map(|segment| first.contains(&object.address(segment)));
        for object in &objects {
            assert_eq!(call(object.address(0)), 42);
            let [code, read_only, data] = [0, 1, 2].map(|segment| object.address(segment).value());
            let (low, high) = (code.min(read_only).min(data), code.max(read_only).max(data));
            assert!(high - low < RANGE_BYTES, "{code:#x} {read_only:#x} {data:#x}");
            assert!([[true; 3], [false; 3]].contains(&inside(object)));
        }
        let usage = manager.usage();
        assert!(usage.reserved_bytes >= 6 * RANGE_BYTES, "{usage:?}");
        assert!(usage.code.allocated_bytes >= 20_000_000);
        // The oldest go: their room is used again before there is another range.
        let (old, kept): (Vec<_>, Vec<_>) = objects.into_iter().partition(|object| inside(object)[0]);
        let count = old.len();
        drop(old);
        let again: Vec<_> = (0..count).map(|_| object(&manager, 200_000)).collect();
        assert!(again.iter().all(|object| inside(object) == [true; 3]));
        assert_eq!(manager.usage().reserved_bytes, usage.reserved_bytes);
        drop((kept, again));
        assert_eq!(manager.usage().reserved_bytes, RANGE_BYTES);
        assert!(inside(&object(&manager, 100))[0]);
    }
}

#[test]
fn an_object_that_fits_no_range_is_refused_and_leaves_no_range_behind() {
    let manager = manager(ViewPolicy::Automatic);
    let error = manager.allocate("big.o", &[request(SegmentKind::Code, 8 << 20)]).unwrap_err();
    assert!(matches!(error, MemoryError::Exhausted { .. }), "{error}");
    assert_eq!(manager.usage().reserved_bytes, RANGE_BYTES);
}

#[test]
fn low_memory_lies_below_two_gibibytes_and_goes_with_its_last_object() {
    for views in [ViewPolicy::TwoViews, ViewPolicy::TwoViewsOfFile, ViewPolicy::OneView] {
        let manager = manager(views);
        let requests = [request(SegmentKind::Code, 100_000), request(SegmentKind::Data, 100_000)];
        let objects: Vec<_> = (0..100)
            .map(|_| {
                let mut flight = manager.allocate_low("non-pic.o", &requests).unwrap();
                flight.working(0)[..6].copy_from_slice(&RETURN_42);
                flight.finalize().unwrap()
            })
            .collect();
        for object in &objects {
            assert!([0, 1].iter().all(|segment| object.address(*segment).value() + 100_000 < 1 << 31));
            assert_eq!(call(object.address(0)), 42);
        }
        let high = object(&manager, 100);
        assert!(manager.reserved_range().contains(&high.address(0)));
        drop((objects, high));
        assert_eq!(manager.usage().reserved_bytes, RANGE_BYTES);
    }
}

/// The addresses between the low ones and ours may be taken: by an executable that is not position-independent, its heap, or another
/// manager. The next gap serves.
#[test]
fn managers_share_the_low_addresses() {
    let managers: Vec<_> = (0..4).map(|_| InProcessMemoryManager::new().unwrap()).collect();
    let objects: Vec<_> = managers
        .iter()
        .map(|manager| {
            let flight = manager.allocate_low("non-pic.o", &[request(SegmentKind::Data, 100)]).unwrap();
            flight.finalize().unwrap()
        })
        .collect();
    assert!(objects.iter().all(|object| object.address(0).value() < 1 << 31));
}
