//! Three threads make random calls of a session, on a pool of one worker; then it closes. Every lookup has been answered once,
//! and none with an address that was removed before the lookup began.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use protocol_tests::random::Random;
use protocol_tests::*;
use uruk_core::{
    DefinitionGenerator, ExecutionSession, GenerateRequest, JitDylib, LookupRequest,
    MaterializationResponsibility, SymbolMap, absolute_symbols, shared_error,
};

const NAMES: usize = 24;

/// Defines what it is asked for, or refuses, or forgets the request.
struct Moody(AtomicUsize);

impl DefinitionGenerator for Moody {
    fn name(&self) -> &str {
        "moody"
    }

    fn generate(&self, request: GenerateRequest) {
        // Relaxed: only the number counts.
        match self.0.fetch_add(1, Ordering::Relaxed) % 4 {
            0 => request.finish(Err(shared_error("not today"))),
            1 => drop(request),
            _ => {
                let symbols = request.symbols().iter().map(|(name, _)| (name.clone(), at(1))).collect();
                // Another thread may have been faster.
                let _ = request.dylib().define(absolute_symbols(symbols));
                request.finish(Ok(()));
            }
        }
    }
}

/// Resolves, looks others up as a linker does and emits; or fails, or panics, or gives the work back.
fn materialize(responsibility: MaterializationResponsibility, fate: usize, needs: Vec<String>) {
    match fate {
        0 => return responsibility.fail(shared_error("on purpose")),
        1 => std::panic::resume_unwind(Box::new("on purpose")),
        2 => return,
        3 => {
            let symbols = responsibility.symbols().clone();
            let again =
                TestUnit::new("again", symbols, move |responsibility| materialize(responsibility, 9, needs));
            if let Err(refused) = responsibility.replace(again.boxed()) {
                refused.fail();
            }
            return;
        }
        4 => {
            // A wait that need not find anything; its own symbols it must not wait for.
            let others =
                needs.iter().filter(|need| need.starts_with("base")).map(String::as_str).collect::<Vec<_>>();
            let session = responsibility.session();
            let _ = session.lookup(LookupRequest::new(order(responsibility.dylib()), set(session, &others)));
        }
        _ => {}
    }
    let definitions = addresses(responsibility.symbols());
    let resolved = match responsibility.notify_resolved(&definitions) {
        Ok(resolved) => resolved,
        Err(refused) => {
            refused.fail();
            return;
        }
    };
    let needs: Vec<&str> = needs.iter().map(String::as_str).collect();
    let needs = request(resolved.dylib(), &needs);
    emit_depending_on(resolved, needs);
}

struct Tally {
    asked: AtomicUsize,
    told: AtomicUsize,
}

fn act(session: &ExecutionSession, main: &JitDylib, dice: &mut Random, tally: &Arc<Tally>) {
    let name = |dice: &mut Random| format!("s{}", dice.below(NAMES));
    match dice.below(10) {
        0..=3 => {
            let symbols = [name(dice), name(dice)];
            let needs = (0..dice.below(3)).map(|_| name(dice)).chain(["base".to_owned()]).collect();
            let fate = dice.below(14);
            let symbols: Vec<&str> = symbols.iter().map(String::as_str).collect();
            let unit = TestUnit::new("unit", exported(session, &symbols), move |responsibility| {
                materialize(responsibility, fate, needs);
            });
            let tracker = main.create_tracker();
            // Refused where a name is taken.
            let _ = main.define_with_tracker(unit.boxed(), &tracker);
            if dice.below(3) == 0 {
                tracker.remove().unwrap();
            }
        }
        4 | 5 => {
            // Relaxed, here and below: compared after the close, which all that counts has ended before.
            tally.asked.fetch_add(1, Ordering::Relaxed);
            let told = tally.clone();
            let names = [name(dice), name(dice)];
            let request: LookupRequest = request(main, &[names[0].as_str(), names[1].as_str()]);
            session.lookup_async(request, move |_| {
                told.told.fetch_add(1, Ordering::Relaxed);
            });
        }
        6 => {
            let mut future = Box::pin(session.lookup_future(request(main, &[&name(dice)])));
            let waker = waker();
            let _ = future.as_mut().poll(&mut std::task::Context::from_waker(&waker));
        }
        7 => {
            // Symbols that wait for each other's units may never come: only what is there already is waited for.
            let _ = session.lookup_symbol(&order(main), &session.intern("base"));
        }
        8 => {
            let _ = main.remove(&[session.intern(&name(dice))]);
        }
        _ if dice.below(40) == 0 => main.clear().unwrap(),
        _ => {
            let id = main.add_generator(Arc::new(Moody(AtomicUsize::new(dice.below(4)))));
            let _ = session.lookup_symbol(&order(main), &session.intern(&format!("base{}", dice.below(4))));
            if let Some(id) = id {
                main.remove_generator(id);
            }
        }
    }
    if dice.below(8) == 0 {
        let base: SymbolMap = [(session.intern("base"), at(7))].into_iter().collect();
        // Mostly it is there.
        let _ = main.define(absolute_symbols(base));
    }
}

fn storm(seed: u64, workers: usize) {
    let (session, main) = session_of(workers);
    let versioned = session.create_jit_dylib("versioned").unwrap();
    let removed_below = AtomicU64::new(0);
    let tally = Arc::new(Tally { asked: AtomicUsize::new(0), told: AtomicUsize::new(0) });
    std::thread::scope(|scope| {
        for thread in 0..3 {
            let (session, main, tally) = (&session, &main, &tally);
            scope.spawn(move || {
                let mut dice = Random(seed * 3 + thread);
                for _ in 0..400 {
                    act(session, main, &mut dice, tally);
                }
            });
        }
        let (session, versioned, removed_below) = (&session, &versioned, &removed_below);
        let name = session.intern("version");
        let read = name.clone();
        scope.spawn(move || {
            for version in 1..400 {
                let tracker = versioned.create_tracker();
                let symbols = [(name.clone(), at(version))].into_iter().collect();
                versioned.define_with_tracker(absolute_symbols(symbols), &tracker).unwrap();
                session.lookup_symbol(&order(versioned), &name).unwrap();
                tracker.remove().unwrap();
                removed_below.store(version, Ordering::SeqCst);
            }
        });
        scope.spawn(move || {
            for _ in 0..4000 {
                let removed = removed_below.load(Ordering::SeqCst);
                if let Ok(found) = session.lookup_symbol(&order(versioned), &read) {
                    assert!(found.address.value() > removed, "{found:?} had been removed");
                }
            }
        });
    });
    session.close().unwrap();
    // Relaxed: see above.
    assert_eq!(tally.asked.load(Ordering::Relaxed), tally.told.load(Ordering::Relaxed));
}

#[test]
fn everybody_is_told_on_one_worker() {
    (0..6).for_each(|seed| within_reason(move || storm(seed, 1)));
}

#[test]
fn everybody_is_told_on_three_workers() {
    (10..16).for_each(|seed| within_reason(move || storm(seed, 3)));
}
