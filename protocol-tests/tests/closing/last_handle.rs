//! The last handle of a session that was never closed frees all of it, re-exports included.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use protocol_tests::*;
use uruk_core::{
    AliasMap, AliasTarget, Deadline, ExecutionSession, JitDylib, JitDylibLookupFlags, LookupError,
    LookupRequest, MaterializationInterface, MaterializationResponsibility, MaterializationUnit,
    ReexportsGenerator, Resource, SymbolFlagsMap, SymbolName, TaskDispatcher, reexports, symbol_aliases,
};
use uruk_dispatch::WorkStealingTaskDispatcher;

const ALL: JitDylibLookupFlags = JitDylibLookupFlags::MatchAllSymbols;

/// Counts when it goes.
struct Counted(Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        // Relaxed: read after the drop, on the same thread or one that was joined.
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

impl Resource for Counted {
    fn remove(self: Box<Self>) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        Ok(())
    }
}

/// A unit that counts when it goes.
struct Unit {
    symbols: SymbolFlagsMap,
    _counted: Counted,
}

impl MaterializationUnit for Unit {
    fn name(&self) -> &str {
        "counted"
    }

    fn interface(&self) -> MaterializationInterface {
        MaterializationInterface::new(self.symbols.clone())
    }

    fn materialize(self: Box<Self>, responsibility: MaterializationResponsibility) {
        finish(responsibility);
    }

    fn discard(&mut self, _: &JitDylib, _: &SymbolName) {}
}

fn aliases(session: &ExecutionSession, pairs: &[(&str, &str)]) -> AliasMap {
    let target = |source: &str| AliasTarget { source: session.intern(source), flags: EXPORTED };
    pairs.iter().map(|(alias, source)| (session.intern(alias), target(source))).collect()
}

/// Fills a session with re-exports of every kind: asked for, not asked for, asked for in part, made on demand, of one another's
/// dylib; with a unit that ran, one that did not, and a resource. Counts up to three when all is gone.
fn fill(session: &ExecutionSession, gone: &Arc<AtomicUsize>) {
    let [library, facade, on_demand] =
        ["library", "facade", "on demand"].map(|name| session.create_jit_dylib(name).unwrap());
    for names in [["a", "b"], ["never", "asked for"]] {
        let symbols = exported(session, &names);
        library.define(Box::new(Unit { symbols, _counted: Counted(gone.clone()) })).unwrap();
    }
    library.default_tracker().add_resource(Box::new(Counted(gone.clone()))).unwrap();
    facade.define(reexports(library.clone(), ALL, aliases(session, &[("x", "a"), ("y", "b")]))).unwrap();
    facade.define(symbol_aliases(aliases(session, &[("z", "x"), ("own", "y")]))).unwrap();
    facade.define(reexports(facade.clone(), ALL, aliases(session, &[("self", "z")]))).unwrap();
    library
        .define(reexports(facade.clone(), ALL, aliases(session, &[("back", "z"), ("unasked", "z")])))
        .unwrap();
    on_demand.add_generator(Arc::new(ReexportsGenerator::new(library.clone(), ALL))).unwrap();
    facade.add_to_link_order(&library, ALL).unwrap();
    session.lookup_symbol(&order(&facade), &session.intern("x")).unwrap();
    session.lookup_symbol(&order(&facade), &session.intern("self")).unwrap();
    session.lookup_symbol(&order(&on_demand), &session.intern("back")).unwrap();
}

#[test]
fn the_last_handle_frees_a_session_with_re_exports() {
    let gone = Arc::new(AtomicUsize::new(0));
    let session = ExecutionSession::new();
    fill(&session, &gone);
    assert_eq!(gone.load(Ordering::Relaxed), 1, "the unit that ran");
    drop(session);
    assert_eq!(gone.load(Ordering::Relaxed), 3);
}

#[test]
fn the_last_handle_frees_a_session_on_a_pool() {
    let gone = Arc::new(AtomicUsize::new(0));
    let pool = Arc::new(WorkStealingTaskDispatcher::builder().workers(2).build().unwrap());
    let session = ExecutionSession::builder().dispatcher(pool.clone()).build();
    fill(&session, &gone);
    drop(session);
    // A worker may still hold a handle, and be at the end of its task.
    pool.shutdown();
    assert_eq!(gone.load(Ordering::Relaxed), 3);
}

