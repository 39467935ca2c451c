//! Packages: images of units, each of which is right or rejected alone.

use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use uruk::core::WithCauses;
use uruk::core::sync::Mutex;
use uruk::pipeline::object::ObjectBuffer;
use uruk::{ImageBuilder, ImageEvent, ImageOptions, Jit, JitError, LoadedImage, OnCall, Scope, UnitState};

use crate::support::{archive, c, engine, is_alone};

const ROUND: &str = "define i64 @round(i64 %x) { %y = mul i64 %x, 10 ret i64 %y }";
const OTHER_ROUND: &str = "define i64 @round(i64 %x) { %y = call i64 @times(i64 %x) ret i64 %y }
    define i64 @times(i64 %x) { %y = mul i64 %x, 100 ret i64 %y }";
const REPORT: &str = "declare i64 @round(i64) define i64 @report(i64 %x) { %y = call i64 @round(i64 %x) %z = add i64 %y, 1 ret i64 %z }";
/// Both have the function, and the linker leaves it out of one.
const FIRST: &str = "define linkonce_odr i64 @shared() noinline { ret i64 1 } define i64 @first() { %x = call i64 @shared() ret i64 %x }";
const SECOND: &str = "define linkonce_odr i64 @shared() noinline { ret i64 1 } define i64 @second() { %x = call i64 @shared() ret i64 %x }";

/// A package that goes with the test.
pub(crate) struct PackageOnDisk(pub(crate) PathBuf);

impl PackageOnDisk {
    pub(crate) fn of(sources: &[(&str, &str)]) -> Self {
        let builder = builder();
        sources.iter().for_each(|(name, text)| builder.add_ir_text(name, text).expect("the names are free"));
        Self::built(builder)
    }

    pub(crate) fn built(builder: ImageBuilder) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        // Relaxed: only the numbers must differ.
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("uruk-package-{}-{number}.uim", std::process::id()));
        let image = builder.build().unwrap_or_else(|error| panic!("{}", WithCauses(&error)));
        image.write(&path).expect("the temporary directory is writable");
        Self(path)
    }

    pub(crate) fn load(&self, scope: &Scope, options: ImageOptions) -> LoadedImage {
        scope.load_image(&self.0, options).unwrap_or_else(|error| panic!("{}", WithCauses(&error)))
    }
}

