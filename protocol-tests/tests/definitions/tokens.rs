//! Tokens and ids: they mean what they meant, in the session they come from and in no other.

use std::sync::Arc;

use protocol_tests::*;
use uruk_core::{DefinitionGenerator, DependenceGroup, EmitError, GenerateRequest};

/// A session was told from another by its address, which the next one may get when it is gone.
#[test]
fn a_token_of_a_session_that_is_gone_is_refused_by_all_that_come_after() {
    for _ in 0..100 {
        let token = {
            let (session, main) = session();
            define_simple(&main, "unit", &["a"]);
            let answer = look_up_later(&session, request(&main, &["a"])).recv().unwrap().unwrap();
            answer.dependency(&session.intern("a")).unwrap()
        };
        let (session, main) = session();
        define_simple(&main, "unit of a", &["a"]);
        session.lookup_symbol(&order(&main), &session.intern("a")).unwrap();
        let parked = define_parked(&main, "unit of b", &["b"]);
        let _answer = look_up_later(&session, request(&main, &["b"]));
        let responsibility = parked.recv().unwrap().attach();
        let definitions = addresses(responsibility.symbols());
        let resolved = responsibility.notify_resolved(&definitions).unwrap();
        let group = DependenceGroup { symbols: vec![session.intern("b")], dependencies: vec![token] };
        let refused = resolved.notify_emitted(vec![group]).unwrap_err();
        assert!(matches!(refused.error, EmitError::ForeignDependency { .. }), "{}", refused.error);
    }
}

struct Quiet;

impl DefinitionGenerator for Quiet {
    fn name(&self) -> &str {
        "quiet"
    }

    fn generate(&self, request: GenerateRequest) {
        request.finish(Ok(()));
    }
}

/// Ids of two sessions may coincide, and then the wrong generator went.
#[test]
fn a_generator_of_another_session_removes_nothing_here() {
    let ((_ours, main), (_theirs, foreign)) = (session(), session());
    let ours = main.add_generator(Arc::new(Quiet)).unwrap();
    let theirs = foreign.add_generator(Arc::new(Quiet)).unwrap();
    assert_ne!(ours, theirs);
    assert!(!main.remove_generator(theirs));
    assert!(main.remove_generator(ours));
    assert!(foreign.remove_generator(theirs));
}
