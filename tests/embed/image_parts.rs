//! The parts that a host adds to images: sections of bytes, and images that are built on others.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use uruk::core::WithCauses;
use uruk::pipeline::image::{HostPartError, ImageFile, seal};
use uruk::pipeline::object::ObjectBuffer;
use uruk::{ImageBuilder, ImageOptions, Jit, JitError, LoadedImage, Scope};

use crate::support::{c, engine};

type Answer = extern "C" fn() -> i32;

/// A directory for images that goes with the test.
struct Images(PathBuf);

impl Images {
    fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        // Relaxed: only the numbers must differ.
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("uruk-image-parts-{}-{number}", std::process::id()));
        std::fs::create_dir(&path).expect("the temporary directory is writable");
        Self(path)
    }

    /// Builds an image of a source in C, on others.
    fn build(&self, name: &str, source: &str, on: &[&Path], is_package: bool) -> PathBuf {
        let builder = builder(is_package);
        for lower in on {
            builder.on(lower).unwrap_or_else(|error| panic!("{}", WithCauses(&error)));
        }
        builder.add_object(c(&format!("{name}.o"), source)).expect("the names are free");
        self.write(name, builder)
    }

    fn write(&self, name: &str, builder: ImageBuilder) -> PathBuf {
        let path = self.0.join(format!("{name}.uim"));
        let image = builder.build().unwrap_or_else(|error| panic!("{}", WithCauses(&error)));
        image.write(&path).expect("the directory is writable");
        path
    }
}

