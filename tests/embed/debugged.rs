//! gdb beside an engine whose code comes and goes.

use std::io::Write as _;
use std::process::Command;

use uruk::Jit;
use uruk::pipeline::debug;

use crate::support::{c_with, is_alone};

const NAME: &str = "debugged::code_that_takes_the_memory_of_other_code_has_its_own_breakpoints";

/// Adds a function, calls it, removes it. Gives its address.
fn round(jit: &Jit, number: usize) -> u64 {
    let tracker = jit.create_tracker();
    let source = format!(
        "#line 1 \"round{number}.c\"\nint round{number}(int x) {{\n  int local = x + {number};\n  return local;\n}}\n"
    );
    let object = c_with(&format!("round{number}.o"), &source, &["-O0", "-g"]);
    jit.in_tracker(&tracker).add_object(object).expect("a new name");
    // SAFETY: that is the function's signature, and it is called before it goes.
    let function: extern "C" fn(i32) -> i32 =
        unsafe { jit.function(&format!("round{number}")) }.expect("it is linked");
    assert_eq!(function(1), 1 + number as i32);
    tracker.remove().expect("nothing of it objects");
    function as usize as u64
}

/// The program under the debugger.
fn program() {
    let jit = Jit::builder().threads(1).debugger(true).build().expect("an engine for this machine");
    let (first, second) = (round(&jit, 0), round(&jit, 1));
    assert_eq!(first, second, "the test means to use memory again");
    debug::set_debugger(false);
    round(&jit, 2);
    debug::set_debugger(true);
    round(&jit, 3);
    assert!(debug::has_debugger());
}

/// A breakpoint stayed where other code was by then, or was not set in the new one.
#[test]
fn code_that_takes_the_memory_of_other_code_has_its_own_breakpoints() {
    if is_alone() {
        return program();
    }
    if !Command::new("gdb").arg("--version").output().is_ok_and(|output| output.status.success()) {
        assert!(std::env::var_os("CI").is_none(), "gdb is missing: scripts/setup.sh installs it");
        // Nothing is left to say without a reader.
        let _ = writeln!(std::io::stderr(), "skipped: there is no gdb");
        return;
    }
    let mut gdb = Command::new("gdb");
    gdb.args([
        "-nx",
        "-q",
        "-batch",
        "-ex",
        "set breakpoint pending on",
        "-ex",
        "set debuginfod enabled off",
    ]);
    for number in 0..4 {
        gdb.arg("-ex").arg(format!("break round{number}.c:3"));
    }
    let steps = [
        "run",
        "bt 1",
        "info locals",
        "continue",
        "bt 1",
        "info locals",
        "continue",
        "info locals",
        "continue",
    ];
    steps.iter().for_each(|step| _ = gdb.args(["-ex", step]));
    gdb.arg("--args").arg(std::env::current_exe().expect("this test"));
    gdb.args(["--exact", NAME, "--test-threads=1", "--nocapture"]).env("URUK_TEST_ALONE", "1");
    let output = gdb.output().expect("it is there");
    let printed = String::from_utf8_lossy(&output.stdout);
    let wanted = [
        "#0  round0 (x=1)",
        "round0.c:3",
        "local = 1",
        "#0  round1 (x=1)",
        "round1.c:3",
        "local = 2",
        "round3 (x=1)",
        "local = 4",
        "exited normally",
    ];
    let mut rest = &*printed;
    for text in wanted {
        let Some((_, after)) = rest.split_once(text) else {
            panic!(
                "`{text}` is missing in its place:\n{printed}\n{}",
                String::from_utf8_lossy(&output.stderr)
            )
        };
        rest = after;
    }
    assert!(!printed.contains("round2 (x=1)"), "it was switched off: {printed}");
}
