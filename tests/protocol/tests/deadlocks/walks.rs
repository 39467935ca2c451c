//! How much is walked in one hold of the lock when an edge appears.

use std::sync::mpsc;

use protocol_tests::deadlock::{define_blocking, look_up, until_blocked_for};
use protocol_tests::*;
use uruk_core::{AliasTarget, SymbolFlags, symbol_aliases};

/// So many aliases of one unit, which a blocked thread needs; another blocked thread holds the source of one of them.
#[test]
fn a_unit_of_many_aliases_is_looked_through_a_few_times() {
    const MANY: usize = 2_000;
    within_reason(|| {
        let (session, main) = session();
        let (teller, _told) = mpsc::channel();
        let names: Vec<_> =
            (0..MANY).map(|index| (format!("alias{index}"), format!("source{index}"))).collect();
        let aliases = names.iter().map(|(alias, source)| {
            let target = AliasTarget { source: session.intern(source), flags: SymbolFlags::EXPORTED };
            (session.intern(alias), target)
        });
        main.define(symbol_aliases(aliases.collect())).unwrap();
        let sources: Vec<_> = names[1..].iter().map(|(_, source)| source.as_str()).collect();
        let _sources = define_parked(&main, "sources", &sources);
        let _z = define_parked(&main, "z", &["z"]);
        define_blocking(&main, "source0", &["z"], &teller);
        let wanted: Vec<_> = names.iter().map(|(alias, _)| alias.as_str()).collect();
        define_blocking(&main, "a", &wanted, &teller);
        std::thread::scope(|scope| {
            let first = scope.spawn(|| look_up(&main, &["source0"]));
            until_blocked_for(&main, "source0", "z");
            let second = scope.spawn(|| look_up(&main, &["a"]));
            until_blocked_for(&main, "a", "alias0");
            while !matches!(
                session.why(&main, &session.intern("source1")).state,
                uruk_core::WhyState::Materializing(_)
            ) {
                std::thread::yield_now();
            }
            let steps = session.metrics().hold_steps_max;
            session.close().unwrap();
            assert!(first.join().unwrap().is_err() && second.join().unwrap().is_err());
            assert!(steps < 100 * MANY, "{steps} steps in one hold of the lock for {MANY} aliases");
        });
    });
}
