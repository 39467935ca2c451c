//! The in-process memory manager, seen from outside: protections, sharing of pages, recycling, limits.

use std::sync::Arc;

use uruk_pipeline::memory::faulty::{Fault, FaultyMemoryManager};
use uruk_pipeline::memory::{
    FinalizedAlloc, InProcessMemoryManager, MemoryError, MemoryManager, MemoryOptions, SegmentKind,
    SegmentRequest, ViewPolicy,
};

/// `mov eax, 42; ret`
const RETURN_42: [u8; 6] = [0xb8, 42, 0, 0, 0, 0xc3];

fn request(kind: SegmentKind, content_bytes: usize) -> SegmentRequest {
    SegmentRequest { kind, content_bytes, zero_fill_bytes: 0, align: 16 }
}

fn with(manager: &InProcessMemoryManager, kind: SegmentKind, contents: &[u8]) -> FinalizedAlloc {
    let mut flight = manager.allocate("unit", &[request(kind, contents.len())]).unwrap();
    flight.working(0).copy_from_slice(contents);
    flight.finalize().unwrap()
}

fn call(address: uruk_core::ExecutorAddr) -> i32 {
    // SAFETY: the callers pass the address of `RETURN_42` in finalized code memory that is still alive.
    let function: extern "C" fn() -> i32 = unsafe { std::mem::transmute(address.to_ptr::<()>()) };
    function()
}

fn read(address: uruk_core::ExecutorAddr, len: usize) -> Vec<u8> {
    // SAFETY: the callers pass an allocation that is alive and at least `len` bytes long.
    unsafe { std::slice::from_raw_parts(address.to_ptr::<u8>(), len) }.to_vec()
}

fn policies() -> [ViewPolicy; 3] {
    [ViewPolicy::TwoViews, ViewPolicy::TwoViewsOfFile, ViewPolicy::OneView]
}

fn manager(views: ViewPolicy) -> InProcessMemoryManager {
    InProcessMemoryManager::with_options(MemoryOptions { views, ..MemoryOptions::default() }).unwrap()
}

/// The protection letters of the mapping that holds `address`, as in `/proc/self/maps`.
fn protection(address: u64) -> String {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    for line in maps.lines() {
        let (range, rest) = line.split_once(' ').unwrap();
        let (start, end) = range.split_once('-').unwrap();
        let [start, end] = [start, end].map(|text| u64::from_str_radix(text, 16).unwrap());
        if (start..end).contains(&address) {
            return rest[..3].to_owned();
        }
    }
    panic!("{address:#x} is not mapped");
}

#[test]
fn linked_code_runs_and_data_is_private_and_writable() {
    for views in policies() {
        let manager = manager(views);
        let mut flight = manager
            .allocate(
                "unit",
                &[
                    request(SegmentKind::Code, RETURN_42.len()),
                    request(SegmentKind::ReadOnly, 8),
                    SegmentRequest {
                        kind: SegmentKind::Data,
                        content_bytes: 8,
                        zero_fill_bytes: 8192,
                        align: 64,
                    },
                ],
            )
            .unwrap();
        flight.working(0).copy_from_slice(&RETURN_42);
        flight.working(1).copy_from_slice(b"constant");
        flight.working(2).copy_from_slice(b"variable");
        let alloc = flight.finalize().unwrap();
        assert_eq!(call(alloc.address(0)), 42);
        assert_eq!(read(alloc.address(1), 8), b"constant");
        let data = read(alloc.address(2), 8 + 8192);
        assert_eq!(&data[..8], b"variable");
        assert!(data[8..].iter().all(|byte| *byte == 0));
        assert_eq!(alloc.address(2).value() % 64, 0);
        assert_eq!(protection(alloc.address(0).value()), "r-x");
        assert_eq!(protection(alloc.address(1).value()), "r--");
        assert_eq!(protection(alloc.address(2).value()), "rw-");
        assert_eq!(alloc.bytes().data_bytes, 8208);
        assert!(alloc.resident().code_bytes > 0);
    }
}

#[test]
fn no_mapping_is_writable_and_executable() {
    for views in policies() {
        let manager = manager(views);
        let _held: Vec<_> = (0..64).map(|_| with(&manager, SegmentKind::Code, &RETURN_42)).collect();
        let mut flight = manager.allocate("unit", &[request(SegmentKind::Code, 64)]).unwrap();
        flight.working(0)[0] = 0xc3;
        let written_at = flight.working(0).as_ptr() as u64;
        assert!(!protection(written_at).contains('x'));
        assert!(
            !(protection(flight.address(0).value()).contains('w')
                && protection(flight.address(0).value()).contains('x'))
        );
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        assert!(!maps.lines().any(|line| line.contains(" rwx")), "{maps}");
    }
}

