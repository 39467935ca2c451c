//! Edges of the wait-for graph that are easily forgotten.

use std::sync::{Arc, mpsc};

use protocol_tests::deadlock::{
    Teller, Told, blocking_unit, define_blocking, finish_or_fail, look_up, look_up_as, the_cycle_as,
};
use protocol_tests::on::{EVERYWHERE, On};
use protocol_tests::*;
use uruk_core::sync::Latch;
use uruk_core::{
    DeadlockStep, DependenceGroup, JitDylib, LookupError, SerialQueue, Task, TaskPriority, Why, WhyState,
};

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

fn define_in(queue: &SerialQueue, main: &JitDylib, symbol: &str) {
    let unit = TestUnit::new(&symbol.to_uppercase(), exported(main.session(), &[symbol]), finish);
    main.define(unit.in_queue(queue).boxed()).unwrap();
}

/// Defines `symbol`, whose unit of `queue` blocks in a lookup of `needs`.
fn define_blocking_in(queue: &SerialQueue, main: &JitDylib, symbol: &str, needs: &str, told: &Teller) {
    let unit = blocking_unit(main.session(), symbol, &[needs], told);
    main.define(unit.in_queue(queue).boxed()).unwrap();
}

/// The name of the one lookup that was told of a cycle, and the cycle's steps from the least on, without dylibs.
fn the_steps(told: &Told) -> (String, Vec<String>) {
    the_cycle_as(told, |step| {
        let kind = match step {
            DeadlockStep::Queued { .. } => "queued",
            DeadlockStep::LooksUp { .. } => "looks up",
            DeadlockStep::DependsOn { .. } => "depends on",
            DeadlockStep::Beneath { .. } => "beneath",
            _ => "else",
        };
        format!("{} {kind}", step.symbol().expect("no generator has part in it"))
    })
}

#[test]
fn a_unit_that_looks_up_what_waits_in_its_own_serial_queue_is_told() {
    for on in EVERYWHERE {
        within_reason(move || {
            let ((session, main), queue, (tell, told)) = (on.session(), SerialQueue::new(), mpsc::channel());
            define_blocking_in(&queue, &main, "a", "b", &tell);
            define_in(&queue, &main, "b");
            let error = look_up(&main, &["a"]).unwrap_err().in_full();
            assert!(error.contains("`b` (dylib `main`, unit `B`) waits in the serial queue"), "{error}");
            assert_eq!(the_steps(&told), ("A".into(), vec!["b queued".into()]));
            look_up(&main, &["b"]).unwrap();
            session.close().unwrap();
        });
    }
}

#[test]
fn what_needs_something_that_waits_in_the_serial_queue_beneath_it_is_told() {
    for on in EVERYWHERE {
        within_reason(move || {
            let ((session, main), queue, (tell, told)) = (on.session(), SerialQueue::new(), mpsc::channel());
            define_blocking_in(&queue, &main, "a", "c", &tell);
            define_blocking(&main, "c", &["b"], &tell);
            define_in(&queue, &main, "b");
            look_up(&main, &["a"]).unwrap_err();
            assert_eq!(the_steps(&told), ("C".into(), vec!["b queued".into(), "c looks up".into()]));
            session.close().unwrap();
        });
    }
}

#[test]
fn units_that_wait_for_each_others_serial_queues_are_told() {
    for on in EVERYWHERE.into_iter().filter(|&on| on != On::Place) {
        within_reason(move || {
            let ((session, main), (tell, told)) = (on.session(), mpsc::channel());
            let (one, two) = (SerialQueue::new(), SerialQueue::new());
            let begun = [Arc::new(Latch::new()), Arc::new(Latch::new())];
            for (this, (queue, symbol, needs)) in [(&one, "a", "x"), (&two, "b", "y")].into_iter().enumerate()
            {
                let (begun, tell) = (begun.clone(), tell.clone());
                let unit = TestUnit::new(symbol, exported(&session, &[symbol]), move |responsibility| {
                    begun[this].open();
                    // Both have begun before either blocks, if need be on a thread more.
                    responsibility.session().blocking(|| begun[1 - this].wait()).unwrap();
                    let outcome = look_up_as(symbol, responsibility.dylib(), &[needs], &tell);
                    finish_or_fail(responsibility, outcome);
                });
                main.define(unit.in_queue(queue).boxed()).unwrap();
            }
            define_in(&two, &main, "x");
            define_in(&one, &main, "y");
            let both = look_up_later(&session, request(&main, &["a", "b"]));
            both.recv().unwrap().unwrap_err();
            // The other one goes on once the first has ended.
            look_up(&main, &["x", "y"]).unwrap();
            session.close().unwrap();
            let (_, cycle) = the_steps(&told);
            assert_eq!(cycle, ["x queued", "y queued"]);
        });
    }
}

