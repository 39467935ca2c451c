//! The symbols that a module promises before it is compiled are those that its object defines.

use uruk_core::SymbolFlags;
use uruk_pipeline::ir::{ModuleInterface, OptimizationPipeline, ThreadSafeModule};
use uruk_pipeline::object::{ObjectBuffer, ObjectInterface};

use super::{KINDS, Symbols, bitcode, compiler, defined, parse, target};
use crate::support::Scratch;

/// The symbols of a module as its IR promises them and as its object defines them, by name.
fn interface_and_object(source: &ObjectBuffer) -> (Symbols, Symbols) {
    let target = target();
    let of_bitcode = ModuleInterface::of_bitcode(source, &target).expect("valid");
    let module = ThreadSafeModule::parse(source).expect("valid IR");
    let of_module = ModuleInterface::of_module(&module, &target).expect("valid");
    assert_eq!(of_bitcode, of_module, "read lazily and whole");
    let mut promised: Vec<_> =
        of_module.symbols.iter().map(|symbol| (symbol.name.to_string(), symbol.flags)).collect();
    promised.sort_by(|left, right| left.0.cmp(&right.0));
    let object = compiler(OptimizationPipeline::none()).compile(module).expect("compiles");
    (promised, defined(&object))
}

#[test]
fn what_a_c_module_promises_is_what_its_object_defines() {
    let scratch = Scratch::new("promises-c");
    for flags in [["-O0", "-fcommon"], ["-O2", "-fcommon"]] {
        let source = bitcode(&scratch, "kinds.c", KINDS, &flags);
        let (promised, defined) = interface_and_object(&source);
        assert_eq!(promised, defined);
        let names: Vec<_> = promised.iter().map(|(name, _)| name.as_str()).collect();
        for name in ["bare", "maybe", "verbatim name", "other_name", "other_data", "chosen", "tentative"] {
            assert!(names.contains(&name), "{name} in {names:?}");
        }
        for name in ["local", "quiet", "needed", "hidden_away"] {
            assert!(!names.contains(&name), "{name} in {names:?}");
        }
    }
}

