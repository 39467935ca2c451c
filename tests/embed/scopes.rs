//! Scopes as values: returned, stored, sent to threads, and left over when the engine has ended.
//!
//! A scope was a pair of references, made for the moment: a host that kept one for each of its plugins had to keep the engine beside each.

use std::collections::HashMap;
use std::sync::LazyLock;
use std::thread;

use uruk::core::sync::{Arc, Latch};
use uruk::core::{DefineError, DylibError, ExecutionSession, LookupError};
use uruk::pipeline::object::CommonError;
use uruk::{Jit, JitError, Scope};

use crate::function_unit::function_unit;
use crate::plugins::provide;
use crate::support::{archive, block_on, c, engine};

type Number = extern "C" fn() -> i32;

/// A scope with one function, `number`, made somewhere else.
fn plugin(jit: &Jit, name: &str, number: i32) -> Result<Scope, JitError> {
    let plugin = jit.create_dylib(name)?;
    plugin.add_object(c("number.o", &format!("int number(void) {{ return {number}; }}")))?;
    Ok(plugin)
}

fn call(scope: &Scope) -> i32 {
    // SAFETY: the functions of these tests have this signature.
    unsafe { scope.get::<Number>("number") }.expect("it links")()
}

#[test]
fn scopes_are_returned_stored_and_sent() {
    fn is_a_value<T: Clone + Send + Sync + 'static>() {}
    is_a_value::<Scope>();
    let jit = engine(1);
    let plugins: HashMap<_, _> = ["one", "two"]
        .into_iter()
        .zip(1..)
        .map(|(name, number)| (name, plugin(&jit, name, number).expect("a new name")))
        .collect();
    let of_threads = plugins.values().cloned().map(|plugin| thread::spawn(move || call(&plugin)));
    let sum: i32 = of_threads.map(|thread| thread.join().expect("no panic")).sum();
    assert_eq!((call(&plugins["one"]), call(&plugins["two"]), sum), (1, 2, 3));
}

#[test]
fn nothing_goes_with_the_last_handle_of_a_scope() {
    let jit = engine(1);
    drop(plugin(&jit, "kept", 7).expect("a new name"));
    let dylib = jit.session().jit_dylib("kept").expect("nobody has removed it");
    assert_eq!(call(&jit.in_dylib(&dylib)), 7);
    let tracker = jit.create_tracker();
    let scope = jit.in_tracker(&tracker);
    scope.add_object(c("number.o", "int number(void) { return 8; }")).expect("a new name");
    drop(scope);
    assert_eq!(call(&jit), 8);
    tracker.remove().expect("nothing objects");
    jit.lookup("number").expect_err("it went with its tracker");
}

/// A scope that a tracker was made for goes on after its tracker and its dylib, and says what is gone.
#[test]
fn a_scope_outlives_its_tracker_and_its_dylib() {
    let jit = engine(1);
    let plugin = plugin(&jit, "gone", 1).expect("a new name");
    jit.remove_dylib(&plugin).expect("nothing objects");
    let found = plugin.lookup("number");
    assert!(matches!(found, Err(JitError::Lookup(LookupError::DylibRemoved { .. }))), "{found:?}");
    let added = plugin.add_object(c("late.o", "int late;"));
    assert!(matches!(added, Err(JitError::Define(DefineError::DylibRemoved { .. }))), "{added:?}");
}

fn says_closed<T>(what: &str, answer: Result<T, JitError>) {
    let error = answer.map(drop).expect_err(what);
    let is_closed = matches!(
        error,
        JitError::Lookup(LookupError::Closed)
            | JitError::Define(DefineError::Closed { .. })
            | JitError::Common(CommonError::Define(DefineError::Closed { .. }))
            | JitError::Dylib(DylibError::Closed)
    );
    assert!(is_closed, "{what}: {error:?}");
}