#[test]
fn a_serial_queue_that_was_left_is_no_edge() {
    for on in EVERYWHERE {
        within_reason(move || {
            let ((session, main), queue) = (on.session(), SerialQueue::new());
            let unit = TestUnit::new("A", exported(&session, &["a"]), {
                let queue = queue.clone();
                move |responsibility| {
                    assert!(queue.leave());
                    look_up(responsibility.dylib(), &["b"]).unwrap();
                    finish(responsibility);
                }
            });
            main.define(unit.in_queue(&queue).boxed()).unwrap();
            define_in(&queue, &main, "b");
            look_up(&main, &["a"]).unwrap();
            session.close().unwrap();
        });
    }
}

#[test]
fn a_unit_that_has_left_its_serial_queue_does_not_wait_there() {
    // B has begun, and left; A, of the same queue, may wait for it.
    for on in EVERYWHERE.into_iter().filter(|&on| on != On::Place) {
        within_reason(move || {
            let ((session, main), queue, (tell, told)) = (on.session(), SerialQueue::new(), mpsc::channel());
            let (begun, go_on) = (Arc::new(Latch::new()), Arc::new(Latch::new()));
            let unit = TestUnit::new("B", exported(&session, &["b"]), {
                let (queue, begun, go_on) = (queue.clone(), begun.clone(), go_on.clone());
                move |responsibility| {
                    queue.leave();
                    begun.open();
                    responsibility.session().blocking(|| go_on.wait()).unwrap();
                    finish(responsibility);
                }
            });
            main.define(unit.in_queue(&queue).boxed()).unwrap();
            define_blocking_in(&queue, &main, "a", "b", &tell);
            let b = look_up_later(&session, request(&main, &["b"]));
            begun.wait();
            let a = look_up_later(&session, request(&main, &["a"]));
            // A is blocked then, and would have been told.
            let is_blocked =
                |why: Why| matches!(why.state, WhyState::Materializing(work) if work.blocked_in.is_some());
            while !is_blocked(session.why(&main, &session.intern("a"))) {
                std::thread::yield_now();
            }
            go_on.open();
            a.recv().unwrap().unwrap();
            b.recv().unwrap().unwrap();
            assert!(told.try_recv().is_err(), "nobody is told");
            session.close().unwrap();
        });
    }
}

#[test]
fn the_last_edge_may_be_a_unit_that_takes_over_and_waits_in_the_serial_queue() {
    within_reason(|| {
        let ((session, main), queue, (tell, told)) = (session(), SerialQueue::new(), mpsc::channel());
        let parked = define_parked(&main, "X", &["x"]);
        let x_wanted = look_up_later(&session, request(&main, &["x"]));
        let unit = TestUnit::new("A", exported(&session, &["a"]), {
            let queue = queue.clone();
            move |responsibility| {
                let (session, main) = (responsibility.session().clone(), responsibility.dylib().clone());
                let replacement = TestUnit::new("X2", exported(&session, &["x"]), finish).in_queue(&queue);
                // Run by the lookup in which this unit blocks.
                session.dispatch(Task::new("late", TaskPriority::Demanded, move || {
                    parked.recv().unwrap().attach().replace(replacement.boxed()).unwrap();
                }));
                look_up_as("A", &main, &["x"], &tell).unwrap_err();
                finish(responsibility);
            }
        });
        main.define(unit.in_queue(&queue).boxed()).unwrap();
        look_up(&main, &["a"]).unwrap();
        assert_eq!(the_steps(&told), ("A".into(), vec!["x queued".into()]));
        assert!(x_wanted.recv().unwrap().is_ok(), "its turn came when A had ended");
    });
}

#[test]
fn the_last_edge_may_be_an_emission_that_needs_what_waits_in_the_serial_queue() {
    within_reason(|| {
        let ((session, main), queue, (tell, told)) = (session(), SerialQueue::new(), mpsc::channel());
        let parked = define_parked(&main, "X", &["x"]);
        let x_wanted = look_up_later(&session, request(&main, &["x"]));
        // S has begun once, so that there is a token of it. Now it is a unit of the queue again, and no lookup asks for it.
        let s = define_parked(&main, "S", &["s"]);
        drop(session.lookup_future(request(&main, &["s"])));
        let s = s.recv().unwrap().attach();
        let on_s = s.dependency(&session.intern("s")).unwrap();
        let again = TestUnit::new("S2", exported(&session, &["s"]), finish).in_queue(&queue);
        s.replace(again.boxed()).unwrap();
        let unit = TestUnit::new("A", exported(&session, &["a"]), move |responsibility| {
            let main = responsibility.dylib().clone();
            main.session().dispatch(Task::new("late", TaskPriority::Demanded, move || {
                let x = parked.recv().unwrap().attach();
                let symbols = x.symbols().keys().cloned().collect();
                finish_with(x, vec![DependenceGroup { symbols, dependencies: vec![on_s] }]);
            }));
            look_up_as("A", &main, &["x"], &tell).unwrap_err();
            finish(responsibility);
        });
        main.define(unit.in_queue(&queue).boxed()).unwrap();
        look_up(&main, &["a"]).unwrap();
        assert_eq!(the_steps(&told), ("A".into(), vec!["s queued".into(), "x depends on".into()]));
        assert!(x_wanted.recv().unwrap().is_ok(), "its turn came when A had ended");
    });
}