impl Drop for Images {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn builder(is_package: bool) -> ImageBuilder {
    let builder = ImageBuilder::new(Jit::builder().threads(1)).expect("an engine for this machine");
    if is_package { builder.package() } else { builder }
}

fn load(scope: &Scope, path: &Path) -> LoadedImage {
    scope.load_image(path, ImageOptions::new()).unwrap_or_else(|error| panic!("{}", WithCauses(&error)))
}

fn refused(scope: &Scope, path: &Path) -> String {
    let error = scope.load_image(path, ImageOptions::new()).expect_err("it is not to be loaded");
    WithCauses(&error).to_string()
}

fn call(scope: &Scope, name: &str) -> i32 {
    // SAFETY: the sources here define functions of this signature alone.
    let function = unsafe { scope.get::<Answer>(name) };
    function.unwrap_or_else(|error| panic!("{name}: {}", WithCauses(&error)))()
}

#[test]
fn sections_are_there_as_they_were_and_stay_when_the_image_is_gone() {
    let images = Images::new();
    for is_package in [false, true] {
        let builder = builder(is_package);
        builder.add_object(c("f.o", "int f(void) { return 1; }")).expect("the names are free");
        let types: Vec<u8> = (0..10_000_u32).flat_map(u32::to_le_bytes).collect();
        builder.section("types", types.clone()).expect("the name is free");
        builder.section("empty", []).expect("the name is free");
        builder.section("source", "fn f() = 1").expect("the name is free");
        let twice = builder.section("types", []).expect_err("there is one");
        assert!(matches!(twice, JitError::ImagePart(HostPartError::Duplicate { .. })), "{twice}");
        let path = images.write("sections", builder);

        let jit = engine(1);
        let tracker = jit.create_tracker();
        let loaded = load(&jit.in_tracker(&tracker), &path);
        let named: Vec<_> = loaded.reader().sections().collect();
        assert_eq!(named, [("types", 40_000), ("empty", 0), ("source", 10)]);
        let section = loaded.section("types").expect("it is there");
        let source = loaded.section("source").expect("it is there");
        assert!(
            loaded.section("other").is_none() && loaded.section("empty").expect("it is there").is_empty()
        );
        assert!([&section, &source].iter().all(|bytes| (bytes.as_ptr() as usize).is_multiple_of(64)));
        assert_eq!(call(&jit, "f"), 1);
        tracker.remove().expect("nothing objects");
        drop((loaded, jit));
        assert!(*section == *types && &*source == b"fn f() = 1");
        assert!(is_read_only(section.as_ptr() as usize), "a section may be written to");
    }
}

fn is_read_only(address: usize) -> bool {
    let maps = std::fs::read_to_string("/proc/self/maps").expect("there is one");
    let holds = |line: &&str| {
        let range = line.split(' ').next().and_then(|range| range.split_once('-'));
        let number = |text: &str| usize::from_str_radix(text, 16).expect("a number");
        range.is_some_and(|(start, end)| (number(start)..number(end)).contains(&address))
    };
    maps.lines().find(holds).is_some_and(|line| line.contains(" r--"))
}

#[test]
fn damage_to_a_section_is_found_by_a_check_of_the_contents_and_damage_to_its_place_at_once() {
    let images = Images::new();
    let builder = builder(false);
    builder.section("text", "some bytes").expect("the name is free");
    let path = images.write("damaged", builder);
    let mut bytes = std::fs::read(&path).expect("it was written");
    let at = bytes.windows(10).position(|bytes| bytes == b"some bytes").expect("it lies there as it is");
    bytes[at] ^= 1;
    std::fs::write(&path, &bytes).expect("it is ours");
    let image = ImageFile::open(&path).expect("its tables are sound");
    assert!(image.check_contents().expect_err("a byte has changed").to_string().contains("contents"));
    assert_eq!(load(&engine(1), &path).section("text").as_deref(), Some(&b"rome bytes"[..]));

    // The row has the place and the length.
    let row = [(at as u64).to_le_bytes(), 10_u64.to_le_bytes()].concat();
    let row = bytes.windows(16).position(|bytes| bytes == row).expect("there is a row");
    for (offset, number) in
        [(0, 1_u64), (0, at as u64 + 1), (0, u64::MAX - 63), (8, 1 << 31), (8, u64::MAX), (8, 1 << 20)]
    {
        let mut bytes = bytes.clone();
        bytes[row + offset..row + offset + 8].copy_from_slice(&number.to_le_bytes());
        seal(&mut bytes);
        std::fs::write(&path, &bytes).expect("it is ours");
        let text = refused(&engine(1), &path);
        assert!(text.contains("a section of the host lies outside of the file"), "{number:#x}: {text}");
    }
}

const LOWER: &str = "__thread int local = 5; int shared = 7; int lower(void) { return 30; } static int own(void) { return 1000; }
    int used(void) { return own(); }";
const UPPER: &str =
    "extern __thread int local; extern int shared; int lower(void); static int own(void) { return 2; }
    int upper(void) { return lower() + own() + shared++ + local++; }";

#[test]
fn an_image_that_is_built_on_another_refers_to_its_definitions() {
    let images = Images::new();
    for is_package in [false, true] {
        let lower = images.build("lower", LOWER, &[], is_package);
        let upper = images.build("upper", UPPER, &[&lower], is_package);
        let top = images.build(
            "top",
            "int upper(void); int top(void) { return 1 + upper(); }",
            &[&lower, &upper],
            is_package,
        );
        let jit = engine(1);
        load(&jit, &lower);
        let loaded = load(&jit, &upper);
        let below: Vec<_> = loaded.reader().below().map(|(name, _)| name).collect();
        assert_eq!(below, ["lower.uim"]);
        assert!(loaded.reader().lookup("lower").is_none(), "it is in the other one");
        load(&jit, &top);
        assert_eq!([call(&jit, "upper"), call(&jit, "top")], [44, 47]);

        // In a dylib behind the other one.
        let jit = engine(1);
        let below = jit.create_dylib("below").expect("the name is free");
        load(&below, &lower);
        assert!(refused(&jit, &upper).contains("no image with that id is loaded"));
        jit.link_to(&below).expect("both are there");
        load(&jit, &upper);
        assert_eq!(call(&jit, "upper"), 44);
    }
}

#[test]
fn an_image_is_refused_where_the_one_below_is_missing_or_another_one() {
    let images = Images::new();
    let lower = images.build("lower", LOWER, &[], false);
    let upper = images.build("upper", UPPER, &[&lower], false);
    let jit = engine(1);
    let text = refused(&jit, &upper);
    assert!(
        text.contains("upper.uim: it was built on lower.uim (id ") && text.contains("load that one first"),
        "{text}"
    );
    // Its definitions are not enough, and a removed image is none.
    jit.add_object(c("lower.o", LOWER)).expect("the names are free");
    assert_eq!(refused(&jit, &upper), text);
    let jit = engine(1);
    let tracker = jit.create_tracker();
    let handle = load(&jit.in_tracker(&tracker), &lower);
    tracker.remove().expect("nothing objects");
    assert_eq!(refused(&jit, &upper), text);
    drop(handle);
    let other = images.build("lower", &LOWER.replace("30", "31"), &[], false);
    let jit = engine(1);
    load(&jit, &other);
    let text = refused(&jit, &upper);
    assert!(text.contains("and the lower.uim that is loaded is "), "{text}");
}

#[test]
fn an_image_is_refused_on_a_package_with_a_rejected_unit() {
    let images = Images::new();
    // A compiler writes the name of a file that it reads into the object.
    let even = c("even.o", "int even(void) { return 2; }");
    let [odd, other] = [3, 5].map(|answer| c("odd.o", &format!("int odd(void) {{ return {answer}; }}")));
    let lower = builder(true);
    for object in [&even, &odd] {
        lower.add_object(object.clone()).expect("the names are free");
    }
    let lower = images.write("lower", lower);
    for is_package in [false, true] {
        let source = "int even(void); int upper(void) { return even() + 1; }";
        let upper = images.build("upper", source, &[&lower], is_package);
        let load_lower = |odd: &ObjectBuffer| {
            let options = ImageOptions::new().source(even.clone()).source(odd.clone());
            let jit = engine(1);
            jit.load_image(&lower, options).unwrap_or_else(|error| panic!("{}", WithCauses(&error)));
            jit
        };
        let jit = load_lower(&odd);
        load(&jit, &upper);
        assert_eq!(call(&jit, "upper"), 3);
        let jit = load_lower(&other);
        let text = refused(&jit, &upper);
        let built = "upper.uim: it was built on lower.uim, and may contain code of its unit odd.o, which is not used: it was compiled from another source";
        assert!(
            text.contains(built) && text.ends_with("build lower.uim again, and this one on it"),
            "{text}"
        );
        assert_eq!(call(&jit, "odd"), 5);
    }
}
