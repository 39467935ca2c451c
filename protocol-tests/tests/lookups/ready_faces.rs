//! The ready path on every face of a lookup: which answers take no lock, and which questions it leaves to the lock.

use std::future::Future as _;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use protocol_tests::*;
use uruk_core::{
    DefinitionGenerator, ExecutionSession, ExecutorSymbolDef, GenerateRequest, GeneratorId, JitDylib,
    JitDylibLookupFlags, LookupError, LookupRequest, LookupSet, SearchOrder, SymbolFlags, SymbolName,
    absolute_symbols,
};

const ALL: JitDylibLookupFlags = JitDylibLookupFlags::MatchAllSymbols;
const EXPORTED_ONLY: JitDylibLookupFlags = JitDylibLookupFlags::MatchExportedSymbolsOnly;

/// A session that counts how often its lock is taken, and `count` dylibs.
fn dylibs(count: usize) -> (ExecutionSession, Vec<JitDylib>) {
    let session = ExecutionSession::builder().measure_lock_holds(true).build();
    let create = |index| session.create_jit_dylib(&format!("d{index}")).expect("names differ");
    let dylibs = (0..count).map(create).collect();
    (session, dylibs)
}

fn all_of<'a>(dylibs: impl IntoIterator<Item = &'a JitDylib>) -> SearchOrder {
    dylibs.into_iter().map(|dylib| (dylib.clone(), ALL)).collect()
}

/// Defines `name` at `address` and makes it Ready.
fn make_ready(dylib: &JitDylib, name: &SymbolName, address: u64, flags: SymbolFlags) {
    let definition = ExecutorSymbolDef { flags, ..at(address) };
    dylib.define(absolute_symbols([(name.clone(), definition)].into_iter().collect())).unwrap();
    dylib.session().lookup_symbol(&order(dylib), name).unwrap();
}

/// Asks for `name` on every face; all of them must agree. Also says how often that took the lock.
fn ask(
    session: &ExecutionSession,
    order: &SearchOrder,
    name: &SymbolName,
) -> (Result<ExecutorSymbolDef, LookupError>, u64) {
    session.take_lock_holds();
    let set = || LookupSet::one(name.clone());
    let request = || LookupRequest::new(order.clone(), set());
    let waker = waker();
    let polled = pin!(session.lookup_future(request())).poll(&mut Context::from_waker(&waker));
    let Poll::Ready(future) = polled else { panic!("nothing is left to wait for") };
    let handler = look_up_later(session, request()).try_recv().expect("handled in place");
    let first = session.lookup_symbol(order, name);
    let others = [
        session.lookup(LookupRequest::new(order, set())).map(|found| found[name]),
        handler.map(|found| found[name]),
        future.map(|found| found[name]),
    ];
    for other in others {
        assert_eq!(format!("{first:?}"), format!("{other:?}"));
    }
    let holds = session.take_lock_holds().expect("the session measures").count;
    (first, holds)
}

fn answers_without_lock(session: &ExecutionSession, order: &SearchOrder, name: &SymbolName, address: u64) {
    let (answer, holds) = ask(session, order, name);
    assert_eq!((answer.unwrap().address, holds), (at(address).address, 0));
}

struct DefinesNothing;

impl DefinitionGenerator for DefinesNothing {
    fn name(&self) -> &str {
        "defines nothing"
    }

    fn generate(&self, request: GenerateRequest) {
        request.finish(Ok(()));
    }
}

fn add_generator(dylib: &JitDylib) -> GeneratorId {
    dylib.add_generator(Arc::new(DefinesNothing)).unwrap()
}

#[test]
fn no_face_takes_the_lock_for_what_is_ready_however_long_the_order() {
    for depth in [1, 2, 8, 9, 100] {
        let (session, dylibs) = dylibs(depth);
        let name = session.intern("a");
        make_ready(&dylibs[depth - 1], &name, 7, EXPORTED);
        answers_without_lock(&session, &all_of(&dylibs), &name, 7);
    }
}

