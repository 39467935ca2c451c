//! Sections that C files have in common without saying so in their variables: assembly of functions and code generation make them. Each
//! program is compared with its native twin.

use uruk_tests::twins::behaves_as_natively;

/// Records of the file that has no `__start_` of its own were missing.
#[test]
fn assembly_in_functions_has_records_that_another_file_reads() {
    let record = r#"
        #define REC(n) __asm__ volatile("1: nop\n .pushsection recs,\"aw\"\n .balign 8\n .quad 1b, " #n "\n .popsection")
    "#;
    let first = format!(
        "{record}
        #include <stdio.h>
        struct rec {{ void *where; long id; }};
        extern struct rec __start_recs[], __stop_recs[];
        __attribute__((noinline)) int f(int x) {{ REC(1); return x + 1; }}
        int h(int), k(int);
        int main(int count, char **arguments) {{
            long n = 0, sum = 0;
            for (struct rec *r = __start_recs; r < __stop_recs; r++) n++, sum += r->id;
            printf(\"%ld %ld\\n\", n, sum);
            return count > 5 ? f(1) + h(1) + k(1) : 0;
        }}"
    );
    let second = format!("{record} int h(int x) {{ REC(4); return x; }}");
    let third = format!("{record} static int inner(int x) {{ REC(8); return x * 3; }} int k(int x) {{ return inner(x) + h(x); }}")
        .replace("static", "int h(int); static");
    behaves_as_natively("records", &[&first, &second, &third], &[], "3 13\n");
}

/// The ends may be named in assembly alone, and a constructor may be entered there.
#[test]
fn assembly_in_functions_names_ends_of_sections() {
    let first = r#"
        #include <stdio.h>
        int begun;
        static long bytes(void) {
            long start, stop;
            __asm__("leaq __start_marks(%%rip), %0\n leaq __stop_marks(%%rip), %1" : "=r"(start), "=r"(stop));
            return stop - start;
        }
        int mark(void);
        int main(void) { printf("%ld %d %d\n", bytes(), begun, mark()); return 0; }
    "#;
    let second = r#"
        extern int begun;
        void begin(void) { begun = 7; }
        int mark(void) {
            __asm__ volatile(".pushsection marks,\"a\"\n .quad 1, 2\n .popsection\n"
                             ".pushsection .init_array,\"aw\"\n .balign 8\n .quad begin\n .popsection");
            return 2;
        }
    "#;
    behaves_as_natively("marks", &[first, second], &[], "16 7 2\n");
}

/// Code generation lists functions in sections of its own.
#[test]
fn code_generation_lists_the_functions_of_all_files() {
    let first = r#"
        #include <stdio.h>
        extern void *__start___patchable_function_entries[], *__stop___patchable_function_entries[];
        int other(int);
        int main(int count, char **arguments) {
            printf("%d\n", (int)(__stop___patchable_function_entries - __start___patchable_function_entries));
            return other(count) - count;
        }
    "#;
    let second = "int third(int); int other(int x) { return third(x); }";
    let third = "int third(int x) { return x; }";
    behaves_as_natively("patchable", &[first, second, third], &["-fpatchable-function-entry=2"], "3\n");
    let pragma = r#"
        #pragma clang section data="chosen"
        int more = 5;
    "#;
    let reads = r#"
        #include <stdio.h>
        extern int __start_chosen[], __stop_chosen[];
        #pragma clang section data="chosen"
        int own = 4;
        #pragma clang section data=""
        int main(void) {
            int sum = 0;
            for (int *at = __start_chosen; at < __stop_chosen; at++) sum += *at;
            printf("%d\n", sum);
            return 0;
        }
    "#;
    behaves_as_natively("chosen", &[reads, pragma], &[], "9\n");
}
