//! A program and a shared library that define the same names, or refer to each other: who uses whose definition. Each program says so
//! itself, and is compared with its native twin: compiled in every way that the command knows, in another process, and from an image.

use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use uruk_tests::inputs::{compile, shared_library};
use uruk_tests::process::{End, Input, Outcome, run};
use uruk_tests::uruk::uruk;

const MODES: [&[&str]; 8] = [
    &[],
    &["-O0"],
    &["--lazy"],
    &["--lazy=module"],
    &["--tiered", "--tier-threshold", "1", "--tier-delay", "0"],
    &["--partition", "early", "--parts", "3"],
    &["--executor"],
    &["--executor", "--lazy"],
];

fn outcome(command: &mut Command) -> Outcome {
    run(command, &Input::default(), Duration::from_secs(60)).expect("it can be started")
}

/// Links `program` natively with `libraries`, and runs it so and by the command, from an object and from bitcode.
#[track_caller]
fn behaves_as_natively(name: &str, program: &str, libraries: &[&Path], expected: &str) {
    let object = compile(name, program, &["-O1"], "main.o").expect("it compiles");
    let bitcode = compile(name, program, &["-O1", "-emit-llvm"], "main.bc").expect("it compiles");
    let native = std::env::temp_dir().join(format!("uruk-native-{}-{name}", std::process::id()));
    let linked = Command::new("clang++-22").arg("-o").arg(&native).arg(&object).args(libraries).output();
    assert!(linked.is_ok_and(|linked| linked.status.success()), "{name} cannot be linked natively");
    let natively = outcome(&mut Command::new(&native));
    std::fs::remove_file(&native).expect("it was made above");
    assert_eq!(String::from_utf8_lossy(&natively.stdout), expected, "natively");
    for file in [&object, &bitcode] {
        let libraries = libraries.iter().map(|library| library.as_os_str());
        let loaded = libraries.clone().flat_map(|library| [OsStr::new("--load"), library]);
        for kind in [&[][..], &["--package"]] {
            let image = file.with_extension("uim");
            let mut build = Command::new(uruk());
            build.args(["image", "build"]).args(kind).arg("-o").arg(&image).args(loaded.clone()).arg(file);
            let built = outcome(&mut build);
            assert_eq!(
                built.end,
                End::Exited(0),
                "{}\n{}",
                built.command,
                String::from_utf8_lossy(&built.stderr)
            );
            let ours = outcome(Command::new(uruk()).args(["image", "run"]).args(loaded.clone()).arg(&image));
            let stderr = String::from_utf8_lossy(&ours.stderr);
            assert_eq!(
                (&*String::from_utf8_lossy(&ours.stdout), ours.end),
                (expected, natively.end),
                "{kind:?} {}\n{stderr}",
                ours.command
            );
        }
        for mode in MODES {
            let arguments: [Vec<&OsStr>; 2] = [
                libraries.clone().chain([file.as_os_str()]).collect(),
                loaded.clone().chain([file.as_os_str()]).collect(),
            ];
            for arguments in &arguments {
                let ours = outcome(Command::new(uruk()).arg("run").args(mode).args(arguments));
                let (stdout, stderr) =
                    (String::from_utf8_lossy(&ours.stdout), String::from_utf8_lossy(&ours.stderr));
                assert_eq!((&*stdout, ours.end), (expected, natively.end), "{}\n{stderr}", ours.command);
            }
        }
    }
}

/// The linker's `end` yielded to a library's function of that name, which programs use as the end of their data.
#[test]
fn names_of_the_linker_are_not_those_of_libraries() {
    let library = "int end(void) { return 7; } int edata = 8; int etext = 9; int other(void) { return 1; }";
    let library = shared_library("ends.c", library, "libends.so").expect("it links");
    let program = r#"
        #include <stdio.h>
        extern char end[], _end[], edata[], _edata[], etext[], _etext[];
        int other(void);
        static char *volatile all[] = { end, _end, edata, _edata, etext, _etext };
        int main(void) {
            printf("%d %d %d %d\n", other(), all[0] == all[1], all[2] == all[3], all[4] == all[5]);
            return 0;
        }
    "#;
    behaves_as_natively("ends_main.c", program, &[&library], "1 1 1 1\n");
}

