//! Every place where code of the embedder runs, and all that code may do there: look up, define and remove, block, panic, end
//! the session.

use std::pin::Pin;
use std::sync::{Arc, mpsc};
use std::task::{Context, Wake};
use std::time::Duration;

use protocol_tests::on::On;
use protocol_tests::*;
use uruk_core::sync::{Latch, Mutex};
use uruk_core::{
    AddedUnit, DefinitionGenerator, ExecutionSession, GenerateRequest, JitDylib, Platform, Resource,
    SharedError, SymbolFlags, SymbolFlagsMap, Task, TaskPriority, UnitNumber,
};

on_every_dispatcher! {
    code_may_look_up_define_and_remove_wherever_it_runs,
    code_may_block_wherever_it_runs,
    code_may_panic_wherever_it_runs,
    code_may_end_the_session_wherever_it_runs,
}

/// Where code of the embedder runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Task,
    Unit,
    UnitDiscarding,
    UnitDropped,
    Handler,
    HandlerDropped,
    Waker,
    Generator,
    ResourceRemoved,
    Observer,
    Reporter,
    PlatformSettingUp,
    PlatformTearingDown,
    PlatformAdding,
    PlatformRemoved,
}

const PLACES: [Place; 15] = [
    Place::Task,
    Place::Unit,
    Place::UnitDiscarding,
    Place::UnitDropped,
    Place::Handler,
    Place::HandlerDropped,
    Place::Waker,
    Place::Generator,
    Place::ResourceRemoved,
    Place::Observer,
    Place::Reporter,
    Place::PlatformSettingUp,
    Place::PlatformTearingDown,
    Place::PlatformAdding,
    Place::PlatformRemoved,
];

/// The action of the code there, once, as soon as it is armed.
#[derive(Clone, Default)]
struct Deed {
    armed: Arc<Mutex<Option<Armed>>>,
}

struct Armed {
    run: Box<dyn FnOnce(&JitDylib) + Send>,
    main: JitDylib,
    done: mpsc::Sender<()>,
}

impl Deed {
    /// Does it, if it is armed and has not been done. Tells so also when it panics.
    fn run(&self) {
        struct Tells(mpsc::Sender<()>);
        impl Drop for Tells {
            fn drop(&mut self) {
                // A test that has failed listens no longer.
                let _ = self.0.send(());
            }
        }
        let armed = { self.armed.lock().take() };
        if let Some(Armed { run, main, done }) = armed {
            let _tells = Tells(done);
            run(&main);
        }
    }

    fn dropped(&self) -> RunsWhenDropped {
        RunsWhenDropped(self.clone())
    }
}

/// A value of the embedder whose drop is the deed.
struct RunsWhenDropped(Deed);

impl Drop for RunsWhenDropped {
    fn drop(&mut self) {
        // A second panic while the first unwinds would end the process.
        if !std::thread::panicking() {
            self.0.run();
        }
    }
}

impl Wake for RunsWhenDropped {
    fn wake(self: Arc<Self>) {
        self.0.run();
    }
}

impl Resource for RunsWhenDropped {
    fn remove(self: Box<Self>) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        self.0.run();
        Ok(())
    }
}

impl DefinitionGenerator for RunsWhenDropped {
    fn name(&self) -> &str {
        "generator"
    }

    fn generate(&self, request: GenerateRequest) {
        self.0.run();
        request.finish(Ok(()));
    }
}

#[derive(Debug)]
struct Watches {
    place: Place,
    deed: Deed,
}

impl std::fmt::Debug for Deed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Deed")
    }
}

impl Watches {
    fn at(&self, place: Place) {
        if self.place == place {
            self.deed.run();
        }
    }
}

impl Platform for Watches {
    fn set_up(&self, _dylib: &JitDylib) -> Result<(), SharedError> {
        self.at(Place::PlatformSettingUp);
        Ok(())
    }

    fn tear_down(&self, _dylib: &JitDylib) -> Result<(), SharedError> {
        self.at(Place::PlatformTearingDown);
        Ok(())
    }

    fn unit_adding(&self, _unit: &AddedUnit<'_>) -> Result<(), SharedError> {
        self.at(Place::PlatformAdding);
        Ok(())
    }

