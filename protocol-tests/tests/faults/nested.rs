//! Chains of units, each of which fails with the error of its lookup. Once, each added its error to that of the next. Printing
//! or dropping the error of the first, in the session too, overflowed the stack, which ends the process.
//!
//! Stacks of 256 KiB, which anything that grows with the chain overflows.

use std::error::Error;
use std::iter::successors;
use std::sync::Arc;

use protocol_tests::*;
use uruk_core::{
    AliasTarget, DefinitionGenerator, ExecutionSession, FailureCause, GenerateRequest, JitDylib,
    JitDylibLookupFlags, LookupError, LookupRequest, ReexportsGenerator, SharedError, shared_error,
    symbol_aliases,
};

/// Where every transaction is checked, less will do.
const DEEP: usize = if cfg!(debug_assertions) { 5_000 } else { 100_000 };

fn on_a_small_stack(chain: impl FnOnce() + Send + 'static) {
    std::thread::Builder::new().stack_size(256 << 10).spawn(chain).unwrap().join().unwrap();
}

/// Looks for `s0`; the error can be printed and dropped, names both ends of the chain, and `last`, what it began with.
fn fails_at_both_ends(main: &JitDylib, last: &str) {
    let error = main.session().lookup_symbol(&order(main), &main.session().intern("s0")).unwrap_err();
    let (text, debug) = (error.in_full(), format!("{error:?}"));
    assert!(text.contains("`s0`") && text.ends_with(last), "{text}");
    assert!(text.contains("more, not listed)") && text.len() < 10_000, "{text}");
    assert!(debug.len() < 100_000);
    let sources = successors(Some(&error as &dyn Error), |error| (*error).source()).count();
    assert!(sources < 100, "{sources}");
    drop(error);
    main.session().close().unwrap();
}

fn define_alias(main: &JitDylib, index: usize) {
    let session = main.session();
    let target = AliasTarget { source: session.intern(&format!("s{}", index + 1)), flags: EXPORTED };
    let alias = session.intern(&format!("s{index}"));
    main.define(symbol_aliases([(alias, target)].into_iter().collect())).unwrap();
}

#[test]
fn a_long_chain_of_aliases_that_fails_needs_no_stack() {
    on_a_small_stack(|| {
        let (_session, main) = session();
        (0..DEEP).for_each(|index| define_alias(&main, index));
        fails_at_both_ends(&main, &format!("not found: `s{DEEP}` (searched `main`)"));
    });
}

/// Units that each look up the next, and fail with `says` of their lookup's error.
fn units_fail_at_both_ends(says: fn(LookupError) -> SharedError) {
    on_a_small_stack(move || {
        let (session, main) = session();
        for index in 0..DEEP {
            let needs = request(&main, &[&format!("s{}", index + 1)]);
            let symbol = format!("s{index}");
            let unit = TestUnit::new("unit", exported(&session, &[&symbol]), move |responsibility| {
                let session = responsibility.session().clone();
                let parked = responsibility.detach();
                session.lookup_async(needs, move |answer| parked.fail(says(answer.unwrap_err())));
            });
            main.define(unit.boxed()).unwrap();
        }
        fails_at_both_ends(&main, &format!("not found: `s{DEEP}` (searched `main`)"));
    });
}

#[test]
fn a_long_chain_of_units_that_fail_with_what_they_were_told_needs_no_stack() {
    units_fail_at_both_ends(|error| Arc::new(error));
}

/// An error of the embedder, which wraps that of its lookup.
#[derive(Debug)]
struct Wrapped(LookupError);

impl std::fmt::Display for Wrapped {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "cannot compile: {}", self.0)
    }
}

impl Error for Wrapped {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&self.0)
    }
}

#[test]
fn a_long_chain_of_units_that_wrap_what_they_were_told_needs_no_stack() {
    units_fail_at_both_ends(|error| Arc::new(Wrapped(error)));
}

/// An error of the embedder that has no sentence of its own: it has the text and the source of its lookup's error. So its
/// sources do not show that it wraps a failure.
#[derive(Debug)]
struct Transparent(LookupError);

impl std::fmt::Display for Transparent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

