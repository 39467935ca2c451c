//! `--debugger`: gdb, driven by commands, finds breakpoints, frames and variables in linked code.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use uruk_tests::inputs::{compile, file};
use uruk_tests::process::{Input, run};
use uruk_tests::uruk::uruk;

const C: &str = r#"#include <stdio.h>
int scale = 3;
static int inner(int value) {
  int local = value * scale;
  return local + 1;
}
int outer(int value) {
  int twice = value * 2;
  return inner(twice);
}
int main(void) {
  int sum = 0;
  for (int round = 0; round < 2; round++)
    sum += outer(round + 5);
  printf("%d\n", sum);
  return 0;
}
"#;

const OFTEN: &str = r#"static int inner(int value, int round) {
  if (round == 3000000)
    __asm__ volatile("int3; nop");
  return value * round;
}
int outer(int value, int round) {
  return inner(value + 1, round) + 1;
}
int main(void) {
  for (int round = 0; round <= 3000000; round++)
    outer(round, round);
}
"#;

const CXX: &str = r#"#include <vector>
#include <cstdio>
namespace shop {
struct Cart {
  std::vector<int> prices;
  int total(int discount) const {
    int sum = -discount;
    for (int price : prices) sum += price;
    return sum;
  }
};
}
int main() {
  shop::Cart cart{{10, 20, 30}};
  std::printf("%d\n", cart.total(5));
}
"#;

/// Whether there is a debugger; says so if not. The machine that checks everything must have one.
fn has_gdb() -> bool {
    let is_there = Command::new("gdb").arg("--version").output().is_ok_and(|output| output.status.success());
    if !is_there {
        assert!(std::env::var_os("CI").is_none(), "gdb is missing: scripts/setup.sh installs it");
        // Nothing is left to say without a reader.
        let _ = writeln!(std::io::stderr(), "skipped: there is no gdb");
    }
    is_there
}

/// The output of gdb when it does `commands`.
fn gdb(commands: &[&str], options: &[&str], files: &[&Path]) -> String {
    let mut command = Command::new("gdb");
    command.args([
        "-nx",
        "-q",
        "-batch",
        "-ex",
        "set breakpoint pending on",
        "-ex",
        "set debuginfod enabled off",
    ]);
    commands.iter().for_each(|step| _ = command.args(["-ex", step]));
    command.arg("--args").arg(uruk()).arg("run").args(options).args(files);
    let outcome = run(&mut command, &Input::default(), Duration::from_secs(600)).expect("it can be started");
    String::from_utf8_lossy(&outcome.stdout).into_owned() + &String::from_utf8_lossy(&outcome.stderr)
}
/// Whether the texts stand in `printed` in that order.
fn assert_in_order(printed: &str, wanted: &[&str]) {
    let mut rest = printed;
    for text in wanted {
        let Some((_, after)) = rest.split_once(text) else {
            panic!("`{text}` is missing in its place:\n{printed}")
        };
        rest = after;
    }
}

fn object(name: &str, text: &str, flags: &[&str]) -> PathBuf {
    compile(name, text, &[flags, &["-g", "-fPIC"]].concat(), "debugged.o").expect("it compiles")
}

const STEPS: [&str; 8] =
    ["break debugged.c:5", "run", "bt", "info locals", "up", "info locals", "print scale", "continue"];

/// Breakpoints were never hit, and frames had no names.
#[test]
fn breakpoints_frames_and_variables_of_c() {
    if !has_gdb() {
        return;
    }
    let source = file("debugged.c", C.as_bytes()).expect("written");
    let objects = [
        object("debugged.c", C, &["-O0"]),
        object("debugged.c", C, &["-O0", "-gdwarf-4", "-fomit-frame-pointer"]),
    ];
    let lazily = [
        &["--debugger", "-O0"][..],
        &["--debugger", "-O0", "--lazy"],
        &["--debugger", "-O0", "--lazy=module"],
    ];
    for file in objects.iter().chain([&source]) {
        for options in lazily {
            let printed = gdb(&STEPS, options, &[file]);
            let wanted = [
                "Breakpoint 1, inner (value=10)",
                "#0  inner (value=10)",
                "#1  ",
                "outer (value=5)",
                "#2  ",
                "main ()",
                "local = 30",
                "outer (value=5)",
                "twice = 10",
                " = 3",
                "Breakpoint 1, inner (value=12)",
            ];
            assert_in_order(&printed, &wanted);
        }
    }
}