    fn unit_removed(&self, _unit: UnitNumber) {
        self.at(Place::PlatformRemoved);
    }
}

/// Has `run` done at `place` in a session of its own; returns when it has been, with the session.
fn done_at(
    on: On,
    place: Place,
    run: impl FnOnce(&JitDylib) + Send + 'static,
) -> (ExecutionSession, JitDylib) {
    let deed = Deed::default();
    let watches = Watches { place, deed: deed.clone() };
    let (sees, hears) = (deed.clone(), deed.clone());
    let session = ExecutionSession::builder()
        .dispatcher(on.dispatcher())
        .platform(Arc::new(watches))
        .observer(Arc::new(move |_| {
            if place == Place::Observer {
                sees.run()
            }
        }))
        .error_reporter(Arc::new(move |_| {
            if place == Place::Reporter {
                hears.run()
            }
        }))
        .build();
    let main = session.create_jit_dylib("main").unwrap();
    define_simple(&main, "ready", &["ready"]);
    session.lookup_symbol(&order(&main), &session.intern("ready")).unwrap();
    let tracker = main.create_tracker();
    let mut losing = losing_unit(&session, place, &deed);
    if let Some(weak) = losing.take() {
        main.define_with_tracker(weak.boxed(), &tracker).unwrap();
    }
    let bystander = session.create_jit_dylib("bystander").unwrap();
    let (done, told) = mpsc::channel();
    let armed = Armed { run: Box::new(run), main: main.clone(), done };
    *deed.armed.lock() = Some(armed);
    trigger(place, &deed, &main, &tracker, &bystander);
    told.recv().unwrap();
    (session, main)
}

/// A unit whose symbols another definition overrides.
fn losing_unit(session: &ExecutionSession, place: Place, deed: &Deed) -> Option<TestUnit> {
    let weak = |names: &[&str]| -> SymbolFlagsMap {
        names.iter().map(|name| (session.intern(name), EXPORTED | SymbolFlags::WEAK)).collect()
    };
    match place {
        Place::UnitDiscarding => {
            let deed = deed.clone();
            Some(TestUnit::new("loses", weak(&["lost", "kept"]), finish).on_discard(move |_| deed.run()))
        }
        Place::UnitDropped => {
            let owned = deed.dropped();
            Some(TestUnit::new("loses", weak(&["lost"]), finish).on_discard(move |_| {
                let _ = &owned;
            }))
        }
        Place::PlatformRemoved => {
            let symbols = exported(session, &["removed"]);
            Some(TestUnit::new("removed", symbols, finish).with_initializer(session.intern("removed_init")))
        }
        _ => None,
    }
}

/// Makes code of the embedder run at `place`. The caller checks the outcome, since a place may be told of a panic.
fn trigger(
    place: Place,
    deed: &Deed,
    main: &JitDylib,
    tracker: &uruk_core::ResourceTracker,
    bystander: &JitDylib,
) {
    let session = main.session();
    let deed = deed.clone();
    match place {
        Place::Task => {
            session.dispatch(Task::new("task", TaskPriority::Demanded, move || deed.run()));
        }
        Place::Unit => {
            let unit = TestUnit::new("unit", exported(session, &["unit"]), move |responsibility| {
                deed.run();
                // The session may have ended.
                drop(responsibility);
            });
            main.define(unit.boxed()).unwrap();
            drop(look_up_later(session, request(main, &["unit"])));
        }
        Place::UnitDiscarding => {
            define_simple(main, "wins", &["lost"]);
            // It hears of its loss when it begins.
            drop(look_up_later(session, request(main, &["kept"])));
        }
        Place::UnitDropped => define_simple(main, "wins", &["lost"]),
        Place::Handler => session.lookup_async(request(main, &["ready"]), move |_| deed.run()),
        Place::HandlerDropped => {
            let owned = deed.dropped();
            session.lookup_async(request(main, &["ready"]), move |_| drop(owned));
        }
        Place::Waker => {
            let parked = define_parked(main, "waited", &["waited"]);
            let mut future = session.lookup_future(request(main, &["waited"]));
            let waker = Arc::new(deed.dropped()).into();
            assert!(Pin::new(&mut future).poll(&mut Context::from_waker(&waker)).is_pending());
            finish(parked.recv().unwrap().attach());
            // A future that is dropped is told nothing; it has been.
            drop(future);
        }
        Place::Generator => {
            main.add_generator(Arc::new(deed.dropped()));
            drop(look_up_later(session, request(main, &["generated"])));
        }
        Place::ResourceRemoved => {
            tracker.add_resource(Box::new(deed.dropped())).unwrap();
            drop(tracker.remove());
        }
        Place::Observer => {
            let symbols = exported(main.session(), &["seen"]);
            // An earlier event may still be on its way, and may have ended the session.
            let _ = main.define(TestUnit::new("seen", symbols, finish).boxed());
        }
        Place::Reporter => session.lookup_async(request(main, &["ready"]), |_| panic!("to be reported")),
        Place::PlatformSettingUp => drop(session.create_jit_dylib("other")),
        Place::PlatformTearingDown => drop(session.remove_jit_dylib(bystander)),
        Place::PlatformAdding => {
            drop(main.define(TestUnit::new("added", exported(session, &["added"]), finish).boxed()));
        }
        Place::PlatformRemoved => drop(tracker.remove()),
    }
}

