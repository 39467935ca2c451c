//! Programs with names that look like the engine's own. A program may have any name.

use std::process::Command;
use std::time::Duration;

use uruk_tests::inputs::file;
use uruk_tests::process::{End, Input, run};
use uruk_tests::uruk::uruk;

const MODES: [&[&str]; 7] = [
    &["-O0"],
    &["-O2"],
    &["--lazy"],
    &["--lazy=module"],
    &["--tiered", "--tier-threshold", "1", "--tier-delay", "0"],
    &["--partition", "early", "--parts", "3"],
    &["--partition", "late", "--parts", "3"],
];

/// Runs `files` in each mode. A second way to write a name in IR says that it is the object's as it stands.
#[track_caller]
fn ends_with(files: &[(&str, &str)], code: i32) {
    for mark in ["", "\\01"] {
        let marked = |text: &str| text.replace("@\"uruk.", &format!("@\"{mark}uruk."));
        let paths =
            files.iter().map(|(name, text)| file(name, marked(text).as_bytes()).expect("it is written"));
        let paths: Vec<_> = paths.collect();
        for mode in MODES {
            let ours = run(
                Command::new(uruk()).arg("run").args(mode).args(&paths),
                &Input::default(),
                Duration::from_secs(60),
            );
            let ours = ours.expect("it can be started");
            let stderr = String::from_utf8_lossy(&ours.stderr);
            assert_eq!(ours.end, End::Exited(code), "{}\n{stderr}", ours.command);
        }
    }
}

/// `f` was said to have no address: its body was taken for the program's function of that name.
#[test]
fn functions_may_have_the_names_of_bodies() {
    let text = "
        define i32 @\"uruk.body.f\"(i32 %x) noinline {
          %y = add i32 %x, 100
          ret i32 %y
        }
        define i32 @f(i32 %x) noinline {
          %y = call i32 @\"uruk.body.f\"(i32 %x)
          ret i32 %y
        }
        define i32 @main() {
          %y = call i32 @f(i32 1)
          ret i32 %y
        }
    ";
    ends_with(&[("bodies.ll", text)], 101);
    let user = "
        declare i32 @\"uruk.body.f\"(i32)
        define i32 @g(i32 %x) noinline {
          %y = call i32 @\"uruk.body.f\"(i32 %x)
          ret i32 %y
        }
        define i32 @f(i32 %x) noinline {
          %y = call i32 @g(i32 %x)
          ret i32 %y
        }
        define i32 @main() {
          %y = call i32 @f(i32 2)
          ret i32 %y
        }
    ";
    let definition = "
        define i32 @\"uruk.body.f\"(i32 %x) {
          %y = add i32 %x, 100
          ret i32 %y
        }
    ";
    ends_with(&[("user.ll", user), ("definition.ll", definition)], 102);
}

/// A hidden function with the name of a part's value became local to its module, which then had no address for it.
#[test]
fn values_may_have_the_names_of_parts() {
    let text = "
        !uruk.version = !{!0}
        !0 = !{}
        @\"uruk.version\" = global i32 6
        @\"uruk.unnamed.1\" = global i32 7
        @0 = private global i32 8
        define internal i32 @p(i32 %x) noinline {
          %y = load i32, ptr @0
          %z = add i32 %x, %y
          ret i32 %z
        }
        define i32 @\"uruk.local.p\"(i32 %x) noinline {
          %y = load i32, ptr @\"uruk.unnamed.1\"
          %z = add i32 %x, %y
          ret i32 %z
        }
        define hidden i32 @\"uruk.local.q\"(i32 %x) noinline {
          %y = load i32, ptr @\"uruk.version\"
          %z = add i32 %x, %y
          ret i32 %z
        }
        define i32 @f(i32 %x) noinline {
          %a = call i32 @\"uruk.local.p\"(i32 %x)
          %b = call i32 @p(i32 %a)
          %c = call i32 @\"uruk.local.q\"(i32 %b)
          ret i32 %c
        }
    ";
    let user = "
        declare i32 @f(i32)
        declare i32 @\"uruk.local.p\"(i32)
        define internal i32 @p(i32 %x) noinline {
          %y = call i32 @f(i32 %x)
          ret i32 %y
        }
        define i32 @h(i32 %x) noinline {
          %y = call i32 @p(i32 %x)
          ret i32 %y
        }
        define i32 @main() {
          %a = call i32 @h(i32 1)
          %b = call i32 @p(i32 %a)
          %c = call i32 @\"uruk.local.p\"(i32 %b)
          ret i32 %c
        }
    ";
    ends_with(&[("parts.ll", text), ("user.ll", user)], 50);
}
