//! A process that forks: what each side links, frees and runs stays its own. Every test runs in a process of its own,
//! stages the two sides by pipes, and has the system end a child that hangs.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{FromRawFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use uruk_core::ExecutorAddr;
use uruk_core::sync::atomic::{AtomicBool, Ordering};
use uruk_core::sync::thread;
use uruk_pipeline::memory::{
    FinalizedAlloc, InProcessMemoryManager, MemoryError, MemoryManager, MemoryOptions, SegmentKind,
    SegmentRequest, ViewPolicy,
};

const CHILD_SECONDS_MAX: u32 = 60;

/// A child of this process.
struct Child(libc::pid_t);

impl Child {
    /// Forks; the child does `work` and ends.
    fn fork(work: impl FnOnce()) -> Self {
        // SAFETY: the child uses only functions that are made for that and leaves by `_exit`, whichever other threads there were.
        match unsafe { libc::fork() } {
            0 => {
                // SAFETY: concerns this process alone.
                unsafe { libc::alarm(CHILD_SECONDS_MAX) };
                let status = i32::from(catch_unwind(AssertUnwindSafe(work)).is_err());
                // SAFETY: no destructor and no handler of the parent runs.
                unsafe { libc::_exit(status) }
            }
            pid => {
                assert!(pid > 0, "fork: {}", std::io::Error::last_os_error());
                Self(pid)
            }
        }
    }

    /// Waits for its good end.
    fn join(self) {
        let mut status = 0;
        // SAFETY: the child is ours and only this thread waits for it.
        assert_eq!(unsafe { libc::waitpid(self.0, &raw mut status, 0) }, self.0);
        assert_eq!(status, 0, "the child failed or hung (status {status:#x})");
    }
}

/// A point that one side reaches and the other waits for.
struct Signal {
    reader: File,
    writer: File,
}

impl Signal {
    fn new() -> Self {
        let mut ends = [0; 2];
        // SAFETY: the array has room for the two descriptors, which have no other owner.
        let [reader, writer] = unsafe {
            assert_eq!(libc::pipe(ends.as_mut_ptr()), 0);
            ends.map(|end| File::from(OwnedFd::from_raw_fd(end)))
        };
        Self { reader, writer }
    }

    fn send(&self) {
        (&self.writer).write_all(b".").unwrap();
    }

    fn wait(&self) {
        (&self.reader).read_exact(&mut [0]).unwrap();
    }
}

fn request(kind: SegmentKind, content_bytes: usize) -> SegmentRequest {
    SegmentRequest { kind, content_bytes, zero_fill_bytes: 0, align: 16 }
}

/// `mov eax, result; ret`, padded to `bytes`.
fn code(result: u32, bytes: usize) -> Vec<u8> {
    let [a, b, c, d] = result.to_le_bytes();
    let mut code = vec![0xb8, a, b, c, d, 0xc3];
    code.resize(bytes.max(6), 0xcc);
    code
}

fn with(manager: &InProcessMemoryManager, kind: SegmentKind, contents: &[u8]) -> FinalizedAlloc {
    let mut flight = manager.allocate("unit", &[request(kind, contents.len())]).unwrap();
    flight.working(0).copy_from_slice(contents);
    flight.finalize().unwrap()
}

fn function(manager: &InProcessMemoryManager, result: u32) -> FinalizedAlloc {
    with(manager, SegmentKind::Code, &code(result, 0))
}

fn call(function: &FinalizedAlloc) -> u32 {
    call_at(function.address(0))
}

fn call_at(address: ExecutorAddr) -> u32 {
    // SAFETY: the callers pass code made by `code`, finalized, and alive in this process.
    let function: extern "C" fn() -> u32 = unsafe { std::mem::transmute(address.to_ptr::<()>()) };
    function()
}

fn manager(views: ViewPolicy) -> InProcessMemoryManager {
    InProcessMemoryManager::with_options(MemoryOptions { views, ..MemoryOptions::default() }).unwrap()
}

const POLICIES: [ViewPolicy; 3] = [ViewPolicy::TwoViews, ViewPolicy::TwoViewsOfFile, ViewPolicy::OneView];