/// The engine is made of libstdc++, which came before the program's libraries: libc++ threw exceptions that no one caught.
#[test]
fn a_library_comes_before_those_of_the_engine() {
    let runtime = r#"
        #include <stdlib.h>
        const char *__cxa_demangle(void) { return "the library's"; }
        const char *(*const table[])(void) = { __cxa_demangle };
        char _ZSt7nothrow = 7;
        int news;
        void *_Znwm(size_t bytes) { news++; return malloc(bytes); }
        void _ZdlPv(void *memory) { news--; free(memory); }
        const char *of_itself(void) { return __cxa_demangle(); }
    "#;
    let runtime = shared_library("runtime.c", runtime, "libruntime.so").expect("it links");
    let user = r#"
        const char *__cxa_demangle(void); extern char _ZSt7nothrow; void *_Znwm(unsigned long); void _ZdlPv(void *);
        static const char *(*volatile pointer)(void) = __cxa_demangle;
        const char *of_others(void) { return pointer == __cxa_demangle ? __cxa_demangle() : "two"; }
        int data_of_others(void) { return _ZSt7nothrow; }
        __attribute__((constructor)) static void begin(void) { _ZdlPv(_Znwm(4)); }
    "#;
    let user = shared_library("user.c", user, "libuser.so").expect("it links");
    let program = r#"
        #include <cstdio>
        extern "C" {
            const char *__cxa_demangle(); const char *of_itself(); const char *of_others(); int data_of_others();
            extern char _ZSt7nothrow; extern int news; extern const char *(*const table[])();
        }
        int main() {
            int *volatile kept = new int(3);
            std::printf("%s, %s, %s\n", __cxa_demangle(), of_itself(), of_others());
            std::printf("%d %d %d %d\n", _ZSt7nothrow, data_of_others(), news > 0, table[0] == __cxa_demangle);
            delete kept;
            return 0;
        }
    "#;
    let expected = "the library's, the library's, the library's\n7 7 1 1\n";
    behaves_as_natively("runtime_main.cpp", program, &[&user, &runtime], expected);
}

/// `std::thread` called the C library's `pthread_create`, though the program had its own. A function of memory that is compiled when it is
/// called would be compiled by the compiler that calls it.
#[test]
fn libraries_that_were_there_before_call_the_programs_functions() {
    let library = shared_library("none.c", "int none;", "libnone.so").expect("it links");
    let program = r#"
        #include <condition_variable>
        #include <locale>
        #include <cstdio>
        #include <dlfcn.h>
        #include <string>
        #include <thread>
        static int made, waits, read;
        template <class F> static F *behind(const char *name) { return (F *)dlsym(RTLD_NEXT, name); }
        extern "C" {
            int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*start)(void *), void *data) noexcept {
                made++;
                return behind<decltype(pthread_create)>("pthread_create")(thread, attributes, start, data);
            }
            int pthread_cond_wait(pthread_cond_t *condition, pthread_mutex_t *mutex) {
                waits++;
                return behind<decltype(pthread_cond_wait)>("pthread_cond_wait")(condition, mutex);
            }
            char *getenv(const char *name) noexcept { read++; return behind<decltype(getenv)>("getenv")(name); }
            void *memcpy(void *to, const void *from, size_t count) noexcept {
                for (size_t i = 0; i < count; i++) ((volatile char *)to)[i] = ((const char *)from)[i];
                return to;
            }
            size_t strlen(const char *text) noexcept {
                const volatile char *end = text;
                while (*end) end++;
                return end - text;
            }
        }
        static thread_local int own = 4;
        int main() {
            std::mutex mutex; std::condition_variable condition; int found = 0;
            std::unique_lock<std::mutex> lock(mutex);
            std::thread thread([&] { std::lock_guard<std::mutex> inside(mutex); found = own; condition.notify_one(); });
            while (!found) condition.wait(lock);
            lock.unlock();
            thread.join();
            std::string text(40, 'x');
            text += std::to_string(found);
            try { std::locale locale(""); } catch (std::exception &) {}
            std::printf("%d %zu %d %d %d\n", found, text.size(), made, waits > 0, read > 0);
            return 0;
        }
    "#;
    behaves_as_natively("interposing.cpp", program, &[&library], "4 41 1 1 1\n");
}

