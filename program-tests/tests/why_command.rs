//! `uruk run --why-after`: a lookup that takes long is told of, with what it waits for.

use std::fmt::Write as _;
use std::process::Command;
use std::time::Duration;

use uruk_tests::inputs::file;
use uruk_tests::process::{End, Input, Outcome, run};
use uruk_tests::uruk::uruk;

/// A function that takes LLVM far longer than the time after which it is told of.
fn large(name: &str) -> String {
    let mut text = format!("define i32 @{name}(i32 %x0) noinline {{\n");
    for step in 1..20_000 {
        writeln!(text, "  %x{step} = mul i32 %x{}, %x{}", step - 1, step / 2)
            .expect("a string takes everything");
    }
    text + "  ret i32 %x19999\n}\n"
}

fn run_with(text: &str, arguments: &[&str]) -> Outcome {
    let program = file("program.ll", text.as_bytes()).expect("it can be written");
    let mut command = Command::new(uruk());
    command.arg("run").args(arguments).arg(program);
    run(&mut command, &Input::default(), Duration::from_secs(300)).expect("it starts")
}

#[test]
fn a_slow_start_says_what_it_waits_for() {
    let text = large("slow") + "define i32 @main() { %x = call i32 @slow(i32 0) ret i32 %x }";
    let outcome = run_with(&text, &["--why-after", "0.005"]);
    let told = String::from_utf8_lossy(&outcome.stderr).into_owned();
    assert_eq!(outcome.end, End::Exited(0), "{told}");
    assert!(told.starts_with("why: a lookup has waited for "), "{told}");
    assert!(told.contains("\n  `main` (dylib `main`) is being made by unit `"), "{told}");
    // Twice as long each time: a minute is told of less often than fifteen times.
    assert!(told.matches("why: ").count() < 20, "{told}");
}

#[test]
fn a_slow_first_call_says_which_function_it_is() {
    let text = large("slow") + "define i32 @main() { %x = call i32 @slow(i32 0) ret i32 %x }";
    let outcome = run_with(&text, &["--lazy", "--why-after", "0.005"]);
    let told = String::from_utf8_lossy(&outcome.stderr).into_owned();
    assert_eq!(outcome.end, End::Exited(0), "{told}");
    assert!(told.contains("slow"), "{told}");
}

#[test]
fn a_quick_program_hears_nothing_and_wrong_times_are_refused() {
    let outcome = run_with("define i32 @main() { ret i32 0 }", &["--why-after", "1000"]);
    assert_eq!((outcome.end, String::from_utf8_lossy(&outcome.stderr).as_ref()), (End::Exited(0), ""));
    for wrong in ["0", "-1", "soon", "nan"] {
        let argument = format!("--why-after={wrong}");
        let outcome = run_with("define i32 @main() { ret i32 0 }", &[&argument]);
        let told = String::from_utf8_lossy(&outcome.stderr).into_owned();
        assert!(outcome.end == End::Exited(2) && told.contains("a number of seconds"), "{told}");
    }
}
