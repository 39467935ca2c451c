//! `uruk image`: builds that are killed, and packages with their sources.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use uruk_tests::process::{End, Input, Outcome, run};
use uruk_tests::uruk::uruk;

/// Of Linux on this machine.
const SIGXFSZ: i32 = 25;

/// A directory that goes at the end.
struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("uruk-image-{}-{name}", std::process::id()));
        fs::create_dir(&path).expect("the temporary directory is writable");
        Self(path)
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.0.join(name), text).expect("the directory is writable");
    }

    /// Runs the command here, with these words as arguments.
    fn uruk(&self, words: &str) -> Outcome {
        self.limited("", words)
    }

    /// The same behind what a shell does first. The runner of programs has a directory of its own.
    fn limited(&self, limit: &str, words: &str) -> Outcome {
        let script = format!("cd {} && {limit} exec {} {words}", self.0.display(), uruk().display());
        let mut command = Command::new("sh");
        command.env_remove("URUK_CACHE").args(["-c", &script]);
        run(&mut command, &Input::default(), Duration::from_secs(60)).expect("it is started")
    }

    fn ends(&self, words: &str, code: i32) -> String {
        let Outcome { end, stdout, stderr, .. } = self.uruk(words);
        let text = [stdout, stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
        assert_eq!(end, End::Exited(code), "{words}: {text}");
        text
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn compile(source: &Path, object: &Path) {
    let status = Command::new("cc").args(["-O1", "-fPIC", "-c"]).arg(source).arg("-o").arg(object).status();
    assert!(status.expect("there is a C compiler").success());
}

/// The system kills a process at the write that goes beyond the size that files may have.
#[test]
fn a_build_that_is_killed_at_any_write_leaves_the_old_image() {
    let directory = Directory::new("killed");
    let object = |name: &str, text: &str| {
        directory.write(&format!("{name}.c"), text);
        compile(&directory.0.join(format!("{name}.c")), &directory.0.join(format!("{name}.o")));
    };
    object("old", "int main(void) { return 3; }");
    object("new", "int numbers[4000] = {1}; int main(void) { return 4; }");
    directory.ends("image build -o a.uim old.o", 0);
    let old = fs::read(directory.0.join("a.uim")).expect("it was built");
    directory.ends("image build -o whole.uim new.o", 0);
    let blocks = fs::metadata(directory.0.join("whole.uim")).expect("it was built").len().div_ceil(512);
    let mut killed = 0;
    for limit in (0..=blocks).step_by(8) {
        let limits = format!("ulimit -c 0; ulimit -f {limit};");
        let Outcome { end, .. } = directory.limited(&limits, "image build -o a.uim new.o");
        assert!(matches!(end, End::Killed(SIGXFSZ)), "{limit} blocks: {end}");
        assert_eq!(fs::read(directory.0.join("a.uim")).expect("it is there"), old, "{limit} blocks");
        killed += 1;
    }
    assert!(killed > 3);
    directory.ends("image run a.uim", 3);
    directory.ends("image build -o a.uim new.o", 0);
    directory.ends("image run a.uim", 4);
}

#[test]
fn a_package_runs_with_its_sources_and_says_which_of_them_have_changed() {
    let directory = Directory::new("package");
    directory.write(
        "main.ll",
        "declare i32 @next(i32) define i32 @main() { %x = call i32 @next(i32 40) ret i32 %x }",
    );
    directory.write("next.ll", "define i32 @next(i32 %x) { %y = add i32 %x, 1 ret i32 %y }");
    directory.ends("image build --package -o a.uim main.ll next.ll", 0);
    let text = directory.ends("image info --units a.uim", 0);
    assert!(text.contains("2 units, each validated alone") && text.contains("next.ll"), "{text}");
    for words in ["image run a.uim", "image run a.uim main.ll next.ll", "run a.uim next.ll main.ll"] {
        assert_eq!(directory.ends(words, 41), "", "{words}");
    }
    assert!(directory.ends("image verify a.uim main.ll next.ll", 0).contains("as they were written"));
    assert!(directory.ends("image info a.uim main.ll", 2).contains("--rejected lists these"));
    directory.ends("image build -o whole.uim main.ll next.ll", 0);
    for words in ["image verify whole.uim main.ll", "image info --rejected whole.uim main.ll"] {
        assert!(directory.ends(words, 2).contains("whole.uim: it is one whole"), "{words}");
    }

    let counted = directory.ends("image run --stats a.uim main.ll next.ll", 41);
    assert!(counted.contains("image: 2 of 2 units used, 0 rejected; 0 modules compiled"), "{counted}");
    let counted = directory.ends("image run --stats --no-image next.ll a.uim main.ll next.ll", 41);
    assert!(counted.contains("next.ll is not used: it was to be left out"), "{counted}");
    assert!(counted.contains("image: 1 of 2 units used, 1 rejected; 1 modules compiled"), "{counted}");
    assert!(directory.ends("run --stats=json a.uim", 41).contains(r#""compiled":0,"rejected":0,"units":2"#));
    assert!(directory.ends("run --no-image other.ll a.uim", 2).contains("a.uim has no unit other.ll"));
    assert!(directory.ends("run --no-image next.ll main.ll", 2).contains("no package is among the files"));

    directory.write("next.ll", "define i32 @next(i32 %x) { %y = add i32 %x, 2 ret i32 %y }");
    let told = directory.ends("image run a.uim main.ll next.ll", 42);
    assert!(told.contains("next.ll is not used: it was compiled from another source"), "{told}");
    assert_eq!(told.matches("is not used").count(), 1, "{told}");
    assert_eq!(directory.ends("image run a.uim", 41), "", "without sources it is as it was");
    let listed = directory.ends("image info --rejected a.uim main.ll next.ll", 0);
    assert!(listed.contains("next.ll: it was compiled from another source"), "{listed}");
    assert!(listed.contains("1 of 2 units are not used\n       1  another source"), "{listed}");
    let refused = directory.ends("image verify a.uim main.ll next.ll", 1);
    assert!(refused.contains("1 of 2 units are not used"), "{refused}");

    let path = directory.0.join("a.uim");
    let mut bytes = fs::read(&path).expect("it is there");
    bytes[9000] ^= 1;
    fs::write(&path, bytes).expect("it is ours");
    assert!(directory.ends("image verify a.uim", 1).contains("not those that were written"));
}

/// The kernel says where its code is. The program ends when that is another place, and so that of a better body.
const KERNEL: &str = r#"
    static long calls;
    const char *name(void) { return "kernel"; }
    void *kernel(const char **text) {
      void *here;
      __asm__ volatile("lea (%%rip), %0" : "=r"(here));
      *text = name();
      calls++;
      return here;
    }
    long called(void) { return calls; }
"#;
const WAITING: &str = r#"
    #include <string.h>
    void *kernel(const char **text);
    long called(void);
    int main(int argc, char **argv) {
      const char *text;
      void *first = kernel(&text);
      long calls = 1;
      for (long i = 0; argc > 1 ? i < 10000 : kernel(&text) == first; i++) {
        if (argc > 1 && kernel(&text) != first) return 1;
        calls++;
      }
      return strcmp(text, "kernel") != 0 || called() != calls + (argc == 1);
    }
"#;

#[test]
fn functions_of_a_package_get_better_in_tiers_if_something_is_better() {
    let directory = Directory::new("tiered");
    directory.write("main.c", WAITING);
    directory.write("kernel.c", KERNEL);
    directory.ends("image build --package -O1 -o a.uim main.c kernel.c", 0);
    let tiers = "run --stats --tiered --tier-threshold 20 --tier-delay 0";
    let text = directory.ends(&format!("{tiers} a.uim main.c kernel.c"), 0);
    assert!(text.contains("image: 2 of 2 units used, 0 rejected"), "{text}");
    assert!(text.contains("better by now, 0 not improvable"), "{text}");
    assert!(!text.contains(" 0 better by now"), "{text}");
    let begun = text.lines().find(|line| line.starts_with("not optimized ")).expect("a table of tiers");
    assert_eq!(begun.split_whitespace().nth(2), Some("0"), "{text}");

    let text = directory.ends(&format!("{tiers} a.uim main.c -- kernel.c"), 0);
    assert!(text.contains(" 0 better by now"), "without its source: {text}");
    directory.ends("image build --package -O2 --cpu-targets native -o a.uim main.c kernel.c", 0);
    let text = directory.ends(&format!("{tiers} a.uim main.c kernel.c -- stays"), 0);
    assert!(text.contains("bodies of 4 functions: 0 better by now, 4 not improvable"), "{text}");
    let text = directory.ends("run --stats a.uim -- stays", 0);
    assert!(!text.contains("bodies of"), "other engines have none: {text}");
}

const LIBRARY: &str = r#"
    #include <string.h>
    int shared = 3;
    __thread int local = 5;
    static int calls;
    static const char *names[] = {"one", "two"};
    __attribute__((constructor)) static void begin(void) { shared = 4; }
    __attribute__((noinline)) static int helper(int x) { return x + shared + local + calls++; }
    int answer(int x) { return helper(x) + (int)strlen(names[x & 1]); }
    int (*choose(void))(int) { return helper; }
"#;
const USER: &str = r#"
    #ifdef OPENS
    #include <dlfcn.h>
    #endif
    int answer(int), (*choose(void))(int);
    extern int shared;
    int main(void) {
    #ifdef OPENS
      void *library = dlopen("./out.so", RTLD_NOW);
      if (!library) return 1;
      int (*answer)(int) = dlsym(library, "answer"), (*(*choose)(void))(int) = dlsym(library, "choose"), *where = dlsym(library, "shared");
    #else
      int *where = &shared;
    #endif
      *where += 10;
      return answer(1) + choose()(2);
    }
"#;

/// Of the program above: 1 + 14 + 5 + 0 + 3, and 2 + 14 + 5 + 1.
const ANSWER: i32 = 45;

impl Directory {
    /// Runs a line of a shell here.
    fn shell(&self, line: &str) {
        let status = Command::new("sh").current_dir(&self.0).args(["-ec", line]).status();
        assert!(status.expect("there is a shell").success(), "{line}");
    }

    fn native(&self, program: &str) {
        let status = Command::new(self.0.join(program)).current_dir(&self.0).status();
        assert_eq!(status.expect("it is there").code(), Some(ANSWER), "{program}");
    }
}

/// Natively, and of one part and of several.
#[test]
fn other_outputs_are_for_other_tools() {
    let directory = Directory::new("outputs");
    directory.write("library.c", LIBRARY);
    directory.write("user.c", USER);
    directory.write(
        "more.c",
        &LIBRARY
            .replace(" answer", " more")
            .replace("(*choose", "(*another")
            .replace("int shared = 3;", "extern int shared;")
            .replace(" local", " locals"),
    );
    for (parts, is_divided) in [("", false), ("--partition early --parts 3", true)] {
        directory.shell("rm -rf parts out.*; mkdir parts");
        let build = |emit: &str, files: &str| {
            directory.ends(&format!("image build --emit {emit} {parts} -o out.{emit} {files}"), 0)
        };
        for emit in ["o", "s"] {
            build(emit, "library.c");
            match is_divided {
                true => directory.shell(&format!("cd parts; ar x ../out.{emit}; test -f 2.{emit}; cc -fPIE -pie -o ../out.native ../user.c *.{emit}; rm *")),
                false => directory.shell(&format!("cc -o out.native user.c out.{emit}")),
            }
            directory.native("out.native");
        }
        build("bc", "library.c");
        let files = if is_divided { "parts/0.bc parts/1.bc parts/2.bc" } else { "out.bc" };
        if is_divided {
            directory.shell("cd parts; ar x ../out.bc");
        }
        directory.ends(&format!("run user.c {files}"), ANSWER);
        // Two modules have local values of the same names.
        build("so", "library.c more.c");
        directory.shell(
            "cc -DOPENS -o out.native user.c -ldl; readelf -W --dyn-syms out.so | grep -q ' another$'",
        );
        directory.shell("! readelf -W --dyn-syms out.so | grep -q 'uruk'");
        directory.native("out.native");
    }
}

#[test]
fn what_has_no_such_output_is_refused_and_leaves_the_old_one() {
    let directory = Directory::new("refused");
    directory.write("a.ll", "define i32 @a() { ret i32 1 }");
    directory.write("out.so", "old");
    directory.write("b.c", "int b(void) { return 2; }");
    compile(&directory.0.join("b.c"), &directory.0.join("b.o"));
    let text = directory.ends("image build --emit s -o x.s a.ll b.o", 1);
    assert!(text.contains("b.o: it is an object") && !directory.0.join("x.s").exists(), "{text}");
    let Outcome { end, stderr, .. } =
        directory.limited("CC=/no/such/cc", "image build --emit so -o out.so a.ll");
    let text = String::from_utf8_lossy(&stderr);
    assert!(matches!(end, End::Exited(1)) && text.contains("/no/such/cc"), "{text}");
    let Outcome { end, stderr, .. } = directory.limited("CC=false", "image build --emit so -o out.so a.ll");
    assert!(matches!(end, End::Exited(1)), "{}", String::from_utf8_lossy(&stderr));
    assert_eq!(fs::read_to_string(directory.0.join("out.so")).expect("it is there"), "old");
    let left = fs::read_dir(&directory.0).expect("it is there").count();
    assert_eq!(left, 4, "nothing else is left");
}

impl Directory {
    /// The functions of an image that are its own, in the order of their addresses.
    fn functions(&self, image: &str) -> Vec<String> {
        let text = self.ends(&format!("image info --symbols {image}"), 0);
        let rows = text.lines().skip_while(|line| !line.starts_with("symbols"));
        let names = rows.filter_map(|row| row.split_whitespace().nth(2)).map(str::to_owned);
        names
            .filter(|name| ["main", "first", "second", "third", "needed", "never"].contains(&&**name))
            .collect()
    }
}

#[test]
fn code_is_in_the_order_of_a_trace_or_is_that_alone() {
    let directory = Directory::new("order");
    let text = r#"
        #define OWN __attribute__((noinline))
        int begun, getpid(void);
        __attribute__((constructor)) static void begin(void) { begun = getpid() > 0; }
        OWN int needed(int x) { return x + begun; }
        OWN int never(int x) { return x * 3; }
        OWN int first(int x) { return x + 1; }
        OWN int second(int x) { return x + needed(x); }
        int (*const table[])(int) = {never, first, second};
    "#;
    directory.write("main.c", "int first(int), second(int), third(int), never(int); int main(int argc, char **argv) { return argc > 9 ? never(argc) : first(second(third(1))); }");
    directory.write("more.c", text);
    directory.write("third.c", "int third(int x) { return x + 4; } int unused(int x) { return x; }");
    let files = "main.c more.c third.c";
    directory.ends(&format!("run --lazy --trace-compile a.trace {files}"), 12);
    let build = |options: &str| directory.ends(&format!("image build {options} -o a.uim {files}"), 0);
    assert_eq!(build("--order a.trace"), "", "all are there");
    directory.ends("a.uim", 12);
    let called = ["main", "third", "second", "needed", "first"];
    // Functions that are not called are where they were, behind the others.
    assert_eq!(directory.functions("a.uim"), [&called[..], &["never"]].concat());
    directory
        .write("b.trace", "# uruk trace 1\nf\t-\tthird.c\tthird\tupper\t-\nf\t-\tthird.c\tgone\tupper\t-\n");
    let text = build("--order b.trace --package");
    assert!(text.contains("1 functions of them have no code"), "{text}");
    directory.ends("a.uim", 12);
    // `main` refers to `never`, and `third` to nothing. The constructor stays, and its variable.
    assert!(build("--only b.trace").contains("1 functions"));
    assert_eq!(directory.functions("a.uim"), ["third"]);
    let names = directory.ends("image info --symbols a.uim", 0);
    assert!(names.contains("begun") && !names.contains("unused") && !names.contains("table"), "{names}");
    directory.write("user.c", "int third(int); extern int begun; int main(void) { return third(begun); }");
    directory.ends("run a.uim user.c", 5);
    assert_eq!(build("--only a.trace"), "");
    directory.ends("a.uim", 12);
    assert!(directory.functions("a.uim").contains(&"never".to_owned()), "`main` may call it");
}

/// A program of many functions, of which one gives this number.
fn many(number: u32) -> String {
    let function = |index: u32| {
        let value = if index == 7 { number } else { index };
        format!("__attribute__((noinline)) int f_{index}(int x) {{ return x * {value} + {index}; }}\n")
    };
    let functions: String = (0..256).map(function).collect();
    let calls: Vec<String> = (0..256).map(|index| format!("f_{index}(x)")).collect();
    format!("{functions}int main(void) {{ volatile int x = 0; return ({}) & 1; }}", calls.join(" + "))
}

#[test]
fn outputs_depend_on_no_number_of_threads() {
    let directory = Directory::new("threads");
    directory.write("many.c", &many(7));
    directory.write("other.c", "int other(int x) { return x + 1; }");
    for (emit, files) in
        [("image", "many.c other.c"), ("o", "many.c other.c"), ("s", "many.c"), ("bc", "many.c")]
    {
        for division in ["--parts 9 --partition early", "--parts 9 --partition late", ""] {
            let built = ["-j1", "-j2", "-j7"].map(|jobs| {
                directory.ends(&format!("image build --emit {emit} {division} {jobs} -o out {files}"), 0);
                fs::read(directory.0.join("out")).expect("it was built")
            });
            assert!(built[0] == built[1] && built[1] == built[2], "{emit} {division}");
        }
    }
    let Outcome { end, stderr, .. } =
        directory.limited("URUK_IMAGE_THREADS=none", "image build -o a.uim many.c");
    let text = String::from_utf8_lossy(&stderr);
    assert!(matches!(end, End::Exited(1)) && text.contains("URUK_IMAGE_THREADS"), "{text}");
}

#[test]
fn a_build_after_an_edit_compiles_the_part_that_has_changed() {
    let directory = Directory::new("parts");
    let build = |number: u32| {
        directory.write("many.c", &many(number));
        let words = "image build --cache cache --partition early --parts 64 --stats -o a.uim many.c";
        directory.ends(words, 0)
    };
    let text = build(7);
    assert!(text.contains("parts and functions: 0/64"), "{text}");
    let text = build(8);
    assert!(text.contains("parts and functions: 63/64"), "{text}");
    let text = build(8);
    assert!(text.contains("cache hits: 1/1 (100 %)") && !text.contains("parts and functions"), "{text}");
}

/// Each thing that a call passes or does is in a hot function or in a cold one, so that calls lead from one version to another.
const MIXED: &str = r#"
    #include <cstdarg>
    #include <cstdio>
    static int counter, *self = &counter;                  // A variable that would be there twice.
    struct Large { int words[16]; };                       // Passed and returned in memory.
    struct Tag { Large what; ~Tag() { counter += what.words[1]; } };
    #define HOT(sum, from) int sum = 0; for (int i = 0; i < 16; i++) sum += from[i] * from[i] + (from[i] >> 1)
    using Step = int (*)(int);
    static __attribute__((noinline)) int cold(int x) { counter += x; if (x > 900) throw x; return counter; }
    __attribute__((noinline)) int hot_by_value(Large large, int more) { HOT(sum, large.words); return sum + cold(more); }
    __attribute__((noinline)) Large hot_returns(const Large &from) {
        Large large; for (int i = 0; i < 16; i++) large.words[i] = from.words[i] * 3 + from.words[15 - i]; return large;
    }
    static __attribute__((noinline)) int hot_variadic(int count, ...) {
        va_list list; va_start(list, count); int words[16] = {}; double rest = 0;
        for (int i = 0; i < count; i++) words[i] = va_arg(list, int);
        rest = va_arg(list, double); va_end(list);
        HOT(sum, words); return sum + (int)rest;
    }
    static __attribute__((noinline)) int hot_throws(const int *words, Step step) {
        Tag tag = {{{1, 2}}}; HOT(sum, words); counter += sum & 1; return step(sum);
    }
    static __attribute__((noinline)) int cold_catches(const int *words, Step step) {
        try { return hot_throws(words, step); } catch (int thrown) { return -thrown; }
    }
    inline int hot_inline(const int *words) { static int calls; HOT(sum, words); return sum + ++calls; }
    int (*volatile pointer)(const int *) = hot_inline;
    int main() {
        Large large; for (int i = 0; i < 16; i++) large.words[i] = i * 5 % 7;
        Large other = hot_returns(large);
        std::printf("%d %d\n", hot_by_value(large, 1), hot_by_value(other, 2));
        std::printf("%d\n", hot_variadic(5, 1, 2, 3, 4, 5, 6.5));
        std::printf("%d %d\n", cold_catches(other.words, cold), cold_catches(large.words, [](int) { return 7; }));
        std::printf("%d %d %d %d\n", counter, *self == counter, pointer(large.words), hot_inline(large.words));
        return pointer != hot_inline;
    }
"#;

#[test]
fn functions_of_two_versions_call_each_other_and_share_their_variables() {
    let directory = Directory::new("mixed");
    directory.write("mixed.cpp", MIXED);
    directory.ends("image build -O2 -o one.uim mixed.cpp", 0);
    directory.ends("image build -O2 --cpu-targets 'x86-64-v2;x86-64-v3' -o hot.uim mixed.cpp", 0);
    directory.ends("image build -O2 --cpu-targets 'x86-64-v3,clone_all;x86-64-v2' -o all.uim mixed.cpp", 0);
    directory.ends("image build -O2 --partition early --parts 3 --cpu-targets 'x86-64-v2;x86-64-v3' -o parts.uim mixed.cpp", 0);
    let expected = directory.ends("image run one.uim", 0);
    assert_eq!(expected.lines().count(), 4, "{expected}");
    for image in ["hot", "all", "parts"] {
        assert_eq!(directory.ends(&format!("image run {image}.uim"), 0), expected, "{image}");
        let verified = directory.ends(&format!("image verify {image}.uim"), 0);
        assert_eq!(verified.lines().count(), 1, "{verified}");
    }
    let symbols = Command::new("nm").arg(directory.0.join("hot.uim")).output().expect("there is nm").stdout;
    let symbols = String::from_utf8_lossy(&symbols);
    let has = |name: &str| symbols.lines().any(|line| line.contains(name) && line.ends_with("@x86-64-v3"));
    let hot = ["hot_by_value", "hot_returns", "hot_variadic", "hot_throws"].map(has);
    assert_eq!(
        (hot, ["cold_catches", "cold"].map(|name| has(&format!("L{}{name}", name.len())))),
        ([true; 4], [false; 2]),
        "{symbols}"
    );
}

/// With one rounding the square has a rest. The instruction for that is what the better version has.
const ROUNDED: &str = r#"
    #include <stdio.h>
    __attribute__((noinline)) double rest(double x, double y) { return x * x - y; }
    int main(void) {
        double x = 1 + 0x1p-30;
        printf("%s\n", rest(x, 1 + 0x1p-29) == 0 ? "v2" : "v3");
        return 0;
    }
"#;

/// The emulator's processors: with their instruction sets, and no others.
#[test]
fn a_processor_runs_the_best_version_that_it_can() {
    if !has_emulator() {
        return;
    }
    let directory = Directory::new("processors");
    directory.write("rounded.c", ROUNDED);
    directory.write("mixed.cpp", MIXED);
    directory.ends("image build -O2 --cpu-targets 'x86-64-v2;x86-64-v3' -o rounded.uim rounded.c", 0);
    directory.ends("image build -O2 --cpu-targets 'x86-64-v2;x86-64-v3' -o mixed.uim mixed.cpp", 0);
    let expected = directory.ends("image run mixed.uim", 0);
    let on = |processor: &str, words: &str| directory.emulated(processor, words);
    for processor in ["qemu64", "core2duo"] {
        // Nothing that it runs is beyond the oldest of all.
        assert_eq!(
            on(processor, "image run rounded.uim"),
            (End::Exited(0), "v2\n".to_owned()),
            "{processor}"
        );
        let (end, text) = on(processor, "image run mixed.uim");
        assert_eq!(end, End::Exited(1), "{processor}: {text}");
        let sentence = "mixed.uim: no version fits this processor: x86-64-v2 needs ";
        assert!(text.contains(sentence) && text.contains("(x86-64-v3 also avx"), "{processor}: {text}");
        assert!(text.contains("; build with --cpu-targets x86-64\n"), "{processor}: {text}");
    }
    let old = ["Nehalem", "Westmere", "SandyBridge"].map(|processor| (processor, "v2"));
    let new = ["Haswell", "Broadwell", "Skylake-Server", "EPYC", "max"].map(|processor| (processor, "v3"));
    for (processor, version) in [&old[..], &new].concat() {
        let (end, text) = on(processor, "image run rounded.uim");
        assert_eq!((end, &*text), (End::Exited(0), &*format!("{version}\n")), "{processor}");
        assert_eq!(on(processor, "image run mixed.uim"), (End::Exited(0), expected.clone()), "{processor}");
        let (_, text) = on(processor, "image info --targets mixed.uim");
        let chosen: Vec<_> = text.lines().filter(|line| line.ends_with(", runs here")).collect();
        assert!(
            matches!(chosen[..], [line] if line.contains(&format!("-{version}: uses"))),
            "{processor}: {text}"
        );
    }
}

/// Versions would pass it in registers of their own width.
#[test]
fn a_wide_vector_between_versions_is_refused() {
    let directory = Directory::new("wide");
    let vectors = "typedef float v8 __attribute__((vector_size(32)));";
    directory.write(
        "wide.c",
        &format!("{vectors} v8 blend(v8 a, v8 b) {{ return a * b; }} int main(void) {{ return 0; }}"),
    );
    directory.write("near.c", &format!("{vectors} static __attribute__((noinline)) v8 blend(v8 a, v8 b) {{ return a * b; }} void f(v8 *a) {{ *a = blend(*a, *a); }} int main(void) {{ v8 a = {{3}}; f(&a); return a[0]; }}"));
    let build = |targets: &str, file: &str, code| {
        directory.ends(&format!("image build --cpu-targets '{targets}' -o a.uim {file}"), code)
    };
    let refused = build("x86-64-v2;x86-64-v3", "wide.c", 1);
    let sentence =
        "`blend` passes <8 x float>, which x86-64-v2 and x86-64-v3 do by different registers; pass a pointer";
    assert!(refused.contains(sentence), "{refused}");
    build("x86-64-v3", "wide.c", 0);
    build("x86-64-v3;x86-64-v4", "wide.c", 0);
    // Its callers are of its own version.
    build("x86-64-v2;x86-64-v3", "near.c", 0);
    directory.ends("image run a.uim", 9);
}

const ASKING: &str = r#"
    #include <stdio.h>
    double wide(const double *x);
    double narrow(const double *x) { double sum = 0; for (int i = 0; i < 4; i++) sum += 4 * x[i]; return sum; }
    int main(void) {
        double x[4] = {1, 2, 3, 4};
        printf("%g\n", __builtin_cpu_supports("avx") ? wide(x) : narrow(x));
        return 0;
    }
"#;

const WIDE: &str = r#"
    #include <immintrin.h>
    #ifndef OWN
    #define OWN
    #endif
    OWN __attribute__((noinline)) __m256d twice(__m256d x) { return _mm256_add_pd(x, x); }
    OWN double wide(const double *x) {
        __m256d (*volatile again)(__m256d) = twice;
        double out[4];
        _mm256_storeu_pd(out, again(twice(_mm256_loadu_pd(x))));
        return out[0] + out[1] + out[2] + out[3];
    }
"#;

/// The code that a program runs only where the processor has what it needs counted, so an image was refused on the machine that had built it. With
/// several targets, functions that pass vectors to each other by what they ask for themselves were refused.
#[test]
fn a_program_that_asks_the_processor_itself_runs_from_its_image() {
    if !has_emulator() {
        return;
    }
    let directory = Directory::new("asking");
    directory.write("asking.c", ASKING);
    directory.write("wide.c", WIDE);
    let own = "-DOWN='__attribute__((target(\"avx\")))'";
    directory.shell(&format!("clang-22 -O1 {own} -emit-llvm -c wide.c -o attribute.bc"));
    directory.shell("clang-22 -O1 -mavx -emit-llvm -c wide.c -o flag.bc");
    directory.shell("clang-22 -O1 -fPIC -mavx -c wide.c -o object.o");
    directory.shell("clang-22 -O1 -emit-llvm -c asking.c; clang-22 -O1 -march=x86-64-v3 -emit-llvm -c asking.c -o newer.bc");
    for file in ["attribute.bc", "flag.bc", "object.o"] {
        for targets in ["x86-64-v2", "x86-64-v2;x86-64-v4", "x86-64;native,clone_all"] {
            directory.ends(&format!("image build --cpu-targets '{targets}' -o a.uim asking.bc {file}"), 0);
            for processor in ["Nehalem", "Haswell"] {
                let ran = directory.emulated(processor, "image run a.uim");
                assert_eq!(ran, (End::Exited(0), "40\n".to_owned()), "{file} {targets} {processor}");
            }
        }
        let verified = directory.ends("image verify a.uim", 0);
        assert!(verified.contains("uses avx, which x86-64 lacks"), "{verified}");
    }
    for words in
        ["--needs-all asking.bc object.o", "--needs-all --package asking.bc flag.bc", "newer.bc object.o"]
    {
        directory.ends(&format!("image build -o a.uim {words}"), 0);
        let (end, text) = directory.emulated("Nehalem", "image run a.uim");
        assert!(end == End::Exited(1) && text.contains("needs avx"), "{words}: {text}");
        assert_eq!(
            directory.emulated("Haswell", "image run a.uim"),
            (End::Exited(0), "40\n".to_owned()),
            "{words}"
        );
    }
}

fn has_emulator() -> bool {
    let emulator = Command::new("qemu-x86_64").arg("--version").output();
    if emulator.is_ok_and(|output| output.status.success()) {
        return true;
    }
    assert!(std::env::var_os("CI").is_none(), "qemu-x86_64 is missing: scripts/setup.sh installs it");
    // Nothing is left to say without a reader.
    let _ = writeln!(std::io::stderr(), "skipped: there is no qemu-x86_64");
    false
}

impl Directory {
    /// Runs the command on an emulated processor.
    fn emulated(&self, processor: &str, words: &str) -> (End, String) {
        let emulated = format!("qemu-x86_64 -cpu {processor} {}", uruk().display());
        // Some processors have features that the emulator warns of.
        let script = format!("cd {} && exec {emulated} {words} 2>&1", self.0.display());
        let mut command = Command::new("sh");
        command.env_remove("URUK_CACHE").args(["-c", &script]);
        let Outcome { end, stdout, .. } =
            run(&mut command, &Input::default(), Duration::from_secs(60)).expect("it is started");
        let text = String::from_utf8_lossy(&stdout).into_owned();
        let lines = text.lines().filter(|line| !line.starts_with("qemu-x86_64: warning"));
        (end, lines.map(|line| format!("{line}\n")).collect::<String>())
    }

    /// Builds an image for these targets, and gives what it prints.
    fn prints_for(&self, targets: &str, options: &str, file: &str) -> String {
        self.ends(&format!("image build -O2 {options} --cpu-targets '{targets}' -o a.uim {file}"), 0);
        self.ends("image run a.uim", 0)
    }
}

/// A function that its version does better.
const HOT: &str = r#"
    #include <stdio.h>
    #define OWN __attribute__((noinline))
    #define HOT(sum, x, n) float sum = 0; for (int i = 0; i < n; i++) sum = __builtin_fmaf(x[i], x[i], sum)
"#;

/// Data that no code refers to, and code in a section: a table is what lies between the bounds of its section.
const SECTIONS: &str = r#"
    struct Entry { float (*function)(const float *, int); };
    static int runs;
    static void run(void) { runs++; }
    __attribute__((used, section(".init_array"))) static void (*start)(void) = run;
    OWN static float first(const float *x, int n) { HOT(sum, x, n); return sum; }
    OWN __attribute__((section("code"))) float second(const float *x, int n) { HOT(sum, x, n); return sum + 1; }
    __attribute__((used, section("table"))) static struct Entry one = {first}, two = {second};
    __attribute__((used, retain, section("kept"))) static int number = 1;
    extern struct Entry __start_table[], __stop_table[];
    extern int __start_kept[], __stop_kept[];
    extern char __start_code[], __stop_code[];
    int main(void) {
        float x[4] = {1, 2, 3, 4}, sum = 0;
        for (struct Entry *entry = __start_table; entry < __stop_table; entry++) sum += entry->function(x, 4);
        char *code = (char *)second;
        printf("%d %ld %g %d\n", runs, (long)(__stop_kept - __start_kept), sum, code >= __start_code && code < __stop_code);
        return 0;
    }
"#;

/// With more than one target, static data that its section alone keeps went, functions to run at the start among it; a function in a section had
/// its address elsewhere.
#[test]
fn sections_have_all_that_is_in_them_for_several_targets() {
    let directory = Directory::new("sections");
    directory.write("sections.c", &[HOT, SECTIONS].concat());
    for (targets, options) in [
        ("x86-64-v2", ""),
        ("x86-64-v2;x86-64-v3", ""),
        ("x86-64-v2;x86-64-v3,clone_all", ""),
        ("x86-64-v2;x86-64-v3", "--partition early --parts 3"),
    ] {
        assert_eq!(directory.prints_for(targets, options, "sections.c"), "1 1 61 1\n", "{targets} {options}");
    }
}

/// The versions of a module gave copies of one text the name that the base gave it.
#[test]
fn parts_of_versions_have_texts_of_their_own() {
    let directory = Directory::new("texts");
    let function = |number| {
        format!(
            "OWN float f{number}(const float *x, int n) {{ HOT(sum, x, n); puts(\"a text\"); return sum + {number}; }}\n"
        )
    };
    let functions: String = (1..=3).map(function).collect();
    let main = "int main(void) { float x[2] = {1, 2}; printf(\"%g\\n\", f1(x, 2) + f2(x, 2) + f3(x, 2)); return 0; }";
    directory.write("texts.c", &[HOT, &functions, main].concat());
    for partition in ["early", "late"] {
        let options = format!("--partition {partition} --parts 3");
        let printed = directory.prints_for("x86-64-v2;x86-64-v3;x86-64-v4", &options, "texts.c");
        assert_eq!(printed, "a text\na text\na text\n21\n", "{partition}");
    }
}

const COROUTINE: &str = r#"
    #include <coroutine>
    #include <cstdio>
    struct Numbers {
        struct promise_type {
            float value;
            Numbers get_return_object() { return {std::coroutine_handle<promise_type>::from_promise(*this)}; }
            std::suspend_always initial_suspend() { return {}; }
            std::suspend_always final_suspend() noexcept { return {}; }
            std::suspend_always yield_value(float now) { value = now; return {}; }
            void return_void() {}
            void unhandled_exception() {}
        };
        std::coroutine_handle<promise_type> handle;
    };
    Numbers numbers(const float *x, int n) {
        for (;;) { float sum = 0; for (int i = 0; i < n; i++) sum = __builtin_fmaf(x[i], x[i], sum); co_yield sum; }
    }
    typedef float v8 __attribute__((vector_size(32)));
    static __attribute__((noinline)) float passed(v8 v) { float sum = 0; for (int i = 0; i < 8; i++) sum = __builtin_fmaf(v[i], v[i], sum); return sum; }
    int main() {
        float x[8] = {1, 2, 3};
        v8 v;
        __builtin_memcpy(&v, x, 32);
        auto made = numbers(x, 8);
        made.handle.resume();
        std::printf("%g %g\n", made.handle.promise().value, passed(v) + passed(v + 1));
        made.handle.destroy();
    }
"#;

/// The optimizer gives the parts of a coroutine names of their own. They counted as code of the base, which then had no processor.
#[test]
fn code_that_is_derived_from_a_version_is_for_its_target() {
    let directory = Directory::new("derived");
    directory.write("coroutine.cpp", COROUTINE);
    directory.shell("clang++-22 -std=c++20 -O2 -Xclang -disable-llvm-passes -emit-llvm -c coroutine.cpp");
    for (options, whole) in [("", ""), ("", ",clone_all"), ("--partition late --parts 3", ",clone_all")] {
        let targets = format!("x86-64-v2;x86-64-v3{whole}");
        assert_eq!(directory.prints_for(&targets, options, "coroutine.bc"), "14 48\n", "{options} {whole}");
        let text = directory.ends("image info --targets a.uim", 0);
        let base = text.lines().find(|line| line.trim_start().starts_with("x86-64-v2: ")).expect("the base");
        assert!(!base.contains("fma"), "{text}");
        let verified = directory.ends("image verify a.uim", 0);
        assert_eq!(verified.lines().count(), 1, "{verified}");
    }
}

const IFUNC: &str = r#"
    typedef float (*Function)(const float *, int);
    OWN static float made(const float *x, int n) { HOT(sum, x, n); return sum; }
    static Function choose(void) { return made; }
    float chosen(const float *, int) __attribute__((ifunc("choose")));
    Function pointer = chosen;
    OWN Function address(void) { return chosen; }
    int main(void) { float x[2] = {1, 2}; printf("%d %g\n", address() == pointer, chosen(x, 2)); return 0; }
"#;

#[test]
fn an_ifunc_has_one_address_for_several_targets() {
    let directory = Directory::new("ifunc");
    directory.write("ifunc.c", &[HOT, IFUNC].concat());
    for targets in ["x86-64-v2", "x86-64-v2;x86-64-v3", "x86-64-v2;x86-64-v3,clone_all"] {
        assert_eq!(directory.prints_for(targets, "", "ifunc.c"), "1 5\n", "{targets}");
    }
}

/// Code for them would need something that no table of an image can say.
#[test]
fn a_processor_with_unknown_instruction_sets_is_refused() {
    let directory = Directory::new("unknown");
    directory.write("main.ll", "define i32 @main() { ret i32 0 }");
    for targets in ["x86-64;bdver1", "x86-64;diamondrapids"] {
        let text = directory.ends(&format!("image build --cpu-targets '{targets}' -o a.uim main.ll"), 1);
        assert!(text.contains("which images do not know"), "{text}");
    }
    directory.ends("image build --cpu-targets 'x86-64;sapphirerapids;znver5' -o a.uim main.ll", 0);
    directory.ends("image run a.uim", 0);
}

#[test]
fn a_package_has_one_target() {
    let directory = Directory::new("one-target");
    directory.write("main.ll", "define i32 @main() { ret i32 0 }");
    let words = "image build --package --cpu-targets 'x86-64-v2;x86-64-v3' -o a.uim main.ll";
    assert!(directory.ends(words, 1).contains("packages have one target"));
}

const SHARED: &str =
    "#include <cstdio>\ninline int counted = 1; inline int next() { static int number; return ++number; }";
const EXECUTABLE: &str = r#"
    #include "shared.h"
    #include <iostream>
    #include <stdexcept>
    #include <typeinfo>
    #include <unistd.h>
    int other();
    struct Own : std::runtime_error { using std::runtime_error::runtime_error; };
    int (*print)(const char *) = std::puts;
    int main() {
        counted = 5;
        int first = next();
        fprintf(stdout, "%d %d %d %d\n", environ != nullptr, other(), first + next(), print == std::puts);
        try { throw Own("thrown"); } catch (const std::exception &error) { std::cout << typeid(error).name() << error.what() << std::endl; }
        return 3;
    }
"#;

/// Such objects read `stdout` and `environ`, and variables that several files share, by distances. They were refused.
#[test]
fn objects_that_were_compiled_for_executables_run_from_images() {
    let directory = Directory::new("executables");
    directory.write("shared.h", SHARED);
    directory.write("main.cpp", EXECUTABLE);
    directory.write("other.cpp", "#include \"shared.h\"\nint other() { next(); return counted; }");
    directory.write("registers.c", "#include <stdio.h>\nint wanted;\n__attribute__((constructor)) static void early(void) { fputs(\"early\\n\", stdout); }");
    for compiler in ["g++ -O2 -fPIE", "g++ -O0 -fPIE", "clang++-22 -O1 -fPIE"] {
        directory.shell(&format!("{compiler} -c main.cpp other.cpp && {compiler} -pie main.o other.o -o native && gcc -O2 -fPIE -c registers.c"));
        directory.shell(
            "rm -f all.a && ar rc all.a registers.o other.o main.o && { ./native > expected || test $? = 3; }",
        );
        let expected = fs::read_to_string(directory.0.join("expected")).expect("it ran");
        for files in ["main.o other.o", "--package main.o other.o", "all.a", "--package all.a"] {
            directory.ends(&format!("image build -o a.uim {files}"), 0);
            assert_eq!(directory.ends("run a.uim", 3), expected, "{compiler}: {files}");
        }
        directory.ends("image build -u wanted -o a.uim all.a", 0);
        assert_eq!(directory.ends("run a.uim", 3), format!("early\n{expected}"), "{compiler}");
    }
}

/// The library lacked that of C++, because the C compiler links it.
#[test]
fn a_shared_library_of_cpp_can_be_opened_by_a_program_in_c() {
    let directory = Directory::new("plugin");
    directory.write(
        "plugin.cpp",
        "#include <string>
        struct Kept { std::string text = \"alive\"; } kept;
        extern \"C\" int call(int x) {
            try { if (x == 3) throw std::string(\"three\"); } catch (const std::string &thrown) { return thrown.size() + kept.text.size(); }
            return 0;
        }",
    );
    directory.write(
        "host.c",
        "#include <dlfcn.h>
        #include <stdio.h>
        int main(void) {
            void *library = dlopen(\"./out.so\", RTLD_NOW);
            if (!library) { puts(dlerror()); return 1; }
            return ((int (*)(int))dlsym(library, \"call\"))(3) == 10 ? dlclose(library) : 2;
        }",
    );
    directory.shell("cc host.c -o host -ldl; clang++-22 -O1 -emit-llvm -c plugin.cpp -o plugin.bc; g++ -O1 -fPIC -c plugin.cpp -o plugin.o");
    for file in ["plugin.bc", "plugin.o", "plugin.cpp"] {
        directory.ends(&format!("image build --emit so -o out.so {file}"), 0);
        directory.shell("./host");
    }
}

/// The package was refused, though all that it was made of was there.
#[test]
fn a_package_runs_from_its_sources_on_a_processor_that_it_does_not_fit() {
    if !has_emulator() {
        return;
    }
    let directory = Directory::new("unfit");
    directory.write(
        "sum.c",
        &[HOT, "OWN float sum_of(const float *x, int n) { HOT(sum, x, n); return sum; }"].concat(),
    );
    let main = "float sum_of(const float *, int); __attribute__((constructor)) static void early(void) { puts(\"early\"); }
        int main(void) { float x[4] = {1, 2, 3, 4}; printf(\"%g\\n\", sum_of(x, 4)); return 5; }";
    directory.write("main.c", &["#include <stdio.h>\n", main].concat());
    directory.ends("image build --package --cpu-targets x86-64-v3 -o a.uim main.c sum.c", 0);
    let expected = "early\n30\n";
    assert_eq!(
        directory.emulated("Haswell", "run a.uim main.c sum.c"),
        (End::Exited(5), expected.to_owned())
    );
    let (end, text) = directory.emulated("Nehalem", "run a.uim main.c sum.c");
    assert!(end == End::Exited(5) && text.ends_with(expected) && text.contains("which it lacks"), "{text}");
    for files in ["", " main.c"] {
        let (end, text) = directory.emulated("Nehalem", &format!("run a.uim{files}"));
        assert!(end == End::Exited(1) && text.contains("which it lacks"), "{files}: {text}");
    }
}

/// Such an object reads variables of other files by 32 bits. The image behind it lay out of its reach.
#[test]
fn an_image_behind_an_object_without_pic_lies_within_its_reach() {
    let directory = Directory::new("low");
    directory.write(
        "image.c",
        "#include <stdio.h>\nint value = 40; int add(int x) { fflush(stdout); return value + x; }",
    );
    directory.write("main.c", "extern int value; int add(int); int main(void) { value++; return add(1); }");
    directory.shell("clang-22 -O1 -fPIE -c image.c && clang-22 -O1 -fno-pie -c main.c");
    directory.ends("image build -o image.uim image.o", 0);
    directory.ends("run main.o image.uim", 42);
}
