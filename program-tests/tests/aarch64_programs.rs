//! Programs that are compiled for AArch64 run in an executor in an emulator, as they do natively in the emulator alone.
//!
//! Their functions are compiled ahead, when they are called, and better when they are called often.
//!
//! `make aarch64` builds the executor, and names it by `URUK_AARCH64_EXECUTOR`. `URUK_PROGRAMS=c/jumps` tries those with this in their names.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;
use std::process::Command;

use uruk_tests::forms::Form;
use uruk_tests::process::{Outcome, run};
use uruk_tests::program::{Program, programs_directory};
use uruk_tests::uruk::uruk;

const EMULATOR: [&str; 3] = ["qemu-aarch64", "-L", "/usr/aarch64-linux-gnu"];
const TARGET: &str = "--target=aarch64-linux-gnu";

/// Programs that are not tried, and why.
const NOT_THERE: [(&str, &str); 12] = [
    ("c/broken_pipe", "the executor in the emulator ignores SIGPIPE, and the emulator does not give it back"),
    ("c/code_fragments", "instructions of x86-64"),
    ("c/floating_point_state", "registers of x86-64"),
    ("c/fork_wait", "the emulator breaks off where a child of an executor starts threads"),
    ("c/ifuncs", "features of x86-64"),
    ("c/inline_assembly", "instructions of x86-64"),
    ("c/main_thread_ends", "the emulator keeps a first thread that has ended, and has threads of its own"),
    ("c/module_assembly", "instructions of x86-64"),
    ("c/names_of_the_process", "natively the process has the name of the emulator"),
    ("c/signal_handlers", "SIGPIPE is ignored, as for `broken_pipe`"),
    ("c/symbol_versions", "versions that the C library has on x86-64"),
    ("c/vectors", "registers of x86-64"),
];

/// Programs that are tried only with all their code compiled ahead, and why.
const AHEAD_ALONE: [(&str, &str); 1] =
    [("c/many_functions", "6,144 first calls take longer in an emulator than a program may run")];

/// A form, the options that it is run with, and the names under which programs skip that.
struct Row {
    form: Form,
    options: &'static [&'static str],
    skips: &'static [&'static str],
}

const EAGER: &[&str] = &["executor"];
const LAZY: &[&str] = &["executor", "lazy", "executor-lazy"];

#[test]
fn programs_in_c_and_cxx_run_as_natively() {
    run_all(&[
        Row { form: Form::BitcodeO2, options: &[], skips: EAGER },
        Row { form: Form::Pic, options: &[], skips: EAGER },
    ]);
}

#[test]
fn programs_that_are_compiled_while_they_run_run_as_natively() {
    run_all(&[
        Row { form: Form::BitcodeO0, options: &["--lazy"], skips: LAZY },
        Row { form: Form::Pic, options: &["--lazy"], skips: LAZY },
        Row { form: Form::BitcodeO2, options: &["--lazy=module"], skips: LAZY },
    ]);
}

#[test]
fn programs_that_are_compiled_better_while_they_run_run_as_natively() {
    let options = &["--tiered", "--tier-threshold=2", "--tier-delay=0"];
    run_all(&[Row { form: Form::BitcodeO0, options, skips: LAZY }]);
}

fn run_all(rows: &[Row]) {
    let Some(executor) = std::env::var_os("URUK_AARCH64_EXECUTOR") else {
        writeln!(
            std::io::stderr(),
            "skipped: URUK_AARCH64_EXECUTOR names no executor; `make aarch64` builds one"
        )
        .expect("standard error");
        return;
    };
    let wanted = std::env::var("URUK_PROGRAMS").unwrap_or_default();
    let (mut tried, mut failures) = (0, String::new());
    for name in names().into_iter().filter(|name| name.contains(&wanted)) {
        let program = Program::load(&name).expect("it is there");
        if NOT_THERE.iter().any(|(other, _)| *other == name) {
            continue;
        }
        for row in rows {
            let is_too_slow = AHEAD_ALONE.iter().any(|(other, _)| *other == name) && row.skips == LAZY;
            if is_too_slow || program.skipped.iter().any(|(form, _)| row.skips.contains(&&**form)) {
                continue;
            }
            tried += 1;
            if let Some(wrong) = wrong(program.clone(), row, Path::new(&executor)) {
                let options = row.options.join(" ");
                _ = write!(failures, "\n== {name} {} {options} ==\n{wrong}", row.form.name());
            }
        }
    }
    assert!(tried > 0, "no program has `{wanted}` in its name");
    assert!(failures.is_empty(), "of {tried} runs:\n{failures}");
}

/// All programs in C and C++, each a file or a directory.
fn names() -> Vec<String> {
    let mut names = Vec::new();
    for language in ["c", "cxx"] {
        let entries = std::fs::read_dir(programs_directory().join(language)).expect("programs");
        for entry in entries {
            let path = entry.expect("it can be read").path();
            let is_program =
                path.is_dir() || path.extension().is_some_and(|kind| kind == "c" || kind == "cpp");
            let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            names.extend(is_program.then(|| format!("{language}/{stem}")));
        }
    }
    names.sort();
    names
}

/// The difference between the program in an executor and the native one. `None` if they agree.
fn wrong(mut program: Program, row: &Row, executor: &Path) -> Option<String> {
    program.files.iter_mut().for_each(|file| file.flags.push(TARGET.to_owned()));
    program.native_link.push(TARGET.to_owned());
    let mut command = Command::new(EMULATOR[0]);
    let native = match program.build_native(row.form) {
        Ok(native) => command.args(&EMULATOR[1..]).arg(native).args(&program.args),
        Err(error) => return Some(format!("not built: {error}")),
    };
    let native = run(native, &program.input, program.time_limit).expect("the emulator starts");
    let mut command = Command::new(uruk());
    let place = format!("--executor=exec:{} {}", EMULATOR.join(" "), executor.display());
    command.arg("run").arg(place).args(row.options);
    command.args(program.build(row.form).expect("its native form was built"));
    command.args(program.entry.iter().flat_map(|entry| ["--entry", entry]));
    command.arg("--").args(&program.args);
    let outcome = run(&mut command, &program.input, program.time_limit).expect("uruk starts");
    let is_same = native.end == outcome.end && native.stdout == outcome.stdout;
    (!is_same).then(|| format!("{}\nnatively {}{}", told(&outcome), told(&native), outcome.command))
}

fn told(outcome: &Outcome) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(&bytes[..bytes.len().min(600)]).into_owned();
    format!("{}\n{}{}", outcome.end, text(&outcome.stdout), text(&outcome.stderr))
}
