//! Ready: the same symbol is looked up without the lock and under it, while it becomes Ready.
//!
//! ```text
//!  thread 1: lookup(x): claims, waits       emitter: resolve ─ emit: record, queries end       thread 2: lookup(x)
//!                                                                                                a record? answer
//!                                                                                                none? match, lodge, wait
//! ```
//!
//! Proven, in every order with at most three preemptions: both are told the address, but not before the emission (I4); they see
//! all effects before it, and none waits for a symbol that is Ready already (I12); a symbol that is not Ready yet hides one
//! that is from the ready path.
//!
//! **Fails if** one of these steps is changed:
//!
//! | weakening | in | caught by |
//! |---|---|---|
//! | `ready::publishes_unordered`: a record may be seen ahead of the effects that made its symbol Ready | `core/src/ready_index.rs` | `one_waits_and_one_needs_no_lock` |
//! | `ready::answers_what_is_not_ready`: a record answers for a definition that is not Ready | `core/src/ready_index/definitions.rs` | `what_is_not_ready_hides_what_is` |
#![cfg(uruk_loom)]

use loom_tests::stage::{Stage, definition, model_within, resolve};
use uruk_core::sync::atomic::{AtomicBool, Ordering};
use uruk_core::sync::{Arc, Mutex, thread};
use uruk_core::{
    ExecutorAddr, ExecutorSymbolDef, JitDylibLookupFlags, SearchOrder, SymbolFlags, absolute_symbols,
};

const PREEMPTIONS: usize = 3;

/// Makes `name` a symbol that another thread emits; gives that thread, once a lookup has asked.
fn define_parked(
    stage: &Stage,
    name: &uruk_core::SymbolName,
    emitted: &Arc<AtomicBool>,
) -> Arc<Mutex<Option<thread::JoinHandle<()>>>> {
    let emitter = Arc::new(Mutex::new(None));
    stage.define(&[name], {
        let (emitter, emitted) = (emitter.clone(), emitted.clone());
        move |responsibility| {
            let parked = responsibility.detach();
            let thread = thread::spawn(move || {
                let resolved = resolve(parked.attach());
                // Relaxed: read by threads that the session has told of the emission.
                emitted.store(true, Ordering::Relaxed);
                resolved.notify_emitted(Vec::new()).expect("nothing can refuse it");
            });
            *emitter.lock() = Some(thread);
        }
    });
    emitter
}

#[test]
fn one_waits_and_one_needs_no_lock() {
    model_within(PREEMPTIONS, || {
        let stage = Stage::new();
        let name = stage.session.intern("x");
        let emitted = Arc::new(AtomicBool::new(false));
        let emitter = define_parked(&stage, &name, &emitted);
        let look_up = move |stage: &Stage, emitted: &AtomicBool| {
            let name = stage.session.intern("x");
            assert_eq!(stage.lookup(&name).expect("found"), definition());
            assert!(emitted.load(Ordering::Relaxed), "told before it was emitted");
        };
        let other = thread::spawn({
            let (stage, emitted) = (stage.clone(), emitted.clone());
            move || look_up(&stage, &emitted)
        });
        look_up(&stage, &emitted);
        other.join().expect("no panic");
        let emitter = emitter.lock().take().expect("somebody asked");
        emitter.join().expect("no panic");
        look_up(&stage, &emitted);
    });
}

#[test]
fn what_is_not_ready_hides_what_is() {
    model_within(PREEMPTIONS, || {
        let stage = Stage::new();
        let name = stage.session.intern("x");
        let second = stage.session.create_jit_dylib("second").expect("it is new");
        let elsewhere = ExecutorSymbolDef::new(ExecutorAddr::new(2), SymbolFlags::EXPORTED);
        let symbols = [(name.clone(), elsewhere)].into_iter().collect();
        second.define(absolute_symbols(symbols)).expect("it is new");
        let all = JitDylibLookupFlags::MatchAllSymbols;
        let order: SearchOrder = [(stage.dylib.clone(), all), (second, all)].into();
        assert_eq!(stage.session.lookup_symbol(&order, &name).expect("found"), elsewhere);

        let emitted = Arc::new(AtomicBool::new(false));
        let emitter = define_parked(&stage, &name, &emitted);
        let other = thread::spawn({
            let (stage, order, name) = (stage.clone(), order.clone(), name.clone());
            move || assert_eq!(stage.session.lookup_symbol(&order, &name).expect("found"), definition())
        });
        assert_eq!(stage.session.lookup_symbol(&order, &name).expect("found"), definition());
        assert!(emitted.load(Ordering::Relaxed), "told before it was emitted");
        other.join().expect("no panic");
        let emitter = emitter.lock().take().expect("somebody asked");
        emitter.join().expect("no panic");
    });
}

loom_tests::catches_its_weakenings!();