impl Drop for PackageOnDisk {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn builder() -> ImageBuilder {
    ImageBuilder::new(Jit::builder().threads(1)).expect("an engine for this machine").package()
}

fn source(name: &str, text: &str) -> ObjectBuffer {
    ObjectBuffer::new(name, text.as_bytes().to_vec())
}

pub(crate) fn with(sources: &[(&str, &str)]) -> ImageOptions {
    sources.iter().fold(ImageOptions::new(), |options, (name, text)| options.source(source(name, text)))
}

/// The options, and what is told of units.
fn telling(options: ImageOptions) -> (ImageOptions, Arc<Mutex<Vec<String>>>) {
    let told = Arc::<Mutex<Vec<String>>>::default();
    let note = told.clone();
    let observer = move |event: &ImageEvent| {
        let text = event.to_string();
        let (_, behind_path) = text.split_once(": ").expect("it begins with the file");
        note.lock().push(behind_path.to_owned());
    };
    (options.on_reject(observer), told)
}

pub(crate) fn call(scope: &Scope, name: &str, x: i64) -> i64 {
    // SAFETY: the sources here define functions of this signature, or of fewer parameters.
    let function = unsafe { scope.get::<extern "C" fn(i64) -> i64>(name) };
    function.unwrap_or_else(|error| panic!("{name}: {}", WithCauses(&error)))(x)
}

/// The state of each unit: unused, used, or rejected.
fn states(image: &LoadedImage) -> String {
    let letter = |(_, state): (_, UnitState)| match state {
        UnitState::Unused => 'u',
        UnitState::Used => 'U',
        _ => 'R',
    };
    image.units().into_iter().map(letter).collect()
}

#[test]
fn a_unit_is_looked_at_when_it_is_first_used_and_nothing_is_compiled() {
    let sources = [("round.ll", ROUND), ("report.ll", REPORT), ("first.ll", FIRST)];
    let package = PackageOnDisk::of(&sources);
    let jit = engine(2);
    // The tree has moved.
    let moved = [("/elsewhere/round.ll", ROUND), ("r.ll", REPORT), ("first.ll", FIRST)];
    let image = package.load(&jit, with(&moved));
    assert_eq!(states(&image), "uuu");
    assert_eq!(call(&jit, "round", 4), 40);
    assert_eq!(states(&image), "Uuu");
    assert_eq!(call(&jit, "report", 4), 41);
    assert_eq!(states(&image), "UUu");
    let bare = engine(1);
    assert_eq!((package.load(&bare, ImageOptions::new()), call(&bare, "report", 1)).1, 11, "without sources");
}

#[test]
fn a_unit_with_another_source_is_compiled_and_the_others_are_not() {
    let package = PackageOnDisk::of(&[("round.ll", ROUND), ("report.ll", REPORT)]);
    let jit = engine(1);
    let (options, told) = telling(with(&[("a/round.ll", OTHER_ROUND), ("report.ll", REPORT)]));
    let image = package.load(&jit, options);
    assert_eq!(call(&jit, "report", 4), 401);
    assert_eq!(call(&jit, "times", 4), 400, "a name that the image knows nothing of");
    assert_eq!(states(&image), "RU");
    let told = told.lock();
    assert_eq!(told.len(), 1, "{told:?}");
    let sentence = "round.ll is not used: it was compiled from another source or with other options (image ";
    assert!(told[0].starts_with(sentence), "{told:?}");
}

/// Of three units one is used, one is another now, and one is not used yet.
#[test]
fn why_says_from_where_code_came() {
    let package = PackageOnDisk::of(&[("round.ll", ROUND), ("report.ll", REPORT), ("first.ll", FIRST)]);
    let jit = engine(1);
    let sources = [("round.ll", OTHER_ROUND), ("report.ll", REPORT), ("first.ll", FIRST)];
    let image = package.load(&jit, with(&sources));
    assert_eq!(call(&jit, "report", 4), 401);
    let why = |name: &str| jit.session().why(jit.main_dylib(), &jit.intern(name));
    let path = package.0.display();
    assert_eq!(*why("report").about, [format!("its code is that of image {path}, unit report.ll").into()]);
    assert!(why("report").to_string().contains("\n  its code is that of image"), "{}", why("report"));
    let another = format!("{path}: round.ll is not used: it was compiled from another source");
    for name in ["round", "times"] {
        let about = why(name).about;
        assert!(about.len() == 1 && about[0].starts_with(&another), "{name}: {about:?}");
    }
    let later = format!("image {path} has it in unit first.ll, which is not in use yet").into();
    assert_eq!(*why("first").about, [later]);
    assert!(why("other").about.is_empty());
    let origin = |name: &str| image.origin(name).map(|from| (from.unit, from.state));
    assert_eq!(origin("report"), Some(("report.ll".into(), UnitState::Used)));
    assert_eq!(origin("first"), Some(("first.ll".into(), UnitState::Unused)));
    assert!(matches!(origin("round"), Some((_, UnitState::Rejected(_)))) && origin("times").is_none());
}

#[test]
fn options_that_change_code_reject_what_was_compiled_with_others() {
    let package = PackageOnDisk::of(&[("round.ll", ROUND)]);
    let quick = Jit::builder().threads(1).optimization(uruk::pipeline::ir::OptimizationLevel::O0);
    let image =
        package.load(&quick.build().expect("an engine for this machine"), with(&[("round.ll", ROUND)]));
    assert_eq!(states(&image), "R");
}

#[test]
fn units_that_contain_code_of_a_rejected_one_are_rejected_with_it() {
    let package = PackageOnDisk::of(&[("first.ll", FIRST), ("second.ll", SECOND), ("round.ll", ROUND)]);
    let changed = FIRST.replace("ret i64 1", "ret i64 2").replace("@shared", "@mine");
    let sources = [("first.ll", &*changed), ("second.ll", SECOND), ("round.ll", ROUND)];
    let jit = engine(1);
    let (options, told) = telling(with(&sources));
    let image = package.load(&jit, options);
    assert_eq!((call(&jit, "second", 0), call(&jit, "first", 0), call(&jit, "round", 1)), (1, 2, 10));
    assert_eq!(states(&image), "RRU", "`shared` was in the first one");
    let told = told.lock();
    assert!(told.len() == 2 && told[1].contains("contains code of `shared`"), "{told:?}");
}

/// As compilers leave it behind when they import functions of other files (ThinLTO), or inline functions of C.
#[test]
fn copies_of_another_units_definitions_are_noted() {
    let copied = ROUND.replace("define", "define available_externally")
        + &REPORT.replace("declare i64 @round(i64)", "");
    let package = PackageOnDisk::of(&[("round.ll", ROUND), ("report.ll", &copied)]);
    let jit = engine(1);
    let image = package.load(&jit, with(&[("round.ll", OTHER_ROUND), ("report.ll", REPORT)]));
    // The copy is in the image's code; here the source has none.
    assert_eq!(states(&image), "RR");
    assert_eq!(call(&jit, "report", 4), 401);
    let jit = engine(1);
    let (options, told) = telling(with(&[("round.ll", OTHER_ROUND), ("report.ll", &copied)]));
    let image = package.load(&jit, options);
    jit.lookup("report").expect("it is compiled");
    assert_eq!(states(&image), "RR");
    assert!(
        told.lock()[1].contains("report.ll is not used: it contains code of `round`"),
        "{:?}",
        told.lock()
    );
}

/// The one in the middle has code of a definition that the session has from elsewhere. The last one took the middle one's older code if it was asked for
/// first, since nothing had looked at the middle one yet.
#[test]
fn a_unit_is_rejected_with_one_whose_code_it_contains_in_whichever_order_they_are_asked_for() {
    let f0 = "define i64 @f0(i64 %x) { %y = add i64 %x, 1 ret i64 %y }";
    let body = "i64 @f1(i64 %x) { %y = call i64 @f0(i64 %x) %z = mul i64 %y, 2 ret i64 %z }";
    let f1 = format!("{} define {body}", f0.replace("define", "define available_externally"));
    let calls = "define i64 @f2(i64 %x) { %y = call i64 @f1(i64 %x) %z = add i64 %y, 3 ret i64 %z }";
    let f2 = format!("declare i64 @f0(i64) define available_externally {body} {calls}");
    let sources = [("f0.ll", f0), ("f1.ll", &*f1), ("f2.ll", &*f2)];
    let package = PackageOnDisk::of(&sources);
    for order in [["f2", "f1"], ["f1", "f2"]] {
        let jit = engine(1);
        jit.add_ir_text("own.ll", &f0.replace(", 1", ", 100")).expect("the name is free");
        let (options, told) = telling(with(&sources));
        let image = package.load(&jit, options);
        for name in order {
            jit.lookup(name).expect("it is compiled");
        }
        assert_eq!(states(&image), "uRR", "{order:?}");
        let told = told.lock();
        assert!(told[0].contains("f1.ll is not used: it contains code of `f0`"), "{told:?}");
    }
}

#[test]
fn a_unit_that_is_rejected_and_has_no_source_fails_for_that_reason() {
    let package = PackageOnDisk::of(&[("first.ll", FIRST), ("second.ll", SECOND)]);
    let jit = engine(1);
    package.load(&jit, with(&[("first.ll", &FIRST.replace("ret i64 1", "ret i64 3"))]));
    let text = WithCauses(&jit.lookup("second").expect_err("half of it would be wrong")).to_string();
    assert!(
        text.contains("contains code of `shared`") && text.contains("load the image with its source"),
        "{text}"
    );
}

/// One that shares sections with another is one unit with it. The sentence named the source that had changed, which was at hand.
#[test]
fn the_sources_that_are_missing_are_named() {
    let builder = builder();
    let object = |name: &str, x: i32| {
        let noted = format!("__attribute__((section(\"notes\"), used)) int note_{name} = {x};");
        c(&format!("{name}.o"), &format!("{noted} long {name}(long x) {{ return x + {x}; }}"))
    };
    builder.add_object(object("one", 1)).expect("new");
    builder.add_object(object("two", 2)).expect("new");
    let package = PackageOnDisk::built(builder);
    let jit = engine(1);
    let options = ImageOptions::new().source(object("one", 7));
    let error = jit.load_image(&package.0, options).expect_err("the other half is missing");
    let text = WithCauses(&error).to_string();
    assert!(text.contains("one.o is not used") && text.contains("with its source two.o, or build"), "{text}");
    assert!(jit.lookup("one").is_err() && jit.lookup("two").is_err(), "nothing is left");
    package.load(&jit, ImageOptions::new().source(object("one", 7)).source(object("two", 2)));
    assert_eq!((call(&jit, "one", 0), call(&jit, "two", 0)), (7, 2));
}

/// Sources before the broken one, and units that run at start, stayed.
#[test]
fn a_package_that_cannot_be_loaded_leaves_nothing() {
    let builder = builder();
    let begins = "int count; __attribute__((constructor)) static void begin(void) { count = 5; } int get(void) { return count; }";
    builder.add_object(c("a.o", begins)).expect("new");
    builder.add_ir_text("round.ll", ROUND).expect("new");
    let package = PackageOnDisk::built(builder);
    let archived = archive("lib.a", &[c("more.o", "long more(long x) { return x + 1; }")]);
    for is_owned in [false, true] {
        let jit = engine(1);
        let tracker = jit.create_tracker();
        let scope = if is_owned { jit.in_tracker(&tracker) } else { jit.in_dylib(jit.main_dylib()) };
        let options = |text: &str| {
            let new = [("new.ll", REPORT), ("round.ll", text)];
            with(&new).source(archived.clone())
        };
        let broken = options("define i64 @round(i64 %x) { oh }");
        scope.load_image(&package.0, broken).expect_err("that is no IR");
        let left = || {
            // A lookup would find the `round` of the C library.
            let names = ["count", "get", "round", "report"].map(|name| jit.intern(name));
            (jit.main_dylib().flags(names).len(), jit.lookup("more").is_ok())
        };
        assert_eq!(left(), (0, false));
        assert_eq!(jit.platform().take_needed(None), [], "nothing is to begin");
        let image = package.load(&scope, options(ROUND));
        assert_eq!((call(&jit, "report", 4), call(&jit, "more", 4)), (41, 5));
        assert_eq!(states(&image), "UU");
        if is_owned {
            tracker.remove().expect("nothing objects");
            assert_eq!(left(), (0, false));
        }
    }
}

#[test]
fn members_of_archives_are_compared_as_files_are() {
    let member =
        |name: &str, x: i32| c(&format!("{name}.o"), &format!("long {name}(long x) {{ return x * {x}; }}"));
    // A compiler that runs twice makes two objects: the names of its files are in them.
    let (one, two) = (member("one", 10), member("two", 20));
    let user = c("user.o", "long one(long x); long user(long x) { return one(x) + 1; }");
    let builder = builder();
    builder.add_object(user.clone()).expect("new");
    builder.add_archive(&archive("lib.a", &[one.clone(), two.clone()])).expect("it is whole");
    let package = PackageOnDisk::built(builder);
    let load = |members: &[ObjectBuffer]| {
        let jit = engine(1);
        let options = ImageOptions::new().source(user.clone()).source(archive("moved/lib.a", members));
        let image = package.load(&jit, options);
        let called = (call(&jit, "user", 1), call(&jit, "two", 1));
        (called, states(&image))
    };
    assert_eq!(load(&[one.clone(), two]), ((11, 20), "UU".to_owned()));
    assert_eq!(load(&[member("one", 30), member("two", 40)]), ((31, 40), "UR".to_owned()));
    assert_eq!(load(&[member("two", 40), one]), ((11, 40), "UU".to_owned()));
}

#[test]
fn a_host_leaves_a_unit_out_and_says_what_its_definitions_are() {
    let builder = builder();
    builder.add_ir_text("report.ll", &REPORT.replace("@round", "@host")).expect("new");
    builder.add_ir_text("round.ll", ROUND).expect("new");
    builder.define("host", host as extern "C" fn(i64) -> i64).expect("new");
    builder.assume("report.ll", "host", [7; 32]);
    let package = PackageOnDisk::built(builder);
    extern "C" fn host(x: i64) -> i64 {
        -x
    }
    let load = |options: ImageOptions| {
        let jit = engine(1);
        jit.define("host", host as extern "C" fn(i64) -> i64).expect("new");
        let options = options
            .source(source("report.ll", &REPORT.replace("@round", "@host")))
            .source(source("round.ll", ROUND));
        let image = package.load(&jit, options);
        assert_eq!((call(&jit, "report", 2), call(&jit, "round", 2)), (-1, 20));
        states(&image)
    };
    assert_eq!(load(ImageOptions::new().definitions(|name| (name == "host").then_some([7; 32]))), "UU");
    assert_eq!(load(ImageOptions::new().definitions(|_| Some([8; 32]))), "RU");
    assert_eq!(load(ImageOptions::new().validate_all()), "RU", "nothing says what it is");
    assert_eq!(load(ImageOptions::new().definitions(|_| Some([7; 32])).without("round.ll")), "UR");
}

/// Between the question to the host and the answer about a unit another one was rejected, which takes answers back that the question relied on. A unit
/// that is right was rejected then, for good.
#[test]
fn a_rejection_while_the_host_is_asked_takes_no_unit_with_it_that_is_right() {
    let builder = builder();
    let function = |name: &str| format!("define i64 @{name}(i64 %x) {{ ret i64 %x }}");
    for name in ["inner", "outer", "other"] {
        builder.add_ir_text(&format!("{name}.ll"), &function(name)).expect("new");
    }
    for (unit, definition) in
        [("inner.ll", "one"), ("outer.ll", "inner"), ("outer.ll", "two"), ("other.ll", "three")]
    {
        builder.assume(unit, definition, [7; 32]);
    }
    let package = PackageOnDisk::built(builder);
    let jit = engine(1);
    let (loaded, asked) =
        (Arc::<Mutex<Option<LoadedImage>>>::default(), Arc::<Mutex<Vec<String>>>::default());
    let (image, names) = (loaded.clone(), asked.clone());
    let options = ImageOptions::new().definitions(move |name| {
        names.lock().push(name.to_owned());
        let image = image.lock().clone().filter(|_| name == "two");
        image.inspect(|image| drop(image.redefined("three")));
        Some([7; 32])
    });
    let image = package.load(&jit, options);
    *loaded.lock() = Some(image.clone());
    assert_eq!((call(&jit, "inner", 1), states(&image)), (1, "Uuu".to_owned()));
    assert_eq!((call(&jit, "outer", 2), states(&image)), (2, "UUR".to_owned()));
    assert_eq!(*asked.lock(), ["one", "two", "one", "two"]);
    loaded.lock().take();
}

#[test]
fn a_definition_that_the_session_has_already_rejects_the_unit() {
    let package = PackageOnDisk::of(&[("first.ll", FIRST), ("round.ll", ROUND)]);
    let jit = engine(1);
    jit.add_ir_text("own.ll", "define linkonce_odr i64 @shared() noinline { ret i64 1 }").expect("new");
    jit.lookup("shared").expect("it is there");
    let (options, told) = telling(with(&[("first.ll", FIRST), ("round.ll", ROUND)]));
    let image = package.load(&jit, options);
    assert_eq!((call(&jit, "first", 0), call(&jit, "round", 1)), (1, 10));
    assert_eq!(states(&image), "RU");
    assert_eq!(*told.lock(), ["first.ll is not used: `shared` is defined already"]);
}

#[test]
fn units_are_removed_and_loaded_again_with_data_of_their_own_and_run_what_begins() {
    let builder = builder();
    let counts = "int count; __attribute__((constructor)) static void begin(void) { count = 5; } long next(long x) { return ++count + x; }";
    builder.add_object(c("counts.o", counts)).expect("new");
    builder
        .add_object(c(
            "uses.o",
            "extern int count; long next(long); long twice(long x) { next(x); return next(x); }",
        ))
        .expect("new");
    let package = PackageOnDisk::built(builder);
    let engines = [engine(1), engine(2)];
    for round in 0..2 {
        let trackers = engines.each_ref().map(|jit| {
            let tracker = jit.create_tracker();
            package.load(&jit.in_tracker(&tracker), ImageOptions::new());
            // SAFETY: it stores a number.
            unsafe { jit.initialize() }.expect("it is linked");
            assert_eq!(call(jit, "twice", 0), 7, "round {round}");
            tracker
        });
        assert_eq!(engines.each_ref().map(|jit| call(jit, "next", 0)), [8, 8]);
        for (jit, tracker) in engines.iter().zip(trackers) {
            tracker.remove().expect("nothing objects");
            assert!(jit.lookup("twice").is_err() && jit.lookup("count").is_err());
        }
    }
}

#[test]
fn a_function_that_units_call_is_redefined() {
    let builder = builder();
    builder.add_ir_text("report.ll", REPORT).expect("new");
    builder.add_ir_text("round.ll", &ROUND.replace("@round", "@round.1")).expect("new");
    builder.define("round", stand_in as extern "C" fn(i64) -> i64).expect("new");
    extern "C" fn stand_in(x: i64) -> i64 {
        x
    }
    let package = PackageOnDisk::built(builder);
    let jit = engine(1);
    let bodies = jit.create_dylib("bodies").expect("new");
    let first = bodies.create_tracker();
    let image = package.load(&bodies.in_tracker(&first), ImageOptions::new());
    jit.add_lazy(&bodies, [("round", "round.1")]).expect("new");
    assert_eq!((call(&bodies, "report", 3), states(&image)), (31, "UU".to_owned()));
    bodies.add_ir_text("2.ll", &ROUND.replace("@round", "@round.2").replace("10", "1000")).expect("new");
    jit.redefine(&bodies, [("round", "round.2")]).expect("it is lazy");
    assert_eq!(call(&bodies, "report", 3), 3001);
}

/// `report.ll` contains code of `host`, `more.ll` of `report`; `round.ll` contains no other's.
fn containing() -> PackageOnDisk {
    let builder = builder();
    for (name, text) in contained() {
        builder.add_ir_text(name, &text).expect("new");
    }
    builder.define("host", host as extern "C" fn(i64) -> i64).expect("new");
    builder.assume("report.ll", "host", [7; 32]);
    builder.assume("more.ll", "report", [0; 32]);
    PackageOnDisk::built(builder)
}

fn contained() -> [(&'static str, String); 3] {
    let report = REPORT.replace("@round", "@host");
    [
        ("report.ll", report),
        ("more.ll", REPORT.replace("@report", "@more").replace("@round", "@report")),
        ("round.ll", ROUND.to_owned()),
    ]
}

extern "C" fn host(x: i64) -> i64 {
    -x
}

#[test]
fn a_redefinition_ends_the_units_that_contain_its_code_and_are_not_in_use() {
    let package = containing();
    let jit = engine(1);
    jit.define("host", host as extern "C" fn(i64) -> i64).expect("new");
    let sources = contained();
    let sources = sources.each_ref().map(|(name, text)| (*name, &**text));
    let (options, told) = telling(with(&sources).definitions(|_| Some([7; 32])));
    let image = package.load(&jit, options);
    assert_eq!((call(&jit, "report", 2), states(&image)), (-1, "Uuu".to_owned()));
    let ended = image.redefined("host");
    assert_eq!((ended.rejected, ended.in_use), (vec!["more.ll".into()], vec!["report.ll".into()]));
    assert_eq!(*told.lock(), ["more.ll is not used: it contains code of `host`, which was redefined"]);
    assert_eq!((call(&jit, "more", 2), call(&jit, "round", 2)), (0, 20));
    assert_eq!(states(&image), "URU");
    let again = image.redefined("host");
    assert!(again.rejected.is_empty() && again.in_use.len() == 1);
    assert_eq!(image.redefined("round"), Default::default());
}

#[test]
fn a_lazy_function_that_is_redefined_ends_units_with_its_code() {
    let package = containing();
    let jit = engine(1);
    let bodies = jit.create_dylib("bodies").expect("new");
    for (body, factor) in [("host.1", "10"), ("host.2", "1000")] {
        bodies
            .add_ir_text(body, &ROUND.replace("@round", &format!("@{body}")).replace("10", factor))
            .expect("new");
    }
    jit.add_lazy(&bodies, [("host", "host.1")]).expect("new");
    let other = engine(1);
    let sources = contained();
    let sources = sources.each_ref().map(|(name, text)| (*name, &**text));
    let image = package.load(&jit, with(&sources).definitions(|_| Some([7; 32])));
    let elsewhere = package.load(&other, with(&sources).definitions(|_| Some([7; 32])));
    jit.redefine(&bodies, [("host", "host.2")]).expect("it is lazy");
    assert_eq!((call(&jit, "report", 3), states(&image)), (3001, "RRu".to_owned()));
    assert_eq!(states(&elsewhere), "uuu", "that engine's `host` is another one");
}

/// The session has another definition in the place of one that a unit contains code of.
#[test]
fn a_definition_that_was_removed_and_replaced_rejects_units_with_its_code() {
    let package = PackageOnDisk::of(&[("first.ll", FIRST), ("second.ll", SECOND)]);
    let jit = engine(1);
    let sources = [("first.ll", FIRST), ("second.ll", SECOND)];
    let load = |jit: &Jit| package.load(jit, with(&sources));
    let image = load(&jit);
    assert_eq!(call(&jit, "first", 0), 1);
    jit.main_dylib().remove(&["shared", "first"].map(|name| jit.intern(name))).expect("they are ready");
    let new = "define i64 @shared() noinline { ret i64 5 }";
    jit.add_ir_text("new.ll", new).expect("the name is free");
    assert_eq!((call(&jit, "second", 0), states(&image)), (5, "UR".to_owned()));

    // One that yields to the image's is no other.
    let yielding = engine(1);
    yielding.add_ir_text("own.ll", "define linkonce_odr i64 @shared() noinline { ret i64 1 }").expect("new");
    let image = load(&yielding);
    assert_eq!((call(&yielding, "second", 0), states(&image)), (1, "uU".to_owned()));

    let early = engine(1);
    early.add_ir_text("new.ll", new).expect("the name is free");
    let image = load(&early);
    assert_eq!((call(&early, "second", 0), states(&image)), (5, "uR".to_owned()));
}

#[test]
fn functions_that_are_compiled_when_they_are_called_and_units_call_each_other() {
    extern "C" fn stand_in(x: i64) -> i64 {
        x
    }
    let builder = builder();
    builder.add_ir_text("report.ll", REPORT).expect("new");
    builder.define("round", stand_in as extern "C" fn(i64) -> i64).expect("new");
    let package = PackageOnDisk::built(builder);
    let jit = Jit::builder().threads(1).compile_on_call(OnCall::Function).build().expect("an engine");
    let user = REPORT.replace("@report", "@user").replace("@round", "@report");
    jit.add_ir_text("round.ll", ROUND).expect("new");
    jit.add_ir_text("user.ll", &user).expect("new");
    let image = package.load(&jit, ImageOptions::new());
    assert_eq!((call(&jit, "user", 4), states(&image)), (42, "U".to_owned()));
}

/// A linked file calls the unit, and both go with one tracker.
#[test]
fn handles_and_guards_hold_units_as_they_hold_linked_code() {
    let package = PackageOnDisk::of(&[("round.ll", ROUND), ("report.ll", REPORT)]);
    let jit = engine(1);
    let loaded = || {
        let tracker = jit.create_tracker();
        let scope = jit.in_tracker(&tracker);
        package.load(&scope, ImageOptions::new());
        let user = REPORT.replace("@report", "@user").replace("@round", "@report");
        scope.add_ir_text("user.ll", &user).expect("the name is free");
        tracker
    };
    let is_gone = || ["user", "report"].iter().all(|name| jit.lookup(name).is_err());

    let tracker = loaded();
    // SAFETY: all functions here have this signature, and no pointer is copied out of the handle.
    let held = unsafe { jit.get::<extern "C" fn(i64) -> i64>("user") }.expect("it is there");
    tracker.remove().expect("nothing objects");
    assert!(is_gone());
    assert_eq!(held(4), 42, "the handle holds the units that it calls");
    drop(held);

    let tracker = loaded();
    let mut guard = jit.enter();
    // SAFETY: as above.
    let inside =
        unsafe { jit.get_guarded::<extern "C" fn(i64) -> i64>(&guard, "report") }.expect("it is there");
    let removal = jit.remove_tracker(&tracker).expect("nothing objects");
    assert!(is_gone() && !removal.is_done());
    assert_eq!(inside(4), 41);
    guard.checkpoint();
    removal.wait().expect("this thread has passed");
    assert_eq!(jit.memory_usage().allocations, 0);
}

/// gdb stops in a unit of a package, and names the units that called it.
#[test]
fn a_debugger_names_the_functions_of_units() {
    const NAME: &str = "packages::a_debugger_names_the_functions_of_units";
    if is_alone() {
        let builder = builder();
        let stops = "long stops(long x) { __asm__ volatile(\"int3\"); return x + 1; }";
        builder.add_object(c("stops.o", stops)).expect("new");
        let calls = "long stops(long x); long calls(long x) { return stops(x) + 1; }";
        builder.add_object(c("calls.o", calls)).expect("new");
        let package = PackageOnDisk::built(builder);
        let jit = Jit::builder().threads(1).debugger(true).build().expect("an engine for this machine");
        package.load(&jit, ImageOptions::new());
        assert_eq!(call(&jit, "calls", 1), 3);
        return;
    }
    if !Command::new("gdb").arg("--version").output().is_ok_and(|output| output.status.success()) {
        assert!(std::env::var_os("CI").is_none(), "gdb is missing: scripts/setup.sh installs it");
        return;
    }
    let mut gdb = Command::new("gdb");
    gdb.args(["-nx", "-q", "-batch", "-ex", "set debuginfod enabled off"]);
    for step in ["run", "bt 2", "continue"] {
        gdb.args(["-ex", step]);
    }
    gdb.arg("--args").arg(std::env::current_exe().expect("this test"));
    gdb.args(["--exact", NAME, "--test-threads=1", "--nocapture"]).env("URUK_TEST_ALONE", "1");
    let output = gdb.output().expect("it is there");
    let printed = String::from_utf8_lossy(&output.stdout);
    for text in ["in stops ()", "in calls ()", "exited normally"] {
        assert!(printed.contains(text), "`{text}` is missing:\n{printed}");
    }
}

#[test]
fn options_that_do_not_fit_an_image_are_refused_in_a_sentence() {
    let whole = {
        let builder = ImageBuilder::new(Jit::builder().threads(1)).expect("an engine for this machine");
        builder.add_ir_text("round.ll", ROUND).expect("new");
        PackageOnDisk::built(builder)
    };
    let jit = engine(1);
    let error = jit.load_image(&whole.0, with(&[("round.ll", ROUND)])).expect_err("it has no units");
    assert!(error.to_string().contains("it is one whole"), "{error}");
    jit.add_ir_text("own.ll", ROUND).expect("new");
    let error = jit.load_image(&whole.0, ImageOptions::new().system()).expect_err("it is not the first");
    assert!(matches!(error, JitError::ImageNotFirst { .. }), "{error}");
    assert!(error.to_string().contains("`round` is defined in `main` already"), "{error}");
}