#[test]
fn the_last_handle_may_be_the_last_dylib() {
    let gone = Arc::new(AtomicUsize::new(0));
    let session = ExecutionSession::new();
    fill(&session, &gone);
    let last = session.jit_dylib("facade").unwrap();
    drop(session);
    assert_eq!(gone.load(Ordering::Relaxed), 1);
    let found = last.session().lookup_symbol(&order(&last), &last.session().intern("y"));
    drop((found.unwrap(), last));
    assert_eq!(gone.load(Ordering::Relaxed), 3);
}

/// A re-export knows its dylib by a number; that of another session may have the same.
#[test]
fn re_exports_of_other_sessions_are_refused_and_keep_nothing_of_them() {
    let gone = Arc::new(AtomicUsize::new(0));
    let (session, main) = session();
    let other = ExecutionSession::new();
    fill(&other, &gone);
    let foreign = other.jit_dylib("library").unwrap();
    main.define(reexports(foreign.clone(), ALL, aliases(&session, &[("x", "a")]))).unwrap();
    main.add_generator(Arc::new(ReexportsGenerator::new(foreign.clone(), ALL))).unwrap();
    let refused = session.lookup_symbol(&order(&main), &session.intern("x")).unwrap_err();
    assert!(refused.in_full().contains("belongs to another session"), "{refused}");
    let refused = session.lookup_symbol(&order(&main), &session.intern("b")).unwrap_err();
    assert!(matches!(refused, LookupError::Generator { .. }), "{refused}");
    drop((foreign, other));
    assert_eq!(gone.load(Ordering::Relaxed), 3);
}

#[test]
fn a_re_export_of_a_dylib_that_was_removed_says_so() {
    let (session, main) = session();
    let library = session.create_jit_dylib("library").unwrap();
    define_simple(&library, "unit", &["a"]);
    main.define(reexports(library.clone(), ALL, aliases(&session, &[("x", "a")]))).unwrap();
    session.remove_jit_dylib(&library).unwrap();
    // Its place is taken by another.
    let successor = session.create_jit_dylib("library").unwrap();
    define_simple(&successor, "unit", &["a"]);
    let refused = session.lookup_symbol(&order(&main), &session.intern("x")).unwrap_err();
    assert!(refused.in_full().contains("was removed from its session"), "{refused}");
}

/// Lets go of all handles of a session in which `look_up` has looked up two units at least, in place; says how many still hold what
/// is in it.
fn held_after(look_up: impl FnOnce(&ExecutionSession, &JitDylib)) -> usize {
    let witness = Arc::new(());
    let (session, main) = session();
    let held = witness.clone();
    let unit = TestUnit::new("witness", exported(&session, &["witness"]), move |responsibility| {
        let _held = &held;
        finish(responsibility);
    });
    main.define(unit.boxed()).unwrap();
    ["a", "b", "c"].iter().for_each(|name| define_simple(&main, name, &[name]));
    look_up(&session, &main);
    drop((session, main));
    Arc::strong_count(&witness) - 1
}

#[test]
fn a_thread_that_has_run_the_units_of_a_lookup_keeps_no_handle() {
    assert_eq!(held_after(|_, _| ()), 0);
    let look_up = |session: &ExecutionSession, main: &JitDylib| {
        session.lookup(LookupRequest::new(order(main), set(session, &["a", "b", "c"]))).unwrap();
    };
    assert_eq!(held_after(look_up), 0);
    let in_time = |session: &ExecutionSession, main: &JitDylib| {
        let deadline = Deadline::at(Instant::now() + Duration::from_secs(3600));
        session
            .lookup(LookupRequest::new(order(main), set(session, &["a", "b", "c"])).until(deadline))
            .unwrap();
    };
    assert_eq!(held_after(in_time), 0);
    let from_a_unit = move |session: &ExecutionSession, main: &JitDylib| {
        let asks = TestUnit::new("asks", exported(session, &["asks"]), move |responsibility| {
            let (session, main) = (responsibility.session().clone(), responsibility.dylib().clone());
            look_up(&session, &main);
            finish(responsibility);
        });
        main.define(asks.boxed()).unwrap();
        session.lookup_symbol(&order(main), &session.intern("asks")).unwrap();
    };
    assert_eq!(held_after(from_a_unit), 0);
}
