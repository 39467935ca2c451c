//! Thread-local storage: blocks per thread, their end, module numbers, variables of libraries.

use std::ffi::c_void;
use std::time::Instant;

use uruk_core::ExecutorAddr;
use uruk_core::sync::atomic::{AtomicU64, Ordering};
use uruk_core::sync::thread;
use uruk_core::sync::{Arc, Latch};
use uruk_pipeline::runtime::process::jit_overrides;
use uruk_pipeline::runtime::tls::{self, NotStatic, TlsError, TlsIndex, TlsModule};

type GetAddr = unsafe extern "C" fn(*const TlsIndex) -> *mut u64;

fn get_addr() -> GetAddr {
    // SAFETY: the address is that of a function with this type.
    unsafe { std::mem::transmute(tls::tls_get_addr_address().to_ptr::<()>()) }
}

/// The calling thread's `u64` number `slot` of the module.
fn variable(module: u64, slot: u64) -> *mut u64 {
    let index = TlsIndex { module, offset: slot * 8 };
    // SAFETY: the callers pass modules that are alive and slots inside their blocks.
    unsafe { get_addr()(&raw const index) }
}

fn read(pointer: *mut u64) -> u64 {
    // SAFETY: the callers pass what `variable` answered on this thread.
    unsafe { pointer.read() }
}

fn write(pointer: *mut u64, value: u64) {
    // SAFETY: the callers pass what `variable` answered on this thread.
    unsafe { pointer.write(value) }
}

fn module(image: &'static [u64], total_bytes: usize, align: usize) -> TlsModule {
    let module = tls::register_module(size_of_val(image), total_bytes, align).unwrap();
    module.initialize(ExecutorAddr::from_ptr(image));
    module
}

#[test]
fn each_thread_has_its_own_copy_of_the_image() {
    static IMAGE: [u64; 2] = [7, 8];
    let module = Arc::new(module(&IMAGE, 256, 128));
    write(variable(module.id(), 0), 70);
    let there = thread::spawn({
        let module = Arc::clone(&module);
        move || {
            let first = variable(module.id(), 0);
            assert_eq!(first.addr() % 128, 0);
            assert_eq!(
                (read(first), read(variable(module.id(), 1)), read(variable(module.id(), 31))),
                (7, 8, 0)
            );
            write(first, 700);
            assert_eq!(variable(module.id(), 0), first);
            read(first)
        }
    });
    assert_eq!(there.join().unwrap(), 700);
    assert_eq!(read(variable(module.id(), 0)), 70);
}

#[test]
fn a_slot_used_again_starts_afresh() {
    static IMAGE: [u64; 1] = [1];
    static OTHER: [u64; 1] = [2];
    let mut seen = Vec::new();
    for round in 0..100 {
        let module = module(if round % 2 == 0 { &IMAGE } else { &OTHER }, 64, 8);
        assert!(!seen.contains(&module.id()));
        seen.push(module.id());
        let pointer = variable(module.id(), 0);
        assert_eq!(read(pointer), 1 + round % 2);
        assert_eq!(read(variable(module.id(), 1)), 0);
        write(pointer, 99);
        write(variable(module.id(), 1), 99);
    }
}

static SEEN_AT_END: AtomicU64 = AtomicU64::new(0);
static LATE_MODULE: AtomicU64 = AtomicU64::new(0);

unsafe extern "C" fn other_key_destructor(_: *mut c_void) {
    // Relaxed: the spawning thread joins this one before it reads, and stored before it spawned.
    SEEN_AT_END.store(read(variable(LATE_MODULE.load(Ordering::Relaxed), 0)), Ordering::Relaxed);
}

#[test]
fn destructors_of_other_keys_still_find_their_variables() {
    static IMAGE: [u64; 1] = [5];
    let module = module(&IMAGE, 8, 8);
    // Relaxed: see above.
    LATE_MODULE.store(module.id(), Ordering::Relaxed);
    let id = module.id();
    thread::spawn(move || {
        write(variable(id, 0), 55);
        let mut key = 0;
        // SAFETY: plain use of the POSIX interface; the destructor has the right type.
        unsafe {
            assert_eq!(libc::pthread_key_create(&raw mut key, Some(other_key_destructor)), 0);
            assert_eq!(libc::pthread_setspecific(key, std::ptr::without_provenance(1)), 0);
        }
    })
    .join()
    .unwrap();
    assert_eq!(SEEN_AT_END.load(Ordering::Relaxed), 55);
}

/// A thread that started while an object was linked copied the image before the linker had written it, and kept what it
/// found there for good.
#[test]
fn threads_that_start_during_a_link_wait_with_their_copies() {
    static IMAGE: [u64; 1] = [7];
    let module = tls::register_module(8, 8, 8).unwrap();
    let (started, written) = (Latch::new(), Latch::new());
    thread::scope(|scope| {
        let there = scope.spawn({
            let (started, written, id) = (&started, &written, module.id());
            move || {
                tls::touch_modules();
                assert!(variable(id, 0).is_null(), "there is nothing to copy");
                started.open();
                written.wait();
                read(variable(id, 0))
            }
        });
        started.wait();
        module.initialize(ExecutorAddr::from_ptr(&IMAGE));
        written.open();
        assert_eq!(there.join().unwrap(), 7);
    });
}

static CHANGED: AtomicU64 = AtomicU64::new(7);

struct Meeting {
    module: u64,
    started: Latch,
    changed: Latch,
}

unsafe extern "C" fn minus_what_it_finds(meeting: *mut c_void) -> i32 {
    // SAFETY: the test passes it, and joins this thread.
    let Meeting { module, started, changed } = unsafe { &*meeting.cast::<Meeting>() };
    started.open();
    changed.wait();
    -(read(variable(*module, 0)) as i32)
}

