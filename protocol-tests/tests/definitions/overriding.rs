//! Definitions that compete: each kind against each kind, in every state the existing one can be in.

use std::sync::mpsc;

use protocol_tests::*;
use uruk_core::{
    DefineError, Detached, ExecutionSession, JitDylib, LookupRequest, LookupResult,
    MaterializationResponsibility, ResolvedResponsibility, SymbolFlags, SymbolFlagsMap, SymbolName,
};

/// Where the existing definition stands when the new one comes.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Stage {
    NeverSearched,
    Materializing,
    /// Claimed and given back: no lookup waits for it any more, but one has searched it.
    Returned,
    Resolved,
    Ready,
}

const STAGES: [Stage; 5] =
    [Stage::NeverSearched, Stage::Materializing, Stage::Returned, Stage::Resolved, Stage::Ready];
const STRONG: SymbolFlags = EXPORTED;
const WEAK: SymbolFlags = EXPORTED.union(SymbolFlags::WEAK);
const COMMON: SymbolFlags = EXPORTED.union(SymbolFlags::COMMON);

/// A session in which unit `existing` defines `a`, and the values that hold it at its stage.
struct Existing {
    session: ExecutionSession,
    main: JitDylib,
    a: SymbolName,
    discarded: mpsc::Receiver<SymbolName>,
    parked: Option<Detached<MaterializationResponsibility>>,
    resolved: Option<Detached<ResolvedResponsibility>>,
    answer: Option<mpsc::Receiver<Result<LookupResult, uruk_core::LookupError>>>,
}

fn existing(flags: SymbolFlags, stage: Stage) -> Existing {
    let (session, main) = session();
    let a = session.intern("a");
    let (send, parked) = mpsc::channel();
    let (tell, discarded) = mpsc::channel();
    let symbols: SymbolFlagsMap = [(a.clone(), flags)].into_iter().collect();
    let park = move |responsibility: MaterializationResponsibility| {
        // The test may have ended.
        let _ = send.send(responsibility.detach());
    };
    let unit = TestUnit::new("existing", symbols.clone(), park)
        .on_discard(move |symbol| tell.send(symbol.clone()).unwrap());
    main.define(unit.boxed()).unwrap();
    let mut existing = Existing { session, main, a, discarded, parked: None, resolved: None, answer: None };
    if stage == Stage::NeverSearched {
        return existing;
    }
    let request = request(&existing.main, &["a"]);
    if stage == Stage::Returned {
        drop(existing.session.lookup_future(request));
        let again = TestUnit::new("existing", symbols, finish);
        parked.recv().unwrap().attach().replace(again.boxed()).map_err(|refused| refused.error).unwrap();
        return existing;
    }
    existing.answer = Some(look_up_later(&existing.session, request));
    let responsibility = parked.recv().unwrap();
    if stage == Stage::Materializing {
        existing.parked = Some(responsibility);
        return existing;
    }
    let responsibility = responsibility.attach();
    let addresses = addresses(responsibility.symbols());
    let resolved = responsibility.notify_resolved(&addresses).unwrap();
    match stage {
        Stage::Resolved => existing.resolved = Some(resolved.detach()),
        _ => resolved.notify_emitted(Vec::new()).unwrap(),
    }
    existing
}

impl Existing {
    /// Defines `a` by unit `new`; gives what its `discard` heard, once the unit is gone.
    fn define(&self, flags: SymbolFlags) -> Result<mpsc::Receiver<SymbolName>, DefineError> {
        let (tell, discarded) = mpsc::channel();
        let unit = TestUnit::new("new", [(self.a.clone(), flags)].into_iter().collect(), finish)
            .on_discard(move |symbol| tell.send(symbol.clone()).unwrap());
        self.main.define(unit.boxed())?;
        Ok(discarded)
    }

    /// Lets the existing definition come to its end, and looks `a` up.
    fn finish(mut self) {
        if let Some(parked) = self.parked.take() {
            finish(parked.attach());
        }
        if let Some(resolved) = self.resolved.take() {
            resolved.attach().notify_emitted(Vec::new()).unwrap();
        }
        if let Some(answer) = self.answer.take() {
            assert!(answer.recv().unwrap().is_ok(), "whoever waited is answered");
        }
        self.session.lookup_symbol(&order(&self.main), &self.a).unwrap();
    }
}

