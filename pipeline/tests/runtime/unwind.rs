//! Unwinding: lookups through the interposed function, and speed with many objects.

use std::panic::{catch_unwind, resume_unwind};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
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

/// How long this thread has run. Other work on the machine does not count.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32)
}

/// Median of the time for one throw and catch, in nanoseconds.
fn throw_cost() -> u128 {
    let mut times: Vec<_> = (0..501)
        .map(|_| {
            let start = processor_time();
            let caught = catch_unwind(|| resume_unwind(Box::new(1)));
            assert!(caught.is_err());
            (processor_time() - start).as_nanos()
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
    let start = processor_time();
    let held: Vec<_> = (0..10_000_u64)
        .map(|index| {
            // Neither ascending nor descending.
            let at = base + index * 7919 % 10_000 * 512;
            unwind::register(at..at + 300, 0).unwrap()
        })
        .collect();
    let registering = processor_time() - start;
    let with_many = throw_cost();
    assert!(find(base + 299).is_some() && find(base + 300).is_none());
    let start = processor_time();
    drop(held);
    let removing = processor_time() - start;
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
