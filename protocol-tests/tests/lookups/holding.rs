//! A thread that holds a resource, and so may not wait, is refused a lookup only if that would have to wait.

use std::cell::Cell;
use std::panic::Location;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use protocol_tests::*;
use uruk_core::{
    DefinitionGenerator, ExecutionSession, GenerateRequest, HeldResource, JitDylib, JitDylibLookupFlags,
    LookupError, LookupRequest, LookupSet, SymbolName, WaitError, absolute_symbols,
};

const ALL: JitDylibLookupFlags = JitDylibLookupFlags::MatchAllSymbols;

thread_local! {
    static HELD: Cell<Option<HeldResource>> = const { Cell::new(None) };
}

fn session_that_refuses() -> (ExecutionSession, JitDylib) {
    let session = ExecutionSession::builder().refuse_waits_while(|| HELD.get()).build();
    let main = session.create_jit_dylib("main").unwrap();
    (session, main)
}

/// Runs `code` on a thread that holds something, which it took where this is called.
#[track_caller]
fn holding<R>(code: impl FnOnce() -> R) -> R {
    HELD.set(Some(HeldResource { what: "a context", taken_at: Some(Location::caller()) }));
    let result = code();
    HELD.set(None);
    result
}

fn define_at(main: &JitDylib, name: &str) -> SymbolName {
    let name = main.session().intern(name);
    main.define(absolute_symbols([(name.clone(), at(1))].into_iter().collect())).unwrap();
    name
}

#[test]
fn what_needs_no_wait_is_answered_under_the_lock_too() {
    let (session, main) = session_that_refuses();
    define_simple(&main, "unit", &["a"]);
    let a = session.intern("a");
    session.lookup_symbol(&order(&main), &a).unwrap();
    // No records can answer these: an address that was never searched, and a name that may be missing.
    let known = define_at(&main, "known");
    let names = [a.clone(), known.clone(), session.intern("nowhere")];
    let found =
        holding(|| session.lookup(LookupRequest::new(order(&main), LookupSet::weakly_referenced(names))))
            .unwrap();
    assert_eq!((found.len(), found[&known].address.value()), (2, 1));
    assert!(found.get(&a).is_some());
}

#[test]
fn what_a_symbol_is_needs_no_wait_and_a_link_order_is_followed() {
    let (session, main) = session_that_refuses();
    let second = session.create_jit_dylib("second").unwrap();
    main.set_link_order([&main, &second].map(|dylib| (dylib.clone(), ALL))).unwrap();
    define_simple(&second, "unit", &["a"]);
    let a = || set(&session, &["a"]);
    let flags = holding(|| session.lookup_flags(LookupRequest::new(order(&second), a()))).unwrap();
    assert_eq!(flags, exported(&session, &["a"]));
    let refused = holding(|| session.lookup(LookupRequest::along(&main, a())));
    assert!(matches!(refused, Err(LookupError::Wait(WaitError::Holding { .. }))), "{refused:?}");
    session.lookup(LookupRequest::along(&main, a())).unwrap();
    holding(|| session.lookup(LookupRequest::along(&main, a()))).unwrap();
}

#[test]
fn what_is_refused_at_once_is_refused_for_what_it_is() {
    let (session, main) = session_that_refuses();
    let missing = holding(|| session.lookup(LookupRequest::new(order(&main), set(&session, &["nowhere"]))));
    assert!(matches!(missing, Err(LookupError::NotFound { .. })), "{missing:?}");
    main.define(TestUnit::new("bad", exported(&session, &["bad"]), drop).boxed()).unwrap();
    let bad = session.intern("bad");
    assert!(session.lookup_symbol(&order(&main), &bad).is_err());
    let failed = holding(|| session.lookup_symbol(&order(&main), &bad));
    assert!(matches!(failed, Err(LookupError::Failed(_))), "{failed:?}");
}

#[test]
fn what_would_wait_is_refused_and_nothing_is_claimed() {
    let (session, main) = session_that_refuses();
    let started = Arc::new(AtomicBool::new(false));
    let unit = TestUnit::new("unit", exported(&session, &["a"]), {
        let started = started.clone();
        move |responsibility| {
            started.store(true, Ordering::Relaxed);
            finish(responsibility);
        }
    });
    main.define(unit.boxed()).unwrap();
    let known = define_at(&main, "known");
    let both = || LookupSet::required([session.intern("a"), known.clone()]);
    let refused = holding(|| session.lookup(LookupRequest::new(order(&main), both())));
    let Err(LookupError::Wait(WaitError::Holding { held })) = &refused else { panic!("{refused:?}") };
    assert_eq!((held.what, held.taken_at.unwrap().file()), ("a context", file!()));
    let place = held.taken_at.unwrap().to_string();
    assert!(refused.unwrap_err().in_full().contains(&format!("holds a context, taken at {place};")));
    assert!(!started.load(Ordering::Relaxed));
    // A symbol that was never searched may still be removed.
    main.remove(&[known]).unwrap();
    assert!(session.lookup(LookupRequest::new(order(&main), set(&session, &["a"]))).is_ok());
}

#[test]
fn a_generator_is_not_asked_for_who_must_not_wait() {
    struct Counts(Arc<AtomicBool>);
    impl DefinitionGenerator for Counts {
        fn name(&self) -> &str {
            "counts"
        }
        fn generate(&self, request: GenerateRequest) {
            self.0.store(true, Ordering::Relaxed);
            request.finish(Ok(()));
        }
    }
    let (session, main) = session_that_refuses();
    let asked = Arc::new(AtomicBool::new(false));
    main.add_generator(Arc::new(Counts(asked.clone()))).unwrap();
    let nowhere = set(&session, &["nowhere"]);
    let refused = holding(|| session.lookup(LookupRequest::new(order(&main), nowhere.clone())));
    assert!(matches!(refused, Err(LookupError::Wait(WaitError::Holding { .. }))), "{refused:?}");
    assert!(!asked.load(Ordering::Relaxed));
    assert!(session.lookup(LookupRequest::new(order(&main), nowhere)).is_err());
    assert!(asked.load(Ordering::Relaxed));
}