/// The C library's `thrd_create` starts threads behind the back of our `pthread_create`, and they had no copies. The image changes
/// here while the thread runs, so that its copy tells from when it is.
#[test]
fn threads_of_c11_have_their_copies_from_the_start() {
    type Routine = unsafe extern "C" fn(*mut c_void) -> i32;
    type Create = unsafe extern "C" fn(*mut libc::pthread_t, Routine, *mut c_void) -> i32;
    unsafe extern "C" {
        fn thrd_create(thread: *mut libc::pthread_t, routine: Routine, argument: *mut c_void) -> i32;
        fn thrd_join(thread: libc::pthread_t, result: *mut i32) -> i32;
    }
    let module = tls::register_module(8, 8, 8).unwrap();
    module.initialize(ExecutorAddr::from_ptr(&raw const CHANGED));
    let ours = jit_overrides().into_iter().find(|(name, _)| *name == "thrd_create");
    // SAFETY: the override is a function of this type.
    let create = ours.map_or(thrd_create as Create, |(_, definition)| unsafe {
        std::mem::transmute::<*const (), Create>(definition.address.to_ptr())
    });
    let (mut thread, mut result) = (0, 0);
    let meeting = Meeting { module: module.id(), started: Latch::new(), changed: Latch::new() };
    let argument = (&raw const meeting).cast_mut().cast();
    // SAFETY: the handle can be written, and the routine only reads the meeting.
    assert_eq!(unsafe { create(&raw mut thread, minus_what_it_finds, argument) }, 0);
    meeting.started.wait();
    CHANGED.store(9, Ordering::Relaxed); // Relaxed: the latch orders it.
    meeting.changed.open();
    // SAFETY: the thread is the one just started.
    assert_eq!((unsafe { thrd_join(thread, &raw mut result) }, result), (0, -7));
}

/// It used to be said that the library was loaded when the process ran already. The test runs again in a process whose threads
/// want larger stacks than there can be.
#[test]
fn a_thread_that_is_refused_is_named_as_the_reason() {
    const STACK: &str = "RUST_MIN_STACK";
    const TOO_LARGE: &str = "70368744177664";
    if std::env::var(STACK).as_deref() != Ok(TOO_LARGE) {
        let mut again = std::process::Command::new(std::env::current_exe().unwrap());
        again.args(["--exact", "tls::a_thread_that_is_refused_is_named_as_the_reason", "--test-threads=1"]);
        let output = again.env(STACK, TOO_LARGE).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && said.contains("1 passed"), "{said}");
        return;
    }
    // SAFETY: errno's location is always valid.
    let here = unsafe { libc::__errno_location() };
    let index = tls::library_variable(here.addr() as u64).unwrap();
    let refused = tls::distance_from_thread_pointer(index).unwrap_err();
    assert_eq!(refused, NotStatic::NoThread { code: libc::EAGAIN });
    assert!(refused.to_string().contains("was refused"), "{refused}");
}

#[test]
fn contradictory_images_are_errors() {
    assert!(matches!(tls::register_module(16, 8, 8), Err(TlsError::Invalid { .. })));
    assert!(matches!(tls::register_module(0, 8, 3), Err(TlsError::Invalid { .. })));
}

#[test]
fn library_variables_are_described_for_every_thread() {
    // SAFETY: errno's location is always valid.
    let here = unsafe { libc::__errno_location() };
    let index = tls::library_variable(here.addr() as u64).unwrap();
    let descriptor = tls::library_variable_descriptor(index);
    assert_eq!(descriptor, tls::library_variable_descriptor(index));
    let check = move || {
        // SAFETY: the descriptor is one of a loaded library, and errno's location is always valid.
        unsafe { get_addr()(descriptor.to_ptr()).cast::<i32>() == libc::__errno_location() }
    };
    assert!(check());
    assert!(thread::spawn(check).join().unwrap());
    assert_eq!(tls::library_variable((&raw const index).addr() as u64), None);
    assert_eq!(tls::library_variable(libc::strlen as *const () as u64), None);
}

#[test]
#[ignore = "prints measurements"]
#[expect(clippy::print_stdout, reason = "a measurement is printed for whoever asked for it by name")]
fn print_the_cost_of_an_access() {
    static IMAGE: [u64; 1] = [0];
    let module = module(&IMAGE, 8, 8);
    let index = std::hint::black_box(TlsIndex { module: module.id(), offset: 0 });
    let function = std::hint::black_box(get_addr());
    let start = Instant::now();
    for _ in 0..10_000_000 {
        // SAFETY: the module is alive and has eight bytes.
        unsafe { std::hint::black_box(function(&raw const index)) };
    }
    println!("__tls_get_addr: {:.2} ns", start.elapsed().as_nanos() as f64 / 1e7);
}

/// A block with more than the allocator's own alignment was once zeroed byte by byte: a small file could so make every
/// thread fill a gigabyte.
#[test]
fn what_a_program_leaves_alone_of_a_large_block_stays_untouched() {
    const BYTES: usize = 1 << 30;
    static IMAGE: [u64; 1] = [7];
    let resident_bytes = || {
        let sizes = std::fs::read_to_string("/proc/self/statm").unwrap();
        sizes.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
    };
    let module = module(&IMAGE, BYTES, 4096);
    let before = resident_bytes();
    let first = variable(module.id(), 0);
    let last = variable(module.id(), BYTES as u64 / 8 - 1);
    assert_eq!((read(first), read(last), first.addr() % 4096), (7, 0, 0));
    let grown = resident_bytes().saturating_sub(before);
    assert!(grown < BYTES / 4, "{grown} bytes");
}
