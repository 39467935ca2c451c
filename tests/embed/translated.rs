//! valgrind beside an engine whose code comes and goes.

use std::io::Write as _;
use std::process::Command;

use uruk::Jit;

use crate::support::{alone_under, c_with, is_alone};

const NAME: &str = "translated::code_that_takes_the_memory_of_other_code_is_translated_anew";

/// Adds a function, calls it, removes it. Gives its address.
fn round(jit: &Jit, number: i32) -> usize {
    let tracker = jit.create_tracker();
    let source = format!("int answer(void) {{ return {number}; }}\n");
    jit.in_tracker(&tracker).add_object(c_with("answer.o", &source, &["-O1"])).expect("a new name");
    // SAFETY: that is the function's signature, and it is called before it goes.
    let function: extern "C" fn() -> i32 = unsafe { jit.function("answer") }.expect("it is linked");
    assert_eq!(function(), number);
    tracker.remove().expect("nothing of it objects");
    function as usize
}

/// valgrind ran the first of two functions that had the same address, both times.
#[test]
fn code_that_takes_the_memory_of_other_code_is_translated_anew() {
    if is_alone() {
        let jit = Jit::builder().threads(1).build().expect("an engine for this machine");
        assert_eq!(round(&jit, 1), round(&jit, 2), "the test means to use memory again");
        return;
    }
    if !Command::new("valgrind").arg("--version").output().is_ok_and(|output| output.status.success()) {
        assert!(std::env::var_os("CI").is_none(), "valgrind is missing: scripts/setup.sh installs it");
        // Nothing is left to say without a reader.
        let _ = writeln!(std::io::stderr(), "skipped: there is no valgrind");
        return;
    }
    let output = alone_under(&["valgrind", "-q", "--tool=none"], NAME, &[]);
    let text =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
}