#[test]
fn both_sides_link_more_and_neither_sees_the_others() {
    alone!();
    for views in POLICIES {
        let manager = manager(views);
        let before = function(&manager, 42);
        let data = with(&manager, SegmentKind::Data, &[1; 100]);
        let (child_linked, parent_linked) = (Signal::new(), Signal::new());
        let child = Child::fork(|| {
            let own: Vec<_> = (0..3000).map(|number| function(&manager, number)).collect();
            child_linked.send();
            parent_linked.wait();
            assert_eq!(call(&before), 42);
            assert!(own.iter().zip(0..).all(|(object, number)| call(object) == number));
            // SAFETY: the data is alive and writable.
            unsafe { data.address(0).to_ptr::<u8>().write(2) };
        });
        child_linked.wait();
        let own: Vec<_> = (0..3000).map(|number| function(&manager, number + 10_000)).collect();
        parent_linked.send();
        child.join();
        assert_eq!(call(&before), 42);
        assert!(own.iter().zip(10_000..).all(|(object, number)| call(object) == number));
        // SAFETY: the data is alive.
        assert_eq!(unsafe { data.address(0).to_ptr::<u8>().read() }, 1);
    }
}

#[test]
fn what_one_side_frees_and_replaces_the_other_still_runs() {
    alone!();
    for views in POLICIES {
        for child_frees in [false, true] {
            let manager = manager(views);
            // One stays, so that its slab does; one is so large that its pages would be freed with it.
            let stays = function(&manager, 1);
            let sizes = [6, 5000, 200_000, 3 << 20];
            let goes: Vec<_> = sizes
                .iter()
                .zip(2..)
                .map(|(&bytes, number)| with(&manager, SegmentKind::Code, &code(number, bytes)))
                .collect();
            let addresses: Vec<_> = goes.iter().map(|object| object.address(0)).collect();
            let replace = |goes: Vec<FinalizedAlloc>| {
                drop(goes);
                let new: Vec<_> = sizes
                    .iter()
                    .cycle()
                    .take(40)
                    .map(|&bytes| with(&manager, SegmentKind::Code, &code(99, bytes)))
                    .collect();
                assert!(new.iter().all(|object| call(object) == 99));
                assert_eq!(call(&stays), 1);
                drop(new);
            };
            let run = || {
                assert!(addresses.iter().zip(2..).all(|(address, number)| call_at(*address) == number));
            };
            let replaced = Signal::new();
            if child_frees {
                let mut goes = goes;
                Child::fork(|| replace(std::mem::take(&mut goes))).join();
                run();
            } else {
                let child = Child::fork(|| {
                    replaced.wait();
                    run();
                });
                replace(goes);
                replaced.send();
                child.join();
            }
        }
    }
}

#[test]
fn code_in_several_ranges_outlives_what_the_other_side_does() {
    alone!();
    for views in POLICIES {
        let options = MemoryOptions { views, range_bytes: Some(4 << 20), ..MemoryOptions::default() };
        let manager = InProcessMemoryManager::with_options(options).unwrap();
        let fill = |from: u32| -> Vec<_> {
            (from..from + 40)
                .map(|number| with(&manager, SegmentKind::Code, &code(number, 300_000)))
                .collect()
        };
        let are = |objects: &[FinalizedAlloc], from: u32| {
            assert!(objects.iter().zip(from..).all(|(object, number)| call(object) == number));
        };
        let mut before = fill(0);
        let low = {
            let mut flight = manager.allocate_low("low.o", &[request(SegmentKind::Code, 6)]).unwrap();
            flight.working(0).copy_from_slice(&code(7, 0));
            flight.finalize().unwrap()
        };
        let (freed, replaced) = (Signal::new(), Signal::new());
        let child = Child::fork(|| {
            // Whole ranges become free on this side, and go.
            drop(before.split_off(5));
            let own = fill(1000);
            freed.send();
            replaced.wait();
            are(&before, 0);
            are(&own, 1000);
            assert_eq!(call(&low), 7);
        });
        freed.wait();
        are(&before, 0);
        before.drain(..20);
        let own = fill(2000);
        replaced.send();
        child.join();
        are(&before, 20);
        are(&own, 2000);
        drop((before, own, low));
        let usage = manager.usage();
        assert_eq!((usage.allocations, usage.reserved_bytes), (0, 4 << 20));
    }
}

