//! Priority follows demand: who makes which unit how urgent, seen by the order in which units start.

use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use std::{future::Future, pin::pin};

use TaskPriority::{Demanded, Idle, Lazy, Speculative};
use protocol_tests::by_priority::ByPriority;
use protocol_tests::*;
use uruk_core::sync::Mutex;
use uruk_core::{
    AliasTarget, Deadline, DefinitionGenerator, DependenceGroup, DetachedRequest, EventKind,
    ExecutionSession, GenerateRequest, JitDylib, JitDylibLookupFlags, LookupError, LookupRequest,
    MaterializationInterface, MaterializationResponsibility, MaterializationUnit, SessionEvent, Shutdown,
    SymbolFuture, SymbolName, TaskPriority, reexports, symbol_aliases,
};

/// A session whose tasks run when the test says so.
struct Scene {
    session: ExecutionSession,
    main: JitDylib,
    dispatcher: Arc<ByPriority>,
    /// The units that have started, in order.
    started: Arc<Mutex<Vec<String>>>,
    events: Arc<Mutex<Vec<EventKind>>>,
    now: Arc<Mutex<Instant>>,
}

type Then = Box<dyn FnOnce(MaterializationResponsibility) + Send>;

/// A unit of one symbol, which has its name, that notes when it starts.
struct Noted {
    name: &'static str,
    symbol: SymbolName,
    own: TaskPriority,
    started: Arc<Mutex<Vec<String>>>,
    then: Then,
}

impl MaterializationUnit for Noted {
    fn name(&self) -> &str {
        self.name
    }

    fn interface(&self) -> MaterializationInterface {
        MaterializationInterface::new([(self.symbol.clone(), EXPORTED)].into_iter().collect())
    }

    fn priority(&self) -> TaskPriority {
        self.own
    }

    fn materialize(self: Box<Self>, responsibility: MaterializationResponsibility) {
        self.started.lock().push(self.name.into());
        (self.then)(responsibility);
    }

    fn discard(&mut self, _: &JitDylib, _: &SymbolName) {}
}

impl Scene {
    fn new() -> Self {
        Self::of(false)
    }

    /// With an observer, whose tasks are queued like all others.
    fn observed() -> Self {
        Self::of(true)
    }

    fn of(observed: bool) -> Self {
        let dispatcher = Arc::new(ByPriority::default());
        let events = Arc::new(Mutex::new(Vec::new()));
        let seen = events.clone();
        let now = Arc::new(Mutex::new(Instant::now()));
        let clock = now.clone();
        let mut builder =
            ExecutionSession::builder().dispatcher(dispatcher.clone()).clock(Arc::new(move || *clock.lock()));
        if observed {
            builder =
                builder.observer(Arc::new(move |event: &SessionEvent| seen.lock().push(event.kind.clone())));
        }
        let session = builder.build();
        let main = session.create_jit_dylib("main").unwrap();
        Self { session, main, dispatcher, started: Arc::default(), events, now }
    }

    fn define_as(
        &self,
        name: &'static str,
        own: TaskPriority,
        then: impl FnOnce(MaterializationResponsibility) + Send + 'static,
    ) {
        let (symbol, started) = (self.session.intern(name), self.started.clone());
        self.main.define(Box::new(Noted { name, symbol, own, started, then: Box::new(then) })).unwrap();
    }