/// A library that referred to the program could not be loaded.
#[test]
fn a_library_refers_to_functions_and_variables_of_the_program() {
    let library = r#"
        #include <stdio.h>
        extern int app_data; int app_hook(int); void app_register(int (*)(int)); extern int (*app_table[])(int);
        static int plug(int x) { return x + app_data; }
        static int *pointer = &app_data + 1;
        __attribute__((constructor)) static void begin(void) { app_register(plug); }
        __attribute__((destructor)) static void end(void) { puts("the library ends"); }
        int lib(int x) { return app_hook(x) + app_data + app_table[0](x) + (pointer - 1 == &app_data); }
    "#;
    let program = r#"
        #include <stdio.h>
        int app_data = 5; static volatile int began; static int (*plugin)(int);
        int app_hook(int x) { return x * 2; }
        int (*app_table[1])(int) = { app_hook };
        void app_register(int (*plug)(int)) { plugin = plug; printf("registered, began: %d\n", began); }
        __attribute__((constructor)) static void begin(void) { began = 1; }
        int lib(int);
        int main(void) { printf("%d %d\n", lib(4), plugin(3)); return 0; }
    "#;
    let expected = "registered, began: 0\n22 8\nthe library ends\n";
    for flags in [&[][..], &["-Wl,-z,now"]] {
        let flags = [&["-O1", "-fPIC", "-shared"], flags].concat();
        let library =
            uruk_tests::inputs::linked("needs.c", library, &flags, "libneeds.so").expect("it links");
        behaves_as_natively("needs_main.c", program, &[&library], expected);
    }
}

/// A symbol that both defined, each had for itself, and the constructors of libraries ran before there was a program.
#[test]
fn libraries_use_what_the_program_defines() {
    let library = r#"
        int strong = 1; __attribute__((weak)) int weak = 2; __attribute__((noinline)) int twice(int x) { return 2 * x; }
        __attribute__((constructor)) static void begin(void) { strong++, weak++; }
        int *library_strong(void) { return &strong; }
        int *library_weak(void) { return &weak; }
        int library_twice(int x) { return twice(x); }
        int (*library_pointer(void))(int) { return twice; }
    "#;
    let program = r#"
        #include <stdio.h>
        int strong = 10; __attribute__((weak)) int weak = 20; int twice(int x) { return 20 * x; }
        int *library_strong(void), *library_weak(void), library_twice(int), (*library_pointer(void))(int);
        int main(void) {
          printf("%d %d %d\n", *library_strong(), *library_weak(), library_twice(3));
          printf("%d %d %d\n", &strong == library_strong(), &weak == library_weak(), library_pointer() == twice);
          return 0;
        }
    "#;
    let library = shared_library("both.c", library, "libboth.so").expect("it links");
    behaves_as_natively("both_main.c", program, &[&library], "11 21 60\n1 1 1\n");
}

/// Two libraries that need each other, and the program.
#[test]
fn libraries_refer_to_one_another_and_to_the_program() {
    let one = "extern int app; int two(void); int one(void) { return app; } int both(void) { return one() + two(); }";
    let two = "extern int app; int one(void); int two(void) { return 10 * one(); } int *of_app = &app;";
    let program = r#"
        #include <stdio.h>
        int app = 4, both(void); extern int *of_app;
        int main(void) { printf("%d %d\n", both(), ++*of_app); return app; }
    "#;
    let one = shared_library("one.c", one, "libone.so").expect("it links");
    let two = shared_library("two.c", two, "libtwo.so").expect("it links");
    behaves_as_natively("mutual_main.c", program, &[&one, &two], "44 5\n");
}

