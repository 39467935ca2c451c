//! Sessions inside a rayon pool of the host: work of the host on its threads stops no unit.

use std::sync::{Arc, mpsc};

use protocol_tests::*;
use rayon::prelude::*;
use uruk_core::sync::Latch;
use uruk_core::{ExecutionSession, JitDylib, LookupError, LookupRequest, thread_is_engaged};
use uruk_dispatch::RayonTaskDispatcher;

struct Host {
    pool: Arc<rayon_core::ThreadPool>,
    session: ExecutionSession,
    main: JitDylib,
}

fn host(threads: usize) -> Host {
    let pool = Arc::new(rayon_core::ThreadPoolBuilder::new().num_threads(threads).build().unwrap());
    // A thousand spares have a thousand stacks.
    let dispatcher = RayonTaskDispatcher::in_pool(pool.clone()).stack_size_bytes(256 << 10).build().unwrap();
    let (session, main) = session_on(Arc::new(dispatcher));
    Host { pool, session, main }
}

impl Host {
    fn look_up(&self, name: &str) {
        self.session.lookup_symbol(&order(&self.main), &self.session.intern(name)).unwrap();
    }

    fn define_thousand(&self) {
        for index in 0..1000 {
            define_simple(&self.main, "unit", &[&format!("s{index}")]);
        }
    }

    /// Occupies a thread of the pool until the latch is opened, and says nothing of it.
    fn occupy(&self) -> Arc<Latch> {
        let (begun, go_on) = (Arc::new(Latch::new()), Arc::new(Latch::new()));
        let (begins, waits) = (begun.clone(), go_on.clone());
        self.pool.spawn(move || {
            begins.open();
            waits.wait();
        });
        begun.wait();
        go_on
    }
}

/// Where every transaction is checked, a thousand blocked lookups take ten seconds; `dispatch/tests/rayon/tasks.rs` has a thousand.
const CHAIN: usize = if cfg!(debug_assertions) { 200 } else { 1000 };

#[test]
fn a_pool_of_one_completes_a_chain_of_a_thousand_blocking_lookups() {
    within_reason(|| {
        let host = host(1);
        for index in 0..CHAIN {
            let symbols = exported(&host.session, &[&format!("s{index}")]);
            let unit = TestUnit::new("unit", symbols, move |responsibility| {
                let (session, main) = (responsibility.session().clone(), responsibility.dylib().clone());
                session.lookup_symbol(&order(&main), &session.intern(&format!("s{}", index + 1))).unwrap();
                finish(responsibility);
            });
            host.main.define(unit.boxed()).unwrap();
        }
        define_simple(&host.main, "last", &[&format!("s{CHAIN}")]);
        host.look_up("s0");
        host.session.close().unwrap();
    });
}

/// On its own ticket the unit runs on the very thread that it asks for; on a spare it waits for that thread, which is free.
#[test]
fn a_unit_that_asks_for_the_hosts_only_thread_ends() {
    within_reason(|| {
        let host = host(1);
        for (index, declared) in [(0, false), (1, true), (2, false), (3, true)] {
            let (pool, name) = (host.pool.clone(), format!("s{index}"));
            let unit = TestUnit::new("unit", exported(&host.session, &[&name]), move |responsibility| {
                let install = || pool.install(|| rayon::join(|| 1, || 2));
                let session = responsibility.session().clone();
                let parts = if declared { session.blocking(install).unwrap() } else { install() };
                assert_eq!(parts, (1, 2));
                finish(responsibility);
            });
            host.main.define(unit.boxed()).unwrap();
            if index < 2 {
                // No thread blocks, so that no spare is called before the host's thread has had its time.
                look_up_later(&host.session, request(&host.main, &[&name])).recv().unwrap().unwrap();
            } else {
                host.look_up(&name);
            }
        }
        host.session.close().unwrap();
    });
}

#[test]
fn a_thousand_lookups_from_inside_install_scope_and_parallel_iterators() {
    for threads in [1, 3] {
        within_reason(move || {
            for way in 0..3 {
                let host = host(threads);
                host.define_thousand();
                match way {
                    0 => host.pool.install(|| (0..1000).for_each(|index| host.look_up(&format!("s{index}")))),
                    1 => host.pool.scope(|scope| {
                        for index in 0..1000 {
                            let host = &host;
                            scope.spawn(move |_| host.look_up(&format!("s{index}")));
                        }
                    }),
                    _ => host.pool.install(|| {
                        (0..1000).into_par_iter().for_each(|index| host.look_up(&format!("s{index}")));
                    }),
                }
                host.session.close().unwrap();
            }
        });
    }
}