    /// Units that do nothing but finish.
    fn define(&self, names: &[&'static str]) {
        names.iter().for_each(|name| self.define_as(name, Demanded, finish));
    }

    /// A unit that asks for another's address, and depends on it once it has that.
    fn define_linked(&self, name: &'static str, to: &'static str) {
        self.define_as(name, Demanded, move |responsibility| link(responsibility, to, |request| request));
    }

    /// A unit whose symbol has its address at once and is emitted when another has one too.
    fn define_slow(&self, name: &'static str, to: &'static str) {
        self.define_as(name, Demanded, move |responsibility| {
            let (session, main) = (responsibility.session().clone(), responsibility.dylib().clone());
            let addresses = addresses(responsibility.symbols());
            let resolved = responsibility.notify_resolved(&addresses).unwrap().detach();
            session.lookup_async(request(&main, &[to]).until_resolved(), move |found| {
                let resolved = resolved.attach();
                let Ok(found) = found else { return };
                let symbols = resolved.symbols().keys().cloned().collect();
                let group = DependenceGroup { symbols, dependencies: found.dependencies() };
                resolved.notify_emitted(vec![group]).unwrap();
            });
        });
    }

    fn request(&self, name: &str) -> LookupRequest {
        request(&self.main, &[name])
    }

    /// Looks `name` up until the future is dropped.
    fn want(&self, name: &str, priority: TaskPriority) -> SymbolFuture {
        self.session.lookup_future(self.request(name).at(priority))
    }

    /// Runs everything; what has started since the last time, in order.
    fn order(&self) -> Vec<String> {
        self.dispatcher.run_all();
        self.take_started()
    }

    fn take_started(&self) -> Vec<String> {
        std::mem::take(&mut *self.started.lock())
    }

    /// Runs tasks until `name` has started.
    fn run_until_started(&self, name: &str) {
        while !self.started.lock().iter().any(|started| started == name) {
            self.dispatcher.run_next().expect("it is queued");
        }
        self.take_started();
    }

    /// Tells observers, and whoever else is to be told something.
    fn settle(&self) {
        self.dispatcher.run_down_to(Demanded);
    }
}

/// A generator whose request the test finishes.
struct Parks(Arc<Mutex<Option<DetachedRequest>>>);

impl DefinitionGenerator for Parks {
    fn name(&self) -> &str {
        "parks"
    }

