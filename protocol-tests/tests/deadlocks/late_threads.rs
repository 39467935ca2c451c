//! The edge that closes a cycle of waits comes late, and from a thread that has no part in the cycle.
//!
//! ```text
//!  unit A: holds a ─ lookup ──────────▶ blocked                   ◀── told
//!  test:                                 waits for that ─ closes the circle
//! ```

use std::sync::mpsc;

use protocol_tests::deadlock::{
    Teller, blocking_unit, define_blocking, finish_or_fail, look_up, look_up_as, the_cycle, until_blocked_for,
};
use protocol_tests::on::On;
use protocol_tests::sends::sends;
use protocol_tests::*;
use uruk_core::{
    AliasTarget, DeadlockStep, DependenceGroup, Dependency, JitDylib, LookupError, SerialQueue, SymbolFlags,
    symbol_aliases,
};

on_every_dispatcher!(
    an_emission_closes_the_circle,
    the_second_dependency_of_an_emission_closes_the_circle,
    a_replacement_that_waits_in_the_serial_queue_closes_the_circle,
    a_generator_that_finishes_closes_the_circle,
    a_generator_that_makes_an_alias_closes_the_circle,
    an_emission_beyond_aliases_of_aliases_closes_the_circle,
);
on_every_dispatcher!(
    on per_task,
    protocol_tests::on::On::PerTask,
    an_emission_closes_the_circle,
    the_second_dependency_of_an_emission_closes_the_circle,
    a_replacement_that_waits_in_the_serial_queue_closes_the_circle,
    a_generator_that_finishes_closes_the_circle,
    a_generator_that_makes_an_alias_closes_the_circle,
    an_emission_beyond_aliases_of_aliases_closes_the_circle,
);

/// Defines the unit A of `a`, which blocks in a lookup of `needs`; gives the token of `a`.
fn define_a(main: &JitDylib, needs: &'static [&'static str], told: &Teller) -> mpsc::Receiver<Dependency> {
    let (send, token) = mpsc::channel();
    let told = told.clone();
    let unit = TestUnit::new("A", exported(main.session(), &["a"]), move |responsibility| {
        let a = responsibility.session().intern("a");
        send.send(responsibility.dependency(&a).unwrap()).unwrap();
        let outcome = look_up_as("A", responsibility.dylib(), needs, &told);
        finish_or_fail(responsibility, outcome);
    });
    main.define(unit.boxed()).unwrap();
    token
}

fn an_emission_closes_the_circle(on: On) {
    let (session, main) = on.session();
    let (teller, told) = mpsc::channel();
    let parked = define_parked(&main, "X", &["x"]);
    let x_wanted = look_up_later(&session, request(&main, &["x"]));
    let x = resolve(parked.recv().unwrap().attach());
    let token = define_a(&main, &["x"], &teller);
    std::thread::scope(|scope| {
        let client = scope.spawn(|| look_up(&main, &["a"]));
        let dependencies = vec![token.recv().unwrap()];
        until_blocked_for(&main, "a", "x");
        assert!(told.try_recv().is_err());
        let group = DependenceGroup { symbols: vec![session.intern("x")], dependencies };
        x.notify_emitted(vec![group]).unwrap();
        client.join().unwrap().unwrap_err();
    });
    assert_eq!(the_cycle(&told), ("A".into(), vec!["a".into(), "x".into()]));
    // Not told: it fails with its dependence.
    assert!(matches!(x_wanted.recv().unwrap(), Err(LookupError::Failed(_))));
    session.close().unwrap();
}

/// `x` hangs on `p`, which another thread may emit, and on `a`, at which the forest need not have looked.
fn the_second_dependency_of_an_emission_closes_the_circle(on: On) {
    let (session, main) = on.session();
    let (teller, told) = mpsc::channel();
    let parked = ["x", "p"].map(|name| define_parked(&main, name, &[name]));
    let wanted = look_up_later(&session, request(&main, &["x", "p"]));
    let [x, p] = parked.map(|parked| resolve(parked.recv().unwrap().attach()));
    let on_p = p.dependency(&session.intern("p")).unwrap();
    let token = define_a(&main, &["x"], &teller);
    std::thread::scope(|scope| {
        let client = scope.spawn(|| look_up(&main, &["a"]));
        let dependencies = vec![on_p, token.recv().unwrap()];
        until_blocked_for(&main, "a", "x");
        let group = DependenceGroup { symbols: vec![session.intern("x")], dependencies };
        x.notify_emitted(vec![group]).unwrap();
        client.join().unwrap().unwrap_err();
    });
    assert_eq!(the_cycle(&told), ("A".into(), vec!["a".into(), "x".into()]));
    assert!(wanted.recv().unwrap().is_err());
    p.notify_emitted(Vec::new()).unwrap();
    look_up(&main, &["p"]).unwrap();
    session.close().unwrap();
}

