//! Clearing a dylib that has a symbol in every state, with dependants elsewhere and a resource that complains.

use std::error::Error;
use std::sync::mpsc;

use protocol_tests::halt::while_nothing_else_runs;
use protocol_tests::tracked::{Log, noted, sticking};
use protocol_tests::*;
use uruk_core::{
    DependenceGroup, Dependency, EmitError, ExecutionSession, FailureCause, JitDylib, LookupError,
    LookupRequest, LookupResult, MaterializationResponsibility, ResolveError, ResolvedResponsibility,
    Resource, ResourceTracker, WhyState,
};

const NAMES: [&str; 8] =
    ["never searched", "queued", "begun", "resolved", "emitted", "ready", "failed", "alone"];

/// Checks the answer to a lookup that waited: a failure along `path`, whose last symbol was removed.
fn fell_with(answer: Result<LookupResult, LookupError>, path: &[&str]) {
    let error = answer.unwrap_err();
    let LookupError::Failed(failure) = &error else { panic!("{error}") };
    assert!(matches!(failure.cause, FailureCause::Removed), "{error}");
    let told: Vec<_> = failure.path.iter().map(|name| name.as_str()).collect();
    assert_eq!(told, path, "{error}");
}

fn emit_on(session: &ExecutionSession, resolved: ResolvedResponsibility, name: &str, on: Dependency) {
    let group = DependenceGroup { symbols: vec![session.intern(name)], dependencies: vec![on] };
    resolved.notify_emitted(vec![group]).unwrap();
}

fn state(main: &JitDylib, name: &str) -> WhyState {
    main.session().why(main, &main.session().intern(name)).state
}

type Told = mpsc::Receiver<Result<LookupResult, LookupError>>;

/// ```text
///  main:   a symbol in each state; `emitted` depends on `elsewhere`
///  other:  `elsewhere`, resolved; `dependant`, emitted, depends on `resolved`
///  the only thread:  lookup of `queued` ─ clear │ the task of `queued`
/// ```
struct Scene {
    session: ExecutionSession,
    main: JitDylib,
    other: JitDylib,
    /// Of what was removed: what it has said.
    log: Log,
    tracker: ResourceTracker,
    begun: MaterializationResponsibility,
    resolved: ResolvedResponsibility,
    elsewhere: ResolvedResponsibility,
    begun_told: Told,
    resolved_told: Told,
    emitted_told: Told,
    elsewhere_told: Told,
    dependant_told: Told,
}

impl Scene {
    fn new(workers: usize) -> Self {
        let (session, main) = session_of(workers);
        let other = session.create_jit_dylib("other").unwrap();
        let log = Log::default();
        main.default_tracker().add_resource(noted("oldest", &log)).unwrap();
        let tracker = main.create_tracker();
        tracker.add_resource(sticking("stuck", &log)).unwrap();
        let never = |name: &str| TestUnit::new(name, exported(&session, &[name]), |_| panic!("it starts"));
        main.define(never("never searched").boxed()).unwrap();
        main.define_with_tracker(never("queued").boxed(), &tracker).unwrap();
        define_simple(&main, "ready", &["ready"]);
        main.define(TestUnit::new("failed", exported(&session, &["failed"]), drop).boxed()).unwrap();
        let in_main = ["begun", "resolved", "emitted"].map(|name| define_parked(&main, name, &[name]));
        let in_other = ["elsewhere", "dependant"].map(|name| define_parked(&other, name, &[name]));
        define_absolute(&main, "alone", 7);
        session.lookup(LookupRequest::new(order(&main), set(&session, &["ready", "alone"]))).unwrap();
        assert!(session.lookup_symbol(&order(&main), &session.intern("failed")).is_err());

        let asks = |dylib: &JitDylib, name: &str| look_up_later(&session, request(dylib, &[name]));
        let [begun_told, resolved_told, emitted_told] =
            ["begun", "resolved", "emitted"].map(|name| asks(&main, name));
        let [elsewhere_told, dependant_told] = ["elsewhere", "dependant"].map(|name| asks(&other, name));
        let [begun, resolved, emitted] = in_main.map(|parked| parked.recv().unwrap().attach());
        let [elsewhere, dependant] = in_other.map(|parked| resolve(parked.recv().unwrap().attach()));
        let (resolved, emitted) = (resolve(resolved), resolve(emitted));
        let token = |of: &ResolvedResponsibility, name: &str| of.dependency(&session.intern(name)).unwrap();
        let (on_elsewhere, on_resolved) = (token(&elsewhere, "elsewhere"), token(&resolved, "resolved"));
        emit_on(&session, emitted, "emitted", on_elsewhere);
        emit_on(&session, dependant, "dependant", on_resolved);
        Self {
            session,
            main,
            other,
            log,
            tracker,
            begun,
            resolved,
            elsewhere,
            begun_told,
            resolved_told,
            emitted_told,
            elsewhere_told,
            dependant_told,
        }
    }