#[test]
fn a_generator_matters_to_what_lies_behind_it_only() {
    for depth in [3, 20] {
        let (session, dylibs) = dylibs(depth);
        let [before, here, behind] = ["before", "here", "behind"].map(|name| session.intern(name));
        make_ready(&dylibs[0], &before, 1, EXPORTED);
        make_ready(&dylibs[1], &here, 2, EXPORTED);
        make_ready(&dylibs[depth - 1], &behind, 3, EXPORTED);
        let order = all_of(&dylibs);
        let generator = add_generator(&dylibs[1]);
        let second = add_generator(&dylibs[1]);
        answers_without_lock(&session, &order, &before, 1);
        answers_without_lock(&session, &order, &here, 2);
        let (answer, holds) = ask(&session, &order, &behind);
        assert_eq!(answer.unwrap(), at(3));
        assert!(holds >= 5, "a generator comes first, and {holds} times it was asked for");
        dylibs[1].remove_generator(generator);
        assert!(ask(&session, &order, &behind).1 >= 5, "the second generator is still there");
        dylibs[1].remove_generator(second);
        answers_without_lock(&session, &order, &behind, 3);
    }
}

#[test]
fn a_removed_dylib_matters_to_the_orders_that_name_it_only() {
    for depth in [3, 20] {
        let (session, dylibs) = dylibs(depth);
        let name = session.intern("a");
        make_ready(&dylibs[0], &name, 1, EXPORTED);
        let (whole, rest) = (all_of(&dylibs), all_of(&dylibs[..depth - 1]));
        session.remove_jit_dylib(&dylibs[depth - 1]).unwrap();
        answers_without_lock(&session, &rest, &name, 1);
        for _ in 0..2 {
            let (answer, _) = ask(&session, &whole, &name);
            assert!(matches!(answer, Err(LookupError::DylibRemoved { .. })), "{answer:?}");
        }
        // A clone knows what its original has learnt.
        answers_without_lock(&session, &rest.clone(), &name, 1);
    }
}

#[test]
fn an_order_that_grows_forgets_what_it_knew() {
    let (session, dylibs) = dylibs(3);
    let name = session.intern("a");
    make_ready(&dylibs[0], &name, 1, EXPORTED);
    session.remove_jit_dylib(&dylibs[2]).unwrap();
    let mut order = all_of(&dylibs[..2]);
    answers_without_lock(&session, &order, &name, 1);
    order.push(dylibs[2].clone(), ALL);
    let (answer, _) = ask(&session, &order, &name);
    assert!(matches!(answer, Err(LookupError::DylibRemoved { .. })), "{answer:?}");
}

#[test]
fn a_dylib_of_another_session_is_an_error_wherever_it_stands() {
    let ((session, dylibs), (_other, foreign)) = (dylibs(10), dylibs(1));
    let name = session.intern("a");
    make_ready(&dylibs[0], &name, 1, EXPORTED);
    for position in 0..=dylibs.len() {
        let order = all_of(dylibs[..position].iter().chain(&foreign).chain(&dylibs[position..]));
        let (answer, _) = ask(&session, &order, &name);
        assert!(matches!(answer, Err(LookupError::ForeignDylib { .. })), "{answer:?}");
    }
}

#[test]
fn a_dylib_may_stand_in_an_order_twice() {
    for between in [1, 20] {
        let (session, dylibs) = dylibs(1 + between);
        let [hidden, exported] = ["hidden", "exported"].map(|name| session.intern(name));
        make_ready(&dylibs[0], &hidden, 1, SymbolFlags::empty());
        make_ready(&dylibs[0], &exported, 2, EXPORTED);
        make_ready(&dylibs[1], &exported, 3, EXPORTED);
        let mut order = SearchOrder::from([(dylibs[0].clone(), EXPORTED_ONLY)]);
        order.extend(all_of(&dylibs[1..]));
        assert!(matches!(ask(&session, &order, &hidden).0, Err(LookupError::NotFound { .. })));
        order.push(dylibs[0].clone(), ALL);
        answers_without_lock(&session, &order, &hidden, 1);
        answers_without_lock(&session, &order, &exported, 2);
        // A symbol that is hidden at its first place is found at its second, behind the dylibs between them.
        make_ready(&dylibs[1], &hidden, 4, EXPORTED);
        answers_without_lock(&session, &order, &hidden, 4);
    }
}