    fn generate(&self, request: GenerateRequest) {
        *self.0.lock() = Some(request.detach());
    }
}

/// Asks for the address of `to`, and then emits as depending on it.
fn link(
    responsibility: MaterializationResponsibility,
    to: &str,
    change: impl FnOnce(LookupRequest) -> LookupRequest,
) {
    let (session, main) = (responsibility.session().clone(), responsibility.dylib().clone());
    let asks = change(request(&main, &[to]).until_resolved());
    let parked = responsibility.detach();
    session.lookup_async(asks, move |found| {
        let responsibility = parked.attach();
        let Ok(found) = found else { return };
        let symbols = responsibility.symbols().keys().cloned().collect();
        let group = DependenceGroup { symbols, dependencies: found.dependencies() };
        finish_with(responsibility, vec![group]);
    });
}

#[test]
fn a_unit_is_as_urgent_as_the_lookup_that_claims_it_says() {
    let scene = Scene::new();
    scene.define(&["idle", "speculative", "lazy", "demanded"]);
    let wanted: Vec<_> =
        [("idle", Idle), ("speculative", Speculative), ("lazy", Lazy), ("demanded", Demanded)]
            .map(|(name, priority)| scene.want(name, priority))
            .into();
    assert_eq!(scene.order(), ["demanded", "lazy", "speculative", "idle"]);
    drop(wanted);
}

#[test]
fn a_lookup_that_says_nothing_leaves_units_at_their_own_priority() {
    let scene = Scene::new();
    scene.define_as("idle", Idle, finish);
    scene.define_as("lazy", Lazy, finish);
    scene.define_as("lowered", Demanded, finish);
    scene.define_as("raised", Idle, finish);
    let _all = ["idle", "lazy"].map(|name| scene.session.lookup_future(scene.request(name)));
    let _said = (scene.want("lowered", Speculative), scene.want("raised", Demanded));
    assert_eq!(scene.order(), ["raised", "lazy", "lowered", "idle"]);
}

#[test]
fn a_lookup_that_says_nothing_counts_as_the_units_own_priority_beside_others() {
    let scene = Scene::new();
    scene.define_as("a", Lazy, finish);
    scene.define(&["b"]);
    let _quiet = scene.session.lookup_future(scene.request("a"));
    let loud = scene.want("a", Demanded);
    let _b = scene.want("b", Speculative);
    drop(loud);
    let _idle = scene.want("a", Idle);
    assert_eq!(scene.dispatcher.queued(Lazy), 1);
    scene.dispatcher.run_down_to(Lazy);
    assert_eq!(scene.take_started(), ["a"]);
}

#[test]
fn a_blocking_lookup_starts_the_queued_unit_it_waits_for_next() {
    let scene = Scene::new();
    let names = ["a", "b", "c", "d", "e"];
    scene.define(&names);
    let _speculative = names.map(|name| scene.want(name, Speculative));
    scene.session.lookup_symbol(&order(&scene.main), &scene.session.intern("d")).unwrap();
    assert_eq!(scene.take_started(), ["d"]);
    assert_eq!(scene.order(), ["a", "b", "c", "e"]);
}

#[test]
fn a_raised_unit_starts_once_and_its_older_ticket_does_nothing() {
    let scene = Scene::new();
    scene.define(&["a"]);
    let _low = scene.want("a", Idle);
    let _mid = scene.want("a", Speculative);
    let _high = scene.want("a", Demanded);
    assert_eq!([Idle, Speculative, Demanded].map(|priority| scene.dispatcher.queued(priority)), [1, 1, 1]);
    assert_eq!(scene.order(), ["a"]);
}

#[test]
fn two_lookups_of_one_priority_queue_one_ticket() {
    let scene = Scene::new();
    scene.define(&["a"]);
    let _low = scene.want("a", Idle);
    let _again = [scene.want("a", Lazy), scene.want("a", Lazy), scene.want("a", Speculative)];
    assert_eq!(
        [Idle, Speculative, Lazy, Demanded].map(|priority| scene.dispatcher.queued(priority)),
        [1, 0, 1, 0]
    );
}

#[test]
fn what_a_speculative_unit_asks_for_is_speculative() {
    let scene = Scene::new();
    scene.define_linked("a", "b");
    scene.define(&["b", "lazy"]);
    let _a = scene.want("a", Speculative);
    scene.run_until_started("a");
    let _lazy = scene.want("lazy", Lazy);
    assert_eq!((scene.dispatcher.queued(Speculative), scene.dispatcher.queued(Demanded)), (1, 0));
    assert_eq!(scene.order(), ["lazy", "b"]);
}

#[test]
fn what_an_answer_to_a_speculative_unit_asks_for_is_speculative() {
    let scene = Scene::new();
    scene.define(&["b", "c", "d", "lazy"]);
    // Ready when it is asked for: the answer comes without the session's lock.
    scene.session.lookup_symbol(&order(&scene.main), &scene.session.intern("c")).unwrap();
    scene.define_as("a", Demanded, |responsibility| {
        let (session, main) = (responsibility.session().clone(), responsibility.dylib().clone());
        let asks = |name: &str| request(&main, &[name]).until_resolved();
        let (b, c, d) = (asks("b"), asks("c"), asks("d"));
        let inner = session.clone();
        session.lookup_async(b, move |_| {
            let last = inner.clone();
            inner.lookup_async(c, move |_| last.lookup_async(d, |_| {}));
        });
        // It ends before its answers come: they are as urgent as it was.
        finish(responsibility);
    });
    let _a = scene.want("a", Speculative);
    scene.run_until_started("a");
    let _lazy = scene.want("lazy", Lazy);
    assert_eq!(scene.order(), ["lazy", "b", "d"]);
}

#[test]
fn a_unit_blocked_in_a_lookup_demands() {
    let scene = Scene::observed();
    scene.define(&["b", "lazy"]);
    scene.define_as("a", Demanded, |responsibility| {
        let (session, main) = (responsibility.session().clone(), responsibility.dylib().clone());
        session.lookup_symbol(&order(&main), &session.intern("b")).unwrap();
        finish(responsibility);
    });
    let (_a, _lazy) = (scene.want("a", Speculative), scene.want("lazy", Idle));
    assert_eq!(scene.order(), ["a", "b", "lazy"]);
    let raised = |event: &EventKind| matches!(event, EventKind::Prioritized { .. });
    assert!(!scene.events.lock().iter().any(raised), "`b` was claimed as what it is");
}

#[test]
fn raising_a_running_unit_raises_what_it_has_asked_for() {
    let scene = Scene::new();
    scene.define_linked("a", "b");
    scene.define_linked("b", "c");
    scene.define(&["c", "x", "y"]);
    let _a = scene.want("a", Speculative);
    scene.run_until_started("b");
    let _others = (scene.want("x", Speculative), scene.want("y", Lazy));
    let _demanded = scene.want("a", Demanded);
    assert_eq!(scene.order(), ["c", "y", "x"]);
}

#[test]
fn raising_an_emitted_symbol_raises_what_it_depends_on() {
    let scene = Scene::observed();
    scene.define_linked("a", "b");
    scene.define_linked("b", "c");
    scene.define_slow("c", "d");
    scene.define(&["d", "x"]);
    let _a = scene.want("a", Idle);
    scene.run_until_started("c");
    scene.settle();
    // `a` hangs on `b`, that on `c`, and `c` has only its lookup of `d`.
    let emitted = |event: &EventKind| matches!(event, EventKind::Emitted { .. });
    assert_eq!(scene.events.lock().iter().filter(|event| emitted(event)).count(), 2);
    let _x = scene.want("x", Lazy);
    let _demanded = scene.want("a", Demanded);
    assert_eq!(scene.order(), ["d", "x"]);
}

#[test]
fn an_emission_raises_what_it_comes_to_depend_on() {
    let scene = Scene::new();
    scene.define_slow("b", "c");
    scene.define(&["c", "x"]);
    // Asking as little as possible: what counts is the dependence.
    scene.define_as("a", Demanded, |responsibility| link(responsibility, "b", |request| request.at(Idle)));
    let _b = scene.want("b", Idle);
    scene.run_until_started("b");
    let _x = scene.want("x", Lazy);
    assert_eq!(scene.dispatcher.queued(Idle), 1);
    let _a = scene.want("a", Demanded);
    assert_eq!(scene.order(), ["a", "c", "x"]);
}

#[test]
fn raising_an_alias_raises_its_source() {
    let scene = Scene::observed();
    let alias = |name: &str, source: &str| {
        let (name, source) = (scene.session.intern(name), scene.session.intern(source));
        (name, AliasTarget { source, flags: EXPORTED })
    };
    // `outer` is in a part of the unit that is delegated: it comes after `inner`.
    let aliases = [alias("outer", "inner"), alias("inner", "a")].into_iter().collect();
    scene.main.define(symbol_aliases(aliases)).unwrap();
    let other = scene.session.create_jit_dylib("other").unwrap();
    let flags = JitDylibLookupFlags::MatchAllSymbols;
    let exported = [alias("exported", "outer")].into_iter().collect();
    other.define(reexports(scene.main.clone(), flags, exported)).unwrap();
    scene.define(&["a", "x"]);
    let names = request(&other, &["exported"]);
    let _low = scene.session.lookup_future(names.clone().at(Idle));
    while !scene.started.lock().iter().any(|_| true) && scene.dispatcher.queued(Idle) > 0 {
        let claimed = EventKind::Claimed { dylib: scene.main.name().into(), unit: scene.session.intern("a") };
        if scene.events.lock().contains(&claimed) {
            break;
        }
        scene.dispatcher.run_next();
    }
    let _x = scene.want("x", Lazy);
    assert!(scene.started.lock().is_empty());
    let _high = scene.session.lookup_future(names.at(Demanded));
    assert_eq!(scene.order(), ["a", "x"]);
}

#[test]
fn a_delegated_symbol_raises_what_its_unit_has_asked_for() {
    let scene = Scene::new();
    scene.define(&["c", "x"]);
    let symbols = exported(&scene.session, &["a", "b"]);
    let unit = TestUnit::new("unit", symbols, |mut responsibility| {
        let (session, main) = (responsibility.session().clone(), responsibility.dylib().clone());
        let rest = responsibility.delegate([session.intern("b")]).unwrap().detach();
        let parked = responsibility.detach();
        session.lookup_async(request(&main, &["c"]).until_resolved(), move |_| {
            finish(parked.attach());
            finish(rest.attach());
        });
    });
    scene.main.define(unit.boxed()).unwrap();
    let _b = scene.want("b", Speculative);
    scene.dispatcher.run_next();
    scene.settle();
    let _x = scene.want("x", Lazy);
    let _high = scene.want("b", Demanded);
    assert_eq!(scene.order(), ["c", "x"]);
}

#[test]
fn a_unit_that_takes_over_is_as_urgent_as_what_waits() {
    let scene = Scene::new();
    scene.define_as("first", Demanded, {
        let started = scene.started.clone();
        move |responsibility| {
            let symbol = responsibility.session().intern("first");
            let unit = Noted { name: "second", symbol, own: Demanded, started, then: Box::new(finish) };
            responsibility.replace(Box::new(unit)).unwrap();
        }
    });
    scene.define(&["x", "y"]);
    let _first = scene.want("first", Speculative);
    scene.run_until_started("first");
    let _x = scene.want("x", Lazy);
    assert_eq!((scene.dispatcher.queued(Speculative), scene.dispatcher.queued(Demanded)), (1, 0));
    let _y = scene.want("y", Idle);
    assert_eq!(scene.order(), ["x", "second", "y"]);
}

#[test]
fn a_lookup_raised_while_it_waits_for_a_generator_claims_as_urgently() {
    let scene = Scene::new();
    let parked = Arc::new(Mutex::new(None));
    scene.main.add_generator(Arc::new(Parks(parked.clone()))).unwrap();
    scene.define_linked("a", "made");
    scene.define(&["x"]);
    let _a = scene.want("a", Speculative);
    scene.run_until_started("a");
    scene.settle();
    let _high = scene.want("a", Demanded);
    let _x = scene.want("x", Lazy);
    scene.define(&["made"]);
    let request = parked.lock().take().expect("the generator was asked");
    request.attach().finish(Ok(()));
    assert_eq!(scene.order(), ["made", "x"]);
}

#[test]
fn what_a_unit_asks_for_less_urgently_than_it_is_stays_so() {
    let scene = Scene::new();
    scene.define_as("a", Demanded, |responsibility| {
        let (session, main) = (responsibility.session().clone(), responsibility.dylib().clone());
        session.lookup_async(request(&main, &["guess"]).at(Speculative), |_| {});
        link(responsibility, "b", |request| request);
    });
    scene.define(&["b", "guess", "x"]);
    let _a = scene.want("a", Idle);
    scene.run_until_started("a");
    let _x = scene.want("x", Lazy);
    let _high = scene.want("a", Demanded);
    assert_eq!(scene.order(), ["b", "x", "guess"]);
}

#[test]
fn dropping_the_last_demand_lowers_a_queued_unit() {
    let scene = Scene::new();
    scene.define(&["a", "x"]);
    let _low = scene.want("a", Speculative);
    let high = scene.want("a", Demanded);
    let _x = scene.want("x", Lazy);
    drop(high);
    assert_eq!(scene.order(), ["x", "a"]);
}

#[test]
fn a_unit_dispatched_as_demanded_is_dispatched_again_when_it_is_not() {
    let scene = Scene::new();
    scene.define(&["a", "x"]);
    let high = scene.want("a", Demanded);
    let _low = scene.want("a", Speculative);
    let _x = scene.want("x", Lazy);
    drop(high);
    assert_eq!(scene.dispatcher.queued(Speculative), 0);
    assert_eq!(scene.order(), ["x", "a"]);
}

#[test]
fn each_lookup_counts_until_it_is_dropped() {
    let scene = Scene::new();
    scene.define(&["a"]);
    let (low, mid, high) = (scene.want("a", Speculative), scene.want("a", Lazy), scene.want("a", Demanded));
    let priority = || scene.session.why(&scene.main, &scene.session.intern("a")).demand.priority;
    assert_eq!(priority(), Some(Demanded));
    drop(mid);
    assert_eq!(priority(), Some(Demanded));
    drop(high);
    assert_eq!(priority(), Some(Speculative));
    let again = scene.want("a", Lazy);
    assert_eq!(priority(), Some(Lazy));
    drop((low, again));
    assert_eq!(scene.order(), [""; 0]);
}

#[test]
fn lowering_a_running_unit_lowers_what_it_has_asked_for() {
    let scene = Scene::new();
    scene.define_linked("a", "b");
    scene.define_linked("b", "c");
    scene.define(&["c", "x"]);
    let _low = scene.want("a", Speculative);
    let high = scene.want("a", Demanded);
    scene.run_until_started("b");
    let _x = scene.want("x", Lazy);
    drop(high);
    assert_eq!(scene.order(), ["x", "c"]);
}

#[test]
fn lowering_an_emitted_symbol_lowers_what_it_depends_on() {
    let scene = Scene::new();
    scene.define_linked("a", "b");
    scene.define_slow("b", "c");
    scene.define(&["c", "x"]);
    let _low = scene.want("a", Speculative);
    let high = scene.want("a", Demanded);
    scene.run_until_started("b");
    while scene.dispatcher.queued(Demanded) > 1 {
        scene.dispatcher.run_next();
    }
    let _x = scene.want("x", Lazy);
    drop(high);
    assert_eq!(scene.order(), ["x", "c"]);
}

#[test]
fn what_others_need_is_not_lowered() {
    let scene = Scene::new();
    scene.define_linked("a", "shared");
    scene.define_linked("b", "shared");
    scene.define(&["shared", "x"]);
    let (low, high) = (scene.want("a", Speculative), scene.want("a", Demanded));
    scene.run_until_started("a");
    let _b = scene.want("b", Demanded);
    // Behind `shared`, which `a` has asked for.
    assert_eq!(scene.dispatcher.queued(Demanded), 2);
    drop(high);
    let _x = scene.want("x", Lazy);
    // `b` has not begun to ask: for now `shared` is as urgent as `a`.
    assert_eq!(scene.order(), ["b", "shared", "x"]);
    drop(low);
}

#[test]
fn a_deadline_that_passes_lowers() {
    let scene = Scene::new();
    scene.define(&["a", "x"]);
    let _low = scene.want("a", Speculative);
    let deadline = Deadline::at(*scene.now.lock() + Duration::from_secs(1));
    let late = scene.session.lookup_future(scene.request("a").at(Demanded).until(deadline));
    let _x = scene.want("x", Lazy);
    *scene.now.lock() += Duration::from_secs(2);
    let mut late = pin!(late);
    let polled = late.as_mut().poll(&mut Context::from_waker(&waker()));
    assert!(matches!(polled, Poll::Ready(Err(LookupError::DeadlineExceeded { .. }))), "{polled:?}");
    assert_eq!(scene.order(), ["x", "a"]);
}

#[test]
fn a_raised_unit_that_nobody_wants_any_more_goes_back_to_its_rows() {
    let scene = Scene::new();
    scene.define(&["a"]);
    drop((scene.want("a", Speculative), scene.want("a", Demanded)));
    assert_eq!(scene.order(), [""; 0]);
    // It can be had again, and no ticket of before takes it.
    let _again = scene.want("a", Idle);
    assert_eq!(scene.order(), ["a"]);
}

#[test]
fn a_raised_unit_that_is_removed_does_not_start() {
    let scene = Scene::new();
    scene.define(&["x"]);
    let tracker = scene.main.create_tracker();
    let unit = TestUnit::new("gone", exported(&scene.session, &["a"]), |_| panic!("it was removed"));
    scene.main.define_with_tracker(unit.boxed(), &tracker).unwrap();
    let answers = [Speculative, Demanded]
        .map(|priority| look_up_later(&scene.session, scene.request("a").at(priority)));
    tracker.remove().unwrap();
    scene.dispatcher.run_all();
    for answer in answers {
        assert!(matches!(answer.recv().unwrap(), Err(LookupError::Failed(_))));
    }
}

#[test]
fn a_raised_unit_fails_with_its_last_ticket() {
    let scene = Scene::new();
    scene.define(&["a"]);
    let answers =
        [Speculative, Lazy].map(|priority| look_up_later(&scene.session, scene.request("a").at(priority)));
    scene.dispatcher.drop_queued(Lazy);
    scene.settle();
    assert!(answers[0].try_recv().is_err() && answers[1].try_recv().is_err(), "one ticket is left");
    scene.dispatcher.drop_queued(Speculative);
    scene.dispatcher.run_all();
    for answer in answers {
        let error = answer.recv().unwrap().unwrap_err();
        assert!(error.to_string().contains("dispatch"), "{error}");
    }
}

#[test]
fn a_stale_ticket_that_is_dropped_fails_nobody() {
    let scene = Scene::new();
    scene.define(&["a"]);
    let answers =
        [Speculative, Lazy].map(|priority| look_up_later(&scene.session, scene.request("a").at(priority)));
    scene.dispatcher.run_next();
    scene.dispatcher.drop_queued(Speculative);
    scene.settle();
    answers.into_iter().for_each(|answer| drop(answer.recv().unwrap().unwrap()));
}

#[test]
fn a_dispatcher_that_refuses_the_raise_runs_the_unit_as_it_was() {
    let scene = Scene::new();
    scene.define(&["a"]);
    let _low = scene.want("a", Speculative);
    scene.dispatcher.refuse(true);
    let _high = scene.want("a", Demanded);
    scene.dispatcher.refuse(false);
    assert_eq!(scene.dispatcher.queued(Demanded), 0);
    assert_eq!(scene.order(), ["a"]);
}

#[test]
fn a_dispatcher_that_takes_no_more_runs_what_became_less_urgent_at_once() {
    for first in [Demanded, Lazy] {
        let scene = Scene::new();
        scene.define(&["a"]);
        let high = scene.want("a", first);
        let _low = scene.want("a", Idle);
        drop(high);
        scene.dispatcher.refuse(true);
        scene.dispatcher.run_all();
        scene.dispatcher.refuse(false);
        assert_eq!(scene.order(), ["a"]);
    }
}

#[test]
fn a_session_that_closes_runs_what_was_raised_once() {
    let scene = Scene::new();
    scene.define(&["a", "b"]);
    let lookups = [("a", Speculative), ("b", Idle), ("a", Demanded)]
        .map(|(name, priority)| look_up_later(&scene.session, scene.request(name).at(priority)));
    scene.session.close_with(Shutdown::Drain).unwrap();
    lookups.into_iter().for_each(|answer| drop(answer.recv().unwrap().unwrap()));
    assert_eq!(scene.take_started(), ["a", "b"]);
}

#[test]
fn a_session_that_is_cancelled_starts_nothing_that_was_raised() {
    let scene = Scene::new();
    scene.define(&["a"]);
    let lookups = [Speculative, Demanded]
        .map(|priority| look_up_later(&scene.session, scene.request("a").at(priority)));
    scene.session.close_with(Shutdown::Cancel).unwrap();
    for answer in lookups {
        assert!(matches!(answer.recv().unwrap(), Err(LookupError::Closed)));
    }
    assert!(scene.take_started().is_empty());
}

#[test]
fn observers_see_each_change_of_a_units_priority() {
    let scene = Scene::observed();
    scene.define(&["a"]);
    let _low = scene.want("a", Speculative);
    let high = scene.want("a", Demanded);
    let _as_high = scene.want("a", Lazy);
    drop(high);
    scene.dispatcher.run_all();
    let changes: Vec<_> = scene
        .events
        .lock()
        .iter()
        .filter_map(|event| match event {
            EventKind::Prioritized { unit, priority, .. } => Some((unit.to_string(), *priority)),
            _ => None,
        })
        .collect();
    assert_eq!(changes, [("a".to_owned(), Demanded), ("a".to_owned(), Lazy)]);
}

#[test]
fn in_place_a_raised_unit_runs_once() {
    let (session, main) = session();
    let log = Arc::new(Mutex::new(0));
    let count = log.clone();
    let unit = TestUnit::new("unit", exported(&session, &["a"]), move |responsibility| {
        *count.lock() += 1;
        finish(responsibility);
    });
    main.define(unit.boxed()).unwrap();
    let outer = TestUnit::new("outer", exported(&session, &["o"]), |responsibility| {
        let (session, main) = (responsibility.session().clone(), responsibility.dylib().clone());
        let low = session.lookup_future(request(&main, &["a"]).at(Speculative));
        session.lookup_symbol(&order(&main), &session.intern("a")).unwrap();
        drop(low);
        finish(responsibility);
    });
    main.define(outer.boxed()).unwrap();
    session.lookup_symbol(&order(&main), &session.intern("o")).unwrap();
    assert_eq!(*log.lock(), 1);
}