/// Functions that are compiled by themselves had no lines, and no variables.
#[test]
fn breakpoints_frames_and_variables_of_functions_that_change_their_code() {
    if !has_gdb() {
        return;
    }
    let source = file("debugged.c", C.as_bytes()).expect("written");
    let steps =
        ["break debugged.c:inner", "run", "bt", "next", "info locals", "up", "info locals", "continue", "bt"];
    let printed = gdb(&steps, &["--debugger", "--tiered", "-O0"], &[&source]);
    let wanted = [
        "hit Breakpoint 1",
        "#0  inner (value=10) at ",
        "debugged.c:4",
        "outer (value=5) at ",
        "debugged.c:9",
        "main () at ",
        "debugged.c:14",
        "local = 30",
        "twice = 10",
        "hit Breakpoint 1",
        "#0  inner (value=12) at ",
    ];
    assert_in_order(&printed, &wanted);
    // Called often enough for the upper tier. Either tier has lines.
    let source = file("often.c", OFTEN.as_bytes()).expect("written");
    let options = ["--debugger", "--tiered", "--tier-threshold", "1", "--tier-delay", "0", "-O2"];
    let printed = gdb(&["run", "bt"], &options, &[&source]);
    assert_in_order(
        &printed,
        &["SIGTRAP", "inner (", "often.c:3", "outer (", "often.c:7", "main ()", "often.c:11"],
    );
}

/// A template of a library is a function of the program, and so are its frames.
#[test]
fn breakpoints_frames_and_variables_of_cxx() {
    if !has_gdb() {
        return;
    }
    let steps = [
        "break shop::Cart::total",
        "run",
        "next",
        "info locals",
        "bt",
        "print this->prices.size()",
        "finish",
    ];
    let source = file("debugged.cpp", CXX.as_bytes()).expect("written");
    for options in [&["--debugger", "-O0"][..], &["--debugger", "-O0", "--lazy"]] {
        let printed = gdb(&steps, options, &[&source]);
        let wanted = [
            "shop::Cart::total",
            "sum = -5",
            "#0  shop::Cart::total",
            "discount=5",
            "#1  ",
            "main ()",
            "= 3",
            "Value returned is $2 = 55",
        ];
        assert_in_order(&printed, &wanted);
    }
}

/// Nothing is told unasked.
#[test]
fn gdb_knows_nothing_without_the_option() {
    if !has_gdb() {
        return;
    }
    let object = object("debugged.c", C, &["-O0"]);
    let printed = gdb(&["break debugged.c:5", "run"], &["-O0"], &[&object]);
    assert!(!printed.contains("Breakpoint 1, "), "{printed}");
    assert!(printed.contains("exited normally"), "{printed}");
}

/// gdb looks at all files each time one comes: two thousand units cost it seconds, one by one. `URUK_UNITS` says how many there are here.
#[test]
fn many_units_are_few_files() {
    if !has_gdb() {
        return;
    }
    let units: usize = std::env::var("URUK_UNITS").map_or(200, |units| units.parse().expect("a number"));
    let objects: Vec<_> = (0..units)
        .map(|unit| {
            compile(
                "unit.c",
                &format!("int unit{unit}(int x) {{\n  return x + {unit};\n}}\n"),
                &["-O0", "-g", "-fPIC"],
                "unit.o",
            )
            .expect("it compiles")
        })
        .collect();
    let calls: String = (0..units).map(|unit| format!("sum += unit{unit}(1);")).collect();
    let declarations: String = (0..units).map(|unit| format!("int unit{unit}(int);")).collect();
    let main = object(
        "main.c",
        &format!("{declarations}\nint main(void) {{ int sum = 0; {calls} return sum == 0; }}"),
        &["-O0"],
    );
    let files: Vec<&Path> = objects.iter().chain([&main]).map(PathBuf::as_path).collect();
    let time = |options: &[&str]| {
        let begun = Instant::now();
        let printed = gdb(&["break unit199", "run", "bt", "continue"], options, &files);
        (begun.elapsed(), printed)
    };
    let (without, _) = time(&[]);
    let (with, printed) = time(&["--debugger"]);
    assert_in_order(&printed, &["Breakpoint 1, unit199 (x=1)", "#1  ", "main ()"]);
    let _ = writeln!(std::io::stderr(), "{units} units in gdb: {with:?}, without names {without:?}");
    // Far above what it takes, and far below the time of two thousand files.
    assert!(with < without + Duration::from_secs(2), "{with:?} and {without:?}");
}