#[test]
fn what_exists_for_its_side_effects_has_no_address_to_give() {
    let (session, dylibs) = dylibs(1);
    let (name, order) = (session.intern("init"), order(&dylibs[0]));
    let flags = EXPORTED | SymbolFlags::MATERIALIZATION_SIDE_EFFECTS_ONLY;
    let unit = TestUnit::new("unit", [(name.clone(), flags)].into_iter().collect(), finish);
    dylibs[0].define(unit.boxed()).unwrap();
    for _ in 0..2 {
        let found =
            session.lookup(LookupRequest::new(&order, LookupSet::weakly_referenced([name.clone()]))).unwrap();
        assert!(found.is_empty() && !found.contains(&name));
        assert!(matches!(ask(&session, &order, &name).0, Err(LookupError::NotFound { .. })));
    }
}

#[test]
fn a_name_of_a_hundred_dylibs_takes_no_lock_in_any_of_them() {
    const MANY: usize = 100;
    let (session, dylibs) = dylibs(MANY);
    let name = session.intern("main");
    for (dylib, address) in dylibs.iter().zip(1..) {
        make_ready(dylib, &name, address, EXPORTED);
    }
    for (index, address) in (1..=MANY as u64).enumerate() {
        answers_without_lock(&session, &order(&dylibs[index]), &name, address);
        answers_without_lock(&session, &all_of(&dylibs[index..]), &name, address);
    }
    // Down to one definition and up again.
    for dylib in &dylibs[1..] {
        dylib.remove(std::slice::from_ref(&name)).unwrap();
        answers_without_lock(&session, &all_of(&dylibs), &name, 1);
    }
    for (dylib, address) in dylibs.iter().zip(1..).skip(1) {
        make_ready(dylib, &name, address, EXPORTED);
        answers_without_lock(&session, &order(dylib), &name, address);
    }
}

#[test]
fn an_unready_definition_among_a_hundred_shadows_those_behind_it() {
    let (session, dylibs) = dylibs(100);
    let name = session.intern("main");
    for (dylib, address) in dylibs.iter().zip(1..) {
        make_ready(dylib, &name, address, EXPORTED);
    }
    dylibs[0].remove(std::slice::from_ref(&name)).unwrap();
    let failing = TestUnit::new("failing", exported(&session, &["main"]), drop);
    dylibs[0].define(failing.boxed()).unwrap();
    for _ in 0..2 {
        assert!(matches!(ask(&session, &all_of(&dylibs), &name).0, Err(LookupError::Failed(_))));
    }
    answers_without_lock(&session, &all_of(&dylibs[1..]), &name, 2);
}

#[test]
fn a_closed_session_answers_on_no_face() {
    let (session, dylibs) = dylibs(1);
    let name = session.intern("a");
    make_ready(&dylibs[0], &name, 1, EXPORTED);
    session.close().unwrap();
    assert!(matches!(ask(&session, &order(&dylibs[0]), &name).0, Err(LookupError::Closed)));
}

#[test]
fn answers_keep_the_order_and_the_names_of_the_question() {
    let (session, dylibs) = dylibs(1);
    let (main, order) = (&dylibs[0], order(&dylibs[0]));
    let names: Vec<_> = (0..100).map(|index| session.intern(&format!("s{}", index * 37 % 100))).collect();
    for (name, address) in names.iter().zip(1..) {
        make_ready(main, name, address, EXPORTED);
    }
    session.take_lock_holds();
    let found =
        session.lookup(LookupRequest::new(&order, LookupSet::required(names.iter().cloned()))).unwrap();
    assert_eq!(session.take_lock_holds().unwrap().count, 0);
    assert_eq!(found.len(), names.len());
    for ((asked, address), (name, definition)) in names.iter().zip(1..).zip(found.iter()) {
        assert_eq!((name, definition), (asked, at(address)));
        assert_eq!((found.get(asked), found[asked]), (Some(definition), definition));
        assert!(found.dependency(asked).is_some());
    }
    assert_eq!(found.get(&session.intern("other")), None);
    assert_eq!(found.dependencies().len(), names.len());
}

