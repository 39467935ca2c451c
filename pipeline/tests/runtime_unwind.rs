//! Unwinding: lookups through the interposed function, a panic through a hand-made frame, speed with many objects.

use std::panic::{catch_unwind, resume_unwind};
use std::time::Instant;

use uruk_pipeline::memory::{InProcessMemoryManager, MemoryManager, SegmentKind, SegmentRequest};
use uruk_pipeline::runtime::unwind::{self, UnwindError, UnwindMethod};

/// glibc's `struct dl_find_object`.
#[repr(C)]
#[derive(Default)]
struct Found {
    flags: u64,
    map_start: u64,
    map_end: u64,
    link_map: u64,
    eh_frame: u64,
    reserved: [u64; 7],
}

unsafe extern "C" {
    fn _dl_find_object(pc: u64, result: *mut Found) -> i32;
}

fn find(pc: u64) -> Option<Found> {
    let mut found = Found::default();
    // SAFETY: `found` has the layout of glibc's structure.
    (unsafe { _dl_find_object(pc, &raw mut found) } == 0).then_some(found)
}

#[test]
fn registered_ranges_are_found_and_forgotten() {
    let base = 0x3_0000_0000;
    assert!(find(base).is_none());
    let registration = unwind::register(base..base + 100, 0xabc0).unwrap();
    for pc in [base, base + 99] {
        let found = find(pc).unwrap();
        assert_eq!((found.map_start, found.map_end, found.eh_frame), (base, base + 100, 0xabc0));
        assert_ne!(found.link_map, 0);
        assert_eq!((found.flags, found.reserved), (0, [0; 7]));
    }
    assert!(find(base - 1).is_none() && find(base + 100).is_none());
    drop(registration);
    assert!(find(base).is_none());
}

#[test]
fn libraries_are_found_as_ever() {
    let strlen = libc::strlen as *const () as u64;
    let found = find(strlen).unwrap();
    assert!((found.map_start..found.map_end).contains(&strlen));
    assert_ne!(found.eh_frame, 0);
}

#[test]
fn a_test_executable_interposes() {
    assert_eq!(unwind::method(), UnwindMethod::Interposed);
}

#[test]
fn overlap_and_emptiness_are_errors() {
    let base = 0x5_0000_0000;
    let _held = unwind::register(base..base + 100, 0).unwrap();
    for (start, end) in
        [(base + 50, base + 150), (base - 10, base + 1), (base, base + 100), (base + 1, base + 2)]
    {
        let error = unwind::register(start..end, 0).unwrap_err();
        assert!(matches!(error, UnwindError::Overlap { known_start, .. } if known_start == base), "{error}");
    }
    assert!(matches!(unwind::register(base..base, 0), Err(UnwindError::Empty { .. })));
    let _after = unwind::register(base + 100..base + 101, 0).unwrap();
}

extern "C-unwind" fn throw() {
    resume_unwind(Box::new("thrown"));
}

#[test]
fn a_panic_unwinds_through_linked_code() {
    // sub rsp, 8; call rdi; add rsp, 8; ret
    let code = [0x48, 0x83, 0xec, 8, 0xff, 0xd7, 0x48, 0x83, 0xc4, 8, 0xc3];
    let manager = InProcessMemoryManager::new().unwrap();
    let request = |kind, content_bytes| SegmentRequest { kind, content_bytes, zero_fill_bytes: 0, align: 16 };
    let mut flight = manager
        .allocate(
            "frame",
            &[request(SegmentKind::Code, code.len()), request(SegmentKind::ReadOnly, 20 + 24 + 24 + 4)],
        )
        .unwrap();
    flight.working(0).copy_from_slice(&code);
    let start = flight.address(0).value();
    let header = flight.address(1).value();
    let (cie, fde) = (header + 20, header + 44);
    let relative = |to: u64, from: u64| ((to as i64 - from as i64) as i32).to_le_bytes();
    let mut tables = Vec::new();
    // .eh_frame_hdr: version, encodings, pointer to the frames, one row
    tables.extend([1, 0x1b, 0x03, 0x3b]);
    tables.extend(relative(cie, header + 4));
    tables.extend(1_u32.to_le_bytes());
    tables.extend(relative(start, header));
    tables.extend(relative(fde, header));
    // CIE "zR": CFA = rsp + 8, return address at CFA - 8
    tables.extend(20_u32.to_le_bytes());
    tables.extend([0, 0, 0, 0, 1, b'z', b'R', 0, 1, 0x78, 16, 1, 0x1b, 0x0c, 7, 8, 0x90, 1, 0, 0]);
    // FDE: after four bytes CFA = rsp + 16
    tables.extend(20_u32.to_le_bytes());
    tables.extend((fde as u32 + 4).wrapping_sub(cie as u32).to_le_bytes());
    tables.extend(relative(start, fde + 8));
    tables.extend((code.len() as u32).to_le_bytes());
    tables.extend([0, 0x44, 0x0e, 16, 0, 0, 0, 0]);
    tables.extend([0; 4]);
    flight.working(1).copy_from_slice(&tables);
    let alloc = flight.finalize().unwrap();
    let _registration = unwind::register(start..start + code.len() as u64, header).unwrap();
    // SAFETY: the code takes one function pointer, calls it, and is described to the unwinder.
    let call: extern "C-unwind" fn(extern "C-unwind" fn()) =
        unsafe { std::mem::transmute(alloc.address(0).to_ptr::<()>()) };
    let caught = catch_unwind(|| call(throw)).unwrap_err();
    assert_eq!(*caught.downcast::<&str>().unwrap(), "thrown");
}

/// Median of the time for one throw and catch, in nanoseconds.
fn throw_cost() -> u128 {
    let mut times: Vec<_> = (0..501)
        .map(|_| {
            let start = Instant::now();
            let caught = catch_unwind(|| resume_unwind(Box::new(1)));
            assert!(caught.is_err());
            start.elapsed().as_nanos()
        })
        .collect();
    times.sort_unstable();
    times[250]
}

#[test]
fn ten_thousand_objects_are_cheap_and_leave_throws_alone() {
    throw_cost();
    let before = throw_cost();
    let base = 0x10_0000_0000_u64;
    let start = Instant::now();
    let held: Vec<_> = (0..10_000_u64)
        .map(|index| {
            // Neither ascending nor descending.
            let at = base + index * 7919 % 10_000 * 512;
            unwind::register(at..at + 300, 0).unwrap()
        })
        .collect();
    let registering = start.elapsed();
    let with_many = throw_cost();
    assert!(find(base + 299).is_some() && find(base + 300).is_none());
    let start = Instant::now();
    drop(held);
    let removing = start.elapsed();
    let report = format!(
        "register {registering:?}, remove {removing:?}, throw {before} ns before, {with_many} ns with"
    );
    // Loose bounds: an O(n) step per object or per throw is off by a factor of a hundred.
    assert!(registering.as_millis() < 500 && removing.as_millis() < 500, "{report}");
    assert!(with_many < before * 5 + 2000, "{report}");
    if std::env::var_os("URUK_PRINT_COSTS").is_some() {
        panic!("{report}");
    }
}
