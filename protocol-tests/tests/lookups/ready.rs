//! The ready path answers as the locked path would.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use protocol_tests::*;
use uruk_core::{
    DefinitionGenerator, ExecutionSession, GenerateRequest, JitDylib, JitDylibLookupFlags, LookupError,
    LookupRequest, LookupSet, SearchOrder, SymbolFlags, absolute_symbols,
};

const ALL: JitDylibLookupFlags = JitDylibLookupFlags::MatchAllSymbols;

/// A session with two dylibs, the second of which has `a` Ready at 2, searched first to second.
fn ready_in_the_second() -> (ExecutionSession, JitDylib, JitDylib, SearchOrder) {
    let (session, first) = session();
    let second = session.create_jit_dylib("second").unwrap();
    define_absolute(&second, "a", 2);
    let both = SearchOrder::from([(first.clone(), ALL), (second.clone(), ALL)]);
    assert_eq!(session.lookup_symbol(&both, &session.intern("a")).unwrap(), at(2));
    assert_eq!(session.lookup_symbol(&both, &session.intern("a")).unwrap(), at(2));
    (session, first, second, both)
}

#[test]
fn an_earlier_definition_that_is_not_ready_shadows_a_ready_one() {
    let (session, first, _second, both) = ready_in_the_second();
    define_absolute(&first, "a", 1);
    assert_eq!(session.lookup_symbol(&both, &session.intern("a")).unwrap(), at(1));
}

#[test]
fn an_earlier_definition_that_failed_shadows_a_ready_one() {
    let (session, first, _second, both) = ready_in_the_second();
    let unit = TestUnit::new("bad", exported(&session, &["a"]), drop);
    first.define(unit.boxed()).unwrap();
    assert!(matches!(session.lookup_symbol(&both, &session.intern("a")), Err(LookupError::Failed(_))));
    assert!(matches!(session.lookup_symbol(&both, &session.intern("a")), Err(LookupError::Failed(_))));
}

#[test]
fn an_earlier_hidden_definition_shadows_lookups_of_all_symbols_only() {
    let (session, first, second, both) = ready_in_the_second();
    let hidden = [(session.intern("a"), SymbolFlags::empty())].into_iter().collect();
    first.define(TestUnit::new("hidden", hidden, finish).boxed()).unwrap();
    let exported = JitDylibLookupFlags::MatchExportedSymbolsOnly;
    let exported_only = [(first, exported), (second, exported)].into();
    assert_eq!(session.lookup_symbol(&exported_only, &session.intern("a")).unwrap(), at(2));
    assert_eq!(session.lookup_symbol(&both, &session.intern("a")).unwrap().flags, SymbolFlags::empty());
}

#[test]
fn an_earlier_generator_is_asked_first() {
    struct Defines;
    impl DefinitionGenerator for Defines {
        fn name(&self) -> &str {
            "defines"
        }
        fn generate(&self, request: GenerateRequest) {
            define_absolute(request.dylib(), "a", 7);
            request.finish(Ok(()));
        }
    }
    let (session, first, _second, both) = ready_in_the_second();
    let generator = first.add_generator(Arc::new(Defines)).unwrap();
    assert_eq!(session.lookup_symbol(&both, &session.intern("a")).unwrap(), at(7));
    first.remove(&[session.intern("a")]).unwrap();
    first.remove_generator(generator);
    assert_eq!(session.lookup_symbol(&both, &session.intern("a")).unwrap(), at(2));
}

#[test]
fn a_removed_symbol_is_not_found_and_its_successor_is() {
    let (session, _first, second, both) = ready_in_the_second();
    second.remove(&[session.intern("a")]).unwrap();
    assert!(matches!(session.lookup_symbol(&both, &session.intern("a")), Err(LookupError::NotFound { .. })));
    define_absolute(&second, "a", 3);
    assert_eq!(session.lookup_symbol(&both, &session.intern("a")).unwrap(), at(3));
}

#[test]
fn orders_that_name_foreign_or_removed_dylibs_are_refused_whatever_is_ready() {
    let (session, first, second, mut both) = ready_in_the_second();
    let (_other_session, foreign) = protocol_tests::session();
    both.push(foreign, ALL);
    let error = session.lookup_symbol(&both, &session.intern("a")).unwrap_err();
    assert!(matches!(error, LookupError::ForeignDylib { .. }));
    session.remove_jit_dylib(&first).unwrap();
    let removed = [(second.clone(), ALL), (first, ALL)].into();
    let error = session.lookup_symbol(&removed, &session.intern("a")).unwrap_err();
    assert!(matches!(error, LookupError::DylibRemoved { .. }));
    assert_eq!(session.lookup_symbol(&order(&second), &session.intern("a")).unwrap(), at(2));
}

#[test]
fn a_closed_session_answers_nothing() {
    let (session, _first, _second, both) = ready_in_the_second();
    session.close().unwrap();
    assert!(matches!(session.lookup_symbol(&both, &session.intern("a")), Err(LookupError::Closed)));
}

#[test]
fn a_name_in_a_hundred_dylibs_is_found_in_each() {
    let session = ExecutionSession::new();
    let dylibs: Vec<_> =
        (0..100).map(|index| session.create_jit_dylib(&format!("d{index}")).expect("names differ")).collect();
    for (dylib, address) in dylibs.iter().zip(1..) {
        define_absolute(dylib, "a", address);
    }
    for _ in 0..2 {
        for (dylib, address) in dylibs.iter().zip(1..) {
            assert_eq!(session.lookup_symbol(&order(dylib), &session.intern("a")).unwrap(), at(address));
        }
    }
    for dylib in &dylibs[..60] {
        session.remove_jit_dylib(dylib).unwrap();
    }
    assert_eq!(session.lookup_symbol(&order(&dylibs[99]), &session.intern("a")).unwrap(), at(100));
}

#[test]
fn pairs_that_change_together_are_seen_together() {
    let (session, main) = session();
    let (names, done) = (["a", "b"].map(|name| session.intern(name)), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for address in 1..2000 {
                let pair = names.iter().map(|name| (name.clone(), at(address))).collect();
                main.define(absolute_symbols(pair)).unwrap();
                session.lookup(LookupRequest::new(order(&main), LookupSet::required(names.clone()))).unwrap();
                main.remove(&names).unwrap();
            }
            // Nothing is read on the strength of the flag.
            done.store(true, Ordering::Relaxed);
        });
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                match session.lookup(LookupRequest::new(order(&main), LookupSet::required(names.clone()))) {
                    Ok(found) => assert_eq!(found[&names[0]], found[&names[1]]),
                    Err(LookupError::NotFound { symbols, .. }) => assert_eq!(symbols.len(), 2),
                    Err(LookupError::Failed(_)) => {}
                    Err(error) => panic!("{error}"),
                }
            }
        });
    });
}