#[test]
fn small_objects_share_pages_and_everything_reaches_everything() {
    let manager = manager(ViewPolicy::TwoViews);
    let objects: Vec<_> = (0..1000).map(|_| with(&manager, SegmentKind::Code, &RETURN_42)).collect();
    let pages: std::collections::BTreeSet<_> =
        objects.iter().map(|object| object.address(0).value() / 4096).collect();
    assert_eq!(pages.len(), 1000 * 16 / 4096 + 1);
    let range = manager.reserved_range();
    assert!(range.end.value() - range.start.value() < i32::MAX as u64);
    assert!(objects.iter().all(|object| range.contains(&object.address(0)) && call(object.address(0)) == 42));
}

/// Only the first range of a process gets the place below the libraries.
#[test]
fn code_lies_within_reach_of_libc() {
    alone!();
    let manager = manager(ViewPolicy::TwoViews);
    let code = with(&manager, SegmentKind::Code, &RETURN_42).address(0).value();
    let libc = libc::strlen as *const () as u64;
    assert!(code.abs_diff(libc) < 1 << 31, "code at {code:#x}, libc at {libc:#x}");
}

#[test]
fn limited_address_space_gets_a_smaller_range() {
    alone!("ulimit -v 1000000;");
    let manager = manager(ViewPolicy::Automatic);
    let range = manager.reserved_range();
    assert!((64 << 20..1 << 30).contains(&(range.end.value() - range.start.value())));
    assert_eq!(call(with(&manager, SegmentKind::Code, &RETURN_42).address(0)), 42);
}

/// Limits the process to what it has mapped, LLVM perhaps among it, and `bytes` more.
fn leave_address_space(bytes: u64) {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = pages.split(' ').next().unwrap().parse().unwrap();
    let limit = Some(pages * 4096 + bytes);
    let limit = rustix::process::Rlimit { current: limit, maximum: limit };
    rustix::process::setrlimit(rustix::process::Resource::As, limit).unwrap();
}

/// 64 MiB was once the least that was tried, and the first that was granted was kept, however little that left.
#[test]
fn little_address_space_is_shared_with_the_program() {
    alone!();
    leave_address_space(200 << 20);
    let manager = manager(ViewPolicy::Automatic);
    let range = manager.reserved_range();
    let bytes = range.end.value() - range.start.value();
    assert!(bytes <= 64 << 20, "{bytes}");
    let objects: Vec<_> = (0..3000).map(|_| with(&manager, SegmentKind::Code, &RETURN_42)).collect();
    assert!(objects.iter().all(|code| call(code.address(0)) == 42));
    // The rest of the range is the program's.
    let own = vec![1_u8; bytes as usize / 2];
    assert_eq!(own[own.len() - 1], 1);
}

#[test]
fn freed_memory_is_recycled_and_zeroed() {
    for views in policies() {
        let manager = manager(views);
        for kind in [SegmentKind::Code, SegmentKind::ReadOnly, SegmentKind::Data] {
            let neighbour = with(&manager, kind, &[1; 64]);
            let first = with(&manager, kind, &[0xff; 300]);
            let address = first.address(0);
            drop(first);
            let mut flight = manager.allocate("unit", &[request(kind, 300)]).unwrap();
            assert_eq!(flight.address(0), address, "{kind}");
            assert!(flight.working(0).iter().all(|byte| *byte == 0), "{kind}");
            drop(neighbour);
        }
    }
}

#[test]
fn recycled_zero_fill_reads_as_zeros() {
    let manager = manager(ViewPolicy::Automatic);
    let _neighbour = with(&manager, SegmentKind::Data, &[1; 64]);
    for bytes in [100, 5000, 200_000] {
        let dirty = with(&manager, SegmentKind::Data, &vec![0xff; bytes]);
        let address = dirty.address(0);
        drop(dirty);
        let clean = SegmentRequest {
            kind: SegmentKind::Data,
            content_bytes: 8,
            zero_fill_bytes: bytes - 8,
            align: 16,
        };
        let clean = manager.allocate("unit", &[clean]).unwrap().finalize().unwrap();
        assert_eq!(clean.address(0), address);
        assert!(read(address, bytes).iter().all(|byte| *byte == 0));
    }
}

#[test]
fn a_million_rounds_do_not_grow() {
    let manager = manager(ViewPolicy::TwoViews);
    let rounds = if cfg!(debug_assertions) { 100_000 } else { 1_000_000 };
    let mut held = std::collections::VecDeque::new();
    for round in 0..rounds {
        held.push_back(with(&manager, SegmentKind::Code, &[0xc3; 700][..16 + round * 7 % 600]));
        if held.len() > 50 {
            held.pop_front();
        }
    }
    let usage = manager.usage();
    assert_eq!(usage.allocations, 50);
    assert!(usage.code.slab_bytes <= 2 << 20, "{usage:?}");
    drop(held);
    assert_eq!(manager.usage().code.allocated_bytes, 0);
}

