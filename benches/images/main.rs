//! From a file to the return of its first function: an image, a package, and a shared library. Which units of a package are right. Code instances.
//!
//! ```text
//! cargo bench --bench images [-- FILE.uim FUNCTION]
//! ```
//!
//! The program has 10,000 functions in 100 files, a table of pointers to them, and variables. A FILE is an image of your own, whose FUNCTION
//! takes nothing. Medians; *written* are the pages of the mapped file that this process has copies of.

#![expect(clippy::print_stdout, reason = "a bench reports on stdout")]

use std::ffi::{CString, c_char, c_int, c_void};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use uruk::core::ExecutorAddr;
use uruk::instances::{CodeInstanceTable, CodeSignature, InstanceClaim, World};
use uruk::pipeline::arch::{ProcessorLevel, ProcessorTarget};
use uruk::pipeline::image::{
    BuiltInstance, BuiltUnit, ImageReader, Rejection, UnitKey, Validation, link_image, package,
};
use uruk::pipeline::object::ObjectBuffer;
use uruk::pipeline::tiers::CallCounting;
use uruk::{EmitForm, ImageBuilder, ImageOptions, InstanceDefinitions, InstanceOrigin, Jit, JitBuilder};

const ROUNDS: usize = 21;
const FILES: usize = 100;
const FUNCTIONS: usize = 100;

fn main() {
    let mut arguments = std::env::args().skip(1).filter(|argument| argument != "--bench");
    // Under `cargo test --benches` it is only built, and measures nothing.
    if std::env::args().any(|argument| argument == "--test") {
        return;
    }
    if let (Some(file), Some(function)) = (arguments.next(), arguments.next()) {
        return image("your image", Path::new(&file), &function);
    }
    let directory = std::env::temp_dir().join(format!("uruk-bench-images-{}", std::process::id()));
    fs::create_dir_all(&directory).expect("the temporary directory is writable");
    let objects = objects(&directory);
    let [whole, units, library] = ["whole.uim", "units.uim", "library.so"].map(|name| directory.join(name));
    build("build one whole", &objects, &whole, |builder| builder);
    build("build a package", &objects, &units, ImageBuilder::package);
    compile(&directory.join("compiled.uim"));
    run(Command::new("cc").args(["-shared", "-o"]).arg(&library).args(&objects));
    image("image, one whole", &whole, "f_50_7");
    image("image, a package of 100 units", &units, "f_50_7");
    dlopen(&library, "f_50_7");
    validation(&directory);
    instances(&directory);
    fs::remove_dir_all(&directory).expect("it is ours");
}

fn objects(directory: &Path) -> Vec<PathBuf> {
    let object = |file: usize| {
        let (source, object) = (directory.join(format!("{file}.c")), directory.join(format!("{file}.o")));
        let mut text = String::new();
        for function in 0..FUNCTIONS {
            let callee = (file + 1) % FILES;
            text += &format!(
                "extern int f_{callee}_{function}(int); int v_{file}_{function} = {function};
                 int f_{file}_{function}(int x) {{ return x ? f_{callee}_{function}(x - 1) : v_{file}_{function}++; }}\n"
            );
        }
        let names: Vec<_> = (0..FUNCTIONS).map(|function| format!("f_{file}_{function}")).collect();
        text += &format!("int (*const table_{file}[])(int) = {{{}}};", names.join(", "));
        fs::write(&source, text).expect("the directory is writable");
        run(Command::new("cc").args(["-O1", "-fPIC", "-c"]).arg(&source).arg("-o").arg(&object));
        object
    };
    (0..FILES).map(object).collect()
}

fn run(command: &mut Command) {
    assert!(command.status().expect("there is a C compiler").success());
}