/// A weak variable was given up for anything in the process that had its name.
#[test]
fn a_variable_is_not_given_up_for_what_only_has_its_name() {
    let program = r#"
        #include <cstdio>
        inline int glob = 1; inline int index = 9;
        extern "C" {
          __attribute__((weak)) int optind = 7; __attribute__((weak)) long stdout_[2] = {1, 2};
          __attribute__((weak)) char tzname[4] = "abc";
        }
        int main() { glob += 4, index++; std::printf("%d %d %d %ld %s\n", glob, index, optind, stdout_[1], tzname); }
    "#;
    behaves_as_natively("named.cpp", program, &[], "5 10 7 2 abc\n");
}

/// libc has `optind`, and reads and writes the program's.
#[test]
fn the_c_library_uses_a_variable_that_the_program_defines() {
    let program = r#"
        #include <stdio.h>
        #include <unistd.h>
        __attribute__((weak)) int optind = 2;
        int main(void) {
          char *arguments[] = {"x", "-a", "-b", "rest", 0};
          int first = getopt(4, arguments, "ab");
          printf("%c %d\n", first, optind);
          return 0;
        }
    "#;
    behaves_as_natively("getopt_main.c", program, &[], "b 3\n");
}

/// The objects that C++ has once: inline variables, statics of templates and of inline functions, type information.
#[test]
fn inline_variables_are_one_with_the_librarys() {
    let header = r#"
        #include <cstdio>
        #include <typeinfo>
        inline int counter = 1;
        template <class T> struct Of { static int count; };
        template <class T> int Of<T>::count = 5;
        inline int &in_function() { static int value = (std::puts("made once"), 3); return value; }
        struct Thrown { virtual ~Thrown() = default; };
    "#;
    let library = format!(
        r#"{header}
        __attribute__((constructor)) static void begin() {{ counter++, Of<int>::count++, in_function()++; }}
        int library_sum() {{ return counter + Of<int>::count + in_function(); }}
        void library_throw() {{ throw Thrown(); }}
        const std::type_info *library_type() {{ return &typeid(Thrown); }}"#
    );
    let program = format!(
        r#"{header}
        int library_sum(); void library_throw(); const std::type_info *library_type();
        int main() {{
          counter += 10, Of<int>::count += 100, in_function() += 1000;
          std::printf("%d %d\n", library_sum(), library_type() == &typeid(Thrown));
          try {{ library_throw(); }} catch (const Thrown &) {{ std::puts("caught"); }}
        }}"#
    );
    let expected = "made once\n1122 1\ncaught\n";
    let library = shared_library("inline.cpp", &library, "libinline.so").expect("it links");
    behaves_as_natively("inline_main.cpp", &program, &[&library], expected);
}

#[test]
fn what_no_one_defines_for_a_library_is_named() {
    let library =
        shared_library("lacks.c", "extern int nowhere; int lib(void) { return nowhere; }", "liblacks.so");
    let program =
        compile("lacks_main.c", "int lib(void); int main(void) { return lib(); }", &["-O1"], "main.o");
    let (library, program) = (library.expect("it links"), program.expect("it compiles"));
    let ours = outcome(Command::new(uruk()).arg("run").args([&library, &program]));
    let stderr = String::from_utf8_lossy(&ours.stderr);
    assert!(stderr.contains("nowhere"), "{stderr}");
}

/// Collectors, unwinders and runtimes of languages look for what an address of the program belongs to.
#[test]
fn a_library_finds_the_program_among_the_objects_of_the_process() {
    let library = r#"
        #define _GNU_SOURCE
        #include <dlfcn.h>
        #include <link.h>
        static int in(struct dl_phdr_info *info, size_t size, void *address) {
          for (int i = 0; i < info->dlpi_phnum; i++) {
            const ElfW(Phdr) *header = &info->dlpi_phdr[i];
            char *start = (char *)info->dlpi_addr + header->p_vaddr;
            if (header->p_type == PT_LOAD && (char *)address >= start && (char *)address < start + header->p_memsz)
              return info->dlpi_name[0] ? -1 : 1 + (header->p_flags & PF_W);
          }
          return 0;
        }
        int flags_of(void *address) { return dl_iterate_phdr(in, address); }
        int is_known(void *address) { Dl_info info; return dladdr(address, &info) != 0; }
    "#;
    let program = r#"
        #include <stdio.h>
        int flags_of(void *), is_known(void *), variable = 3, zeroes[10];
        int main(void) {
          printf("%d %d %d %d\n", flags_of((void *)main), flags_of(&variable), flags_of(zeroes), is_known((void *)main));
          return 0;
        }
    "#;
    let library = shared_library("finds.c", library, "libfinds.so").expect("it links");
    behaves_as_natively("finds_main.c", program, &[&library], "1 3 3 1\n");
}

