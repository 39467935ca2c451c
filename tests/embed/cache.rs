//! The gain of a cache for a host: programs that are compiled once, by the engine and process that asks first.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use uruk::core::WithCauses;
use uruk::core::sync::Mutex;
use uruk::pipeline::cache::{CacheMode, MemoryCache, Miss};
use uruk::pipeline::ir::OptimizationLevel;
use uruk::pipeline::object::ObjectBuffer;
use uruk::pipeline::tiers::CallCounting;
use uruk::{CacheOptions, Jit, JitBuilder, JitError, OnCall};

use crate::support::{alone_with, is_alone, temporary};

/// Modules of a program: inline functions of two, a tentative variable, a static object, text.
const MODULES: [(&str, &str); 3] = [
    (
        "main.ll",
        "@counter = common global i32 0\n\
         @llvm.global_ctors = appending global [1 x { i32, ptr, ptr }] [{ i32, ptr, ptr } { i32 65535, ptr @start, ptr null }]\n\
         define internal void @start() {\n  store i32 40, ptr @counter\n  ret void\n}\n\
         declare i32 @more()\n\
         define i32 @answer() {\n  %c = load i32, ptr @counter\n  %m = call i32 @more()\n  %r = add i32 %c, %m\n  ret i32 %r\n}\n",
    ),
    (
        "more.ll",
        "define linkonce_odr i32 @one() noinline {\n  ret i32 1\n}\n\
         declare i32 @other()\n\
         define i32 @more() {\n  %o = call i32 @one()\n  %p = call i32 @other()\n  %r = add i32 %o, %p\n  ret i32 %r\n}\n",
    ),
    (
        "other.ll",
        "@counter = common global i32 0\n\
         define linkonce_odr i32 @one() noinline {\n  ret i32 1\n}\n\
         define i32 @other() {\n  %r = call i32 @one()\n  ret i32 %r\n}\n",
    ),
];

/// A directory that goes when this is dropped.
struct Directory(PathBuf);