fn build(what: &str, objects: &[PathBuf], path: &Path, kind: fn(ImageBuilder) -> ImageBuilder) {
    let begin = Instant::now();
    let builder = kind(ImageBuilder::new(Jit::builder().threads(1)).expect("an engine for this machine"));
    for object in objects {
        builder.add_object(ObjectBuffer::open(object).expect("it is there")).expect("the names are new");
    }
    let image = builder.build().expect("it links");
    image.write(path).expect("the directory is writable");
    println!("{what:<40} {:>8} us, {} bytes", begin.elapsed().as_micros(), image.bytes().len());
}

/// How much of a build from LLVM IR is not LLVM's: the same objects are linked and written once more.
fn compile(path: &Path) {
    let text = |file: usize| {
        let callee = (file + 1) % FILES;
        let function = |function: usize| {
            format!(
                "@v_{file}_{function} = global i32 {function}
                 declare i32 @f_{callee}_{function}(i32)
                 define i32 @f_{file}_{function}(i32 %x) {{
                   %more = icmp ne i32 %x, 0
                   br i1 %more, label %call, label %count
                 call:
                   %less = sub i32 %x, 1
                   %called = call i32 @f_{callee}_{function}(i32 %less)
                   ret i32 %called
                 count:
                   %value = load i32, ptr @v_{file}_{function}
                   %next = add i32 %value, 1
                   store i32 %next, ptr @v_{file}_{function}
                   ret i32 %value }}\n"
            )
        };
        (0..FUNCTIONS).map(function).collect::<String>()
    };
    let builder = || ImageBuilder::new(Jit::builder().threads(1)).expect("an engine for this machine");
    let filled = |builder: ImageBuilder| {
        for file in 0..FILES {
            builder.add_ir_text(&format!("{file}.ll"), &text(file)).expect("the names are new");
        }
        builder
    };
    let with_text = || filled(builder());
    let (all, begin) = (with_text(), Instant::now());
    all.build().and_then(|image| image.write(path)).expect("it links");
    let total = begin.elapsed();
    let objects = with_text().emit(EmitForm::Objects).expect("it compiles");
    let links = builder();
    for (number, object) in objects.members().enumerate() {
        links
            .add_object(ObjectBuffer::new(format!("{number}.o"), object.to_vec()))
            .expect("the names are new");
    }
    let begin = Instant::now();
    links.build().and_then(|image| image.write(path)).expect("it links");
    let link = begin.elapsed();
    let percent = 100.0 * link.as_secs_f64() / total.as_secs_f64();
    println!("{:<40} {:>8} us from LLVM IR", "build one whole", total.as_micros());
    println!("{:<40} {:>8} us of it link and write, {percent:.2} %", "", link.as_micros());
    let units = filled(builder().package());
    units.build().and_then(|image| image.write(path)).expect("it links");
    image("package from LLVM IR", path, "f_50_7");
    // With stubs before the functions of each unit.
    let tiered = || Jit::builder().tiers(CallCounting::new());
    image_in(tiered, "package from LLVM IR, in tiers", path, "f_50_7");
}

fn image(what: &str, path: &Path, function: &str) {
    image_in(Jit::builder, what, path, function);
}

fn image_in(builder: fn() -> JitBuilder, what: &str, path: &Path, function: &str) {
    let mut written = 0;
    let row = |_| {
        let jit = builder().threads(0).build().expect("an engine for this machine");
        let begin = Instant::now();
        jit.load_image(path, ImageOptions::new()).expect("it is whole");
        // SAFETY: that is the signature of the functions here; one of a caller's own takes nothing.
        let function = unsafe { jit.get::<extern "C" fn(c_int) -> c_int>(function) }.expect("it is there");
        std::hint::black_box(function(0));
        let elapsed = begin.elapsed();
        written = written_pages(path);
        elapsed
    };
    report(what, (0..ROUNDS).map(row).collect());
    println!("{:<40} {written:>8} pages written", "");
}