/// Does `check` at each place; one that hangs is named.
fn at_each(on: On, check: fn(On, Place)) {
    for place in PLACES {
        within(&format!("{place:?} of {on:?}"), Duration::from_secs(20), move || check(on, place));
    }
}

/// The session works as if nothing had happened.
fn goes_on((session, main): (ExecutionSession, JitDylib), place: Place) {
    define_simple(&main, "after", &["after"]);
    let after = session.lookup_symbol(&order(&main), &session.intern("after"));
    assert!(after.is_ok(), "{place:?}: {after:?}");
    session.close().unwrap();
}

fn code_may_look_up_define_and_remove_wherever_it_runs(on: On) {
    at_each(on, |on, place| {
        let session = done_at(on, place, |main| {
            let session = main.session();
            let look_up = |name| session.lookup_symbol(&order(main), &session.intern(name));
            look_up("ready").unwrap();
            define_simple(main, "fresh", &["fresh"]);
            look_up("fresh").unwrap();
            let tracker = main.create_tracker();
            let unit = TestUnit::new("gone", exported(session, &["gone"]), finish);
            main.define_with_tracker(unit.boxed(), &tracker).unwrap();
            look_up("gone").unwrap();
            tracker.remove().unwrap();
            drop(look_up_later(session, request(main, &["fresh"])));
        });
        goes_on(session, place);
    });
}

fn code_may_block_wherever_it_runs(on: On) {
    at_each(on, |on, place| {
        // Another thread finishes the awaited symbol once the deed has begun.
        let (send, begun) = mpsc::channel::<JitDylib>();
        let finisher = std::thread::spawn(move || {
            let main = begun.recv().unwrap();
            let parked = define_parked(&main, "parked", &["parked"]);
            let _answer = look_up_later(main.session(), request(&main, &["parked"]));
            finish(parked.recv().unwrap().attach());
        });
        let session = done_at(on, place, move |main| {
            let session = main.session();
            let defined = Arc::new(Latch::new());
            send.send(main.clone()).unwrap();
            // Until the other thread has defined it.
            let found = loop {
                match session.lookup_symbol(&order(main), &session.intern("parked")) {
                    Err(uruk_core::LookupError::NotFound { .. }) => std::thread::yield_now(),
                    found => break found,
                }
            };
            found.unwrap();
            defined.open();
            session.blocking(|| defined.wait()).unwrap();
        });
        finisher.join().unwrap();
        goes_on(session, place);
    });
}

fn code_may_panic_wherever_it_runs(on: On) {
    at_each(on, |on, place| {
        let session = done_at(on, place, |_| panic!("on purpose"));
        goes_on(session, place);
    });
}

fn code_may_end_the_session_wherever_it_runs(on: On) {
    at_each(on, |on, place| {
        let (session, main) = done_at(on, place, |main| {
            main.session().close().unwrap();
            main.session().close().unwrap();
        });
        session.close().unwrap();
        assert!(session.lookup_symbol(&order(&main), &session.intern("ready")).is_err(), "{place:?}");
    });
}
