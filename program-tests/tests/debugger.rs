//! `--debugger`: gdb and lldb, driven by commands, find breakpoints, frames and variables in linked code.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use uruk_tests::forms::rust_std;
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

const RUST: &str = r#"use std::hint::black_box;
struct Cart { prices: Vec<i32> }
#[inline(never)]
fn total(cart: &Cart, discount: i32) -> i32 {
    let mut sum = -discount;
    for price in &cart.prices {
        sum += price;
    }
    sum
}
fn main() {
    let cart = Cart { prices: vec![10, 20, 30] };
    println!("{}", total(black_box(&cart), 5));
}
"#;

fn has_gdb() -> bool {
    has("gdb")
}

/// Whether there is a debugger; says so if not. The machine that checks everything must have one.
fn has(program: &str) -> bool {
    let is_there =
        Command::new(program).arg("--version").output().is_ok_and(|output| output.status.success());
    if !is_there {
        assert!(std::env::var_os("CI").is_none(), "{program} is missing: scripts/setup.sh installs it");
        // Nothing is left to say without a reader.
        let _ = writeln!(std::io::stderr(), "skipped: there is no {program}");
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
            // A library of ours was closed while gdb still read it.
            assert!(!printed.contains("warning: Can't read data"), "{printed}");
        }
    }
}

/// It set a breakpoint in each function of the command and of LLVM that ends in this name, and stopped there first.
#[test]
fn a_breakpoint_by_name_is_in_the_program() {
    const NAMES: [&str; 6] = ["get", "run", "hash", "step", "parse", "main"];
    if !has_gdb() {
        return;
    }
    let function = |name: &str| format!("int {name}(int x) {{ return x + 1; }}\n");
    let (main, others) = NAMES.split_last().expect("there are some");
    let calls = others.iter().fold("0".to_owned(), |inner, name| format!("{name}({inner})"));
    let text = others.iter().map(|name| function(name)).collect::<String>()
        + &format!("int {main}(void) {{ return {calls} != {}; }}\n", others.len());
    let source = file("named.c", text.as_bytes()).expect("written");
    for name in NAMES {
        let printed = gdb(&[&format!("break {name}"), "run", "bt 1"], &["--debugger", "-O0"], &[&source]);
        let first = printed.lines().find(|line| line.starts_with("#0 ")).unwrap_or(&printed);
        assert!(first.contains(&format!(" {name} (")) && first.contains("named.c:"), "{name}: {first}");
    }
}

/// The process that runs the program, which gdb follows, has no compiler and no linker.
#[test]
fn breakpoints_frames_and_variables_in_an_executor() {
    if !has_gdb() {
        return;
    }
    let source = file("debugged.c", C.as_bytes()).expect("written");
    let wanted = [
        "hit Breakpoint 1, inner (value=10)",
        "#1  ",
        "outer (value=5)",
        "main ()",
        "local = 30",
        "twice = 10",
        " = 3",
        "hit Breakpoint 1, inner (value=12)",
    ];
    for options in [&["-O0"][..], &["-O0", "--lazy=module"]] {
        let printed = gdb(&STEPS, &[&["--debugger", "--executor"], options].concat(), &[&source]);
        assert_in_order(&printed, &wanted);
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

/// The program that rustc makes of a source, as bitcode or as an object.
fn rust(emit: &str, output: &str) -> PathBuf {
    let source = file("shop.rs", RUST.as_bytes()).expect("written");
    let made = source.with_file_name(output);
    let mut command = Command::new("rustc");
    command.args(["--edition", "2024", "-C", "prefer-dynamic", "-C", "opt-level=0", "-g", "-C"]);
    command.args(["codegen-units=1", "--emit", emit, "-o"]).arg(&made).arg(source);
    assert!(command.status().expect("rustc is there").success());
    made
}

/// Modules of Rust have several languages' conventions: their own names, and a `main` of C.
#[test]
fn breakpoints_frames_and_variables_of_rust() {
    if !has_gdb() {
        return;
    }
    let std = rust_std().expect("rustc says where it is");
    let library = std.to_str().expect("plain letters");
    let (bitcode, object) = (rust("llvm-bc", "shop.bc"), rust("obj", "shop.o"));
    let steps = ["break shop.rs:9", "run", "bt 2", "info locals", "up", "print cart.prices.len", "continue"];
    for (options, file) in [(&[][..], &bitcode), (&["--lazy"], &bitcode), (&[], &object)] {
        let printed = gdb(&steps, &[&["--debugger", "-O0", "--load", library], options].concat(), &[file]);
        let wanted = [
            "Breakpoint 1, shop::total (cart=",
            "discount=5) at shop.rs:9",
            "#1  ",
            "shop::main () at shop.rs:13",
            "sum = 55",
            "= 3",
            "55",
            "exited normally",
        ];
        assert_in_order(
            &printed.replace(&format!("{}/", file.parent().expect("one").display()), ""),
            &wanted,
        );
    }
}

/// A process that was started without the option has names once they are asked for.
#[test]
fn a_debugger_that_comes_later_asks_for_names() {
    if !has_gdb() {
        return;
    }
    let source = C.replace("return local + 1;", "__asm__ volatile(\"int3; nop\"); return local;");
    let object = object("debugged.c", &source, &["-O0"]);
    let steps = [
        "run",
        "bt 1",
        "set language c",
        "call (void)uruk_debugger(1)",
        "set language auto",
        "bt 3",
        "info locals",
    ];
    let printed = gdb(&steps, &["-O0"], &[&object]);
    let wanted = [
        "SIGTRAP",
        "#0  0x",
        " in ?? ()",
        "#0  ",
        "inner (value=10) at ",
        "outer (value=5)",
        "main ()",
        "local = 30",
    ];
    assert_in_order(&printed, &wanted);
}

/// lldb reads the same interface when it is told to.
#[test]
fn lldb_finds_breakpoints_frames_and_variables() {
    if !has("lldb-22") {
        return;
    }
    let steps = [
        "settings set plugin.jit-loader.gdb.enable on",
        "breakpoint set --file debugged.c --line 5",
        "run",
        "thread backtrace",
        "frame variable",
        "continue",
        "continue",
    ];
    let mut command = Command::new("lldb-22");
    command.args(["-x", "-b"]);
    steps.iter().for_each(|step| _ = command.args(["-o", step]));
    command.arg("--").arg(uruk()).args(["run", "--debugger", "-O0"]).arg(object("debugged.c", C, &["-O0"]));
    let outcome = run(&mut command, &Input::default(), Duration::from_secs(600)).expect("it can be started");
    let printed = String::from_utf8_lossy(&outcome.stdout).into_owned();
    let wanted = [
        "stop reason = breakpoint 1.",
        "inner(value=10) at debugged.c:5",
        "outer(value=5) at debugged.c:9",
        "main at debugged.c:14",
        "local = 30",
        "inner(value=12) at debugged.c:5",
        "exited with status = 0",
    ];
    assert_in_order(&printed, &wanted);
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