/// A plugin uses functions and variables of the program that opens it.
#[test]
fn a_library_that_the_program_opens_refers_to_the_program() {
    let library = r#"
        #include <stdio.h>
        extern int host_data; int host_function(int);
        __attribute__((constructor)) static void begin(void) { printf("plugin of %d\n", host_function(host_data)); }
        int plugin(int x) { return host_function(x) + host_data; }
    "#;
    let lacks = "extern int nowhere, host_data; int plugin(int x) { return x + nowhere + host_data; }";
    let program = r#"
        #include <dlfcn.h>
        #include <stdio.h>
        #include <string.h>
        int host_data = 7; int host_function(int x) { return 3 * x; }
        int main(int argc, char **argv) {
          void *library = dlopen(argv[1], RTLD_NOW), *lacks = dlopen(argv[2], RTLD_NOW);
          if (!library) return puts(dlerror()), 1;
          printf("%d\n", lacks == 0 && strstr(dlerror(), "nowhere") != 0);
          int (*plugin)(int) = (int (*)(int))dlsym(library, "plugin");
          host_data++;
          printf("%d\n", plugin(2));
          return 0;
        }
    "#;
    let library = shared_library("plugin.c", library, "libplugin.so").expect("it links");
    let lacks = shared_library("lacking.c", lacks, "liblacking.so").expect("it links");
    let object = compile("host.c", program, &["-O1"], "host.o").expect("it compiles");
    let bitcode = compile("host.c", program, &["-O1", "-emit-llvm"], "host.bc").expect("it compiles");
    for file in [&object, &bitcode] {
        for mode in MODES {
            let command = &mut Command::new(uruk());
            let ours = outcome(command.arg("run").args(mode).arg(file).arg("--").args([&library, &lacks]));
            let (stdout, stderr) =
                (String::from_utf8_lossy(&ours.stdout), String::from_utf8_lossy(&ours.stderr));
            assert_eq!(stdout, "plugin of 21\n1\n14\n", "{}\n{stderr}", ours.command);
        }
    }
}

/// Its destructor uses what its constructor has made. The command ended by a signal where the program had not begun.
#[test]
fn a_library_that_has_not_begun_does_not_end() {
    let library = r#"
        #include <stdio.h>
        #include <stdlib.h>
        static int *made;
        __attribute__((constructor)) static void begin(void) { made = malloc(sizeof *made); *made = 5; }
        __attribute__((destructor)) static void leave(void) { printf("ends with %d\n", *made); }
        int made_there(void) { return *made; }"#;
    let library = shared_library("begins.c", library, "libbegins.so").expect("it links");
    let program = "int made_there(void); int main(void) { return made_there(); }";
    let program = compile("uses.c", program, &["-fPIC"], "uses.o").expect("it compiles");
    let broken = "int nowhere(void); int main(void) { return nowhere(); }";
    let broken = compile("broken.c", broken, &["-fPIC"], "broken.o").expect("it compiles");
    for (verb, file, expected) in [
        (&["run"][..], &program, (End::Exited(5), "ends with 5\n")),
        (&["run"], &broken, (End::Exited(1), "")),
        (&["image", "build", "-o", "uses.uim"], &program, (End::Exited(0), "")),
        (&["image", "build", "-o", "broken.uim"], &broken, (End::Exited(1), "")),
    ] {
        let ours = outcome(Command::new(uruk()).args(verb).arg(file).arg("--load").arg(&library));
        let (stdout, stderr) = (String::from_utf8_lossy(&ours.stdout), String::from_utf8_lossy(&ours.stderr));
        assert_eq!((ours.end, &*stdout), expected, "{}\n{stderr}", ours.command);
    }
}
