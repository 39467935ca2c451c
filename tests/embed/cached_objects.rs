//! Compilers of one's own whose objects are kept, with LLVM and without it.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use uruk::core::WithCauses;
use uruk::core::sync::Mutex;
use uruk::pipeline::cache::{CacheMode, MemoryCache};
use uruk::pipeline::object::ObjectBuffer;
use uruk::{CacheOptions, Function, Jit, JitError};

use crate::support::{c, temporary};

type Answer = extern "C" fn() -> i64;

/// A compiler of C that counts its calls.
#[derive(Clone, Default)]
struct Compiler(Arc<AtomicUsize>);

impl Compiler {
    fn compile(&self, source: &str) -> Result<ObjectBuffer, &'static str> {
        self.0.fetch_add(1, Ordering::Relaxed); // read when the function is Ready
        if source.is_empty() { Err("nothing to compile") } else { Ok(c("f.o", source)) }
    }

    fn calls(&self) -> usize {
        self.0.load(Ordering::Relaxed) // as above
    }

    /// Asks for the function `f` of a source.
    fn get(&self, jit: &Jit, source: &'static str) -> Result<Function<Answer>, JitError> {
        let compiler = self.clone();
        let request = jit.request("f").cached(source, move || compiler.compile(source))?;
        // SAFETY: all sources here define `f` so.
        unsafe { request.get() }
    }
}

fn engine(threads: usize, cache: impl Into<CacheOptions>) -> Jit {
    Jit::builder().threads(threads).cache(cache).build().expect("an engine for this machine")
}

const SOURCE: &str = "long f(void) { return 42; }";

/// A directory that goes when this is dropped.
struct Directory(PathBuf);

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_second_engine_calls_no_compiler() {
    let (directory, compiler) = (Directory(temporary()), Compiler::default());
    for threads in [0, 1] {
        let jit = engine(threads, directory.0.as_path());
        let f = compiler.get(&jit, SOURCE).expect("it compiles");
        assert_eq!((f(), compiler.calls()), (42, 1), "what was dropped has stored what it compiled");
        let entries = jit.cache_entries().expect("there is a cache");
        assert_eq!((entries.made, entries.stored), if threads == 0 { (1, 0) } else { (0, 1) });
    }
    // Another key, and another salt.
    let other = "long f(void) { return 1; }";
    assert_eq!(compiler.get(&engine(1, directory.0.as_path()), other).expect("it compiles")(), 1);
    let salted = CacheOptions::directory(&directory.0).salt(*b"another host");
    assert_eq!(compiler.get(&engine(1, salted), SOURCE).expect("it compiles")(), 42);
    assert_eq!(compiler.calls(), 3);
}

#[test]
fn an_entry_that_is_damaged_is_compiled_again() {
    let (directory, compiler) = (Directory(temporary()), Compiler::default());
    drop(compiler.get(&engine(1, directory.0.as_path()), SOURCE).expect("it compiles"));
    let entries = std::fs::read_dir(&directory.0).expect("it is there");
    let paths = entries.map(|entry| entry.expect("it can be read").path());
    let large = paths.max_by_key(|path| path.metadata().map_or(0, |metadata| metadata.len()));
    let path = large.expect("the entries are in a file");
    let mut bytes = std::fs::read(&path).expect("it can be read");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&path, bytes).expect("it can be written");
    let jit = engine(1, directory.0.as_path());
    assert_eq!((compiler.get(&jit, SOURCE).expect("it compiles")(), compiler.calls()), (42, 2));
}

#[test]
fn what_is_defined_is_not_compiled_again_and_what_fails_is_not_kept() {
    let (store, compiler) = (Arc::new(MemoryCache::new(1 << 20)), Compiler::default());
    let jit = engine(1, store.clone());
    for _ in 0..2 {
        assert_eq!(compiler.get(&jit, SOURCE).expect("it compiles")(), 42);
    }
    assert_eq!(compiler.calls(), 1);
    for calls in [2, 3] {
        let error = compiler.get(&engine(1, store.clone()), "").expect_err("the compiler fails");
        assert!(WithCauses(&error).to_string().contains("nothing to compile"), "{error}");
        assert_eq!(compiler.calls(), calls);
    }
}

#[test]
fn a_cache_that_has_to_hit_compiles_nothing_and_says_so() {
    let (store, compiler) = (Arc::new(MemoryCache::new(1 << 20)), Compiler::default());
    let told = Arc::new(Mutex::new(Vec::new()));
    let tell = told.clone();
    let options = CacheOptions::store(store.clone()).mode(CacheMode::RequireHit);
    let options = options.observer(move |event| tell.lock().push(event.to_string()));
    let jit = engine(1, options);
    let error = compiler.get(&jit, SOURCE).expect_err("it is not there");
    let said = WithCauses(&error).to_string();
    assert!(said.contains("f: the cache has no object of it: not stored"), "{said}");
    assert_eq!((compiler.calls(), &**told.lock()), (0, &["f: no object: not stored".to_owned()][..]));
    drop(jit);

    assert_eq!(compiler.get(&engine(1, store.clone()), SOURCE).expect("it compiles")(), 42);
    let required = engine(1, CacheOptions::store(store).mode(CacheMode::RequireHit));
    assert_eq!((compiler.get(&required, SOURCE).expect("it is there")(), compiler.calls()), (42, 1));
}

/// Without a cache the compiler is called each time.
#[test]
fn an_engine_without_a_cache_compiles() {
    let compiler = Compiler::default();
    for calls in [1, 2] {
        let jit = crate::support::engine(1);
        assert_eq!((compiler.get(&jit, SOURCE).expect("it compiles")(), compiler.calls()), (42, calls));
        assert!(jit.cache_entries().is_none());
    }
}
