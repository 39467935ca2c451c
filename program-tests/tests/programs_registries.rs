//! Registries: variables that files put into sections of one name, and code that finds them between `__start_X` and `__stop_X`.
//!
//! They lie in the data of their modules, which is linked together, and functions are compiled on call all the same.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use uruk_tests::inputs::{compile, linked};
use uruk_tests::process::{End, Input, Outcome, run};
use uruk_tests::uruk::uruk;

const SHARED: &str = r#"
    #include <stdio.h>
    struct entry { const char *name; int (*run)(int); };
    #define REGISTER(n) __attribute__((section("registry"), used)) static const struct entry entry_##n = { #n, n };
    extern const struct entry __start_registry[], __stop_registry[];
    int others(void);
"#;

/// One local function finds the ends by itself, one in each caller, and one that is small enough to be copied.
const FIRST: &str = r#"
    extern int __start_missing __attribute__((weak));
    static int twice(int x) { return 2 * x; }
    REGISTER(twice)
    static inline __attribute__((always_inline)) long count(void) { return __stop_registry - __start_registry; }
    static long bytes(void) { return (const char *)__stop_registry - (const char *)__start_registry; }
    static const struct entry *const ends[] = { __start_registry, __stop_registry };
    __attribute__((noinline)) int never(int x) { return x * 3; }
    __attribute__((noinline)) int total(int x) {
        int sum = 0;
        for (const struct entry *e = __start_registry; e != __stop_registry; ++e) {
            printf("%s %d\n", e->name, e->run(x));
            sum += e->run(x);
        }
        return sum;
    }
    int main(int count_of_arguments, char **arguments) {
        if (count_of_arguments > 5) return never(count_of_arguments);
        for (int i = 0; i < 100; i++) others();
        printf("%d %ld %ld %ld\n", total(5), count(), bytes() / (long)sizeof(struct entry), (long)(ends[1] - ends[0]));
        printf("%d %d\n", others(), &__start_missing != 0);
        return 0;
    }
"#;

/// Local names are those of the first file.
const SECOND: &str = r#"
    static int twice(int x) { return 2 * x + 1; }
    REGISTER(twice)
    int thrice(int x) { return 3 * x; }
    REGISTER(thrice)
    static int counter = 1;
    int others(void) { return counter++; }
"#;

const MODES: [&[&str]; 7] = [
    &["-O0"],
    &["-O0", "--lazy"],
    &["-O2", "--lazy"],
    &["--lazy=module"],
    &["--tiered", "--tier-threshold=1", "--tier-delay=0"],
    &["--partition=early", "--parts=8"],
    &["--lazy", "--executor"],
];

#[test]
fn registries_are_whole_in_every_mode() {
    let native = linked("registry.c", &one_file(), &["-O1"], "registry").expect("it compiles");
    let native = run(&mut Command::new(native), &Input::default(), Duration::from_secs(60)).expect("it runs");
    assert!(native.stdout.ends_with(b"101 0\n"), "{native:?}");
    for flags in [&["-O0", "-Xclang", "-disable-O0-optnone"][..], &["-O2"]] {
        let files = files(flags);
        for mode in MODES {
            let outcome = run_files(mode, &files);
            assert_eq!(
                String::from_utf8_lossy(&outcome.stdout),
                String::from_utf8_lossy(&native.stdout),
                "{}\n{}",
                outcome.command,
                String::from_utf8_lossy(&outcome.stderr)
            );
        }
    }
}

#[test]
fn functions_beside_a_registry_are_compiled_on_call() {
    let files = files(&["-O1"]);
    for mode in ["--lazy", "--tiered"] {
        let outcome = run_files(&[mode, "--stats=json", "-v"], &files);
        let stderr = String::from_utf8_lossy(&outcome.stderr);
        assert!(stderr.contains("\"whole_modules\":0"), "{stderr}");
        let claimed = stderr.split_once("\"claimed\":").and_then(|(_, rest)| rest.split([',', '}']).next());
        let claimed: usize = claimed.and_then(|number| number.parse().ok()).expect("it is counted");
        // Wholly compiled, each file is one unit.
        assert!(claimed > files.len(), "{stderr}");
        assert!(!stderr.contains("compiled as a whole"), "{stderr}");
    }
}

#[test]
fn a_module_that_stays_whole_is_named_and_counted() {
    const ASSEMBLY: &str = r#"
        __asm__(".globl answer; answer: mov $0, %eax; ret");
        int answer(void);
        int main(void) { return answer(); }
    "#;
    let file = compile("assembly.c", ASSEMBLY, &["-O1", "-emit-llvm"], "assembly.bc").expect("it compiles");
    for mode in ["--lazy", "--tiered"] {
        let outcome = run_files(&[mode, "--stats=json", "-v"], std::slice::from_ref(&file));
        let stderr = String::from_utf8_lossy(&outcome.stderr);
        assert!(stderr.contains("\"whole_modules\":1"), "{stderr}");
        let lines =
            stderr.lines().filter(|line| line.contains("is compiled as a whole: it has assembly of its own"));
        assert_eq!(lines.count(), 1, "{stderr}");
        let outcome = run_files(&[mode, "--stats"], std::slice::from_ref(&file));
        let stderr = String::from_utf8_lossy(&outcome.stderr);
        assert!(stderr.contains("compiled as a whole, and not on call: 1 modules"), "{stderr}");
    }
}

/// Both files in one, for the native compiler.
fn one_file() -> String {
    let second = SECOND
        .replace("twice", "also_twice")
        .replace("REGISTER(also_twice)", "REGISTER_AS(\"twice\", also_twice)");
    let named = r#"
        #define REGISTER_AS(name, n) __attribute__((section("registry"), used)) static const struct entry entry_##n = { name, n };
    "#;
    format!("{SHARED}{named}{FIRST}{second}")
}

fn files(flags: &[&str]) -> Vec<PathBuf> {
    let made = |name: &str, text: &str| {
        let flags = [flags, &["-fPIE", "-emit-llvm"]].concat();
        compile(&format!("{name}.c"), &format!("{SHARED}{text}"), &flags, &format!("{name}.bc"))
            .expect("it compiles")
    };
    vec![made("first", FIRST), made("second", SECOND)]
}

fn run_files(options: &[&str], files: &[impl AsRef<Path>]) -> Outcome {
    let mut command = Command::new(uruk());
    command.arg("run").args(options).args(files.iter().map(AsRef::as_ref));
    let outcome = run(&mut command, &Input::default(), Duration::from_secs(60));
    let outcome = outcome.expect("the command can be started");
    let stderr = String::from_utf8_lossy(&outcome.stderr);
    assert_eq!(outcome.end, End::Exited(0), "{}\n{stderr}", outcome.command);
    outcome
}
