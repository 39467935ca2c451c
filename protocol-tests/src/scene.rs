//! A scene: a session whose tasks run when the test says so, and units that note in which order they start.

use std::sync::Arc;
use std::time::Instant;

use TaskPriority::Demanded;
use uruk_core::sync::Mutex;
use uruk_core::{
    DefinitionGenerator, DependenceGroup, DetachedRequest, EventKind, ExecutionSession, GenerateRequest,
    JitDylib, LookupRequest, MaterializationInterface, MaterializationResponsibility, MaterializationUnit,
    SessionEvent, SymbolFuture, SymbolName, TaskPriority,
};

use crate::by_priority::ByPriority;
use crate::{EXPORTED, addresses, finish, finish_with, request};

/// A session whose tasks run when the test says so.
#[derive(Debug)]
pub struct Scene {
    /// The session.
    pub session: ExecutionSession,
    /// Its dylib.
    pub main: JitDylib,
    /// The dispatcher that has the tasks.
    pub dispatcher: Arc<ByPriority>,
    /// The units that have started, in order.
    pub started: Arc<Mutex<Vec<String>>>,
    /// The events that an observer has received.
    pub events: Arc<Mutex<Vec<EventKind>>>,
    /// The time of the session's clock.
    pub now: Arc<Mutex<Instant>>,
}

type Then = Box<dyn FnOnce(MaterializationResponsibility) + Send>;

/// A unit of one symbol that notes when it starts.
struct Noted {
    name: &'static str,
    symbol: SymbolName,
    own: TaskPriority,
    started: Arc<Mutex<Vec<String>>>,
    then: Then,
}

/// A unit of `symbol`, as urgent as `own` by itself, that notes in `started` when it does.
pub fn noting_unit(
    name: &'static str,
    symbol: SymbolName,
    own: TaskPriority,
    started: Arc<Mutex<Vec<String>>>,
    then: impl FnOnce(MaterializationResponsibility) + Send + 'static,
) -> Box<dyn MaterializationUnit> {
    Box::new(Noted { name, symbol, own, started, then: Box::new(then) })
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

impl Default for Scene {
    fn default() -> Self {
        Self::new()
    }
}

impl Scene {
    /// Without an observer.
    pub fn new() -> Self {
        Self::of(false)
    }

    /// With an observer, whose tasks are queued like all others.
    pub fn observed() -> Self {
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

    /// Defines a unit of one symbol, which has its name, as urgent as `own` by itself.
    pub fn define_as(
        &self,
        name: &'static str,
        own: TaskPriority,
        then: impl FnOnce(MaterializationResponsibility) + Send + 'static,
    ) {
        let (symbol, started) = (self.session.intern(name), self.started.clone());
        self.main.define(noting_unit(name, symbol, own, started, then)).unwrap();
    }

    /// Units that do nothing but finish.
    pub fn define(&self, names: &[&'static str]) {
        names.iter().for_each(|name| self.define_as(name, Demanded, finish));
    }

    /// A unit that asks for another's address, and depends on it once it has that.
    pub fn define_linked(&self, name: &'static str, to: &'static str) {
        self.define_as(name, Demanded, move |responsibility| link(responsibility, to, |request| request));
    }

    /// A unit whose symbol has its address at once and is emitted when another has one too.
    pub fn define_slow(&self, name: &'static str, to: &'static str) {
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

    /// A request for `name`.
    pub fn request(&self, name: &str) -> LookupRequest {
        request(&self.main, &[name])
    }

    /// Looks `name` up until the future is dropped.
    pub fn want(&self, name: &str, priority: TaskPriority) -> SymbolFuture {
        self.session.lookup_future(self.request(name).at(priority))
    }

    /// Runs everything; what has started since the last time, in order.
    pub fn order(&self) -> Vec<String> {
        self.dispatcher.run_all();
        self.take_started()
    }

    /// The units that have started since the last time, in order.
    pub fn take_started(&self) -> Vec<String> {
        std::mem::take(&mut *self.started.lock())
    }

    /// Runs tasks until `name` has started.
    pub fn run_until_started(&self, name: &str) {
        while !self.started.lock().iter().any(|started| started == name) {
            self.dispatcher.run_next().expect("it is queued");
        }
        self.take_started();
    }

    /// Runs the demanded tasks, which deliver events and answers.
    pub fn settle(&self) {
        self.dispatcher.run_down_to(Demanded);
    }
}

/// A generator whose request the test finishes.
#[derive(Debug)]
pub struct Parks(pub Arc<Mutex<Option<DetachedRequest>>>);

impl DefinitionGenerator for Parks {
    fn name(&self) -> &str {
        "parks"
    }

    fn generate(&self, request: GenerateRequest) {
        *self.0.lock() = Some(request.detach());
    }
}

/// Asks for the address of `to`, and then emits as depending on it.
pub fn link(
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