impl Directory {
    fn new() -> Self {
        Self(temporary())
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn engine(threads: usize, cache: impl Into<CacheOptions>) -> Jit {
    Jit::builder().threads(threads).cache(cache).build().expect("an engine for this machine")
}

fn add_all(jit: &Jit) -> Result<(), JitError> {
    MODULES.iter().try_for_each(|(name, text)| jit.add_ir_text(name, text))
}

/// Runs the program; answers how many objects were found and compiled.
fn run(jit: &Jit) -> Result<(u64, u64), JitError> {
    add_all(jit)?;
    jit.link("answer")?;
    // SAFETY: the sources run nothing at their start but what is written here.
    unsafe { jit.initialize() }?;
    // SAFETY: the function has this signature, and the engine outlives the call.
    let answer: extern "C" fn() -> i32 = unsafe { jit.function("answer") }?;
    assert_eq!(answer(), 42);
    let stats = jit.cache_stats().expect("there is a cache");
    Ok((stats.object_hits, stats.object_misses))
}

#[test]
fn a_second_engine_compiles_nothing() {
    for threads in [0, 2] {
        let directory = Directory::new();
        let path = directory.0.as_path();
        assert_eq!(run(&engine(threads, path)).expect("valid"), (0, 3));
        let jit = engine(threads, path);
        assert_eq!(run(&jit).expect("valid"), (3, 0), "what was dropped has stored what it compiled");
        let stats = jit.cache_stats().expect("there is a cache");
        assert_eq!((stats.interface_hits, stats.interface_misses), (3, 0));
    }
}

/// Which directory the process that [`a_second_process_compiles_nothing`] starts is to use.
const PLACE: &str = "URUK_TEST_CACHE";

#[test]
fn a_second_process_compiles_nothing() {
    if is_alone() {
        let path = PathBuf::from(std::env::var_os(PLACE).expect("who starts this says so"));
        assert_eq!(run(&engine(1, path)).expect("valid"), (3, 0));
        return;
    }
    let directory = Directory::new();
    assert_eq!(run(&engine(1, directory.0.as_path())).expect("valid"), (0, 3));
    let place = directory.0.to_str().expect("a plain name");
    let output = alone_with("cache::a_second_process_compiles_nothing", &[(PLACE, place)]);
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && said.contains("1 passed"),
        "{said}{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

/// A cache that could not be opened was the end of the engine.
#[test]
fn an_engine_works_without_a_cache_that_cannot_be_used() {
    let place = std::env::temp_dir().join(format!("uruk-embed-{}-no-directory", std::process::id()));
    std::fs::write(&place, "a file").expect("temporary file");
    let jit = engine(1, place.as_path());
    let refused = jit.cache_refused().expect("it is no directory").to_string();
    assert!(refused.contains(&*place.to_string_lossy()), "{refused}");
    add_all(&jit).expect("valid");
    assert!(jit.disk_cache().is_none() && jit.cache_stats().is_none());
    let required = CacheOptions::directory(place.clone()).mode(CacheMode::RequireHit);
    let opened = Jit::builder().cache(required).build();
    assert!(matches!(opened, Err(JitError::Cache(_))), "{opened:?}");
    std::fs::remove_file(&place).expect("it is ours");
}

#[test]
fn what_must_be_found_is_named_when_it_is_not() {
    let directory = Directory::new();
    let required = || CacheOptions::directory(directory.0.clone()).mode(CacheMode::RequireHit);
    let opened = Jit::builder().cache(required()).build();
    assert!(matches!(opened, Err(JitError::Cache(_))), "there is no such directory: {opened:?}");
    drop(engine(0, directory.0.as_path()));
    let told = |error: JitError| WithCauses(&error).to_string();
    let error = told(add_all(&engine(0, required())).expect_err("it has never been seen"));
    assert!(
        error.contains("main.ll") && error.contains("interface") && error.contains("not stored"),
        "{error}"
    );

    let jit = engine(0, directory.0.as_path());
    add_all(&jit).expect("valid");
    jit.lookup("other").expect("it compiles");
    drop(jit);
    let jit = engine(0, required());
    add_all(&jit).expect("they were added before");
    jit.lookup("other").expect("it was compiled before");
    let error = told(jit.lookup("answer").expect_err("it has never been compiled"));
    assert!(error.contains("main.ll") && error.contains("object") && error.contains("not stored"), "{error}");
}

#[test]
fn damage_is_a_miss_and_is_mended() {
    let directory = Directory::new();
    let path = directory.0.as_path();
    run(&engine(0, path)).expect("valid");
    spoil(path);
    let causes = Arc::new(Mutex::new(Vec::new()));
    let heard = causes.clone();
    let observed = CacheOptions::directory(path).observer(move |event| heard.lock().push(event.to_string()));
    assert_eq!(run(&engine(0, observed)).expect("damage is no error"), (0, 3));
    assert!(causes.lock().iter().all(|cause| cause.contains("is damaged")), "{causes:?}");
    assert_eq!(run(&engine(0, path)).expect("valid"), (3, 0));
}

/// Changes a byte in the contents of each entry.
fn spoil(directory: &Path) {
    for file in std::fs::read_dir(directory).expect("it is there") {
        let path = file.expect("it can be listed").path();
        if path.extension().is_some_and(|extension| extension == "data") {
            let mut bytes = std::fs::read(&path).expect("it is ours");
            let magic = b"urukobj\n";
            let entries: Vec<usize> =
                (64..bytes.len()).step_by(64).filter(|at| bytes[at + 16..].starts_with(magic)).collect();
            assert!(!entries.is_empty());
            entries.into_iter().for_each(|entry| bytes[entry + 64] ^= 1);
            std::fs::write(&path, bytes).expect("it is ours");
        }
    }
}

#[test]
fn a_cache_that_cannot_be_written_ends_no_program() {
    let directory = Directory::new();
    let jit = engine(1, directory.0.as_path());
    // From here on nothing can be stored: neither the directory nor its files have a name.
    std::fs::remove_dir_all(&directory.0).expect("it is ours");
    assert_eq!(run(&jit).expect("valid"), (0, 3));
    jit.flush_cache();
    let disk = jit.disk_cache().expect("it is in a directory");
    assert!(disk.failure().is_some());
    assert!(disk.pack().stats().failed_writes > 0);
}

#[test]
fn whether_a_file_would_be_found_takes_what_others_define_into_account() {
    let directory = Directory::new();
    let source = |at: usize| ObjectBuffer::new(MODULES[at].0, MODULES[at].1.as_bytes().to_vec());
    assert_eq!(Jit::new().expect("an engine").would_hit(&source(0)), Err(Miss::Disabled));
    let jit = engine(0, directory.0.as_path());
    assert_eq!(jit.would_hit(&source(0)), Err(Miss::NotStored));
    run(&jit).expect("valid");
    assert_eq!([0, 1].map(|at| jit.would_hit(&source(at))), [Ok(()), Ok(())]);
    let stats = jit.cache_stats().expect("there is a cache");
    assert_eq!((stats.object_hits, stats.object_misses), (0, 3), "asking counts for nothing");
}

#[test]
fn a_store_of_the_hosts_own_serves_many_engines() {
    let store = Arc::new(MemoryCache::new(1 << 24));
    assert_eq!(run(&engine(0, store.clone())).expect("valid"), (0, 3));
    let read_only = CacheOptions::store(store.clone()).mode(CacheMode::ReadOnly).memory_bytes(0);
    assert_eq!(run(&engine(0, read_only)).expect("valid"), (3, 0));
    let salted = CacheOptions::store(store.clone()).salt(*b"another host");
    assert_eq!(run(&engine(0, salted)).expect("valid"), (0, 3));
    let required = CacheOptions::store(store).mode(CacheMode::RequireHit);
    assert_eq!(run(&engine(2, required)).expect("valid"), (3, 0));
}

/// Functions that are compiled when they are called are kept one by one. Once one was compiled better, the next engine begins there.
#[test]
fn functions_are_kept_in_the_tier_they_reached() {
    let directory = Directory::new();
    let start = |builder: JitBuilder, is_better: &dyn Fn(&Jit) -> bool| {
        let jit = builder.threads(1).cache(&*directory.0).build().expect("an engine for this machine");
        add_all(&jit).expect("valid IR, and new names");
        // SAFETY: the sources run nothing at their start but what is written there.
        unsafe { jit.initialize() }.expect("it can be compiled");
        // SAFETY: the function has this signature.
        let answer = unsafe { jit.get::<extern "C" fn() -> i32>("answer") }.expect("its stub");
        assert_eq!(answer(), 42);
        while !is_better(&jit) {
            answer();
            std::thread::yield_now();
        }
        let stats = jit.cache_stats().expect("there is a cache");
        jit.flush_cache();
        (stats.part_hits, stats.part_misses)
    };
    let soon = || Jit::builder().optimization(OptimizationLevel::O0).compile_on_call(OnCall::Function);
    let tiered = || Jit::builder().tiers(CallCounting::new().with_threshold(2).with_quiet(Duration::ZERO));
    let all_are_better = |jit: &Jit| jit.tiers().expect("there are tiers").stats().promoted >= 4;
    // `start`, `answer`, `more`, `other`, and `one`, which both files have.
    assert_eq!(start(soon(), &|_| true), (0, 5));
    assert_eq!(start(soon(), &|_| true), (5, 0));
    let (found, missed) = start(tiered(), &all_are_better);
    assert!(found == 5 && missed >= 4, "{found} as they were compiled before, and {missed} better");
    let (found, missed) = start(tiered(), &|_| true);
    assert_eq!((found, missed), (5, 0), "those that are better, and what ran only once");
}
