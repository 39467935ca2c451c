//! Objects of real compilers, linked into this process and called.

use crate::link_support::*;

const PROGRAM: &str = r#"
    #include <stdarg.h>
    int printf(const char *, ...);
    int snprintf(char *, unsigned long, const char *, ...);
    extern int outside;
    int add_outside(int);
    static int counter = 5;
    int exported = 7;
    static int zeros[1000];
    int tentative;
    static const char *const names[] = { "zero", "one", "two" };
    static int twice(int x) { return 2 * x; }
    int (*volatile pointer)(int) = twice;
    __attribute__((weak)) int maybe(void);

    long run(void) {
        char text[64];
        zeros[999] += 3;
        tentative += 1;
        counter += pointer(exported);
        int length = snprintf(text, sizeof text, "%s-%d-%.1f", names[2], counter, 1.5);
        return length * 1000000 + text[0] * 1000 + add_outside(outside) + zeros[999] + tentative + (maybe ? 1 : 0);
    }
"#;

extern "C" fn add_outside(x: i32) -> i32 {
    x + 1
}

static OUTSIDE: i32 = 40;

fn process() -> Externals {
    unsafe extern "C" {
        fn snprintf();
        fn __tls_get_addr();
    }
    let mut externals = Externals::new();
    externals.insert("snprintf".into(), external(snprintf as *const () as u64));
    externals.insert("__tls_get_addr".into(), external(__tls_get_addr as *const () as u64));
    externals.insert("add_outside".into(), external(add_outside as *const () as u64));
    externals.insert("outside".into(), external(&raw const OUTSIDE as u64));
    externals
}

#[test]
fn a_program_runs_in_every_code_model_and_at_every_level() {
    for tool in compilers() {
        for level in ["-O0", "-O2"] {
            for model in [
                &["-fPIC"][..],
                &["-fPIC", "-fno-plt"],
                &["-fPIC", "-ffunction-sections", "-fdata-sections"],
                &["-fPIC", "-mcmodel=large"],
                &["-fPIC", "-mcmodel=medium", "-mlarge-data-threshold=8"],
                &["-fPIC", "-fvisibility=hidden", "-fno-semantic-interposition"],
                &["-fPIC", "-fno-asynchronous-unwind-tables"],
                &["-fPIC", "-fcommon"],
                &["-fno-pic", "-mcmodel=large"],
            ] {
                let flags = [&[level], model].concat();
                let object = compile(tool, "c", PROGRAM, &flags);
                let program =
                    link(&object, &process()).unwrap_or_else(|error| panic!("{tool:?} {flags:?}: {error}"));
                // "two-19-1.5": ten characters, the first of them 't'.
                let expected = 10 * 1_000_000 + 116 * 1000 + 41 + 3 + 1;
                assert_eq!(program.call("run"), expected, "{tool:?} {flags:?}");
                let unwinds = !flags.contains(&"-fno-asynchronous-unwind-tables");
                assert_eq!(program.linked.actions.unwind.is_some(), unwinds, "{tool:?} {flags:?}");
            }
        }
    }
}