#[test]
fn a_token_from_the_ready_path_stands_for_the_very_definition() {
    let (session, dylibs) = dylibs(1);
    let (main, name) = (&dylibs[0], session.intern("a"));
    make_ready(main, &name, 1, EXPORTED);
    let found = session.lookup(LookupRequest::new(order(main), LookupSet::one(name.clone()))).unwrap();
    let token = found.dependency(&name).unwrap();
    main.remove(std::slice::from_ref(&name)).unwrap();
    make_ready(main, &name, 2, EXPORTED);
    let next = session.lookup(LookupRequest::new(order(main), LookupSet::one(name.clone()))).unwrap();
    assert_ne!(next.dependency(&name), Some(token));
}

#[test]
fn a_handler_does_not_run_inside_the_call_of_a_task() {
    let (session, dylibs) = dylibs(1);
    let (name, main) = (session.intern("a"), &dylibs[0]);
    make_ready(main, &name, 1, EXPORTED);
    let (outer, inner) = (request(main, &["a"]), request(main, &["a"]));
    let (send, told) = std::sync::mpsc::channel();
    let handle = session.clone();
    session.lookup_async(outer, move |_| {
        let (in_call, in_handler) = (send.clone(), send);
        handle.lookup_async(inner, move |_| in_handler.send("handler").unwrap());
        in_call.send("the call is over").unwrap();
    });
    assert_eq!(told.try_iter().collect::<Vec<_>>(), ["the call is over", "handler"]);
}

#[test]
fn an_empty_lookup_still_asks_about_its_order() {
    let (session, dylibs) = dylibs(2);
    let order = all_of(&dylibs);
    assert!(session.lookup(LookupRequest::new(&order, LookupSet::new())).unwrap().is_empty());
    session.remove_jit_dylib(&dylibs[1]).unwrap();
    assert!(matches!(
        session.lookup(LookupRequest::new(&order, LookupSet::new())),
        Err(LookupError::DylibRemoved { .. })
    ));
}

/// A program that kept a link order had to ask for it again to learn of a change, which takes the lock.
#[test]
fn every_change_of_a_link_order_is_counted() {
    let (session, main) = session();
    let [a, b] = ["a", "b"].map(|name| session.create_jit_dylib(name).unwrap());
    let flags = JitDylibLookupFlags::MatchAllSymbols;
    let mut known = (session.link_order_changes(), main.link_order());
    let mut changes = |change: &dyn Fn()| {
        change();
        let now = (session.link_order_changes(), main.link_order());
        assert_eq!(now.0 == known.0, now.1 == known.1, "{known:?} {now:?}");
        known = now;
    };
    changes(&|| main.add_to_link_order(&a, flags).unwrap());
    changes(&|| main.add_to_link_order(&a, flags).unwrap());
    changes(&|| define_absolute(&main, "x", 1));
    changes(&|| assert!(main.replace_in_link_order(&a, &b, flags).unwrap()));
    changes(&|| main.set_link_order([(a.clone(), flags), (b.clone(), flags)]).unwrap());
    changes(&|| session.transaction().add_to_link_order(&main, &main, flags).commit().unwrap());
    changes(&|| main.remove_from_link_order(&a));
    changes(&|| session.remove_jit_dylib(&b).unwrap());
}

#[test]
fn a_symbol_that_is_ready_is_told_and_no_other_is_started() {
    let (session, main) = session();
    define_simple(&main, "unit", &["x"]);
    let (x, order) = (session.intern("x"), order(&main));
    assert_eq!(session.ready_symbol(&order, &x), None);
    let found = session.lookup_symbol(&order, &x).unwrap();
    assert_eq!(session.ready_symbol(&order, &x), Some(found));
    assert_eq!(session.ready_symbol(&order, &session.intern("missing")), None);
}
