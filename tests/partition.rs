//! Modules that are compiled in parts: the same object, with any helpers, and the same program.
#![cfg(feature = "llvm")]

use std::process::Command;

use uruk::Jit;
use uruk_core::WithCauses;
use uruk_pipeline::ir::{IrCompiler, OptimizationLevel, Partition, PartitionPolicy, ThreadSafeModule};
use uruk_pipeline::object::{ObjectBuffer, parts};

const POLICIES: [PartitionPolicy; 2] = [PartitionPolicy::Late, PartitionPolicy::Early];

fn partition(policy: PartitionPolicy) -> Partition {
    Partition::new(policy, 3).of_all_modules()
}

fn jit(policy: PartitionPolicy, threads: usize) -> Jit {
    let builder = Jit::builder().threads(threads).partition(partition(policy));
    builder.optimization(OptimizationLevel::O2).build().expect("an engine")
}

/// Bitcode that clang makes of a C source for the optimizer, before it has run.
fn bitcode(name: &str, source: &str) -> ObjectBuffer {
    let directory = std::env::temp_dir().join(format!("uruk-partition-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&directory).expect("the temporary directory is writable");
    let (input, output) = (directory.join("source.c"), directory.join("source.bc"));
    std::fs::write(&input, source).expect("writable");
    let flags = ["-O2", "-Xclang", "-disable-llvm-passes", "-fPIC", "-emit-llvm", "-c", "-o"];
    let status = Command::new("clang-22").args(flags).arg(&output).arg(&input).status();
    assert!(status.expect("clang-22 starts").success());
    let bytes = std::fs::read(&output).expect("clang wrote it");
    std::fs::remove_dir_all(&directory).expect("it was there");
    ObjectBuffer::new(name, bytes)
}

fn call(jit: &Jit, name: &str) -> i32 {
    let found = jit.lookup(name).unwrap_or_else(|error| panic!("{name}: {}", WithCauses(&error)));
    // SAFETY: the functions of these tests take nothing and return an int, and the engine outlives the call.
    let function: extern "C" fn() -> i32 = unsafe { std::mem::transmute(found.address.value() as usize) };
    function()
}

/// Functions of several parts that use the same variables, which are local to the module.
fn shares_its_own(prefix: &str, first: i32) -> String {
    let mut source = format!(
        "static int counter = {first}; static const char *const names[] = {{ \"zero\", \"one\" }};
         static _Thread_local int calls;
         static __attribute__((noinline)) int add(int x) {{ ++calls; return counter += x; }}
         static int listed __attribute__((section(\"list\"), used)) = 1;
         extern int __start_list[], __stop_list[];
         int {prefix}_listed(void) {{ return __stop_list - __start_list; }}
         int {prefix}_calls(void) {{ return calls; }}\n"
    );
    for number in 0..12 {
        source += &format!(
            "int {prefix}_{number}(void) {{ return add({number}) + (names[{number} & 1][0] == 'z'); }}\n"
        );
    }
    source
}

#[test]
fn parts_are_the_same_whoever_compiles_them() {
    let source = bitcode("same", &shares_its_own("f", 100));
    let module = || ThreadSafeModule::parse(&source).expect("valid IR");
    for policy in POLICIES {
        let compiler =
            IrCompiler::host(OptimizationLevel::O2).expect("host").with_partition(partition(policy));
        let alone = compiler.compile(module()).expect("compiles");
        let count = parts(&alone).expect("it is divided").expect("an archive").len();
        assert_eq!(count, 3, "{policy:?}");
        for threads in [0, 1, 3] {
            let jit = jit(policy, threads);
            for _ in 0..5 {
                let helped = compiler.compile_in(jit.session(), module()).expect("compiles");
                assert!(helped.bytes() == alone.bytes(), "{policy:?} with {threads} threads");
            }
        }
    }
}

/// The names of what parts share are unique within a module only. Two modules whose sections lie side by side are one graph.
#[test]
fn what_is_local_to_a_module_is_not_seen_by_another_one() {
    for policy in POLICIES {
        for threads in [0, 2] {
            let jit = jit(policy, threads);
            jit.add_ir(bitcode("a", &shares_its_own("a", 100))).expect("new");
            jit.add_ir(bitcode("b", &shares_its_own("b", 1000))).expect("new");
            assert_eq!([call(&jit, "a_4"), call(&jit, "a_7")], [105, 111], "{policy:?}");
            assert_eq!([call(&jit, "b_11"), call(&jit, "b_0")], [1011, 1012], "{policy:?}");
            assert_eq!([call(&jit, "a_calls"), call(&jit, "b_calls")], [2, 2], "{policy:?}");
            assert_eq!([call(&jit, "a_listed"), call(&jit, "b_listed")], [2, 2], "{policy:?}");
            jit.lookup("uruk.local.counter").expect_err("nobody knows it");
        }
    }
}

#[test]
fn what_assembly_names_stays_what_it_names() {
    let mut source = "
        static int counter = 40; static int hidden(void) { return counter; }
        int (*const keeps)(void) = hidden;
        __asm__(\".globl counted\\n.type counted,@function\\ncounted: movl counter(%rip), %eax\\nret\\n\");
        __asm__(\".data\\nquiet: .long 7\\n.text\");
        extern int quiet __attribute__((visibility(\"hidden\")));
        int counted(void); int f_quiet(void) { return quiet; }\n"
        .to_owned();
    for number in 0..9 {
        source += &format!("int f_{number}(void) {{ counter += {number}; return counted() + keeps(); }}\n");
    }
    let source = bitcode("assembly", &source);
    for policy in POLICIES {
        let jit = jit(policy, 2);
        jit.add_ir(source.clone()).expect("new");
        assert_eq!([call(&jit, "f_1"), call(&jit, "f_8")], [82, 98], "{policy:?}");
        assert_eq!([call(&jit, "f_quiet"), call(&jit, "counted")], [7, 49], "{policy:?}");
    }
}

/// A literal is one object, wherever its address goes. A copy of it in each part once gave it several.
#[test]
fn a_text_has_one_address_in_all_parts() {
    let mut source = "static const char *kind(void) { return \"kind\"; }
        const char *const constant = \"constant\"; const char *of_constant(void) { return constant; }
        static const int table[4] = { 3, 1, 4, 1 }; int same_constant(void);\n"
        .to_owned();
    for number in 0..9 {
        source += &format!(
            "const char *kind_{number}(void) {{ return kind(); }}
             const char *constant_{number}(void) {{ return constant; }} int table_{number}(int i) {{ return table[i & 3]; }}\n"
        );
    }
    source += "int same(void) { return kind_0() == kind_4() && kind_4() == kind_8() && kind() == kind_8(); }
               int same_constant(void) { return constant_0() == constant_8() && of_constant() == constant_4() && *(const char *const volatile *)&constant == constant_2(); }
               int digits(void) { return table_0(0) * 1000 + table_3(1) * 100 + table_5(2) * 10 + table_8(3); }";
    let source = bitcode("text", &source);
    for policy in POLICIES {
        let jit = jit(policy, 2);
        jit.add_ir(source.clone()).expect("new");
        assert_eq!(
            [call(&jit, "same"), call(&jit, "same_constant"), call(&jit, "digits")],
            [1, 1, 3141],
            "{policy:?}"
        );
    }
}

/// Functions that are inlined everywhere are nobody's elsewhere, and what refers to nobody may be in code that nothing calls.
#[test]
fn what_no_program_has_to_define_is_not_missed_in_parts() {
    let always = "extern inline __attribute__((gnu_inline, always_inline)) int";
    let mut source = format!("extern int nobody(void); {always} step_0(int x) {{ return x + 1; }}\n");
    for number in 1..9 {
        let before = number - 1;
        source += &format!("{always} step_{number}(int x) {{ return step_{before}(x) + 1; }}\n");
    }
    source += "static int never(int x) { return nobody() + x; }
               static int is_on(void) { return 0; }\n";
    for number in 0..9 {
        source += &format!(
            "int f_{number}(int x) {{ return is_on() ? never(x) : step_{number}(x); }} int g_{number}(void) {{ return f_{number}(0); }}\n"
        );
    }
    let source = bitcode("nobody", &source);
    for policy in POLICIES {
        let jit = jit(policy, 2);
        jit.add_ir(source.clone()).expect("new");
        assert_eq!([call(&jit, "g_0"), call(&jit, "g_8")], [1, 9], "{policy:?}");
    }
}

#[test]
fn an_error_in_a_part_is_the_modules() {
    let mut source = String::from("int f_0(void) { __asm__(\"no such instruction\"); return 1; }\n");
    (1..9).for_each(|number| source += &format!("int f_{number}(void) {{ return {number}; }}\n"));
    let source = bitcode("wrong", &source);
    for policy in POLICIES {
        let jit = jit(policy, 2);
        jit.add_ir(source.clone()).expect("new");
        let error = WithCauses(&jit.lookup("f_5").expect_err("a part is wrong")).to_string();
        assert!(
            error.contains("wrong: cannot generate code") && error.contains("no such instruction"),
            "{error}"
        );
    }
}

/// An edit of one function leaves the parts of the others as they were: their objects need not be compiled again.
#[test]
fn an_edit_changes_one_part_of_an_early_partition() {
    let object = |source: &str| {
        let early = Partition::new(PartitionPolicy::Early, 8).of_all_modules();
        let compiler = IrCompiler::host(OptimizationLevel::O2).expect("host").with_partition(early);
        compiler
            .compile(ThreadSafeModule::parse(&bitcode("edited", source)).expect("valid IR"))
            .expect("compiles")
    };
    let source = shares_its_own("f", 100);
    // With a text of its own, and of what others share nothing that was not shared before.
    let edit = "int f_7(void) { int sum = 0; for (int i = 0; i < 9; i++) sum += names[i & 1][i & 3] * \"edited\"[i % 6]; return sum; }";
    let edited: Vec<&str> =
        source.lines().map(|line| if line.starts_with("int f_7(") { edit } else { line }).collect();
    let (before, after) = (object(&source), object(&edited.join("\n")));
    let apart = |object| parts(object).expect("divided").expect("an archive");
    let (before, after) = (apart(&before), apart(&after));
    let changed = before.iter().zip(&after).filter(|(before, after)| before != after).count();
    assert_eq!((before.len(), after.len(), changed), (8, 8, 1));
}
