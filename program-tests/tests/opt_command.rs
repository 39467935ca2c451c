//! `uruk opt`: what a level's stages are, what is left out, replaced and added, and how a mistake is told.

use std::ffi::OsStr;
use std::path::Path;

use uruk_tests::inputs::{bitcode, compile, file};
use uruk_tests::process::{End, Outcome};
use uruk_tests::refusal::{assert_refused, uruk_run, uruk_with};

const PROGRAM: &str = "
    void add(float *restrict to, const float *from, int n) { for (int i = 0; i < n; i++) to[i] += from[i]; }
    int main(void) { float to[100] = { 0 }, from[100] = { 1 }; add(to, from, 100); return (int)to[0]; }";

fn program() -> std::path::PathBuf {
    // As clang hands it to its own optimizer.
    let flags = ["-O2", "-Xclang", "-disable-llvm-passes", "-emit-llvm", "-c"];
    compile("opt.c", PROGRAM, &flags, "opt.bc").expect("it compiles")
}

fn opt(options: &[&str], input: Option<&Path>) -> Outcome {
    let words = ["opt"].iter().chain(options).map(OsStr::new);
    uruk_with(&words.chain(input.map(Path::as_os_str)).collect::<Vec<_>>())
}

fn text(options: &[&str]) -> String {
    let outcome = opt(options, Some(&program()));
    assert_eq!(outcome.end, End::Exited(0), "{}", String::from_utf8_lossy(&outcome.stderr));
    String::from_utf8_lossy(&outcome.stdout).into_owned()
}

#[test]
fn stages_are_printed_with_what_they_run_over() {
    let outcome = opt(&["-O2", "--print-stages"], None);
    let said = String::from_utf8_lossy(&outcome.stdout);
    let stages: Vec<&str> = said.lines().filter(|line| !line.is_empty() && !line.starts_with(' ')).collect();
    assert_eq!(
        stages,
        [
            "early-simplification, over the module:",
            "early-optimization, over each function, each time something was inlined:",
            "loop, over each function, each time something was inlined:",
            "scalar, over each function, each time something was inlined:",
            "vectorization, over each function:",
            "intrinsic-lowering, over each function:",
            "cleanup, over the module:",
        ]
    );
    assert!(said.contains(",gvn<>,") && said.contains(",loop-vectorize<"), "{said}");
    let unoptimized = String::from_utf8_lossy(&opt(&["-O0", "--print-stages"], None).stdout).into_owned();
    assert!(unoptimized.contains("loop, over each function:\n  (nothing)"), "{unoptimized}");
}

#[test]
fn stages_are_left_out_replaced_and_added_to() {
    let is_vectorized = |options: &[&str]| text(options).contains("x float>");
    assert!(
        is_vectorized(&[]) && is_vectorized(&["-Os"]) && !is_vectorized(&["-O1"]) && !is_vectorized(&["-Oz"])
    );
    assert!(!is_vectorized(&["--stop-after", "scalar"]) && is_vectorized(&["--stop-after", "vectorization"]));
    assert!(!is_vectorized(&["--replace", "vectorization="]));
    assert!(is_vectorized(&["-O1", "--before", "cleanup=function(loop-vectorize)"]));
    assert!(is_vectorized(&["-O1", "--after", "loop=loop-vectorize"]));
}

#[test]
fn what_is_written_as_bitcode_runs() {
    let output = file("opt-out.bc", b"").expect("written");
    let outcome = opt(&["-O2", "-o", output.to_str().expect("UTF-8")], Some(&program()));
    assert_eq!((outcome.end, outcome.stdout.is_empty()), (End::Exited(0), true));
    assert_eq!(uruk_run(&["--passes", "none"], &[&output]).end, End::Exited(1));
}

#[test]
fn mistakes_name_the_stage_or_the_file() {
    let program = program();
    assert_refused(&opt(&["--after", "scalar=no-such"], Some(&program)), 1, &["stage scalar", "no-such"]);
    assert_refused(
        &opt(&["--after", "scalars=gvn"], Some(&program)),
        2,
        &["scalars=gvn", "early-simplification"],
    );
    assert_refused(&opt(&["--after", "gvn"], Some(&program)), 2, &["STAGE=PASSES"]);
    assert_refused(&opt(&["-O4"], Some(&program)), 2, &["0, 1, 2, 3, s or z"]);
    assert_refused(&opt(&[], None), 2, &["FILE"]);
    assert_refused(&opt(&[], Some(Path::new("no-such.bc"))), 1, &["no-such.bc"]);
    let broken = file("broken.ll", b"define void @f() {").expect("written");
    assert_refused(&opt(&[], Some(&broken)), 1, &["broken.ll"]);
    assert_refused(&opt(&["-o", "/no/such/place.bc"], Some(&program)), 1, &["/no/such/place.bc"]);
}

#[test]
fn statistics_say_how_long_stages_and_passes_took() {
    let file = bitcode("timed.c", PROGRAM).expect("it compiles");
    let outcome = uruk_run(&["-O2", "--stats"], &[&file]);
    let said = String::from_utf8_lossy(&outcome.stderr);
    for word in ["stage of optimization", "early-simplification", "vectorization", "instcombine"] {
        assert!(said.contains(word), "{said}");
    }
}
