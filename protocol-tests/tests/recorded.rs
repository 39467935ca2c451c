//! A session's notes: what happened, in which order, on whose behalf. In a process of its own, since a process has one recording.
//!
//! ```text
//!  main: looks up `outer` ─ its unit blocks in a lookup of `inner` ─ `inner` is emitted ─ `outer` is emitted
//! ```

use std::error::Error;

use protocol_tests::*;
use uruk_core::{ExecutorAddr, FnUnit, SymbolMap};
use uruk_recorder::{History, Kind, Options, PathWork, Reader};

#[test]
fn notes_lead_from_the_end_of_a_lookup_to_its_beginning() {
    let (session, before) = session_of(1);
    define_simple(&before, "unnoted", &["unnoted"]);
    uruk_recorder::enable(Options::default()).unwrap();
    let mut reader = Reader::new().unwrap();
    assert_eq!(reader.read().notes, [], "what came before is not noted");

    let main = session.create_jit_dylib("noted").unwrap();
    let (outer, inner) = (session.intern("outer"), session.intern("inner"));
    let unit = FnUnit::new([outer.clone()], {
        let (order, inner) = (main.link_order(), inner.clone());
        move |request| -> Result<SymbolMap, Box<dyn Error + Send + Sync>> {
            request.session().lookup_symbol(&order, &inner)?;
            Ok(request.addresses([("outer", ExecutorAddr::new(0x1000))])?)
        }
    });
    main.define(Box::new(unit)).unwrap();
    define_simple(&main, "inner unit", &["inner"]);
    session.lookup_symbol(&main.link_order(), &outer).unwrap();

    let batch = reader.read();
    let kinds: Vec<Kind> = batch.notes.iter().map(|(_, note)| note.kind).collect();
    let count = |kind: Kind| kinds.iter().filter(|noted| **noted == kind).count();
    let counts = [
        (Kind::Dylib, 1),
        (Kind::Defined, 2),
        (Kind::Lodged, 2),
        (Kind::Claimed, 2),
        (Kind::Begun, 2),
        (Kind::Resolved, 2),
        (Kind::Emitted, 2),
        (Kind::Ready, 2),
        (Kind::Completed, 2),
        (Kind::Blocked, 2),
    ];
    counts.iter().for_each(|&(kind, expected)| assert_eq!(count(kind), expected, "{kind:?}: {kinds:?}"));
    // The lookup's, the wait's and the pool's of each of the two; the units', and their two steps.
    assert!(count(Kind::PhaseBegun) >= 2 * (3 + 3), "{kinds:?}");
    assert_eq!(batch.lost, 0);

    let mut history = History::default();
    history.add(&batch, |name| reader.name(name));
    let slowest = history.slowest_lookup().unwrap();
    let (root, path) = (&history.lookups[&slowest], history.critical_path(slowest));
    assert_eq!(root.symbol, "outer");
    let units: Vec<_> =
        path.iter().filter(|step| step.what == PathWork::Working).map(|step| &*step.unit).collect();
    let [first, second, third] = units[..] else { panic!("{path:?}") };
    assert_eq!((first, second), (third, "inner unit"));
    let sum: u64 = path.iter().map(|step| step.nanos()).sum();
    assert_eq!(sum, root.ended.unwrap() - root.lodged);
    session.close().unwrap();
}
