//! Priority follows demand on threads: in the work-stealing pool, inside rayon's, in place.

use std::sync::Arc;

use TaskPriority::{Demanded, Speculative};
use protocol_tests::halt::Halt;
use protocol_tests::scene::link;
use protocol_tests::*;
use uruk_core::sync::Mutex;
use uruk_core::{InPlaceTaskDispatcher, TaskDispatcher, TaskPriority};
use uruk_dispatch::RayonTaskDispatcher;

const UNITS: usize = 10_000;

fn in_rayon(threads: usize) -> Arc<dyn TaskDispatcher> {
    let pool = rayon_core::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
    Arc::new(RayonTaskDispatcher::in_pool(Arc::new(pool)).build().expect("the pool has a thread"))
}

#[test]
fn lookups_of_every_priority_on_many_threads_are_all_answered() {
    all_are_answered(pool(2));
}

#[test]
fn lookups_of_every_priority_are_all_answered_inside_rayon() {
    all_are_answered(in_rayon(2));
}

#[test]
fn lookups_of_every_priority_are_all_answered_in_place() {
    all_are_answered(Arc::new(InPlaceTaskDispatcher::default()));
}

#[test]
fn a_demanded_unit_of_ten_thousand_speculative_ones_starts_next() {
    within_reason(|| {
        let (session, main) = session_of(1);
        let halt = Halt::default();
        let here = halt.clone();
        // Keeps the one worker at work.
        let first = TestUnit::new("first", exported(&session, &["first"]), move |responsibility| {
            here.stop();
            finish(responsibility);
        });
        main.define(first.boxed()).unwrap();
        let started = Arc::new(Mutex::new(Vec::new()));
        let names: Vec<String> = (0..UNITS).map(|index| format!("unit{index}")).collect();
        for (index, name) in names.iter().enumerate() {
            let (started, next) = (started.clone(), format!("unit{}", index + 1));
            let unit = TestUnit::new(name, exported(&session, &[name]), move |responsibility| {
                started.lock().push(index);
                // The one that is asked for, and the one after it, need the next.
                if !(UNITS / 2..UNITS / 2 + 2).contains(&index) {
                    return finish(responsibility);
                }
                link(responsibility, &next, |request| request);
            });
            main.define(unit.boxed()).unwrap();
        }
        let asked_first = look_up_later(&session, request(&main, &["first"]));
        halt.reached();
        let speculative: Vec<_> =
            names.iter().map(|name| session.lookup_future(request(&main, &[name]).at(Speculative))).collect();
        let asked = look_up_later(&session, request(&main, &[&names[UNITS / 2]]).at(Demanded));
        halt.let_go();
        asked.recv().unwrap().unwrap();
        asked_first.recv().unwrap().unwrap();
        let started_next: Vec<usize> = started.lock().iter().copied().take(3).collect();
        assert_eq!(started_next, [UNITS / 2, UNITS / 2 + 1, UNITS / 2 + 2]);
        session.close().unwrap();
        assert_eq!(started.lock().len(), UNITS, "each starts once");
        drop(speculative);
    });
}

fn all_are_answered(dispatcher: Arc<dyn TaskDispatcher>) {
    within_reason(move || {
        let (session, main) = session_on(dispatcher);
        let started = Arc::new(Mutex::new(vec![0; 400]));
        for index in 0..400usize {
            let (name, next) = (format!("u{index}"), format!("u{}", index + 1));
            let started = started.clone();
            let unit = TestUnit::new(&name, exported(&session, &[&name]), move |responsibility| {
                started.lock()[index] += 1;
                if index % 20 == 19 {
                    return finish(responsibility);
                }
                link(responsibility, &next, |request| request);
            });
            main.define(unit.boxed()).unwrap();
        }
        let priorities = [TaskPriority::Idle, Speculative, TaskPriority::Lazy, Demanded];
        std::thread::scope(|scope| {
            for thread in 0..4usize {
                let (session, main) = (&session, &main);
                scope.spawn(move || {
                    for step in 0..400usize {
                        let name = format!("u{}", (step * 7 + thread * 13) % 400);
                        let asked = request(main, &[&name]).at(priorities[(step + thread) % 4]);
                        match step % 3 {
                            // Given up at once.
                            0 => drop(session.lookup_future(asked)),
                            1 => drop(look_up_later(session, asked).recv().unwrap().unwrap()),
                            _ => drop(session.lookup_symbol(&order(main), &session.intern(&name)).unwrap()),
                        }
                    }
                });
            }
        });
        session.close().unwrap();
        assert!(started.lock().iter().all(|&count| count <= 1), "each starts once");
    });
}