#[test]
fn free_slabs_go_back_except_for_a_spare() {
    for views in policies() {
        let manager = manager(views);
        let many: Vec<_> = (0..40).map(|_| with(&manager, SegmentKind::Code, &vec![0xc3; 300_000])).collect();
        let one = with(&manager, SegmentKind::Code, &vec![0xc3; 3_000_000]);
        assert!(manager.usage().code.resident_bytes >= 15_000_000);
        drop((many, one));
        let usage = manager.usage();
        assert!(usage.code.slab_bytes <= 2 << 20, "{usage:?}");
        assert!(usage.code.resident_bytes <= 64 << 10, "{usage:?}");
    }
}

#[test]
fn gigabytes_of_zero_fill_cost_nothing_until_touched() {
    let manager = manager(ViewPolicy::Automatic);
    let huge = |bytes| SegmentRequest {
        kind: SegmentKind::Data,
        content_bytes: 16,
        zero_fill_bytes: bytes,
        align: 4096,
    };
    let inside = manager.allocate("inside", &[huge(3 << 29)]).unwrap().finalize().unwrap();
    assert!(manager.reserved_range().contains(&inside.address(0)));
    let code = with(&manager, SegmentKind::Code, &RETURN_42);
    assert!(code.address(0).value() - inside.address(0).value() < 1 << 31);
    // The range is used up now; the next one lies elsewhere.
    let outside = manager.allocate("outside", &[huge(5 << 30)]).unwrap().finalize().unwrap();
    assert!(!manager.reserved_range().contains(&outside.address(0)));
    let last = outside.address(0).offset(5 << 30);
    // SAFETY: the byte lies in the allocation, which is alive and writable.
    unsafe { last.to_ptr::<u8>().write(7) };
    assert_eq!(read(last, 1), [7]);
    assert!(manager.usage().data.resident_bytes < 4 << 20);
    drop((inside, outside));
    assert_eq!(manager.usage().data.slab_bytes, 0);
}

#[test]
fn an_exhausted_range_says_who_asked_and_what_to_do() {
    let manager = InProcessMemoryManager::with_options(MemoryOptions {
        reserve_bytes: Some(4 << 20),
        ..MemoryOptions::default()
    })
    .unwrap();
    let error = manager
        .allocate("big.o", &[request(SegmentKind::Code, 16), request(SegmentKind::Code, 8 << 20)])
        .unwrap_err();
    assert!(
        matches!(&error, MemoryError::Exhausted { owner, kind: SegmentKind::Code, size_bytes, .. } if &**owner == "big.o" && *size_bytes == 8 << 20)
    );
    assert!(error.to_string().contains("-mcmodel=large"), "{error}");
    let usage = manager.usage();
    assert_eq!((usage.allocations, usage.code.allocated_bytes), (0, 0));
    // Small objects use the range up to the end, and it is whole again afterwards.
    let mut held = Vec::new();
    while let Ok(flight) = manager.allocate("small.o", &[request(SegmentKind::Code, 4096)]) {
        held.push(flight);
    }
    assert!(held.len() > 900, "{}", held.len());
    drop(held);
    assert!(manager.allocate("big.o", &[request(SegmentKind::Data, 1 << 20)]).is_ok());
}

/// The error once said "check `ulimit -v`" and left the reader to find out what was asked and what there was.
#[test]
fn a_refused_reservation_names_what_was_asked_and_the_limit() {
    alone!("ulimit -v 1000000;");
    let error = InProcessMemoryManager::with_options(MemoryOptions {
        range_bytes: Some(2 << 30),
        ..MemoryOptions::default()
    })
    .unwrap_err();
    let (asked, limit) = (2 << 30, 1_000_000 << 10);
    assert!(
        matches!(error, MemoryError::Reserve { size_bytes, limit_bytes: Some(bytes), .. } if (size_bytes, bytes) == (asked, limit))
    );
    let text = error.to_string();
    assert!(text.contains(&asked.to_string()) && text.contains(&limit.to_string()), "{text}");
    assert!(std::error::Error::source(&error).is_some());
}

#[test]
fn a_range_that_code_does_not_reach_across_is_refused() {
    let options = MemoryOptions { range_bytes: Some(3 << 30), ..MemoryOptions::default() };
    let error = InProcessMemoryManager::with_options(options).unwrap_err();
    assert!(matches!(error, MemoryError::Invalid { .. }), "{error}");
}