fn dlopen(path: &Path, function: &str) {
    // SAFETY: the C library has them, with these types.
    unsafe extern "C" {
        fn dlopen(path: *const c_char, flags: c_int) -> *mut c_void;
        fn dlsym(library: *mut c_void, name: *const c_char) -> *mut c_void;
        fn dlclose(library: *mut c_void) -> c_int;
    }
    const NOW: c_int = 2;
    let function = CString::new(function).expect("it has no zeros");
    let file = CString::new(path.display().to_string()).expect("it has no zeros");
    let row = |_| {
        let begin = Instant::now();
        // SAFETY: the file is the library that was just linked, and nothing of it is used after it is closed.
        unsafe {
            let library = dlopen(file.as_ptr(), NOW);
            let address = dlsym(library, function.as_ptr());
            assert!(!address.is_null());
            let function = std::mem::transmute::<*mut c_void, extern "C" fn(c_int) -> c_int>(address);
            std::hint::black_box(function(0));
            let elapsed = begin.elapsed();
            dlclose(library);
            elapsed
        }
    };
    report("dlopen NOW, all exported", (0..ROUNDS).map(row).collect());
}

fn report(what: &str, mut times: Vec<Duration>) {
    times.sort_unstable();
    println!("{what:<40} {:>8} us to the return of the first call", times[times.len() / 2].as_micros());
}

/// The private dirty pages of the mappings of a file.
fn written_pages(path: &Path) -> u64 {
    let maps = fs::read_to_string("/proc/self/smaps").expect("Linux has it");
    let name = path.display().to_string();
    let (mut is_of_file, mut kibibytes) = (false, 0);
    for line in maps.lines() {
        let first = line.split_whitespace().next().unwrap_or_default();
        if first.contains('-') {
            is_of_file = line.ends_with(&name);
        } else if first == "Private_Dirty:" && is_of_file {
            kibibytes +=
                line.split_whitespace().nth(1).and_then(|size| size.parse::<u64>().ok()).unwrap_or(0);
        }
    }
    kibibytes / 4
}

/// Units whose code contains that of four earlier ones each: how long it takes to find that they are right, and which contain a redefined one.
fn validation(directory: &Path) {
    const UNITS: usize = 10_000;
    const CONTAINED: usize = 4;
    let reader = reader_of_units(directory, UNITS, CONTAINED);
    let known = |_: &str| None;
    let mut all: Vec<Duration> = (0..ROUNDS)
        .map(|_| {
            let mut validation = Validation::new(&reader);
            let begin = Instant::now();
            assert!((0..UNITS as u32).all(|unit| validation.check(&reader, unit, &known).is_ok()));
            begin.elapsed()
        })
        .collect();
    all.sort_unstable();
    let all = all[ROUNDS / 2];
    println!("{:<40} {:>8} us", "validate 10,000 units", all.as_micros());
    println!("{:<40} {:>8} ns, of them", "validate one unit", (all / UNITS as u32).as_nanos());
    let redefine = |definition: &str, validation: &mut Validation| {
        let reason = Rejection::Redefined { definition: definition.into() };
        let begin = Instant::now();
        let closure = validation.closure_of(&reader, definition);
        validation.reject_all(&closure, &reason);
        (begin.elapsed(), closure.len())
    };
    for (what, definition, is_later) in [
        ("redefine the last unit, the first time", UNITS - 1, false),
        ("redefine the last unit, later", UNITS - 1, true),
        ("redefine unit 5,000, later", UNITS / 2, true),
        ("redefine the first unit, later", 0, true),
    ] {
        let row = |_| {
            let mut validation = Validation::new(&reader);
            if is_later {
                validation.closure_of(&reader, "f000000");
            }
            redefine(&name_of_unit(definition), &mut validation)
        };
        let mut rows: Vec<_> = (0..ROUNDS).map(row).collect();
        rows.sort_unstable();
        let (time, ended) = rows[ROUNDS / 2];
        println!("{what:<40} {:>8} us, {ended} units end", time.as_micros());
    }
}

fn name_of_unit(number: usize) -> String {
    format!("f{number:06}")
}