impl Error for Transparent {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.0.source()
    }
}

#[test]
fn a_long_chain_of_units_that_hide_what_they_were_told_needs_no_stack() {
    units_fail_at_both_ends(|error| Arc::new(Transparent(error)));
}

/// Dylibs, each of which re-exports what the next has, and a last one whose generator fails.
fn facades(session: &ExecutionSession, first: &JitDylib, count: usize) {
    let mut facade = first.clone();
    for index in 1..count {
        let next = session.create_jit_dylib(&format!("facade {index}")).unwrap();
        let all = JitDylibLookupFlags::MatchAllSymbols;
        facade.add_generator(Arc::new(ReexportsGenerator::new(next.clone(), all))).unwrap();
        facade = next;
    }
    let (generator, requests) = sends::sends();
    facade.add_generator(generator).unwrap();
    let session = session.clone();
    // It fails the lookup from a task of its own, when the chain has come to its end.
    let fail = move || requests.recv().unwrap().attach().finish(Err(shared_error("the index is torn")));
    std::thread::spawn(move || (fail(), drop(session)));
}

#[test]
fn a_long_chain_of_generators_that_fails_needs_no_stack() {
    on_a_small_stack(|| {
        let (session, main) = session();
        facades(&session, &main, DEEP / 50);
        let error = session.lookup_symbol(&order(&main), &session.intern("s0")).unwrap_err();
        let text = error.in_full();
        assert!(text.contains("of dylib `main` failed") && text.ends_with("the index is torn"), "{text}");
        assert!(text.contains("more, not listed)") && text.len() < 10_000, "{text}");
        session.close().unwrap();
    });
}

#[test]
fn an_error_with_many_sources_of_its_own_is_kept_as_it_is() {
    #[derive(Debug)]
    struct Own(Option<Box<Own>>);
    impl std::fmt::Display for Own {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("one of many")
        }
    }
    impl Error for Own {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            Some(self.0.as_deref()?)
        }
    }
    let (session, main) = session();
    let unit = TestUnit::new("unit", exported(&session, &["a"]), |responsibility| {
        let error = (0..100).fold(Own(None), |source, _| Own(Some(Box::new(source))));
        responsibility.fail(Arc::new(error));
    });
    main.define(unit.boxed()).unwrap();
    match on::failure_of(session.lookup(LookupRequest::new(order(&main), set(&session, &["a"])))) {
        FailureCause::Unit(error) => assert!(error.is::<Own>(), "{error:?}"),
        cause => panic!("{cause}"),
    }
}

/// An error whose source panics, or is the error itself.
#[derive(Debug)]
struct Odd {
    panics: bool,
}

impl std::fmt::Display for Odd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("odd")
    }
}

impl Error for Odd {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self.panics {
            true => panic!("asked for its source"),
            false => Some(self),
        }
    }
}

#[test]
fn an_error_whose_sources_cannot_be_followed_fails_its_unit_and_its_generator_all_the_same() {
    for panics in [false, true] {
        within_reason(move || {
            let (session, main) = session();
            let unit = TestUnit::new("unit", exported(&session, &["a"]), move |responsibility| {
                responsibility.fail(Arc::new(Odd { panics }));
            });
            main.define(unit.boxed()).unwrap();
            let told = if panics { "asked for its source" } else { "odd" };
            let error = session
                .lookup(LookupRequest::new(order(&main), set(&session, &["a"])))
                .unwrap_err()
                .in_full();
            assert!(error.contains(told), "{error}");
            main.add_generator(Arc::new(FailsWith { panics })).unwrap();
            let error = session
                .lookup(LookupRequest::new(order(&main), set(&session, &["b"])))
                .unwrap_err()
                .in_full();
            assert!(error.ends_with(if panics { "it panicked" } else { "odd" }), "{error}");
            session.close().unwrap();
        });
    }
}

#[derive(Debug)]
struct FailsWith {
    panics: bool,
}

impl DefinitionGenerator for FailsWith {
    fn name(&self) -> &str {
        "fails"
    }

    fn generate(&self, request: GenerateRequest) {
        request.finish(Err(Arc::new(Odd { panics: self.panics })));
    }
}