fn assert_duplicate(existing: &Existing, case: &str) {
    let error = existing.define(STRONG).expect_err(case);
    assert_eq!(
        error.in_full(),
        "`a` of unit `new` is already defined in dylib `main` by unit `existing`",
        "{case}"
    );
    assert!(existing.discarded.try_recv().is_err(), "the existing unit hears nothing: {case}");
}

#[test]
fn a_strong_one_takes_the_place_of_a_weak_or_common_one_that_nobody_searched() {
    for flags in [WEAK, COMMON] {
        let existing = existing(flags, Stage::NeverSearched);
        existing.define(STRONG).unwrap();
        assert!(existing.discarded.iter().eq([existing.a.clone()]), "told, then dropped");
        assert_eq!(existing.main.flags([existing.a.clone()]), [(existing.a.clone(), STRONG)]);
        existing.finish();
    }
}

#[test]
fn a_strong_one_is_a_duplicate_of_a_weak_or_common_one_that_was_searched() {
    for flags in [WEAK, COMMON] {
        for stage in STAGES.into_iter().filter(|&stage| stage != Stage::NeverSearched) {
            let existing = existing(flags, stage);
            assert_duplicate(&existing, &format!("{flags:?}, {stage:?}"));
            existing.finish();
        }
    }
}

#[test]
fn a_strong_one_is_a_duplicate_of_a_strong_one_in_every_state() {
    for stage in STAGES {
        let existing = existing(STRONG, stage);
        assert_duplicate(&existing, &format!("{stage:?}"));
        if stage != Stage::NeverSearched {
            existing.finish();
        }
    }
}

#[test]
fn a_weak_or_common_one_yields_to_every_kind_in_every_state() {
    for new in [WEAK, COMMON] {
        for old in [STRONG, WEAK, COMMON] {
            for stage in STAGES {
                let existing = existing(old, stage);
                let before = existing.main.flags([existing.a.clone()]);
                let discarded = existing.define(new).unwrap();
                let heard = discarded.iter().eq([existing.a.clone()]);
                assert!(heard, "{new:?} against {old:?}, {stage:?}: told, then dropped");
                assert!(existing.discarded.try_recv().is_err(), "the existing unit hears nothing");
                assert_eq!(existing.main.flags([existing.a.clone()]), before);
                if stage != Stage::NeverSearched {
                    existing.finish();
                }
            }
        }
    }
}

#[test]
fn what_was_taken_from_a_unit_is_told_before_the_rest_materializes() {
    let (session, main) = session();
    let (send, heard) = mpsc::channel();
    let told = send.clone();
    let symbols = ["a", "b"].map(|name| (session.intern(name), WEAK));
    let unit = TestUnit::new("weak", symbols.into_iter().collect(), move |responsibility| {
        let symbols: Vec<_> = responsibility.symbols().keys().map(ToString::to_string).collect();
        send.send(format!("materialize {}", symbols.join(" "))).unwrap();
        finish(responsibility);
    });
    let unit = unit.on_discard(move |symbol| told.send(format!("discard {symbol}")).unwrap());
    main.define(unit.boxed()).unwrap();
    define_simple(&main, "strong", &["a"]);
    session.lookup(LookupRequest::new(order(&main), set(&session, &["a", "b"]))).unwrap();
    assert_eq!(heard.iter().collect::<Vec<_>>(), ["discard a", "materialize b"]);
}

#[test]
fn a_duplicate_leaves_the_weak_ones_beside_it_alone() {
    let (session, main) = session();
    let weak = existing_weak(&session, &main, "w");
    define_simple(&main, "strong", &["s"]);
    let both = TestUnit::new("both", exported(&session, &["w", "s"]), finish);
    let error = main.define(both.boxed()).unwrap_err();
    assert_eq!(error.in_full(), "`s` of unit `both` is already defined in dylib `main` by unit `strong`");
    assert!(weak.try_recv().is_err(), "all or nothing: the weak one was not overridden");
    assert_eq!(main.flags([session.intern("w")]), [(session.intern("w"), WEAK)]);
}

/// A weak definition of `name` that reports its discarded symbol.
fn existing_weak(session: &ExecutionSession, main: &JitDylib, name: &str) -> mpsc::Receiver<SymbolName> {
    let (tell, discarded) = mpsc::channel();
    let symbols = [(session.intern(name), WEAK)].into_iter().collect();
    let unit = TestUnit::new("weak", symbols, finish);
    main.define(unit.on_discard(move |symbol| tell.send(symbol.clone()).unwrap()).boxed()).unwrap();
    discarded
}
