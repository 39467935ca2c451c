//! Memory is proportional to what is live.

use protocol_tests::*;
use uruk_core::absolute_symbols;

#[test]
fn names_of_removed_symbols_are_reclaimed() {
    let (session, main) = session();
    for round in 0..20 {
        let names: Vec<_> =
            (0..1000).map(|index| session.intern(&format!("round_{round}_symbol_{index}"))).collect();
        let tracker = main.create_tracker();
        let symbols = names.iter().map(|name| (name.clone(), at(1))).collect();
        main.define_with_tracker(absolute_symbols(symbols), &tracker).unwrap();
        session.lookup_symbol(&order(&main), &names[0]).unwrap();
        drop(names);
        tracker.remove().unwrap();
    }
    assert!(session.symbol_string_pool().len() < 10_000, "{}", session.symbol_string_pool().len());
}
