//! Edges of the wait-for graph that are easily forgotten.

use std::sync::{Arc, mpsc};

use protocol_tests::*;
use uruk_core::{
    AliasTarget, DeadlockStep, DefinitionGenerator, GenerateRequest, JitDylib, LookupError, SymbolFlags,
    Task, TaskPriority, symbol_aliases,
};

fn look_up(main: &JitDylib, names: &[&str]) -> Result<(), LookupError> {
    main.session().lookup(&order(main), set(main.session(), names)).map(drop)
}

/// Looks `a` up, blocking, whatever it is asked for.
#[derive(Debug)]
struct LooksUpA(mpsc::Sender<LookupError>);

impl DefinitionGenerator for LooksUpA {
    fn name(&self) -> &str {
        "looks up a"
    }

    fn generate(&self, request: GenerateRequest) {
        let outcome = look_up(request.dylib(), &["a"]);
        if let Err(error) = &outcome {
            self.0.send(error.clone()).unwrap();
        }
        request.finish(outcome.map_err(|error| Arc::new(error) as _));
    }
}

#[test]
fn a_generator_that_waits_for_the_alias_it_is_asked_on_behalf_of_is_told() {
    within_reason(|| {
        let (session, main) = session();
        let (send, told) = mpsc::channel();
        let target = AliasTarget { source: session.intern("x"), flags: SymbolFlags::EXPORTED };
        main.define(symbol_aliases([(session.intern("a"), target)].into_iter().collect())).unwrap();
        main.add_generator(Arc::new(LooksUpA(send)));
        look_up(&main, &["a"]).unwrap_err();
        let error = told.try_recv().unwrap();
        let LookupError::WouldDeadlock { path } = &error else { panic!("{error}") };
        let is_alias = |step: &DeadlockStep| matches!(step, DeadlockStep::AliasOf { .. });
        let is_generator = |step: &DeadlockStep| matches!(step, DeadlockStep::Generator { .. });
        assert!(path.len() == 2 && path.iter().any(is_alias) && path.iter().any(is_generator), "{error}");
    });
}

#[test]
fn what_a_bare_task_takes_up_above_a_blocked_unit_is_told() {
    within_reason(|| {
        let (session, main) = session();
        let (send, told) = mpsc::channel();
        let parked = define_parked(&main, "B", &["b"]);
        let wanted = look_up_later(&session, request(&main, &["b"]));
        let unit = TestUnit::new("A", exported(&session, &["a"]), move |responsibility| {
            let main = responsibility.dylib().clone();
            // No session knows of this task.
            let bare = Task::new("bare", TaskPriority::Demanded, {
                let main = main.clone();
                move || {
                    let b = parked.recv().unwrap().attach();
                    send.send(look_up(&main, &["a"]).unwrap_err()).unwrap();
                    finish(b);
                }
            });
            main.session().dispatcher().dispatch(bare).unwrap();
            look_up(&main, &["b"]).unwrap();
            finish(responsibility);
        });
        main.define(unit.boxed()).unwrap();
        look_up(&main, &["a"]).unwrap();
        assert!(wanted.recv().unwrap().is_ok());
        let error = told.try_recv().unwrap();
        let LookupError::WouldDeadlock { path } = &error else { panic!("{error}") };
        assert_eq!(path.len(), 2, "{error}");
        assert!(path.iter().all(|step| matches!(step, DeadlockStep::LooksUp { .. })), "{error}");
    });
}

#[test]
fn a_responsibility_whose_replacement_was_refused_is_held_again() {
    within_reason(|| {
        let (session, main) = session();
        let (send, told) = mpsc::channel();
        let unit = TestUnit::new("A", exported(&session, &["a"]), move |responsibility| {
            let main = responsibility.dylib().clone();
            let other = TestUnit::new("other", exported(main.session(), &["other"]), finish);
            let refused = responsibility.replace(other.boxed()).unwrap_err();
            send.send(look_up(&main, &["a"]).unwrap_err()).unwrap();
            finish(refused.responsibility);
        });
        main.define(unit.boxed()).unwrap();
        look_up(&main, &["a"]).unwrap();
        let error = told.try_recv().unwrap();
        assert!(matches!(error, LookupError::WouldDeadlock { .. }), "{error}");
    });
}