const CXX: &str = "
    #include <stdexcept>
    inline int &counter() { static int count = 0; return ++count; }
    template <class T> struct Box { static T value; virtual T get() { return value; } virtual ~Box() {} };
    template <class T> T Box<T>::value;
    inline int inlined = counter();
    thread_local int per_thread = counter();
    struct Base { Base(int); virtual ~Base(); }; struct S : virtual Base { S(); ~S(); };
    S::S() : Base(1) {} S::~S() {}
    int use(Base *b) { try { if (!b) throw std::runtime_error(\"none\"); return counter() + Box<int>().get() + per_thread; }
                       catch (std::exception &) { return dynamic_cast<S *>(b) != nullptr; } }";

#[test]
fn what_a_cxx_module_promises_is_defined_by_its_object() {
    let scratch = Scratch::new("promises-cxx");
    for flags in ["-O0", "-O2"] {
        let source = bitcode(&scratch, "cxx.cpp", CXX, &["-std=c++17", flags]);
        let (promised, defined) = interface_and_object(&source);
        for symbol in &promised {
            assert!(defined.contains(symbol), "{flags}: {symbol:?} in {defined:?}");
        }
        // Code generation adds the personality's and nothing else.
        let added: Vec<_> = defined.iter().filter(|symbol| !promised.contains(symbol)).collect();
        assert!(
            added
                .iter()
                .all(|(name, flags)| name.starts_with("DW.ref.") && !flags.contains(SymbolFlags::EXPORTED)),
            "{added:?}"
        );
    }
}

#[test]
fn initializers_of_a_module_are_seen_in_ir_and_in_assembly() {
    let scratch = Scratch::new("ir-init");
    for (source, expected) in [
        ("__attribute__((constructor)) void f(void) {}", (true, false)),
        ("__attribute__((destructor)) void f(void) {}", (false, true)),
        ("__attribute__((section(\".init_array.7\"), used)) static void *p = 0;", (true, false)),
        ("__attribute__((section(\".dtors\"), used)) static void *p = 0;", (false, true)),
        ("__asm__(\".section .init_array,\\\"aw\\\"\\n.quad 0\\n\");", (true, false)),
        ("int nothing;", (false, false)),
    ] {
        let source_bitcode = bitcode(&scratch, "init.c", source, &[]);
        let interface = ModuleInterface::of_bitcode(&source_bitcode, &target()).expect("valid");
        assert_eq!((interface.has_initializers, interface.has_finalizers), expected, "{source}");
    }
}

/// A program is told what is missing in a file that it does not compile.
#[test]
fn what_a_module_refers_to_is_known_before_it_is_compiled() {
    let text = "
        extern int number, missing(int), (*const table)(int); extern _Thread_local int slot;
        __attribute__((weak)) extern int optional(void);
        __attribute__((noinline)) inline int copied(int x) { return missing(x) + 1; }
        static int own(int x) { return copied(x) + number + slot + __builtin_popcount(x); }
        int (*taken)(int) = missing; int used(int x) { return optional ? own(x) : table(x); }";
    let scratch = Scratch::new("ir-undefined");
    for flags in ["-O0", "-O2"] {
        let source = bitcode(&scratch, "refers.c", text, &[flags]);
        let interface = ModuleInterface::of_bitcode(&source, &target()).expect("valid");
        let mut undefined: Vec<_> = interface.undefined.iter().map(|name| &**name).collect();
        undefined.sort_unstable();
        assert_eq!(undefined, ["copied", "missing", "number", "slot", "table"], "{flags}");
        let module = ThreadSafeModule::parse(&source).expect("valid IR");
        let object = compiler(OptimizationPipeline::none()).compile(module).expect("compiles");
        let object = ObjectInterface::read(&object).expect("an object");
        let needed = object.undefined.iter().filter(|symbol| !symbol.weak).map(|symbol| symbol.name);
        for name in needed.filter(|name| !["_GLOBAL_OFFSET_TABLE_", "__tls_get_addr"].contains(name)) {
            assert!(undefined.contains(&name), "{flags}: {name}");
        }
    }
}

#[test]
fn a_module_is_passive_unless_it_does_something_by_being_there() {
    let scratch = Scratch::new("ir-passive");
    for (source, passive) in [
        (
            "int value = 1; int other(void); int function(void) { static int count; return count++ + other(); }",
            true,
        ),
        ("int values[100]; __attribute__((weak)) int weak(void) { return 1; }", true),
        ("__attribute__((constructor)) void f(void) {}", false),
        ("__attribute__((destructor)) void f(void) {}", false),
        ("static __thread int count; int next(void) { return count++; }", false),
        ("extern __thread int count; int next(void) { return count++; }", true),
        ("__attribute__((section(\"listed\"), used)) static int entry = 1;", false),
        ("extern int __start_listed; int first(void) { return __start_listed; }", false),
        ("__attribute__((common)) int tentative;", false),
    ] {
        let of_bitcode = bitcode(&scratch, "passive.c", source, &[]);
        let interface = ModuleInterface::of_bitcode(&of_bitcode, &target()).expect("valid");
        assert_eq!(interface.is_passive(), passive, "{source}");
        let module = ThreadSafeModule::parse(&of_bitcode).expect("valid IR");
        let object = compiler(OptimizationPipeline::none()).compile(module).expect("compiles");
        let object = ObjectInterface::read(&object).expect("an object");
        assert_eq!(object.is_passive(), passive, "the object of {source}");
    }
    let assembly = bitcode(&scratch, "assembly.c", "__asm__(\".globl f\\nf: ret\");", &[]);
    assert!(!ModuleInterface::of_bitcode(&assembly, &target()).expect("valid").is_passive());
}

#[test]
fn names_kept_to_itself_and_mere_copies_are_not_promised() {
    let source = "
        @llvm.used = appending global [1 x ptr] [ptr @kept], section \"llvm.metadata\"
        @kept = internal global i32 1
        @private = private constant i32 2
        @0 = global i32 3
        define available_externally i32 @copy() { ret i32 1 }
        define linkonce_odr i32 @once() { ret i32 1 }
        define i32 @mine() { ret i32 1 }";
    let interface = ModuleInterface::of_module(&parse(source), &target()).expect("valid");
    let names: Vec<_> = interface.symbols.iter().map(|symbol| &*symbol.name).collect();
    assert_eq!(names, ["once", "mine"]);
    assert_eq!(interface.symbols[0].flags, SymbolFlags::EXPORTED | SymbolFlags::CALLABLE | SymbolFlags::WEAK);
}

const RUST: &str = "
    use std::cell::RefCell;
    thread_local! { static LOG: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) }; }
    pub static TABLE: [u8; 3] = [1, 2, 3];
    #[unsafe(no_mangle)] pub extern \"C\" fn entry(count: usize) -> usize {
        let caught = std::panic::catch_unwind(|| { if count > 2 { panic!(\"{count}\") } });
        LOG.with_borrow_mut(|log| { log.push(format!(\"{count} {}\", caught.is_ok())); log.len() })
    }
    core::arch::global_asm!(\".globl from_rust_assembly\", \".type from_rust_assembly,@function\", \"from_rust_assembly: ret\");";

#[test]
fn what_a_rust_module_promises_is_defined_by_its_object() {
    let scratch = Scratch::new("promises-rust");
    let source = scratch.write("lib.rs", RUST);
    for level in ["0", "2"] {
        let output = scratch.path("lib.bc");
        crate::support::run(
            std::process::Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()))
                .args(["--crate-type=lib", "--edition=2024", "--emit=llvm-bc", "-Ccodegen-units=1"])
                .arg(format!("-Copt-level={level}"))
                .arg("-o")
                .arg(&output)
                .arg(&source),
        );
        let (promised, defined) = interface_and_object(&crate::support::open(&output));
        for name in ["entry", "from_rust_assembly"] {
            let flags = promised.iter().find(|symbol| symbol.0 == name).map(|symbol| symbol.1);
            assert_eq!(flags, Some(SymbolFlags::EXPORTED | SymbolFlags::CALLABLE), "{name}");
        }
        for symbol in &promised {
            assert!(defined.contains(symbol), "opt-level {level}: {symbol:?} in {defined:?}");
        }
    }
}

#[test]
fn multiversioned_functions_are_promised_under_their_common_name() {
    let scratch = Scratch::new("clones");
    let source = "__attribute__((target_clones(\"avx2\", \"default\"))) int sum(const int *v, int n) \
                  { int s = 0; for (int i = 0; i < n; i++) s += v[i]; return s; }";
    let (promised, defined) = interface_and_object(&bitcode(&scratch, "clones.c", source, &["-O2"]));
    assert!(promised.iter().any(|symbol| symbol.0 == "sum"), "{promised:?}");
    for symbol in &promised {
        assert!(defined.contains(symbol), "{symbol:?} in {defined:?}");
    }
}

#[test]
fn assembly_may_give_further_names_to_what_ir_defines() {
    let scratch = Scratch::new("further-names");
    let source = "
        int function(int x) { return x + 1; }
        __attribute__((used)) static int variable = 3;
        __thread int per_thread = 4;
        __asm__(\".symver function, versioned@V1\");
        __asm__(\".globl again\\n.set again, function\\n.globl published\\npublished = variable\");
        __asm__(\".globl thread_again\\n.set thread_again, per_thread\");";
    let (promised, defined) = interface_and_object(&bitcode(&scratch, "names.c", source, &["-O1"]));
    assert_eq!(promised, defined);
    let names: Vec<_> = promised.iter().map(|symbol| symbol.0.as_str()).collect();
    assert_eq!(names, ["again", "function", "per_thread", "published", "thread_again", "versioned@V1"]);
}
