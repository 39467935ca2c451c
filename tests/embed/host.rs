//! A program and its host: functions and data of each that the other uses.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use uruk::core::{AliasMap, AliasTarget};
use uruk::core::{SymbolFlags, symbol_aliases};
use uruk::{Jit, JitError};

use crate::support::{c, engine};

type Answer = extern "C" fn() -> i64;

/// Each function of a host was once an absolute symbol: a map of an interned name, an address cast from a pointer, and flags.
#[test]
fn code_calls_functions_and_uses_data_of_its_host() {
    extern "C" fn host_twice(x: i64) -> i64 {
        2 * x
    }
    static HOST_COUNT: AtomicI64 = AtomicI64::new(20);

    let jit = engine(1);
    jit.define("twice", host_twice as extern "C" fn(i64) -> i64).expect("a new name");
    jit.define_data("count", &HOST_COUNT).expect("a new name");
    let source = "long twice(long); extern long count; long f(void) { count += 1; return twice(count); }";
    jit.add_object(c("f.o", source)).expect("a new name");
    // SAFETY: that is the function's signature, and what it uses has the types that it was declared with.
    let f = unsafe { jit.get::<Answer>("f") }.expect("it links");
    assert_eq!(f(), 42);
    // Relaxed: this thread has called it.
    assert_eq!(HOST_COUNT.load(Ordering::Relaxed), 21);

    let again = jit.define("twice", host_twice as extern "C" fn(i64) -> i64);
    assert!(matches!(again, Err(JitError::Define(_))), "{again:?}");
}

#[test]
fn functions_of_a_host_go_with_their_tracker() {
    extern "C" fn host_answer() -> i64 {
        42
    }

    let jit = engine(1);
    let plugin = jit.create_tracker();
    jit.in_tracker(&plugin).define("answer", host_answer as Answer).expect("a new name");
    // SAFETY: that is the function's signature.
    assert_eq!(unsafe { jit.get::<Answer>("answer") }.expect("it is there")(), 42);
    plugin.remove().expect("nothing of it objects");
    assert!(jit.lookup("answer").is_err());
}

#[test]
fn data_stays_with_its_handle() {
    let jit = engine(1);
    let tracker = jit.create_tracker();
    let source = "long table[3] = {1, 2, 42}; long f(void) { return table[0]; } __thread int own;";
    jit.in_tracker(&tracker).add_object(c("table.o", source)).expect("a new name");
    let table = jit.get_data::<[i64; 3]>("table").expect("it is data");
    for no_data in ["f", "own"] {
        let refused = jit.get_data::<i64>(no_data);
        assert!(matches!(refused, Err(JitError::NotData { .. })), "{refused:?}");
    }
    tracker.remove().expect("nothing of it objects");
    let other = table.clone();
    drop(table);
    // SAFETY: that is the type of the table, which no thread writes.
    assert_eq!(unsafe { *other.as_ptr() }, [1, 2, 42]);
}

/// An executable does not export its functions, so a host that had one of the missing name was told `not found` alone.
#[test]
fn a_symbol_that_the_executable_keeps_to_itself_is_told_with_the_way() {
    /// Known to the linker, and to no other.
    #[unsafe(no_mangle)]
    extern "C" fn uruk_test_unexported() -> i64 {
        42
    }
    std::hint::black_box(uruk_test_unexported as Answer);

    let jit = engine(1);
    let source = "long uruk_test_unexported(void); long f(void) { return uruk_test_unexported(); }";
    jit.add_object(c("f.o", source)).expect("a new name");
    for missed in ["f", "uruk_test_unexported"] {
        let error = jit.lookup(missed).expect_err("nothing exports it");
        let JitError::Unexported(unexported) = &error else { panic!("{error:?}") };
        assert_eq!(unexported.symbols, [jit.intern("uruk_test_unexported")]);
        assert_eq!(error.missing_symbols(), unexported.symbols);
        assert!(error.to_string().contains("has `uruk_test_unexported` without exporting it"), "{error}");
    }
    let error = jit.lookup("uruk_test_nowhere").expect_err("there is none");
    assert!(matches!(error, JitError::Lookup(_)), "{error:?}");

    jit.define("uruk_test_unexported", uruk_test_unexported as Answer).expect("a new name");
    // SAFETY: that is the function's signature.
    assert_eq!(unsafe { jit.get::<Answer>("f") }.expect("nothing is missing")(), 42);
}

