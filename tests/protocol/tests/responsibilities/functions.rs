//! Units made of a function, and responsibilities that are completed in one step.

use std::error::Error;
use std::sync::Arc;

use protocol_tests::*;
use uruk_core::{CompleteError, ExecutorAddr, FnUnit, JitDylib, ResolveError, SymbolFlags};

const HERE: ExecutorAddr = ExecutorAddr::new(0x10);

fn address_of(main: &JitDylib, name: &str) -> Result<ExecutorAddr, String> {
    let found = main.session().lookup_symbol(&main.link_order(), &main.session().intern(name));
    found.map(|found| found.address).map_err(|error| error.in_full())
}

#[test]
fn what_the_function_answers_is_ready() {
    let (session, main) = session();
    let unit = FnUnit::new([session.intern("f"), session.intern("g")], |request| {
        request.addresses([("f", HERE), ("g", ExecutorAddr::new(0x20))])
    });
    main.define(Box::new(unit)).unwrap();
    assert_eq!(address_of(&main, "g"), Ok(ExecutorAddr::new(0x20)));
    assert_eq!(address_of(&main, "f"), Ok(HERE));
}

#[test]
fn what_the_function_fails_with_its_symbols_fail_with() {
    let (session, main) = session();
    let unit = FnUnit::new([session.intern("f")], |_| Err("no compiler for this"));
    main.define(Box::new(unit.named(session.intern("f.src")))).unwrap();
    let told = "`f` (dylib `main`, unit `f.src`) failed: no compiler for this";
    assert_eq!(address_of(&main, "f"), Err(told.to_owned()));
    let stray = FnUnit::new([session.intern("g")], |request| request.addresses([("h", HERE)]));
    main.define(Box::new(stray)).unwrap();
    let told = "`g` (dylib `main`, unit `g`) failed: unit `g` gave addresses for symbols it is not responsible for: `h`";
    assert_eq!(address_of(&main, "g"), Err(told.to_owned()));
}

/// Units had to carry tokens from their lookups to the emission, and what forgot one was Ready without what it needed.
#[test]
fn what_the_function_looks_up_the_symbols_depend_on() {
    let (session, main) = session();
    define_absolute(&main, "helper", 0x30);
    let helper = session.intern("helper");
    let unit =
        FnUnit::new([session.intern("f")], move |request| -> Result<_, Box<dyn Error + Send + Sync>> {
            let found = request.lookup([helper.clone()])?;
            request.dylib().remove(std::slice::from_ref(&helper))?;
            Ok(request.addresses([("f", found.get(&helper).ok_or("found")?.address)])?)
        });
    main.define(Box::new(unit)).unwrap();
    let error = address_of(&main, "f").unwrap_err();
    assert!(error.ends_with("unit `f`: a dependency of `f` was removed after it was looked up"), "{error}");
}

#[test]
fn what_the_function_keeps_goes_with_the_symbols() {
    let (session, main) = session();
    let tracker = main.create_tracker();
    let kept = Arc::new(());
    let inside = kept.clone();
    let unit = FnUnit::new([session.intern("f")], move |request| {
        request.keep(inside.clone()).expect("the tracker is there");
        request.addresses([("f", HERE)])
    });
    main.define_with_tracker(Box::new(unit), &tracker).unwrap();
    assert_eq!((address_of(&main, "f"), Arc::strong_count(&kept)), (Ok(HERE), 2));
    tracker.remove().unwrap();
    assert_eq!(Arc::strong_count(&kept), 1);
}

#[test]
fn what_others_define_is_not_wanted_of_the_function_and_may_be_answered_all_the_same() {
    let (session, main) = session();
    let weak = SymbolFlags::EXPORTED | SymbolFlags::WEAK;
    let symbols = ["f", "g"].into_iter().map(|name| (session.intern(name), weak)).collect();
    let unit = FnUnit::with_flags(symbols, |request| {
        assert_eq!(request.symbols().len(), 1);
        request.addresses([("f", HERE), ("g", HERE)])
    });
    main.define(Box::new(unit)).unwrap();
    define_absolute(&main, "g", 0x20);
    assert_eq!(address_of(&main, "g"), Ok(ExecutorAddr::new(0x20)));
    assert_eq!(address_of(&main, "f"), Ok(HERE));
}

#[test]
fn a_completion_that_is_refused_fails_the_symbols_with_the_reason() {
    let (session, main) = session();
    let unit = TestUnit::new("unit", exported(&session, &["f"]), |responsibility| {
        let nowhere = [].into_iter().collect();
        let error = responsibility.complete(&nowhere, Vec::new()).unwrap_err();
        assert!(matches!(error, CompleteError::Resolve(ResolveError::Missing { .. })), "{error:?}");
    });
    main.define(unit.boxed()).unwrap();
    let error = address_of(&main, "f").unwrap_err();
    assert!(error.ends_with("unit `unit` gave no address for: `f`"), "{error}");
}