/// A unit that waits in rayon while rayon offers its stack to the unit that waits for it: above it, the second would wait for
/// ever, or be told of a deadlock that no symbol is to blame for.
#[test]
fn a_unit_is_not_run_above_one_that_it_waits_for() {
    within_reason(|| {
        let host = host(2);
        // No thread steals the ticket.
        let occupied = host.occupy();
        let begun = Arc::new(Latch::new());
        let begins = begun.clone();
        let waits = TestUnit::new("waits", exported(&host.session, &["waits"]), move |responsibility| {
            begins.open();
            let (session, main) = (responsibility.session().clone(), responsibility.dylib().clone());
            match session.lookup_symbol(&order(&main), &session.intern("joins")) {
                Ok(_) => finish(responsibility),
                Err(error) => responsibility.fail(Arc::new(error)),
            }
        });
        host.main.define(waits.boxed()).unwrap();
        let (send, answer) = mpsc::channel();
        let joins = TestUnit::new("joins", exported(&host.session, &["joins"]), move |responsibility| {
            let (session, main) = (responsibility.session().clone(), responsibility.dylib().clone());
            let asks = || {
                session.lookup_async(request(&main, &["waits"]), move |answer| send.send(answer).unwrap());
            };
            rayon_core::join(asks, || begun.wait());
            finish(responsibility);
        });
        host.main.define(joins.boxed()).unwrap();
        // Not blocked in a lookup: that would lend this thread's place to a spare.
        let joined = look_up_later(&host.session, request(&host.main, &["joins"]));
        joined.recv().unwrap().unwrap();
        answer.recv().unwrap().unwrap();
        occupied.open();
        host.session.close().unwrap();
    });
}

/// The same with a job of the host, which holds the responsibility while it waits in rayon.
#[test]
fn a_unit_is_not_run_above_a_job_that_holds_what_it_waits_for() {
    within_reason(|| {
        let host = host(1);
        let parked = define_parked(&host.main, "parked", &["parked"]);
        let _first = look_up_later(&host.session, request(&host.main, &["parked"]));
        let parked = parked.recv().unwrap();
        let begun = Arc::new(Latch::new());
        let begins = begun.clone();
        let waits = TestUnit::new("waits", exported(&host.session, &["waits"]), move |responsibility| {
            begins.open();
            let (session, main) = (responsibility.session().clone(), responsibility.dylib().clone());
            session.lookup_symbol(&order(&main), &session.intern("parked")).unwrap();
            finish(responsibility);
        });
        host.main.define(waits.boxed()).unwrap();
        let answer = host.pool.install(|| {
            let responsibility = parked.attach();
            assert!(thread_is_engaged());
            let asks = || look_up_later(&host.session, request(&host.main, &["waits"]));
            let (answer, ()) = rayon_core::join(asks, || begun.wait());
            finish(responsibility);
            assert!(!thread_is_engaged());
            answer
        });
        answer.recv().unwrap().unwrap();
        host.session.close().unwrap();
    });
}

/// A job that waits for a handler by its own means, and a pool that has no other thread.
#[test]
fn an_undeclared_wait_on_the_only_thread_of_the_host_delays_and_does_not_hang() {
    within_reason(|| {
        let host = host(1);
        define_simple(&host.main, "unit", &["a"]);
        let answered = host.pool.install(|| look_up_later(&host.session, request(&host.main, &["a"])).recv());
        assert!(answered.unwrap().is_ok());
        host.session.close().unwrap();
    });
}

/// A unit on a spare uses the host's pool by name.
#[test]
fn units_may_use_the_pool_they_run_in() {
    within_reason(|| {
        let host = host(1);
        for index in 0..100 {
            let symbols = exported(&host.session, &[&format!("s{index}")]);
            let pool = host.pool.clone();
            let unit = TestUnit::new("unit", symbols, move |responsibility| {
                let session = responsibility.session().clone();
                let sum = || pool.install(|| (0..1000_u64).into_par_iter().sum::<u64>());
                assert_eq!(session.blocking(sum).unwrap(), 499_500);
                finish(responsibility);
            });
            host.main.define(unit.boxed()).unwrap();
        }
        let names: Vec<_> = (0..100).map(|index| format!("s{index}")).collect();
        let names: Vec<_> = names.iter().map(String::as_str).collect();
        host.session.lookup(LookupRequest::new(order(&host.main), set(&host.session, &names))).unwrap();
        host.session.close().unwrap();
    });
}

/// Rayon itself may run a job of the host above a unit; that is no ticket of ours. A job that blocks there for the unit's own
/// symbol is told.
#[test]
fn a_job_of_the_host_that_blocks_above_the_unit_it_waits_for_is_told() {
    within_reason(|| {
        let host = host(2);
        // No thread steals the job.
        let occupied = host.occupy();
        let (send, told) = mpsc::channel();
        let unit = TestUnit::new("joins", exported(&host.session, &["joins"]), move |responsibility| {
            let in_pool = rayon_core::current_thread_index().is_some();
            let (session, main) = (responsibility.session().clone(), responsibility.dylib().clone());
            let job = move || {
                let answer = session.lookup_symbol(&order(&main), &session.intern("joins"));
                send.send((in_pool, answer)).unwrap();
            };
            // It lands above the other half, so `join` runs it here.
            rayon_core::join(|| rayon_core::spawn(job), || ());
            finish(responsibility);
        });
        host.main.define(unit.boxed()).unwrap();
        look_up_later(&host.session, request(&host.main, &["joins"])).recv().unwrap().unwrap();
        let (in_pool, answer) = told.recv().unwrap();
        // On a spare, if the host was slow to come, nothing is put above anything.
        assert_eq!(in_pool, matches!(answer, Err(LookupError::WouldDeadlock { .. })), "{answer:?}");
        occupied.open();
        host.session.close().unwrap();
    });
}