#[test]
fn withheld_memory_is_counted_and_goes_with_its_slab() {
    alone!();
    let manager = manager(ViewPolicy::TwoViews);
    let stays = function(&manager, 1);
    let goes = with(&manager, SegmentKind::Code, &[0xc3; 1000]);
    let (goes_start, goes_bytes) = (goes.address(0), goes.bytes().code_bytes);
    Child::fork(|| {
        let usage = manager.usage();
        let live = stays.bytes().code_bytes + goes_bytes;
        assert_eq!(usage.code.allocated_bytes, live);
        assert_eq!(usage.code.withheld_bytes, usage.code.slab_bytes - live);
        // Only a whole slab comes back.
        let next = function(&manager, 2);
        assert_eq!(manager.usage().code.slab_bytes, 2 * usage.code.slab_bytes);
        assert_eq!((call(&next), call(&stays)), (2, 1));
    })
    .join();
    assert_eq!(manager.usage().code.withheld_bytes, 0);
    drop(goes);
    assert_eq!(manager.usage().code.withheld_bytes, goes_bytes);
    let next = with(&manager, SegmentKind::Code, &[0xc3; 1000]);
    assert_ne!(next.address(0), goes_start);
    drop((stays, next));
    let usage = manager.usage();
    assert_eq!((usage.code.withheld_bytes, usage.code.slab_bytes), (0, 0));
    // And what is linked now is recycled as ever.
    let first = function(&manager, 3);
    let neighbour = function(&manager, 4);
    let address = first.address(0);
    drop(first);
    assert_eq!(function(&manager, 5).address(0), address);
    drop(neighbour);
}

#[test]
fn what_was_being_filled_is_the_parents_to_finish() {
    alone!();
    for views in POLICIES {
        let manager = manager(views);
        let mut flight = Some(manager.allocate("half.o", &[request(SegmentKind::Code, 6)]).unwrap());
        flight.as_mut().unwrap().working(0).copy_from_slice(&code(7, 0));
        Child::fork(|| {
            let mut flight = flight.take().unwrap();
            flight.working(0).fill(0xcc);
            let error = flight.finalize().unwrap_err();
            assert!(matches!(error, MemoryError::Forked), "{error}");
            assert_eq!(call(&function(&manager, 8)), 8);
        })
        .join();
        let finished = flight.take().unwrap().finalize().unwrap();
        assert_eq!(call(&finished), 7);
    }
}

#[test]
fn grandchildren_run_the_code_of_all_before_them() {
    alone!();
    for views in POLICIES {
        let manager = manager(views);
        let first = function(&manager, 1);
        Child::fork(|| {
            let mut second = Some(function(&manager, 2));
            Child::fork(|| {
                drop(second.take());
                let third = function(&manager, 3);
                assert_eq!([&first, &third].map(call), [1, 3]);
            })
            .join();
            drop(function(&manager, 4));
            assert_eq!([&first, second.as_ref().unwrap()].map(call), [1, 2]);
        })
        .join();
        assert_eq!(call(&first), 1);
    }
}

#[test]
fn a_fork_finds_no_lock_taken_whatever_other_threads_do() {
    alone!();
    for views in POLICIES {
        let manager = Arc::new(manager(views));
        let done = Arc::new(AtomicBool::new(false));
        let workers: Vec<_> = (0..3)
            .map(|_| {
                let (manager, done) = (Arc::clone(&manager), Arc::clone(&done));
                thread::spawn(move || {
                    let mut held = Vec::new();
                    // Relaxed: only tells when to stop.
                    while !done.load(Ordering::Relaxed) {
                        held.push(function(&manager, held.len() as u32));
                        if held.len() == 200 {
                            assert!(held.iter().zip(0..).all(|(object, number)| call(object) == number));
                            held.clear();
                        }
                    }
                })
            })
            .collect();
        let before = function(&manager, 42);
        for round in 0..50 {
            let another = InProcessMemoryManager::with_options(MemoryOptions {
                reserve_bytes: Some(16 << 20),
                ..MemoryOptions::default()
            });
            Child::fork(|| {
                let own: Vec<_> = (0..50).map(|number| function(&manager, round + number)).collect();
                assert!(own.iter().zip(round..).all(|(object, number)| call(object) == number));
                assert_eq!((call(&before), call(&function(another.as_ref().unwrap(), 5))), (42, 5));
                drop(own);
            })
            .join();
        }
        // Relaxed: see above.
        done.store(true, Ordering::Relaxed);
        workers.into_iter().for_each(|worker| worker.join().unwrap());
        assert_eq!(manager.usage().allocations, 1);
    }
}
