//! Order of start and exit, seen from a process of its own: this test runs itself as that program.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::io::Write;
use std::process::{Command, Stdio};

use uruk_core::ExecutorAddr;
use uruk_pipeline::export_cxa_atexit;
use uruk_pipeline::runtime::exit;
use uruk_pipeline::runtime::process::jit_overrides;
use uruk_pipeline::runtime::startup::{ArrayFunction, DEFAULT_PRIORITY, Program};

export_cxa_atexit!();

const CHILD: &str = "URUK_TEST_PROGRAM";

fn say(text: &str) {
    let mut out = std::io::stderr();
    out.write_all(text.as_bytes()).and_then(|()| out.write_all(b"\n")).unwrap();
}

fn jit<F: Copy>(name: &str) -> F {
    let address =
        jit_overrides().into_iter().find(|(known, _)| *known == name).unwrap().1.address.to_ptr::<()>();
    // SAFETY: the callers name the type that the function has.
    unsafe { std::mem::transmute_copy(&address) }
}

extern "C" fn init_early(_: c_int, _: *mut *mut c_char, _: *mut *mut c_char) {
    say("init 101");
}

extern "C" fn init_default(argc: c_int, argv: *mut *mut c_char, envp: *mut *mut c_char) {
    // SAFETY: the vectors are those of a process.
    let (name, variable) = unsafe { (CStr::from_ptr(*argv), *envp) };
    say(&format!("init argc={argc} argv0={} env={}", name.to_str().unwrap(), !variable.is_null()));
}

extern "C" fn fini_early() {
    say("fini 101");
}

extern "C" fn fini_default() {
    say("fini");
}

extern "C" fn handler(_: *mut c_void) {
    say("atexit");
}

extern "C" fn thread_local_destructor(_: *mut c_void) {
    say("thread_local");
}

extern "C" fn main_of_program(_: c_int, argv: *mut *mut c_char, _: *mut *mut c_char) -> c_int {
    let atexit: extern "C" fn(extern "C" fn(*mut c_void)) -> c_int = jit("atexit");
    let thread_atexit: extern "C" fn(extern "C" fn(*mut c_void), *mut c_void, *mut c_void) -> c_int =
        jit("__cxa_thread_atexit");
    assert_eq!(atexit(handler), 0);
    assert_eq!(thread_atexit(thread_local_destructor, std::ptr::null_mut(), std::ptr::null_mut()), 0);
    // SAFETY: the vector is that of a process.
    let how = unsafe { CStr::from_ptr(*argv.add(1)) }.to_str().unwrap().to_owned();
    say(&format!("main {how}"));
    if how == "thread" {
        // SAFETY: no other thread calls `exit`.
        uruk_core::sync::thread::spawn(|| unsafe { libc::exit(9) }).join().unwrap();
    }
    7
}

fn function(priority: i32, unit: u32, address: *const ()) -> ArrayFunction {
    ArrayFunction { priority, unit, index: 0, address: ExecutorAddr::from_ptr(address) }
}

fn run_as_program(how: &str) -> ! {
    let program = Program::new([c"/some/where/program".into(), CString::new(how).unwrap()]);
    program.take_the_process();
    exit::on_exit(|status| say(&format!("status {status}"))).unwrap();
    program.register_finalizers().unwrap();
    // SAFETY: the functions have the types of their arrays.
    unsafe {
        program.add_finalizers([function(101, 1, fini_early as *const ())]);
        program.add_finalizers([function(DEFAULT_PRIORITY, 0, fini_default as *const ())]);
        program.run_initializers([
            function(DEFAULT_PRIORITY, 0, init_default as *const ()),
            function(101, 1, init_early as *const ()),
        ]);
        program.run_main_and_exit(ExecutorAddr::from_ptr(main_of_program as *const ()))
    }
}

fn check(how: &str, expected_status: i32, expected: &[&str]) {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "startup::program", "--test-threads=1", "--nocapture"])
        .env(CHILD, how)
        .stdout(Stdio::null())
        .output()
        .unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(output.status.code(), Some(expected_status), "{text}");
    assert_eq!(lines, expected);
}

#[test]
fn program() {
    if let Ok(how) = std::env::var(CHILD) {
        run_as_program(&how);
    }
}

#[test]
fn everything_runs_in_the_order_of_a_native_process() {
    let init = ["init 101", "init argc=2 argv0=/some/where/program env=true", "main return"];
    let end = ["thread_local", "atexit", "fini", "fini 101", "status 7"];
    check(
        "return",
        7,
        &[init, ["", "", ""]].concat().into_iter().filter(|l| !l.is_empty()).chain(end).collect::<Vec<_>>(),
    );
}

#[test]
fn exit_on_another_thread_runs_the_same_handlers() {
    let expected = [
        "init 101",
        "init argc=2 argv0=/some/where/program env=true",
        "main thread",
        "atexit",
        "fini",
        "fini 101",
        "status 9",
    ];
    check("thread", 9, &expected);
}