fn reader_of_units(directory: &Path, units: usize, contained: usize) -> ImageReader {
    let (source, object) = (directory.join("unit.c"), directory.join("unit.o"));
    let name = name_of_unit(0);
    fs::write(&source, format!("int {name}(void) {{ return 1; }}")).expect("the directory is writable");
    run(Command::new("cc").args(["-O1", "-fPIC", "-c"]).arg(&source).arg("-o").arg(&object));
    let object = fs::read(object).expect("it is there");
    let at =
        object.windows(name.len()).position(|window| window == name.as_bytes()).expect("it has the name");
    let target: ProcessorTarget = ProcessorLevel::V1.into();
    let mut random = 1_u64;
    let built = (0..units).map(|number| {
        let (mut object, name) = (object.clone(), name_of_unit(number));
        object[at..at + name.len()].copy_from_slice(name.as_bytes());
        let object = ObjectBuffer::new(&*name, object);
        let image =
            link_image(&[object], &|_| false, &|_| None, std::slice::from_ref(&target), 0).expect("it links");
        let mut unit = BuiltUnit::new(&*name, &image, vec![(name.clone().into(), [1; 32])], Vec::new());
        for _ in 0..contained.min(number) {
            // Any numbers do. These are the same each time.
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            unit.assume(name_of_unit((random >> 33) as usize % number), [1; 32]);
        }
        unit
    });
    let bytes = package(built.collect(), &target).to_bytes();
    ImageReader::of_bytes(Path::new("units.uim"), &bytes).expect("it is whole")
}

/// A host whose definitions are all as they were.
struct Unchanged;

impl InstanceDefinitions<u32, u8> for Unchanged {
    fn ids(&self, method: &[u8], _: &[u8]) -> Option<(u32, u8)> {
        Some((u32::from_le_bytes(method.try_into().ok()?), 0))
    }

    fn key(&self, _: u32, _: u8, _: World) -> Option<UnitKey> {
        Some([1; 32])
    }
}

/// Code instances that assume their own definition and that of another method: what loading them costs, and the first use of one.
fn instances(directory: &Path) {
    const METHODS: u32 = 10_000;
    let path = directory.join("instances.uim");
    let builder = ImageBuilder::new(Jit::builder().threads(1)).expect("an engine for this machine");
    let text =
        "define i64 @code(i64 %x) { ret i64 %x } define ptr @entry(ptr %i, ptr %x, i64 %n) { ret ptr %x }";
    builder.add_ir_text("instances.ll", text).expect("the names are new");
    for method in 0..METHODS {
        let instance = BuiltInstance::new(method.to_le_bytes(), [0], "entry")
            .specptr("code", CodeSignature::Specialized)
            .assumes(method.to_le_bytes(), [0], [1; 32])
            .assumes((method | 1).to_le_bytes(), [0], [1; 32]);
        builder.instance(instance).expect("it is new");
    }
    builder.build().and_then(|image| image.write(&path)).expect("it links");
    let (mut loads, mut uses) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let jit = Jit::builder().threads(0).build().expect("an engine for this machine");
        let begin = Instant::now();
        let image = jit.load_image(&path, ImageOptions::new()).expect("it is whole");
        loads.push(begin.elapsed());
        let table = CodeInstanceTable::<u32, u8, ExecutorAddr>::new();
        for method in 0..METHODS {
            let begin = Instant::now();
            let claim = table.claim_or_restore(method, 0, table.world(), |compile| {
                let restored = jit.restore_instance(&image, compile, &method.to_le_bytes(), &[0], &Unchanged);
                assert_eq!(restored.expect("its code is there"), InstanceOrigin::Image);
            });
            uses.push(begin.elapsed());
            assert!(!matches!(claim, InstanceClaim::Compile(_)));
        }
    }
    loads.sort_unstable();
    uses.sort_unstable();
    println!("{:<40} {:>8} us", "load 10,000 code instances", loads[loads.len() / 2].as_micros());
    println!("{:<40} {:>8} ns", "first use of a code instance", uses[uses.len() / 2].as_nanos());
}