/// A pointer that takes references of every lifetime was no type that `get` knew, and the compiler's error led nowhere.
#[test]
fn functions_take_references_of_every_lifetime() {
    #[repr(C)]
    struct Row {
        key: i64,
        value: i64,
    }

    let jit = engine(1);
    let source = "struct row { long key, value; };
        long key(const struct row *r) { return r->key; }
        void store(struct row *r, long value) { r->value = value; }
        long sum(const struct row *a, const struct row *b, long c) { return a->value + b->value + c; }
        long last(const struct row *a, long b, long c, long d, long e) { return a->key + e; }";
    jit.add_object(c("rows.o", source)).expect("new names");
    // SAFETY: these are the functions' signatures, and none of them keeps a reference.
    let (key, store, sum, last) = unsafe {
        (
            jit.get::<extern "C" fn(&Row) -> i64>("key").expect("it links"),
            jit.get::<extern "C" fn(&mut Row, i64)>("store").expect("it links"),
            jit.get::<unsafe extern "C" fn(&Row, &Row, i64) -> i64>("sum").expect("it links"),
            jit.get::<extern "C" fn(&Row, i64, i64, i64, i64) -> i64>("last").expect("it links"),
        )
    };
    let mut row = Row { key: 1, value: 0 };
    store(&mut row, 20);
    // SAFETY: any rows will do.
    assert_eq!((key(&row), unsafe { sum(&row, &row, 2) }, last(&row, 0, 0, 0, 41)), (1, 42, 42));
}

#[test]
fn what_is_not_ready_is_not_got_by_trying() {
    let jit = engine(1);
    let try_get = |jit: &Jit, name: &str| {
        // SAFETY: all functions here have this signature.
        unsafe { jit.try_get::<Answer>(name) }
    };
    assert!(try_get(&jit, "f").expect("nothing is refused").is_none());
    jit.add_object(c("f.o", "long f(void) { return 42; } long data = 1;")).expect("new names");
    assert!(try_get(&jit, "f").expect("nothing is refused").is_none());
    let why = jit.session().why(jit.dylib(), &jit.intern("f"));
    assert!(why.to_string().contains("nobody has looked for it"), "{why}");
    jit.lookup("f").expect("it links");
    jit.lookup("data").expect("it links");
    assert_eq!(try_get(&jit, "f").expect("nothing is refused").expect("it is Ready")(), 42);
    assert!(matches!(try_get(&jit, "data"), Err(JitError::NotCallable { .. })));
    // The process's functions are Ready once they were found.
    jit.lookup("getpid").expect("the C library has it");
    assert!(try_get(&jit, "getpid").expect("nothing is refused").is_some());
}

/// A function that was removed and defined anew after it had been found Ready was compiled by the thread that only tried.
#[test]
fn trying_compiles_nothing_beside_removals() {
    const ROUNDS: usize = 2_000;
    let jit = engine(0);
    let object = c("f.o", "long f(void) { return 42; }");
    let (compiler, is_over) = (std::thread::current().id(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // Relaxed: nothing hangs on it but the end.
            while !is_over.load(Ordering::Relaxed) {
                // SAFETY: that is the function's signature.
                if let Some(f) = unsafe { jit.try_get::<Answer>("f") }.expect("it is a function") {
                    assert_eq!(f(), 42);
                }
            }
        });
        for _ in 0..ROUNDS {
            let (tracker, object) = (jit.create_tracker(), object.clone());
            let compile = move || match std::thread::current().id() == compiler {
                true => Ok(object),
                false => Err("compiled by the thread that tries"),
            };
            jit.in_tracker(&tracker).add_object_fn(["f"], compile).expect("the name is free");
            jit.lookup("f").unwrap_or_else(|error| panic!("{}", uruk::core::WithCauses(&error)));
        }
        is_over.store(true, Ordering::Relaxed); // Relaxed: as above.
    });
}

/// A handle of a Ready symbol is got without the session's lock. An alias whose source was removed has an address
/// at which something else may lie by then.
#[test]
fn an_alias_of_what_was_removed_gives_no_handle() {
    let jit = engine(1);
    let first = jit.create_tracker();
    jit.in_tracker(&first).add_object(c("first.o", "long source(void) { return 1; }")).expect("a new name");
    let flags = SymbolFlags::EXPORTED | SymbolFlags::CALLABLE;
    let aliases: AliasMap =
        [(jit.intern("alias"), AliasTarget { source: jit.intern("source"), flags })].into_iter().collect();
    jit.dylib().define(symbol_aliases(aliases)).expect("a new name");
    // SAFETY: all functions here have this signature.
    let get = |name: &str| unsafe { jit.get::<Answer>(name) };
    assert_eq!(get("alias").expect("it is there")(), 1);
    assert_eq!(get("alias").expect("it is Ready")(), 1);
    // SAFETY: the alias is not called.
    unsafe { jit.remove_tracker_leaving_dependants(&first) }.expect("nothing of it objects");
    jit.add_object(c("second.o", "long other(void) { return 2; }")).expect("a new name");
    assert_eq!(get("other").expect("it links")(), 2);
    let refused = get("alias").expect_err("its source was removed");
    assert!(refused.to_string().contains("alias"), "{refused}");
}
