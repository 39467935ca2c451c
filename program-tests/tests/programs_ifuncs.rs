//! Functions that choose their own implementation have one address, whichever file takes it. Each program is compared with its native twin.

use uruk_tests::twins::behaves_as_natively;

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
    for (index, flags) in [&[][..], &["-fPIC"], &["-fcf-protection"]].iter().enumerate() {
        behaves_as_natively(&format!("ifuncs{index}"), &[first, second], flags, expected);
    }
}