/// Where `systemd` or a hardened launcher forbids a process to make pages executable later (`PR_SET_MDWE`), the manager
/// once could not link anything: its run view began as writable, and so did pages of one view.
#[test]
#[expect(clippy::print_stderr, reason = "a test that tests nothing says so")]
fn code_runs_where_pages_cannot_become_executable() {
    alone!();
    const PR_SET_MDWE: libc::c_int = 65;
    const REFUSE_EXEC_GAIN: libc::c_ulong = 1;
    // SAFETY: it takes numbers, and only forbids this process what it has no need of.
    if unsafe { libc::prctl(PR_SET_MDWE, REFUSE_EXEC_GAIN, 0_u64, 0_u64, 0_u64) } != 0 {
        // Shown with --nocapture; there is nothing to test on such a system.
        eprintln!("skipped: this kernel knows no PR_SET_MDWE (it came with 6.3)");
        return;
    }
    let manager = manager(ViewPolicy::Automatic);
    let held: Vec<_> = (0..1000).map(|_| with(&manager, SegmentKind::Code, &RETURN_42)).collect();
    assert!(held.iter().all(|code| call(code.address(0)) == 42));
    let constant = with(&manager, SegmentKind::ReadOnly, b"constant");
    assert_eq!(read(constant.address(0), 8), b"constant");
    assert_eq!(protection(constant.address(0).value()), "r--");
    drop(held);
    assert_eq!(call(with(&manager, SegmentKind::Code, &RETURN_42).address(0)), 42);
}

/// A file in memory counts as a file: one beyond `ulimit -f` would have cost the process a deadly signal.
#[test]
fn a_limit_on_files_is_an_error_and_not_a_signal() {
    alone!("ulimit -f 1;");
    let options = MemoryOptions { views: ViewPolicy::TwoViewsOfFile, ..MemoryOptions::default() };
    let error = InProcessMemoryManager::with_options(options).unwrap_err();
    assert!(matches!(error, MemoryError::Protect { .. }), "{error}");
}

#[test]
fn contradictory_requests_are_errors() {
    let manager = manager(ViewPolicy::Automatic);
    let bad = [
        SegmentRequest { align: 3, ..request(SegmentKind::Code, 1) },
        SegmentRequest { zero_fill_bytes: 1, ..request(SegmentKind::ReadOnly, 1) },
        SegmentRequest { zero_fill_bytes: usize::MAX, ..request(SegmentKind::Data, 1) },
    ];
    for request in bad {
        assert!(matches!(manager.allocate("unit", &[request]), Err(MemoryError::Invalid { .. })));
    }
    assert!(manager.allocate("empty", &[request(SegmentKind::Data, 0)]).is_ok());
    assert!(manager.allocate("none", &[]).is_ok());
}

#[test]
fn planned_failures_happen_and_leak_nothing() {
    let inner = Arc::new(manager(ViewPolicy::Automatic));
    for fault in [Fault::Allocate(3), Fault::Finalize(2), Fault::Every(2)] {
        let faulty = FaultyMemoryManager::new(Arc::clone(&inner) as Arc<dyn MemoryManager>, fault);
        let results: Vec<_> = (0..6)
            .map(|_| {
                faulty
                    .allocate("unit", &[request(SegmentKind::Code, 64)])
                    .and_then(|flight| flight.finalize())
            })
            .collect();
        let failed =
            results.iter().filter(|result| matches!(result, Err(MemoryError::Injected { .. }))).count();
        assert!((1..6).contains(&failed), "{fault:?}: {failed}");
        drop(results);
        assert_eq!(inner.usage().code.allocated_bytes, 0);
    }
}

#[test]
fn many_threads_allocate_and_free_at_once() {
    let manager = Arc::new(manager(ViewPolicy::TwoViews));
    let threads: Vec<_> = (0..4)
        .map(|seed: usize| {
            let manager = Arc::clone(&manager);
            uruk_core::sync::thread::spawn(move || {
                let mut held = Vec::new();
                for round in 0..2000 {
                    let object = with(&manager, SegmentKind::Code, &RETURN_42);
                    assert_eq!(call(object.address(0)), 42);
                    held.push(object);
                    if round % 3 == seed % 3 {
                        drop(held.swap_remove(round % held.len()));
                    }
                }
                held.iter().all(|object| call(object.address(0)) == 42)
            })
        })
        .collect();
    for thread in threads {
        assert!(thread.join().unwrap());
    }
    assert_eq!(manager.usage().code.allocated_bytes, 0);
}

#[test]
fn code_outlives_the_manager_that_made_it() {
    let manager = manager(ViewPolicy::Automatic);
    let code = with(&manager, SegmentKind::Code, &RETURN_42);
    drop(manager);
    assert_eq!(call(code.address(0)), 42);
}
