//! Allocations whose data does not fit the common range: they have a range of their own, in which code reaches all.

use uruk_core::ExecutorAddr;
use uruk_core::sync::{Mutex, MutexGuard};
use uruk_pipeline::memory::{
    InProcessMemoryManager, MemoryError, MemoryManager, MemoryOptions, MemoryUsage, SegmentKind,
    SegmentRequest, ViewPolicy,
};

/// `mov eax, 42; ret`
const RETURN_42: [u8; 6] = [0xb8, 42, 0, 0, 0, 0xc3];
const GIB: usize = 1 << 30;

fn request(kind: SegmentKind, zero_fill_bytes: usize) -> SegmentRequest {
    SegmentRequest { kind, content_bytes: RETURN_42.len(), zero_fill_bytes, align: 16 }
}

fn manager(views: ViewPolicy) -> InProcessMemoryManager {
    InProcessMemoryManager::with_options(MemoryOptions { views, ..MemoryOptions::default() }).unwrap()
}

fn call(address: ExecutorAddr) -> i32 {
    // SAFETY: the callers pass the address of `RETURN_42` in finalized code memory that is still alive.
    let function: extern "C" fn() -> i32 = unsafe { std::mem::transmute(address.to_ptr::<()>()) };
    function()
}

/// Writes the first and the last byte of a segment and says what they were.
fn touch_ends(start: ExecutorAddr, len: usize) -> [u8; 2] {
    [start, start.offset(len as u64 - 1)].map(|address| {
        // SAFETY: the callers pass a finalized data segment that is alive.
        unsafe { std::ptr::replace(address.to_ptr::<u8>(), 0xff) }
    })
}

/// One test at a time: what one has unmapped, another one could map again.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock()
}

fn is_mapped(address: ExecutorAddr) -> bool {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    maps.lines().any(|line| {
        let (start, end) = line.split_once(' ').unwrap().0.split_once('-').unwrap();
        let [start, end] = [start, end].map(|text| u64::from_str_radix(text, 16).unwrap());
        (start..end).contains(&address.value())
    })
}

#[test]
fn code_reaches_the_start_of_every_segment_however_large_the_last_one_is() {
    let _alone = alone();
    for views in [ViewPolicy::TwoViews, ViewPolicy::OneView] {
        let manager = manager(views);
        let kinds = [
            request(SegmentKind::Data, 3 * GIB),
            request(SegmentKind::Code, 0),
            request(SegmentKind::ReadOnly, 0),
            request(SegmentKind::Data, 100),
            request(SegmentKind::Data, 3 * GIB / 2),
        ];
        let mut flight = manager.allocate("huge.o", &kinds).unwrap();
        for segment in 0..kinds.len() {
            flight.working(segment).copy_from_slice(&RETURN_42);
        }
        let alloc = flight.finalize().unwrap();
        assert_eq!(call(alloc.address(1)), 42);
        let [huge, code, read_only, small, large] = [0, 1, 2, 3, 4].map(|segment| alloc.address(segment));
        assert!(code < read_only && read_only < small && small < large && large < huge);
        assert!(huge.value() - code.value() < 1 << 31);
        assert!(!manager.reserved_range().contains(&code));
        assert_eq!(touch_ends(huge, 3 * GIB + 6), [0xb8, 0]);
        assert_eq!(touch_ends(large, 3 * GIB / 2 + 6), [0xb8, 0]);
        assert_eq!(touch_ends(small, 106), [0xb8, 0]);
        let usage = manager.usage();
        assert!(usage.data.allocated_bytes >= (9 * GIB / 2) as u64);
        assert!(usage.data.resident_bytes < 1 << 20);
        assert!(usage.reserved_bytes > (6 * GIB) as u64);
        drop(alloc);
        assert!(![huge, code, read_only, small, large].into_iter().any(is_mapped));
        let range = manager.reserved_range();
        let reserved_bytes = range.end.value() - range.start.value();
        assert_eq!(manager.usage(), MemoryUsage { reserved_bytes, ..MemoryUsage::default() });
    }
}

