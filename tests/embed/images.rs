//! Images in engines: what is loaded, what it meets, and what becomes of it.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

use uruk::core::WithCauses;
use uruk::pipeline::arch::{Features, ProcessorLevel};
use uruk::pipeline::object::ObjectBuffer;
use uruk::{Image, ImageBuilder, ImageOptions, Jit, JitError, Scope};

use crate::support::{alone, alone_with, c, c_with, cpp, engine, is_alone};

type Answer = extern "C" fn() -> i32;

/// A file that goes with the test.
struct ImageOnDisk(PathBuf);

impl ImageOnDisk {
    fn of(objects: impl IntoIterator<Item = ObjectBuffer>) -> Self {
        Self::with(built(objects, 1).bytes())
    }

    fn with(bytes: &[u8]) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        // Relaxed: only the numbers must differ.
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("uruk-embed-{}-{number}.uim", std::process::id()));
        std::fs::write(&path, bytes).expect("the temporary directory is writable");
        Self(path)
    }

    fn load(&self, scope: &Scope) -> Result<(), JitError> {
        scope.load_image(&self.0, ImageOptions::new()).map(drop)
    }

    /// How many mappings of the file the process has.
    fn mappings(&self) -> usize {
        let maps = std::fs::read_to_string("/proc/self/maps").expect("there is one");
        let name = self.0.display().to_string();
        maps.lines().filter(|line| line.ends_with(&name)).count()
    }
}