fn a_replacement_that_waits_in_the_serial_queue_closes_the_circle(on: On) {
    let ((session, main), queue) = (on.session(), SerialQueue::new());
    let (teller, told) = mpsc::channel();
    let parked = define_parked(&main, "X", &["x"]);
    let x_wanted = look_up_later(&session, request(&main, &["x"]));
    let x = parked.recv().unwrap();
    let unit = blocking_unit(&session, "a", &["x"], &teller);
    main.define(unit.in_queue(&queue).boxed()).unwrap();
    std::thread::scope(|scope| {
        let client = scope.spawn(|| look_up(&main, &["a"]));
        until_blocked_for(&main, "a", "x");
        let replacement = TestUnit::new("X2", exported(&session, &["x"]), finish).in_queue(&queue);
        x.attach().replace(replacement.boxed()).unwrap();
        client.join().unwrap().unwrap_err();
    });
    let (who, error) = told.try_recv().unwrap();
    let LookupError::WouldDeadlock { path } = &error else { panic!("{error}") };
    assert_eq!(who, "A");
    assert!(matches!(&path[..], [DeadlockStep::Queued { symbol, .. }] if symbol.as_str() == "x"), "{error}");
    assert!(told.try_recv().is_err(), "nobody else is told");
    assert!(x_wanted.recv().unwrap().is_ok(), "its turn came when A had ended");
    session.close().unwrap();
}

/// A looks `b` and `missing` up and is suspended for the latter; B is blocked for `a`. The event that moves A on closes the
/// cycle.
fn a_generator_that_finishes_closes_the_circle(on: On) {
    let (session, main) = on.session();
    let (teller, told) = mpsc::channel();
    let (generator, requests) = sends();
    main.add_generator(generator).unwrap();
    let _token = define_a(&main, &["b", "missing"], &teller);
    define_blocking(&main, "b", &["a"], &teller);
    std::thread::scope(|scope| {
        let a = scope.spawn(|| look_up(&main, &["a"]));
        let suspended = requests.recv().unwrap();
        until_blocked_for(&main, "a", "missing");
        let b = scope.spawn(|| look_up(&main, &["b"]));
        until_blocked_for(&main, "b", "a");
        assert!(told.try_recv().is_err());
        define_absolute(&main, "missing", 1);
        suspended.attach().finish(Ok(()));
        a.join().unwrap().unwrap_err();
        b.join().unwrap().unwrap_err();
    });
    // Whichever of the two looks first.
    assert_eq!(the_cycle(&told).1, ["a", "b"]);
    session.close().unwrap();
}

/// The symbol that A looks up turns out to be an alias of `a`.
fn a_generator_that_makes_an_alias_closes_the_circle(on: On) {
    let (session, main) = on.session();
    let (teller, told) = mpsc::channel();
    let (generator, requests) = sends();
    main.add_generator(generator).unwrap();
    let _token = define_a(&main, &["missing"], &teller);
    std::thread::scope(|scope| {
        let client = scope.spawn(|| look_up(&main, &["a"]));
        let suspended = requests.recv().unwrap();
        until_blocked_for(&main, "a", "missing");
        let target = AliasTarget { source: session.intern("a"), flags: SymbolFlags::EXPORTED };
        main.define(symbol_aliases([(session.intern("missing"), target)].into_iter().collect())).unwrap();
        suspended.attach().finish(Ok(()));
        client.join().unwrap().unwrap_err();
    });
    let (who, error) = told.try_recv().unwrap();
    let LookupError::WouldDeadlock { path } = &error else { panic!("{error}") };
    assert_eq!(who, "A");
    assert_eq!(path.len(), 2, "{error}");
    assert!(path.iter().any(|step| matches!(step, DeadlockStep::AliasOf { .. })), "{error}");
    assert!(told.try_recv().is_err(), "nobody else is told");
    session.close().unwrap();
}

/// ```text
///   A: holds a ─ lookup ─▶ b ─ alias ─▶ y ─ alias ─▶ x ─ depends on ─▶ c ─ depends on, at last ─▶ a
///                                       with it z ─ alias ─▶ w
/// ```
///
/// The lookups of aliases want addresses, and x has one; A wants more of it.
fn an_emission_beyond_aliases_of_aliases_closes_the_circle(on: On) {
    let (session, main) = on.session();
    let (teller, told) = mpsc::channel();
    let [w, x, c] = ["w", "x", "c"].map(|name| define_parked(&main, name, &[name]));
    let aliases = |pairs: &[(&str, &str)]| {
        let target =
            |source: &str| AliasTarget { source: session.intern(source), flags: SymbolFlags::EXPORTED };
        let unit = pairs.iter().map(|(alias, source)| (session.intern(alias), target(source))).collect();
        main.define(symbol_aliases(unit)).unwrap();
    };
    aliases(&[("y", "x"), ("z", "w")]);
    aliases(&[("b", "y")]);
    let wanted = look_up_later(&session, request(&main, &["b", "y", "z", "c"]));
    let [w, x, c] = [w, x, c].map(|parked| parked.recv().unwrap().attach());
    let depends = |name: &str, dependency| DependenceGroup {
        symbols: vec![session.intern(name)],
        dependencies: vec![dependency],
    };
    let on_c = c.dependency(&session.intern("c")).unwrap();
    resolve(x).notify_emitted(vec![depends("x", on_c)]).unwrap();
    let token = define_a(&main, &["b"], &teller);
    std::thread::scope(|scope| {
        let client = scope.spawn(|| look_up(&main, &["a"]));
        let on_a = token.recv().unwrap();
        until_blocked_for(&main, "a", "b");
        assert!(told.try_recv().is_err());
        resolve(c).notify_emitted(vec![depends("c", on_a)]).unwrap();
        client.join().unwrap().unwrap_err();
    });
    let (who, error) = told.try_recv().unwrap();
    assert!(matches!(error, LookupError::WouldDeadlock { .. }), "{error}");
    assert_eq!(who, "A");
    drop(w);
    assert!(wanted.recv().unwrap().is_err());
    session.close().unwrap();
}