#[test]
fn data_that_fills_the_common_range_takes_the_next_allocation_elsewhere_with_its_code() {
    let _alone = alone();
    let manager = manager(ViewPolicy::Automatic);
    let object = || {
        let requests = [request(SegmentKind::Code, 0), request(SegmentKind::Data, 600 << 20)];
        manager.allocate("large.o", &requests).unwrap().finalize().unwrap()
    };
    let objects: Vec<_> = (0..6).map(|_| object()).collect();
    let range = manager.reserved_range();
    let inside = objects.iter().filter(|object| range.contains(&object.address(0))).count();
    assert_eq!(inside, 3);
    for object in &objects {
        let [code, data] = [object.address(0), object.address(1)];
        assert_eq!(range.contains(&code), range.contains(&data));
        assert!(code.value().abs_diff(data.value()) < 1 << 31);
    }
    drop(objects);
    assert!(range.contains(&object().address(1)));
}

#[test]
fn far_data_lies_elsewhere_and_leaves_its_code_among_the_others() {
    let _alone = alone();
    let manager = manager(ViewPolicy::Automatic);
    let requests = [
        request(SegmentKind::Code, 0),
        request(SegmentKind::FarData, 5 * GIB),
        request(SegmentKind::FarData, 0),
    ];
    let alloc = manager.allocate("model-large.o", &requests).unwrap().finalize().unwrap();
    let range = manager.reserved_range();
    assert_eq!([0, 1, 2].map(|segment| range.contains(&alloc.address(segment))), [true, false, true]);
    assert_eq!(touch_ends(alloc.address(1), 5 * GIB + 6), [0, 0]);
    assert_eq!(alloc.bytes().data_bytes, (5 * GIB + 4096 + 16) as u64);
}

/// Objects for an executable at a fixed place were refused whose zeroes go on above 2 GiB, as natively they may.
#[test]
fn zeroes_that_low_addresses_have_no_room_for_begin_there() {
    let _alone = alone();
    let manager = manager(ViewPolicy::Automatic);
    let requests = [
        request(SegmentKind::Code, 0),
        request(SegmentKind::Data, 100),
        request(SegmentKind::Data, 9 * GIB / 4),
    ];
    let alloc = manager.allocate_low("fixed.o", &requests).unwrap().finalize().unwrap();
    let [code, small, zeroes] = [0, 1, 2].map(|segment| alloc.address(segment).value());
    assert!(code < small && small < zeroes && zeroes < 1 << 30, "{code:#x} {small:#x} {zeroes:#x}");
    assert_eq!(touch_ends(alloc.address(2), 9 * GIB / 4 + 6), [0, 0]);
    // Segments that fit lie below as a whole, beside them too.
    let requests = [request(SegmentKind::Code, 0), request(SegmentKind::Data, GIB / 2)];
    drop(alloc);
    let alloc = manager.allocate_low("small.o", &requests).unwrap().finalize().unwrap();
    assert!(alloc.address(1).value() + (GIB / 2) as u64 <= 1 << 31);
}

#[test]
fn great_alignment_is_kept_outside_of_the_common_range() {
    let _alone = alone();
    let manager = manager(ViewPolicy::Automatic);
    let aligned = SegmentRequest { align: GIB, ..request(SegmentKind::Data, 3 * GIB) };
    let alloc =
        manager.allocate("aligned.o", &[request(SegmentKind::Code, 0), aligned]).unwrap().finalize().unwrap();
    assert_eq!(alloc.address(1).value() % GIB as u64, 0);
    assert!(alloc.address(1).value() - alloc.address(0).value() <= GIB as u64);
    assert_eq!(touch_ends(alloc.address(1), 3 * GIB), [0, 0]);
}

#[test]
fn what_the_system_refuses_leaves_nothing_behind() {
    let _alone = alone();
    let manager = manager(ViewPolicy::Automatic);
    let before = manager.usage();
    let mut requests = vec![request(SegmentKind::Code, 0)];
    requests.extend([request(SegmentKind::Data, (1 << 45) + GIB); 3]);
    let error = manager.allocate("endless.o", &requests).unwrap_err();
    assert!(matches!(error, MemoryError::Reserve { .. }), "{error:?}");
    let after = manager.usage();
    assert_eq!(after.allocations, 0);
    assert_eq!(after.code.allocated_bytes + after.data.allocated_bytes, 0);
    assert_eq!(after.data, before.data);
}
