//! Names that a generator has ruled out: it is not asked for them again, and definitions that come from elsewhere are found.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use protocol_tests::sends::sends;
use protocol_tests::*;
use uruk_core::{
    DefinitionGenerator, ExecutionSession, GenerateRequest, JitDylib, JitDylibLookupFlags, LookupRequest,
};

/// Counts the names that it is asked for, and has none.
#[derive(Default)]
struct HasNone(AtomicUsize);

impl DefinitionGenerator for HasNone {
    fn name(&self) -> &str {
        "has none"
    }

    fn generate(&self, mut request: GenerateRequest) {
        self.0.fetch_add(request.symbols().len(), Ordering::SeqCst);
        request.rule_out(|_| true);
        request.finish(Ok(()));
    }
}

impl HasNone {
    fn asked(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

fn with_generator() -> (ExecutionSession, JitDylib, Arc<HasNone>) {
    let (session, main) = session();
    let generator = Arc::new(HasNone::default());
    main.add_generator(generator.clone());
    (session, main, generator)
}

fn finds(dylib: &JitDylib, names: &[&str]) -> bool {
    let names = set(dylib.session(), names);
    dylib.session().lookup(LookupRequest::along(dylib, names)).is_ok()
}

#[test]
fn a_generator_is_asked_once_for_what_it_has_ruled_out() {
    let (_session, main, generator) = with_generator();
    for _ in 0..3 {
        assert!(!finds(&main, &["a"]));
    }
    assert_eq!(generator.asked(), 1);
    assert!(!finds(&main, &["a", "b"]));
    assert_eq!(generator.asked(), 2, "it is asked for the new one alone");
}

#[test]
fn generators_that_have_changed_are_asked_again() {
    let (session, main, generator) = with_generator();
    assert!(!finds(&main, &["a"]));
    session.generators_changed();
    assert!(!finds(&main, &["a"]));
    assert_eq!(generator.asked(), 2);
    assert!(!finds(&main, &["a"]));
    assert_eq!(generator.asked(), 2, "it has said so again");
}

#[test]
fn a_definition_that_comes_afterwards_is_found_wherever_it_comes() {
    let (session, main, generator) = with_generator();
    assert!(!finds(&main, &["here", "elsewhere", "generated"]));
    define_simple(&main, "late", &["here"]);
    assert!(finds(&main, &["here"]));
    let other = session.create_jit_dylib("other").unwrap();
    define_simple(&other, "later", &["elsewhere"]);
    assert!(!finds(&main, &["elsewhere"]));
    main.add_to_link_order(&other, JitDylibLookupFlags::MatchAllSymbols).unwrap();
    assert!(finds(&main, &["elsewhere"]));
    let (newcomer, requests) = sends();
    main.add_generator(newcomer);
    let answer = look_up_later(&session, request(&main, &["generated"]));
    define_simple(&main, "latest", &["generated"]);
    requests.try_recv().expect("it is asked").attach().finish(Ok(()));
    assert!(answer.try_recv().unwrap().is_ok());
    assert!(generator.asked() >= 3);
}

#[test]
fn another_generator_is_asked_for_what_the_first_has_ruled_out() {
    let (session, main, generator) = with_generator();
    let (second, requests) = sends();
    main.add_generator(second);
    for _ in 0..2 {
        let answer = look_up_later(&session, request(&main, &["a"]));
        requests.try_recv().expect("it has ruled nothing out").attach().finish(Ok(()));
        assert!(answer.try_recv().unwrap().is_err());
    }
    assert_eq!(generator.asked(), 1);
}

/// ```text
///  lookup      asks ────────────────── rules out, finishes
///  library           comes, is told of
/// ```
#[test]
fn a_name_is_not_ruled_out_if_generators_changed_since_the_question() {
    let (session, main) = session();
    let (generator, requests) = sends();
    main.add_generator(generator);
    let first = look_up_later(&session, request(&main, &["a"]));
    let mut asked = requests.try_recv().unwrap().attach();
    asked.rule_out(|_| true);
    session.generators_changed();
    asked.finish(Ok(()));
    assert!(first.try_recv().unwrap().is_err());
    let second = look_up_later(&session, request(&main, &["a"]));
    define_simple(&main, "late", &["a"]);
    requests.try_recv().expect("the generator is asked again").attach().finish(Ok(()));
    assert!(second.try_recv().unwrap().is_ok());
}

#[test]
fn names_that_were_ruled_out_are_not_remembered_for_ever() {
    let (_session, main, generator) = with_generator();
    let names: Vec<String> = (0..10_000).map(|number| format!("absent{number}")).collect();
    names.iter().for_each(|name| assert!(!finds(&main, &[name])));
    assert_eq!(generator.asked(), 10_000);
    assert!(!finds(&main, &[&names[0]]));
    assert_eq!(generator.asked(), 10_001, "it was forgotten for others");
}
