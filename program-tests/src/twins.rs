//! Programs of C files that a test has as texts, and their native twins.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use crate::inputs::compile;
use crate::process::{Input, run};
use crate::uruk::uruk;

const MODES: [&[&str]; 5] = [
    &["-O0"],
    &["-O2"],
    &["--lazy"],
    &["--tiered", "--tier-threshold", "1", "--tier-delay", "0"],
    &["--partition", "early", "--parts", "3"],
];

/// Compares the program of `files`, compiled at `-O1` with `flags`, with the native one: from objects and from bitcode, in the ways in which
/// functions are compiled.
///
/// # Panics
/// If it is not built, or differs.
#[track_caller]
pub fn behaves_as_natively(name: &str, files: &[&str], flags: &[&str], expected: &str) {
    let compiled = |extra: &[&str], extension: &str| -> Vec<PathBuf> {
        let numbered = files.iter().enumerate();
        let compiled = numbered.map(|(index, text)| {
            let (source, output) = (format!("{name}{index}.c"), format!("{name}{index}.{extension}"));
            compile(&source, text, &[flags, extra, &["-O1"]].concat(), &output).expect("it compiles")
        });
        compiled.collect()
    };
    let (objects, bitcode) = (compiled(&[], "o"), compiled(&["-emit-llvm"], "bc"));
    let native = std::env::temp_dir().join(format!("uruk-native-{}-{name}", std::process::id()));
    let linked = Command::new("clang-22").arg("-o").arg(&native).args(&objects).output();
    assert!(linked.is_ok_and(|linked| linked.status.success()), "{name} cannot be linked natively");
    let outcome = |command: &mut Command| {
        run(command, &Input::default(), Duration::from_secs(60)).expect("it can be started")
    };
    let natively = outcome(&mut Command::new(&native));
    std::fs::remove_file(&native).expect("it was made above");
    assert_eq!(String::from_utf8_lossy(&natively.stdout), expected, "natively");
    for files in [&objects, &bitcode] {
        for mode in MODES {
            let ours = outcome(Command::new(uruk()).arg("run").args(mode).args(files));
            let (stdout, stderr) =
                (String::from_utf8_lossy(&ours.stdout), String::from_utf8_lossy(&ours.stderr));
            assert_eq!((&*stdout, ours.end), (expected, natively.end), "{}\n{stderr}", ours.command);
        }
    }
}
