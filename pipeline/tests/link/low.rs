//! Objects built without position-independent code, which hold addresses in 32 bits: they are placed below 2 GiB, and
//! so is what they refer to, or something that stands for it.
//!
//! Such an object was once refused as soon as it referred to anything, itself included.

use std::process::Command;
use std::sync::Arc;

use crate::link_support::*;
use uruk_core::{ExecutionSession, JitDylib, JitDylibLookupFlags, LookupError, ResourceTracker, SymbolFlags};
use uruk_pipeline::linking::ObjectLinkingLayer;
use uruk_pipeline::memory::{InProcessMemoryManager, MemoryManager};
use uruk_pipeline::object::ObjectLayer;
use uruk_pipeline::object::{ObjectBuffer, ObjectMaterializationUnit};
use uruk_pipeline::platform::Platform;
use uruk_pipeline::runtime::in_process::InProcessExecutor;
use uruk_pipeline::runtime::process::{ProcessSymbols, ProcessSymbolsGenerator};

const FIXED: &[&str] = &["-fno-pic", "-fno-pie", "-O1"];
const LOW_END: u64 = 1 << 31;

/// A session with the C library behind it.
struct Linking {
    session: ExecutionSession,
    dylib: JitDylib,
    layer: Arc<ObjectLinkingLayer>,
    memory: Arc<InProcessMemoryManager>,
}

impl Linking {
    fn new() -> Self {
        Self::with(ProcessSymbols::new())
    }

    fn with(symbols: ProcessSymbols) -> Self {
        let session = ExecutionSession::new();
        let dylib = session.create_jit_dylib("main").expect("new");
        let libraries = session.create_jit_dylib("libraries").expect("new");
        let memory = Arc::new(InProcessMemoryManager::new().expect("address space"));
        let layer = Arc::new(ObjectLinkingLayer::new(
            Arc::new(InProcessExecutor::new(memory.clone())),
            Arc::new(Platform::new()),
        ));
        let low = layer.low_addresses().clone();
        let process = ProcessSymbolsGenerator::new(Arc::new(symbols))
            .adjusted_by(move |name, definition| low.of_process(name, definition));
        libraries.add_generator(Arc::new(process));
        let flags = JitDylibLookupFlags::MatchExportedSymbolsOnly;
        dylib.add_to_link_order(&libraries, flags).expect("open");
        Self { session, dylib, layer, memory }
    }

    fn add(&self, tool: Tool, source: &str, flags: &[&str]) -> ResourceTracker {
        let object = ObjectBuffer::new("object.o", compile(tool, "c", source, flags));
        let layer: Arc<dyn ObjectLayer> = self.layer.clone();
        let unit = ObjectMaterializationUnit::new(&self.session, layer, object).expect("an object");
        let tracker = self.dylib.create_tracker();
        self.dylib.define_with_tracker(Box::new(unit), &tracker).expect("new names");
        tracker
    }

    fn find(&self, name: &str) -> Result<u64, LookupError> {
        let symbol = self.session.intern(name);
        let found = self.session.lookup_symbol(&self.dylib.link_order(), &symbol)?;
        Ok(found.address.value())
    }

    fn run(&self) -> i64 {
        let address = self.find("run").unwrap_or_else(|error| panic!("{}", chain(&error)));
        // SAFETY: the tests call only functions of this signature, while they are linked.
        let run: extern "C" fn() -> i64 = unsafe { std::mem::transmute(address as *const u8) };
        run()
    }
}

