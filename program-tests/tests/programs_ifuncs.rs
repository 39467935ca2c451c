//! Functions that choose their own implementation have one address, whichever file takes it. Each program is compared with its native twin.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use uruk_tests::inputs::compile;
use uruk_tests::process::{Input, run};
use uruk_tests::uruk::uruk;

const MODES: [&[&str]; 5] = [
    &["-O0"],
    &["-O2"],
    &["--lazy"],
    &["--tiered", "--tier-threshold", "1", "--tier-delay", "0"],
    &["--partition", "early", "--parts", "3"],
];

/// A compiler that sees what the resolver answers takes that function's address, and other files took the address of a stub.
#[test]
fn an_indirect_function_has_one_address() {
    let first = r#"
        int shown(int x) { return x * 2; }
        static int hidden(int x) { return x + 1; }
        static void *resolve_hidden(void) { return (void *)hidden; }
        static void *resolve_shown(void) { return (void *)shown; }
        int pick(int) __attribute__((ifunc("resolve_hidden")));
        int pick_shown(int) __attribute__((ifunc("resolve_shown")));
        extern int other_name(int) __attribute__((alias("pick")));
        static int local(int) __attribute__((ifunc("resolve_hidden")));
        int (*pointers[])(int) = { pick, pick_shown, other_name, local };
        int (*get(int which))(int) {
            switch (which) {
                case 0: return pick;
                case 1: return pick_shown;
                case 2: return other_name;
                default: return local;
            }
        }
    "#;
    let second = r#"
        #include <stdio.h>
        int pick(int), pick_shown(int), other_name(int);
        extern int (*pointers[])(int);
        int (*get(int))(int);
        static int (*own[])(int) = { pick, pick_shown, other_name };
        int main(void) {
            for (int i = 0; i < 3; i++) printf("%d %d %d\n", own[i] == pointers[i], own[i] == get(i), own[i](3));
            printf("%d %d %d\n", get(3) == pointers[3], pick(4), pointers[3](5));
            return 0;
        }
    "#;
    let expected = "1 1 4\n1 1 6\n1 1 4\n1 5 6\n";
    for (index, flags) in [&["-O1"][..], &["-O1", "-fPIC"], &["-O1", "-fcf-protection"]].iter().enumerate() {
        let compiled = |extra: &[&str], extension: &str| -> Vec<PathBuf> {
            let numbered = [("a", first), ("b", second)].into_iter();
            let compiled = numbered.map(|(name, text)| {
                let flags = [flags, extra].concat();
                compile(&format!("{name}.c"), text, &flags, &format!("{name}.{extension}"))
                    .expect("it compiles")
            });
            compiled.collect()
        };
        let (objects, bitcode) = (compiled(&[], "o"), compiled(&["-emit-llvm"], "bc"));
        let native = std::env::temp_dir().join(format!("uruk-native-{}-ifuncs{index}", std::process::id()));
        let linked = Command::new("clang-22").arg("-o").arg(&native).args(&objects).output();
        assert!(linked.is_ok_and(|linked| linked.status.success()), "it cannot be linked natively");
        let outcome = |command: &mut Command| {
            run(command, &Input::default(), Duration::from_secs(60)).expect("it can be started")
        };
        let natively = outcome(&mut Command::new(&native));
        std::fs::remove_file(&native).expect("it was made above");
        assert_eq!(String::from_utf8_lossy(&natively.stdout), expected, "natively, {flags:?}");
        for files in [&objects, &bitcode] {
            for mode in MODES {
                let ours = outcome(Command::new(uruk()).arg("run").args(mode).args(files));
                let (stdout, stderr) =
                    (String::from_utf8_lossy(&ours.stdout), String::from_utf8_lossy(&ours.stderr));
                assert_eq!((&*stdout, ours.end), (expected, natively.end), "{}\n{stderr}", ours.command);
            }
        }
    }
}