impl Drop for ImageOnDisk {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn built(objects: impl IntoIterator<Item = ObjectBuffer>, threads: usize) -> Image {
    let builder = ImageBuilder::new(Jit::builder().threads(threads)).expect("an engine for this machine");
    for object in objects {
        builder.add_object(object).expect("the names are free");
    }
    builder.build().unwrap_or_else(|error| panic!("{}", WithCauses(&error)))
}

fn call(scope: &Scope, name: &str) -> i32 {
    // SAFETY: the sources here define functions of this signature alone.
    let function = unsafe { scope.get::<Answer>(name) };
    function.unwrap_or_else(|error| panic!("{name}: {}", WithCauses(&error)))()
}

fn error_of(image: &ImageOnDisk) -> String {
    let error = image.load(&engine(1)).expect_err("it is not to be loaded");
    WithCauses(&error).to_string()
}

/// Such code reads variables of libraries by distances. An image too large for the gaps between libraries lay below the memory for linked code, out of
/// reach. Where there are several engines, only the first has its memory near to libraries.
#[test]
fn an_image_of_objects_for_executables_runs_in_a_host_and_comes_again() {
    const NAME: &str = "images::an_image_of_objects_for_executables_runs_in_a_host_and_comes_again";
    const PLACE: &str = "URUK_TEST_IMAGE";
    let text =
        "#include <stdio.h>\nchar room[256 << 20]; int first(void) { return fileno(stdout) + room[7]++; }";
    let path = match std::env::var_os(PLACE) {
        Some(path) => PathBuf::from(path),
        // Another process loads it: one that has built it has had an engine.
        None if is_alone() => {
            let image = ImageOnDisk::of([c_with("executable.c", text, &["-O1", "-fPIE"])]);
            let path = image.0.display().to_string();
            let output = alone_with(NAME, &[(PLACE, &path)]);
            return assert!(output.status.success(), "{output:?}");
        }
        None => return assert!(alone(NAME).status.success()),
    };
    let jit = engine(1);
    for _ in 0..3 {
        let scope = jit.create_dylib("with it").expect("the name is free");
        let loaded = scope.load_image(&path, ImageOptions::new());
        loaded.unwrap_or_else(|error| panic!("{}", WithCauses(&error)));
        assert_eq!(call(&scope, "first"), 1);
        jit.remove_dylib(&scope).expect("nothing needs it");
    }
}

#[test]
fn an_image_runs_as_its_objects_would() {
    let main = "
        #include <stdio.h>
        extern __thread int local; extern int begun; int thrown(void), chosen(void); int weak(void);
        __attribute__((weak)) int absent(void);
        __attribute__((weak)) int weak(void) { return 1000; }
        int answer(void) { char text[8]; return local++ + begun + thrown() + chosen() + weak() + (absent ? absent() : 0) + snprintf(text, 8, \"%d\", 12); }";
    let other = "
        __thread int local = 1; int begun; int weak(void) { return 2000; }
        __attribute__((constructor)) static void begin(void) { begun = 10; }
        static int nine(void) { return 100; }
        static void *choose(void) { return (void *)nine; }
        int chosen(void) __attribute__((ifunc(\"choose\")));";
    let throws = "extern \"C\" int thrown() { try { throw 20000; } catch (int value) { return value; } }";
    let image = ImageOnDisk::of([c("main.o", main), c("other.o", other), cpp("throws.o", throws)]);
    let jit = engine(2);
    image.load(&jit).expect("it is whole");
    // SAFETY: its constructor stores a number.
    unsafe { jit.initialize() }.expect("it is linked");
    assert_eq!(call(&jit, "answer"), 22113);
    assert_eq!(call(&jit, "answer"), 22114, "the thread's variable goes on");
    let second = std::thread::scope(|scope| scope.spawn(|| call(&jit, "answer")).join().expect("it ends"));
    assert_eq!(second, 22113, "another thread has its own");
}

#[test]
fn references_meet_what_the_session_has_and_files_may_use_what_is_in_an_image() {
    let image = {
        let builder = ImageBuilder::new(Jit::builder().threads(1)).expect("an engine for this machine");
        builder.define("host", host as extern "C" fn() -> i32).expect("the name is free");
        builder
            .add_object(c(
                "uses.o",
                "int host(void); __thread int local = 5; int uses(void) { return host() + local; }",
            ))
            .expect("new");
        ImageOnDisk::with(builder.build().expect("it links").bytes())
    };
    extern "C" fn host() -> i32 {
        37
    }
    let jit = engine(1);
    image.load(&jit).expect("it is whole");
    let missing = jit.lookup("uses").expect_err("nothing defines `host`");
    assert!(WithCauses(&missing).to_string().contains("host"), "{}", WithCauses(&missing));

    let jit = engine(1);
    image.load(&jit).expect("it is whole");
    jit.define("host", host as extern "C" fn() -> i32).expect("the name is free");
    jit.add_object(c(
        "file.o",
        "int uses(void); extern __thread int local; int file(void) { local++; return uses(); }",
    ))
    .expect("new");
    assert_eq!(call(&jit, "file"), 43);
}

#[test]
fn an_image_goes_with_its_tracker_and_stays_for_its_handles() {
    let image = ImageOnDisk::of([c("counts.o", "int count; int next(void) { return ++count; }")]);
    let jit = engine(1);
    for round in 0..3 {
        let tracker = jit.create_tracker();
        image.load(&jit.in_tracker(&tracker)).expect("it is whole");
        assert_eq!(call(&jit, "next"), 1, "round {round} has data of its own");
        // SAFETY: that is its signature, and no pointer outlives the handle.
        let handle = unsafe { jit.get::<Answer>("next") }.expect("it is there");
        tracker.remove().expect("nothing objects");
        assert!(jit.lookup("next").is_err() && jit.lookup("count").is_err());
        assert_eq!((handle(), image.mappings() > 0), (2, true));
        drop(handle);
        assert_eq!(image.mappings(), 0);
    }
}

#[test]
fn two_engines_load_one_image_and_share_no_variable() {
    let image = ImageOnDisk::of([c(
        "counts.o",
        "int count = 1; int *where = &count; int next(void) { return ++*where; }",
    )]);
    let engines = [engine(1), engine(1)];
    engines.iter().for_each(|jit| image.load(jit).expect("it is whole"));
    let calls = [0, 1, 0, 0, 1].map(|engine: usize| call(&engines[engine], "next"));
    assert_eq!(calls, [2, 2, 3, 4, 3]);
    let twice = image.load(&engines[0]).expect_err("it is there already");
    assert!(matches!(twice, JitError::Define(_)), "{twice}");
}

#[test]
fn an_image_has_the_same_bytes_for_every_number_of_threads() {
    let objects = || {
        (0..20).map(|number| {
            let source =
                format!("int f{number}(void) {{ return {number}; }} int (*p{number})(void) = f{number};");
            c(&format!("f{number}.o"), &source)
        })
    };
    let one = built(objects(), 1);
    assert!([2, 7].iter().all(|&threads| built(objects(), threads).bytes() == one.bytes()));
}

/// The number of the unit was in the name of its object, and that in the image.
#[test]
fn a_second_build_of_tentative_definitions_gives_the_same_bytes() {
    let build = || {
        let tentative = "int first __attribute__((common)), second[4] __attribute__((common)); int sum(void) { return first + second[1]; }";
        built([c("tentative.o", tentative)], 1)
    };
    assert!(build().bytes() == build().bytes());
}

#[test]
fn a_file_that_is_not_to_be_trusted_is_refused_in_a_sentence() {
    use std::os::unix::fs::PermissionsExt as _;
    let whole = built([c("f.o", "int f(void) { return 1; }")], 1);
    let cut = ImageOnDisk::with(&whole.bytes()[..whole.bytes().len() - 1]);
    assert!(error_of(&cut).contains("it was cut off"), "{}", error_of(&cut));
    let mut bytes = whole.bytes().to_vec();
    bytes[600] ^= 1;
    let damaged = ImageOnDisk::with(&bytes);
    assert!(error_of(&damaged).contains("damaged (checksum)"), "{}", error_of(&damaged));
    let shared = ImageOnDisk::with(whole.bytes());
    std::fs::set_permissions(&shared.0, std::fs::Permissions::from_mode(0o664)).expect("it is ours");
    assert!(error_of(&shared).contains("others may write to it (mode 664)"), "{}", error_of(&shared));
    let other = ImageOnDisk::with(b"int main;");
    assert!(error_of(&other).contains("no image"), "{}", error_of(&other));
}

/// A level is what code may use. The instructions that it does use decide where it runs: julia#50102.
#[test]
fn an_image_needs_the_instructions_that_its_code_uses() {
    let build = |source: &str| {
        let jit = Jit::builder().threads(1);
        let builder = ImageBuilder::for_processors(ProcessorLevel::V3, jit).expect("an engine");
        builder.add_object(c("f.o", source)).expect("the name is free");
        builder.build().expect("it is whole").reader().expect("it is sound")
    };
    let plain = build("int f(void) { return 1; }");
    assert!(plain.best_target(Features::NONE).is_some());
    let wide = build(
        "typedef int v8 __attribute__((vector_size(32)));
         __attribute__((target(\"avx2\"))) void f(v8 *a, v8 *b) { *a = *a * *b; }",
    );
    let target = wide.targets().next().expect("one target");
    let used = Features::of_names(["avx", "avx2"]);
    assert_eq!((target.needs.features, target.needs.vector_bits), (used, 256));
    assert!(wide.best_target(Features::of_names(["avx", "sse4.2"])).is_none());
    assert!(wide.best_target(used).is_some());
}

/// The order of targets decided which was the base: julia#50148, julia#58952.
#[test]
fn targets_in_any_order_make_the_same_image() {
    let text = "
        @sum = global double 0.0
        declare double @llvm.fmuladd.f64(double, double, double)
        define double @rest(double %x, double %y) {
          %r = call double @llvm.fmuladd.f64(double %x, double %x, double %y)
          store double %r, ptr @sum
          ret double %r
        }
        define ptr @address() { ret ptr @rest }
        define i64 @plain(i64 %x) { %y = add i64 %x, 1 ret i64 %y }";
    let build = |targets: &str| {
        let builder = ImageBuilder::for_targets(targets, Jit::builder().threads(1)).expect("an engine");
        builder.add_ir_text("rest.ll", text).expect("the name is free");
        builder.build().unwrap_or_else(|error| panic!("{}", WithCauses(&error)))
    };
    let first = build("x86-64-v2;x86-64-v3;x86-64-v4");
    for targets in [
        "x86-64-v2;x86-64-v4;x86-64-v3",
        "x86-64-v3;x86-64-v2;x86-64-v4",
        "x86-64-v3;x86-64-v4,clone_hot;x86-64-v2",
        "x86-64-v4;x86-64-v2,clone_all;x86-64-v3",
        "x86-64-v4;x86-64-v3;x86-64-v2",
    ] {
        assert!(build(targets).bytes() == first.bytes(), "{targets}");
    }
    let reader = first.reader().expect("it is sound");
    let names: Vec<_> = reader.targets().map(|target| target.name.to_owned()).collect();
    assert_eq!(names, ["x86-64-v2", "x86-64-v3", "x86-64-v4"]);
    let best = |has: Features| reader.best_target(has).map(|(_, target)| target.name);
    assert_eq!(best(Features::NONE), Some("x86-64-v2"), "it uses nothing");
    assert_eq!(best(ProcessorLevel::V3.features()), Some("x86-64-v3"));
    // The code for the newer one is not better.
    assert_eq!(best(ProcessorLevel::V4.features()), Some("x86-64-v3"));
    let versions: Vec<_> = reader.symbols().filter(|symbol| symbol.name.contains('@')).collect();
    assert!(versions.iter().all(|version| version.name.starts_with("rest@")), "{versions:?}");

    let image = ImageOnDisk::with(first.bytes());
    let jit = engine(1);
    let loaded = jit.load_image(&image.0, ImageOptions::new()).expect("it is whole");
    assert_eq!(&*loaded.target(), best(Features::of_this_processor()).expect("it runs here"));
    // SAFETY: these are the functions' signatures.
    let (rest, address) = unsafe {
        let rest = jit.get::<extern "C" fn(f64, f64) -> f64>("rest");
        (rest.expect("it is there"), jit.get::<extern "C" fn() -> usize>("address").expect("it is there"))
    };
    let x = 1.0 + 1.0 / f64::from(1 << 30);
    let is_fused = &*loaded.target() == "x86-64-v3";
    let expected = if is_fused { x.mul_add(x, -(x * x)) } else { 0.0 };
    assert_eq!(rest(x, -(x * x)), expected);
    assert_eq!(
        address(),
        jit.lookup("rest").expect("it is there").address.value() as usize,
        "a function has one address"
    );
}

#[test]
fn what_is_undefined_is_told_when_the_image_is_built() {
    let builder = ImageBuilder::new(Jit::builder().threads(1)).expect("an engine for this machine");
    builder
        .add_object(c("needs.o", "int nowhere(void); int needs(void) { return nowhere(); }"))
        .expect("new");
    let error = builder.build().expect_err("it is undefined");
    let text = WithCauses(&error).to_string();
    assert!(text.contains("nowhere") && text.contains("needs"), "{text}");
}