/// Asks a scope for everything that it can do.
fn ask_all(scope: &Scope, other: &Scope) {
    says_closed("lookup", scope.lookup("number"));
    says_closed("lookup_async", block_on(scope.lookup_async("number")));
    // SAFETY: none of it is called.
    unsafe {
        says_closed("function", scope.function::<Number>("number"));
        says_closed("get", scope.get::<Number>("number"));
        says_closed("get_unchecked", scope.get_unchecked::<Number>("number"));
        says_closed("get_async", block_on(scope.get_async::<Number>("number")));
        let guard = scope.enter();
        says_closed("get_guarded", scope.get_guarded::<Number>(&guard, "number"));
        says_closed("initialize", scope.initialize());
        scope.deinitialize();
    }
    let object = c("late.o", "int common; int late(void) { return common; }");
    says_closed("add_object", scope.add_object(object.clone()));
    let tentative = crate::support::c_with("common.o", "int common;", &["-fcommon"]);
    says_closed("add_object, tentative", scope.add_object(tentative));
    says_closed("add_buffer", scope.add_buffer(object.clone()));
    says_closed("add_archive", scope.add_archive(&archive("late.a", &[object])));
    says_closed("add_unit", scope.add_unit(function_unit(scope.intern("unit"), drop)));
    says_closed("load_library", scope.load_library("libm.so.6"));
    says_closed("link_to", scope.link_to(other));
    says_closed("add_lazy", scope.add_lazy(other, ["number"]));
    says_closed("add_lazy_group", scope.add_lazy_group(other, ["number"]));
    says_closed("redefine", scope.redefine(other, ["number"]));
    says_closed("redefine_lazily", scope.redefine_lazily(other, ["number"]));
    let tracker = scope.create_tracker();
    says_closed("in_tracker", scope.in_tracker(&tracker).lookup("number"));
    scope.remove_tracker(&tracker).expect("it has nothing").wait().expect("this thread may wait");
    assert_eq!(scope.pending_reclaim().pieces, 0);
    assert!(!format!("{scope:?}").is_empty());
    #[cfg(feature = "llvm")]
    {
        let text = "define i32 @number() { ret i32 1 }";
        says_closed("add_ir_text", scope.add_ir_text("late.ll", text));
        let module = uruk::pipeline::ir::ThreadSafeModule::new(&Default::default(), "empty");
        says_closed("add_module", scope.add_module(module));
    }
}

#[test]
fn a_scope_that_is_left_says_that_the_engine_has_ended() {
    let on_call = || Jit::builder().threads(1).compile_on_call(uruk::OnCall::Function).build();
    for jit in [engine(0), engine(1), on_call().expect("an engine for this machine")] {
        let (first, other) = (plugin(&jit, "first", 1), plugin(&jit, "other", 2));
        let (first, other) = (first.expect("a new name"), other.expect("a new name"));
        assert_eq!((call(&first), call(&other)), (1, 2));
        let tracker = first.create_tracker();
        let of_tracker = first.in_tracker(&tracker);
        let main: Scope = Scope::clone(&jit);
        drop(jit);
        for scope in [&main, &first, &of_tracker] {
            ask_all(scope, &other);
        }
    }
}

/// A lookup that waits on another thread is not left behind when the engine ends.
#[test]
fn a_lookup_by_a_scope_ends_with_the_engine() {
    let jit = engine(1);
    let (has_begun, may_go_on) = (Arc::new(Latch::new()), Arc::new(Latch::new()));
    let (here, goes_on) = (has_begun.clone(), may_go_on.clone());
    let unit = function_unit(jit.intern("slow"), move |responsibility| {
        here.open();
        goes_on.wait();
        drop(responsibility);
    });
    let plugin = jit.create_dylib("plugin").expect("a new name");
    plugin.add_unit(unit).expect("a new name");
    let session = jit.session().clone();
    let asks = thread::spawn(move || plugin.lookup("slow"));
    has_begun.wait();
    let ends = thread::spawn(move || drop(jit));
    until_closed(&session);
    may_go_on.open();
    ends.join().expect("no panic");
    asks.join().expect("no panic").expect_err("the engine has ended");
}

fn until_closed(session: &ExecutionSession) {
    while !matches!(session.create_jit_dylib("late"), Err(DylibError::Closed)) {
        thread::yield_now();
    }
}

/// An initialiser that a lookup runs on another thread comes to its end in code that is still there.
#[test]
fn an_initialiser_that_runs_keeps_its_code_when_the_engine_ends() {
    static BEGUN: LazyLock<Latch> = LazyLock::new(Latch::new);
    static ENDED: LazyLock<Latch> = LazyLock::new(Latch::new);

    extern "C" fn pause() {
        BEGUN.open();
        ENDED.wait();
    }
    let jit = Jit::builder().threads(1).initialize_on_lookup(true).build().expect("an engine");
    provide(&jit, "pause", pause as *const ());
    let source = "void pause(void); static volatile int begun;
                  __attribute__((constructor)) static void begin(void) { pause(); begun = 1; }
                  int number(void) { return begun; }";
    jit.add_object(c("plugin.o", source)).expect("a new name");
    let (scope, session) = (Scope::clone(&jit), jit.session().clone());
    let asks = thread::spawn(move || scope.lookup("number").map(drop));
    BEGUN.wait();
    let ends = thread::spawn(move || drop(jit));
    until_closed(&session);
    ENDED.open();
    ends.join().expect("no panic");
    asks.join().expect("no panic").expect("it was Ready before the engine ended");
}