const USES_ITSELF: &str = "
    static int twice(int x) { return 2 * x; }
    static int thrice(int x) { return 3 * x; }
    static int (*const table[])(int) = { twice, thrice };
    static int numbers[8] = { 1, 2, 3 };
    int zeroes[1000];
    volatile int which = 1;
    const char *name(int n) {
        switch (n) { case 0: return \"a\"; case 1: return \"bb\"; case 2: return \"ccc\"; case 3: return \"dddd\"; case 7: return \"eeeee\"; default: return \"\"; }
    }
    long run(void) {
        zeroes[which + 5] = numbers[which + 1];
        return table[which](zeroes[which + 5]) + name(which + 6)[0] * 100 + (((long)&zeroes | (long)run) >> 31) * 1000000;
    }";

#[test]
fn an_object_without_pic_uses_its_own_functions_tables_and_variables() {
    for tool in compilers() {
        let linking = Linking::new();
        let tracker = linking.add(tool, USES_ITSELF, FIXED);
        assert_eq!(linking.run(), 9 + 100 * i64::from(b'e'), "{tool:?}");
        let above = linking.memory.reserved_range();
        assert!(linking.memory.usage().reserved_bytes > above.end.value() - above.start.value());
        tracker.remove().expect("open");
        assert_eq!(linking.memory.usage().reserved_bytes, above.end.value() - above.start.value());
    }
}

const USES_OTHERS: &str = "
    #include <string.h>
    extern int variable; int function(int); int (*its_function(void))(int); size_t (*its_strlen(void))(const char *);
    static int (*const table[])(int) = { function };
    static size_t (*const lengths[])(const char *) = { strlen };
    volatile int zero;
    long run(void) {
        return table[zero](variable) + (function == its_function()) * 1000 + (strlen == its_strlen()) * 10000
            + (table[zero] == its_function()) * 100000 + (lengths[zero](\"four\") == 4) * 1000000 + ((long)function < 0x80000000) * 10000000;
    }";
const DEFINES: &str = "
    #include <string.h>
    int variable = 5;
    int function(int x) { return x + 1; }
    int (*its_function(void))(int) { return function; }
    size_t (*its_strlen(void))(const char *) { return strlen; }";

#[test]
fn functions_have_one_address_and_variables_are_reached_whatever_the_others_are_built_as() {
    for tool in compilers() {
        for others in [FIXED, &["-fPIE", "-O1"], &["-fPIC", "-O1"]] {
            for defined_first in [false, true] {
                let linking = Linking::new();
                let mut sources = [(USES_OTHERS, FIXED), (DEFINES, others)];
                if defined_first {
                    sources.reverse();
                }
                let _trackers = sources.map(|(source, flags)| linking.add(tool, source, flags));
                assert_eq!(linking.run(), 11_111_006, "{tool:?} {others:?} {defined_first}");
            }
        }
    }
}

/// An object of an executable reads the variables of another directly, whether that lies low or not.
#[test]
fn objects_of_executables_lie_beside_those_whose_variables_they_read() {
    for tool in compilers() {
        let linking = Linking::new();
        let _reads =
            linking.add(tool, "extern int values[]; long run(void) { return values[1]; }", &["-fPIE", "-O1"]);
        let own = "int values[] = { 1, 2 }; int *own(int n) { return &values[n]; }";
        let _owns = linking.add(tool, own, FIXED);
        assert_eq!(linking.run(), 2, "{tool:?}");
    }
}

const CALLS: &str = "int function(int); static int (*const table[])(int) = { function }; volatile int zero;
    long run(void) { return table[zero](3) + ((long)function < 0x80000000) * 100 + (table[zero] == function) * 1000; }";

/// Code that was linked before the first object without PIC stays in its place.
#[test]
fn a_function_that_lies_high_already_is_entered_below_and_the_entry_goes_with_its_last_user() {
    for tool in compilers() {
        let linking = Linking::new();
        let _high = linking.add(tool, DEFINES, &["-fPIC"]);
        assert!(linking.find("function").expect("linked") > LOW_END);
        let before = linking.memory.usage();
        for _ in 0..3 {
            let tracker = linking.add(tool, CALLS, FIXED);
            assert_eq!(linking.run(), 1104, "{tool:?}");
            // The object, and the entry.
            assert_eq!(linking.memory.usage().allocations, before.allocations + 2);
            tracker.remove().expect("open");
            assert_eq!(linking.memory.usage().allocations, before.allocations);
        }
    }
}

#[test]
fn a_variable_that_lies_high_already_is_an_error_that_says_what_to_do() {
    let linking = Linking::new();
    let _high = linking.add(CC, DEFINES, &["-fPIC"]);
    assert!(linking.find("variable").expect("linked") > LOW_END);
    let _low = linking.add(CC, "extern int variable; long run(void) { return (long)&variable; }", FIXED);
    let text = chain(&linking.find("run").unwrap_err());
    assert!(text.contains("`variable`") && text.contains("-fPIC"), "{text}");
}

const READS_LIBRARY: &str = "
    #include <stdlib.h>
    #include <time.h>
    extern long timezone, __timezone;
    // Compilers take names of others for different variables, so the addresses are compared when it runs.
    long *volatile names[] = { &timezone, &__timezone };
    long run(void) {
        setenv(\"TZ\", \"ABC+3\", 1); tzset();
        return timezone + (names[0] == names[1]) * 100000 + (__timezone == timezone) * 1000000;
    }";

/// Natively the program has a copy of such a variable that the library uses too; all of the variable's names are one.
#[test]
fn variables_of_libraries_move_below_while_that_is_allowed() {
    let refused = Linking::new();
    let _reads = refused.add(CC, READS_LIBRARY, FIXED);
    let text = chain(&refused.find("run").unwrap_err());
    assert!(text.contains("timezone`") && text.contains("-fPIC"), "{text}");

    for tool in compilers() {
        let linking = Linking::new();
        linking.layer.low_addresses().allow_copies(true);
        let _reads = linking.add(tool, READS_LIBRARY, FIXED);
        assert_eq!(linking.run(), 3 * 3600 + 1_100_000, "{tool:?}");
        // Variables that have moved have moved for the whole process, and stay found.
        linking.layer.low_addresses().allow_copies(false);
        let late = Linking::new();
        let _reads = late.add(tool, READS_LIBRARY, FIXED);
        assert_eq!(late.run(), 3 * 3600 + 1_100_000, "{tool:?}");
    }
}

/// A library's constants were taken for functions because they lay in the segment of its code, and the bytes of a jump
/// were read in their place.
#[test]
fn constants_that_lie_beside_a_librarys_code_are_read_and_not_entered() {
    let directory = std::env::temp_dir();
    let stem = format!("uruk-link-low-{}", std::process::id());
    let (source, library) = (directory.join(format!("{stem}.c")), directory.join(format!("{stem}.so")));
    std::fs::write(&source, "const int table[4] = { 10, 20, 30, 40 };").expect("writable");
    let mut make = Command::new(CC.0);
    make.args(["-shared", "-fPIC", "-Wl,-z,noseparate-code", "-o"]).args([&library, &source]);
    assert!(make.status().expect("a compiler").success());
    let symbols = ProcessSymbols::new();
    symbols.load_library(&library).expect("a library");
    let table = symbols.lookup("table").expect("the library has it");
    assert!(table.flags.contains(SymbolFlags::CALLABLE), "it lies beside the code");

    let reads =
        "extern const int table[]; volatile int two = 2; long run(void) { return table[two] + table[1]; }";
    let linking = Linking::with(symbols);
    let _early = linking.find("table").expect("the library has it");
    let _reads = linking.add(CC, reads, FIXED);
    let text = chain(&linking.find("run").unwrap_err());
    assert!(text.contains("`table`") && text.contains("-fPIC"), "found before anybody wanted it low: {text}");

    let symbols = ProcessSymbols::new();
    symbols.load_library(&library).expect("it is loaded");
    for file in [&source, &library] {
        std::fs::remove_file(file).expect("it is there");
    }
    let linking = Linking::with(symbols);
    linking.layer.low_addresses().allow_copies(true);
    let _reads = linking.add(CC, reads, FIXED);
    assert_eq!(linking.run(), 50);
}
