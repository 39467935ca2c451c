//! Lookups of Ready symbols and the memory they do not ask for.

use allocation_counter::measure;
use protocol_tests::*;
use uruk_core::{
    ExecutionSession, JitDylib, JitDylibLookupFlags, LookupRequest, LookupSet, SearchOrder, SymbolName,
    absolute_symbols,
};

/// Dylibs of a session, each of which has `own` Ready.
fn dylibs(count: usize, own: impl Fn(usize) -> String) -> (ExecutionSession, Vec<JitDylib>) {
    let session = ExecutionSession::new();
    let create = |index| {
        let dylib = session.create_jit_dylib(&format!("d{index}")).unwrap();
        let name = session.intern(&own(index));
        dylib.define(absolute_symbols([(name.clone(), at(1))].into_iter().collect())).unwrap();
        session.lookup_symbol(&order(&dylib), &name).unwrap();
        dylib
    };
    let dylibs = (0..count).map(create).collect();
    (session, dylibs)
}

fn all_of(dylibs: &[JitDylib]) -> SearchOrder {
    dylibs.iter().map(|dylib| (dylib.clone(), JitDylibLookupFlags::MatchAllSymbols)).collect()
}

/// The allocations of a hundred lookups of `name`, after a first one that fills the thread's caches.
fn allocations(session: &ExecutionSession, order: &SearchOrder, name: &SymbolName) -> u64 {
    session.lookup_symbol(order, name).unwrap();
    let counted = measure(|| {
        for _ in 0..100 {
            session.lookup_symbol(order, name).unwrap();
        }
    });
    counted.count_total
}

#[test]
fn a_lookup_of_a_ready_symbol_allocates_nothing() {
    for depth in [1, 10, 100] {
        let (session, dylibs) = dylibs(depth, |index| format!("s{index}"));
        let last = session.intern(&format!("s{}", depth - 1));
        assert_eq!(allocations(&session, &all_of(&dylibs), &last), 0, "depth {depth}");
    }
}

#[test]
fn nor_does_one_of_a_name_that_a_hundred_dylibs_define() {
    let (session, dylibs) = dylibs(100, |_| "main".into());
    let name = session.intern("main");
    assert_eq!(allocations(&session, &all_of(&dylibs), &name), 0);
    assert_eq!(allocations(&session, &order(&dylibs[99]), &name), 0);
}

/// The story: the record of a name that more than sixteen dylibs define was a concurrent map, and each of those came with
/// a collector of its own, 16 KiB at least: ten thousand names in seventeen dylibs took 160 MB.
#[test]
fn a_further_definition_costs_as_much_however_many_there_are() {
    const NAMES: usize = 500;
    let (session, dylibs) = dylibs(40, |index| format!("own_{index}"));
    let names: Vec<_> = (0..NAMES).map(|index| session.intern(&format!("s{index}"))).collect();
    let define = |dylib: &JitDylib| {
        let symbols = names.iter().map(|name| (name.clone(), at(1))).collect();
        dylib.define(absolute_symbols(symbols)).unwrap();
        session.lookup(LookupRequest::new(order(dylib), LookupSet::required(names.iter().cloned()))).unwrap();
    };
    dylibs[..10].iter().for_each(define);
    for dylibs in dylibs[10..].chunks(10) {
        let kept = measure(|| dylibs.iter().for_each(define)).bytes_current;
        let each = kept / (NAMES * dylibs.len()) as i64;
        assert!(each < 512, "{each} bytes for each definition");
    }
}

#[test]
fn names_that_were_ready_leave_next_to_nothing() {
    const NAMES: usize = 100_000;
    let (session, dylibs) = dylibs(1, |_| "stays".into());
    let left = measure(|| {
        let names: Vec<_> = (0..NAMES).map(|index| session.intern(&format!("goes_{index}"))).collect();
        let tracker = dylibs[0].create_tracker();
        let symbols = names.iter().map(|name| (name.clone(), at(1))).collect();
        dylibs[0].define_with_tracker(absolute_symbols(symbols), &tracker).unwrap();
        session.lookup(LookupRequest::new(order(&dylibs[0]), LookupSet::required(names))).unwrap();
        tracker.remove().unwrap();
    });
    // The slots of the ready index's map stay until other names come.
    let each = left.bytes_current / NAMES as i64;
    assert!(each < 28, "{each} bytes are left of each name");
}

#[test]
fn a_lookup_of_many_allocates_its_answer_only() {
    let (session, dylibs) = dylibs(100, |index| format!("s{index}"));
    let (order, names) = (all_of(&dylibs), (0..100).map(|index| session.intern(&format!("s{index}"))));
    let names: Vec<_> = names.collect();
    let request = || LookupRequest::new(&order, LookupSet::required(names.iter().cloned()));
    session.lookup(request()).unwrap();
    let again = request();
    // The request's own memory is given back meanwhile.
    assert_eq!(measure(|| drop(session.lookup(again).unwrap())).count_total, 1);
}