    /// Gives who has asked for `queued`.
    fn clear(&self) -> Told {
        let (queued_told, error) = while_nothing_else_runs(&self.session, &self.main, |session, main| {
            let queued = look_up_later(session, request(main, &["queued"]));
            assert!(matches!(state(main, "never searched"), WhyState::NeverSearched { .. }));
            assert!(matches!(state(main, "begun"), WhyState::Materializing(_)));
            assert!(matches!(state(main, "resolved"), WhyState::Resolved { .. }));
            assert!(matches!(state(main, "emitted"), WhyState::Emitted { .. }));
            assert!(matches!(state(main, "ready"), WhyState::Ready { .. }));
            assert!(matches!(state(main, "failed"), WhyState::Failed(_)));
            let error = main.clear().unwrap_err();
            assert!(matches!(state(main, "queued"), WhyState::Undefined { .. }));
            (queued, error)
        });
        assert_eq!(error.to_string(), "resources of dylib `main` could not be removed: stuck sticks");
        assert_eq!(*self.log.lock(), ["stuck", "oldest"], "newest first, past the one that complains");
        assert!(self.tracker.is_defunct());
        queued_told
    }

    /// A unit that still holds a responsibility is told, and dropping the refused one does nothing.
    fn refuses_what_comes_later(begun: MaterializationResponsibility, resolved: ResolvedResponsibility) {
        let definitions = addresses(begun.symbols());
        let refused = begun.notify_resolved(&definitions).unwrap_err();
        assert!(matches!(refused.error, ResolveError::TrackerDefunct { .. }), "{}", refused.error);
        drop(refused);
        let refused = resolved.notify_emitted(Vec::new()).unwrap_err();
        assert!(matches!(refused.error, EmitError::TrackerDefunct { .. }), "{}", refused.error);
    }
}

#[test]
fn clearing_ends_what_is_there_in_whatever_state() {
    for workers in [0, 1] {
        within_reason(move || {
            let scene = Scene::new(workers);
            fell_with(scene.clear().recv().unwrap(), &["queued"]);
            fell_with(scene.begun_told.recv().unwrap(), &["begun"]);
            fell_with(scene.resolved_told.recv().unwrap(), &["resolved"]);
            fell_with(scene.emitted_told.recv().unwrap(), &["emitted"]);
            fell_with(scene.dependant_told.recv().unwrap(), &["dependant", "resolved"]);
            Scene::refuses_what_comes_later(scene.begun, scene.resolved);

            // Nothing of it waits for the symbol elsewhere, whose unit goes on undisturbed.
            let Scene { session, main, other, .. } = scene;
            let why = session.why(&other, &session.intern("elsewhere"));
            assert!(why.demand.symbols.is_empty(), "{why}");
            scene.elsewhere.notify_emitted(Vec::new()).unwrap();
            assert!(scene.elsewhere_told.recv().unwrap().is_ok());

            for name in NAMES {
                assert!(matches!(state(&main, name), WhyState::Undefined { .. }), "{name}");
                define_simple(&main, "again", &[name]);
            }
            assert_eq!(
                session.lookup(LookupRequest::new(order(&main), set(&session, &NAMES))).unwrap().len(),
                NAMES.len()
            );
            session.close().unwrap();
        });
    }
}

/// Units that had not started are dropped with the clearing, not with the session.
#[test]
fn clearing_drops_units_that_had_not_started() {
    struct Tells(mpsc::Sender<()>);
    impl Drop for Tells {
        fn drop(&mut self) {
            // The test may have ended.
            let _ = self.0.send(());
        }
    }
    let (session, main) = session();
    let (send, dropped) = mpsc::channel();
    for (name, is_wanted) in [("never searched", false), ("returned", true)] {
        let tells = Tells(send.clone());
        let unit = TestUnit::new(name, exported(&session, &[name]), move |responsibility| {
            drop(tells);
            finish(responsibility);
        });
        main.define(unit.boxed()).unwrap();
        if is_wanted {
            let name = name.to_owned();
            while_nothing_else_runs(&session, &main, move |session, main| {
                drop(session.lookup_future(request(main, &[&name])));
            });
            assert!(matches!(state(&main, "returned"), WhyState::Returned { .. }));
        }
    }
    assert!(dropped.try_recv().is_err());
    main.clear().unwrap();
    assert_eq!(dropped.try_iter().count(), 2);
}

/// More trackers than one slice removes, each with a symbol and a resource.
#[test]
fn a_dylib_of_many_trackers_gives_its_resources_back_newest_first() {
    const TRACKERS: usize = 3_000;
    struct Numbered(usize, mpsc::Sender<usize>);
    impl Resource for Numbered {
        fn remove(self: Box<Self>) -> Result<(), Box<dyn Error + Send + Sync>> {
            Ok(self.1.send(self.0)?)
        }
    }
    let (session, main) = session();
    let (send, removed) = mpsc::channel();
    let define = |number: usize| {
        let tracker = main.create_tracker();
        let symbol = absolute(&main, &format!("symbol_{number}"), 1);
        main.define_with_tracker(symbol, &tracker).unwrap();
        tracker.add_resource(Box::new(Numbered(number, send.clone()))).unwrap();
        tracker
    };
    for remove in [JitDylib::clear, |main: &JitDylib| main.session().remove_jit_dylib(main)] {
        let trackers: Vec<_> = (0..TRACKERS).map(define).collect();
        remove(&main).unwrap();
        assert!(trackers.iter().all(|tracker| tracker.is_defunct()));
        assert!(removed.try_iter().eq((0..TRACKERS).rev()));
        assert!(session.lookup(LookupRequest::new(order(&main), set(&session, &["symbol_7"]))).is_err());
    }
    session.close().unwrap();
}
