//! A cycle that an emission closes while a removal goes on in slices, when some of the emitted symbols are removed before the
//! look.

use std::sync::mpsc;

use protocol_tests::deadlock::{
    Teller, define_blocking, finish_or_fail, look_up, look_up_as, until_blocked_for,
};
use protocol_tests::*;
use uruk_core::{
    DependenceGroup, Dependency, JitDylib, LookupError, LookupRequest, LookupSet, SymbolFlagsMap,
};

/// So many that their removal takes longer than an emission and a removal of one symbol; where it does not, the look comes at once, and
/// nothing is shown (`tests/deadlock.rs` of the protocol has the same step by step).
const MANY: usize = 400_000;

/// Defines the unit B of `b`, which blocks in a lookup of `a`; gives the token of `b`.
fn define_b(main: &JitDylib, told: &Teller) -> mpsc::Receiver<Dependency> {
    let (send, token) = mpsc::channel();
    let told = told.clone();
    let unit = TestUnit::new("B", exported(main.session(), &["b"]), move |responsibility| {
        send.send(responsibility.dependency(&responsibility.session().intern("b")).unwrap()).unwrap();
        let outcome = look_up_as("B", responsibility.dylib(), &["a"], &told);
        finish_or_fail(responsibility, outcome);
    });
    main.define(unit.boxed()).unwrap();
    token
}

#[test]
fn who_needs_the_second_of_a_group_is_told_after_the_removal() {
    within_reason(|| a_group_is_emitted(false));
}

#[test]
fn who_needs_the_second_of_a_group_is_told_though_the_first_is_removed() {
    within_reason(|| a_group_is_emitted(true));
}

/// A waits for r2, C for r1, B for a; r1 and r2 are emitted together and depend on b.
fn a_group_is_emitted(first_is_removed: bool) {
    let (session, main) = session();
    let (teller, told) = mpsc::channel();
    let parked = define_parked(&main, "R", &["r1", "r2"]);
    define_blocking(&main, "a", &["r2"], &teller);
    define_blocking(&main, "c", &["r1"], &teller);
    let token = define_b(&main, &teller);
    let tracker = main.create_tracker();
    let names: Vec<_> = (0..MANY).map(|index| session.intern(&format!("gone {index}"))).collect();
    let symbols: SymbolFlagsMap = names.iter().map(|name| (name.clone(), EXPORTED)).collect();
    let many = TestUnit::new("many", symbols, finish);
    drop(main.define_with_tracker(many.boxed(), &tracker));
    std::thread::scope(|scope| {
        let mut clients = Vec::new();
        for (symbol, needs) in [("a", "r2"), ("c", "r1"), ("b", "a")] {
            let main = &main;
            clients.push(scope.spawn(move || look_up(main, &[symbol])));
            until_blocked_for(main, symbol, needs);
        }
        let r = resolve(parked.recv().unwrap().attach());
        let symbols = vec![session.intern("r1"), session.intern("r2")];
        let group = DependenceGroup { symbols, dependencies: vec![token.recv().unwrap()] };
        let remover = scope.spawn(move || tracker.remove().unwrap());
        let first = || LookupSet::weakly_referenced([names[0].clone()]);
        while !session.lookup_flags(LookupRequest::new(order(&main), first())).unwrap().is_empty() {}
        r.notify_emitted(vec![group]).unwrap();
        if first_is_removed {
            main.remove(&[session.intern("r1")]).unwrap();
        }
        remover.join().unwrap();
        for client in clients {
            client.join().unwrap().unwrap_err();
        }
    });
    let errors: Vec<_> = told.try_iter().collect();
    let is_deadlock =
        |(_, error): &&(String, LookupError)| matches!(error, LookupError::WouldDeadlock { .. });
    assert_eq!(errors.iter().filter(is_deadlock).count(), 1, "{errors:?}");
}
