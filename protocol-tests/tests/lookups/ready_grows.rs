//! The ready path while the records of other names come and go in bulk: its table grows and shrinks beneath readers.
//!
//! ```text
//!  changer, a few times                                     readers, until it is done
//!    define thousands of names, look them up: larger arrays    look up names that stay: always told
//!    remove them: smaller arrays                               look up one that comes and goes: told, or missing
//! ```

use uruk_core::sync::atomic::{AtomicBool, Ordering};
use uruk_core::sync::thread;
use uruk_core::{
    ExecutionSession, ExecutorAddr, ExecutorSymbolDef, JitDylib, LookupError, LookupRequest, LookupSet,
    SearchOrder, SymbolFlags, SymbolName, absolute_symbols,
};

const ROUNDS: usize = 6;
const STAYING: usize = 40;
const COMING: usize = 3_000;
const READERS: usize = 2;

fn names(session: &ExecutionSession, what: &str, count: usize) -> Vec<SymbolName> {
    (0..count).map(|number| session.intern(&format!("{what}{number}"))).collect()
}

/// The definition of the name with that number.
fn definition(number: usize) -> ExecutorSymbolDef {
    ExecutorSymbolDef::new(ExecutorAddr::new(0x1000 + number as u64), SymbolFlags::EXPORTED)
}

/// Defines the names and makes them Ready.
fn make_ready(session: &ExecutionSession, dylib: &JitDylib, names: &[SymbolName]) {
    let numbered = names.iter().enumerate();
    let symbols = numbered.map(|(number, name)| (name.clone(), definition(number))).collect();
    dylib.define(absolute_symbols(symbols)).expect("the names are free");
    let set = LookupSet::required(names.iter().cloned());
    session.lookup(LookupRequest::new(SearchOrder::of(dylib), set)).expect("they were just defined");
}

#[test]
fn names_that_stay_are_found_while_thousands_come_and_go() {
    let session = ExecutionSession::new();
    let dylib = session.create_jit_dylib("main").expect("the first dylib");
    let order = SearchOrder::of(&dylib);
    let (staying, coming) = (names(&session, "stays", STAYING), names(&session, "comes", COMING));
    make_ready(&session, &dylib, &staying);
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        for reader in 0..READERS {
            let (session, order, staying, coming, done) = (&session, &order, &staying, &coming, &done);
            scope.spawn(move || {
                let mut number = reader;
                // Relaxed: what is read has nothing to do with it.
                while !done.load(Ordering::Relaxed) {
                    number += 1;
                    let told = session.lookup_symbol(order, &staying[number % STAYING]);
                    assert_eq!(told.expect("nobody removes it"), definition(number % STAYING));
                    match session.lookup_symbol(order, &coming[number % COMING]) {
                        Ok(told) => assert_eq!(told, definition(number % COMING)),
                        Err(LookupError::NotFound { .. } | LookupError::Failed(_)) => {}
                        Err(error) => panic!("neither found nor missing: {error}"),
                    }
                }
            });
        }
        for _ in 0..ROUNDS {
            make_ready(&session, &dylib, &coming);
            dylib.remove(&coming).expect("nobody materializes them");
        }
        // Relaxed: see above.
        done.store(true, Ordering::Relaxed);
    });
}
