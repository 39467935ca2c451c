//! Units made of a function, and responsibilities that are completed in one step.

use std::error::Error;
use std::sync::Arc;

use protocol_tests::*;
use uruk_core::{
    CompleteError, ExecutionSession, ExecutorAddr, FnRequest, FnUnit, JitDylib, ResolveError, SymbolFlags,
};
use uruk_dispatch::WorkStealingTaskDispatcher;

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
    let told =
        "`g` (dylib `main`) failed: unit `g` gave addresses for symbols it is not responsible for: `h`";
    assert_eq!(address_of(&main, "g"), Err(told.to_owned()));
}

/// Units had to carry tokens from their lookups to the emission, and a unit that forgot one was Ready without its need.
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

/// Two functions that call each other, as units.
fn define_even_and_odd(main: &JitDylib, resolves_first: bool) {
    let session = main.session();
    for (name, callee, address) in [("even", "odd", 0x10), ("odd", "even", 0x20)] {
        let callee = session.intern(callee);
        let function = move |request: &mut FnRequest<'_>| -> Result<_, Box<dyn Error + Send + Sync>> {
            let here = request.addresses([(name, ExecutorAddr::new(address))])?;
            if resolves_first {
                request.resolve(&here)?;
            }
            request.lookup([callee])?;
            Ok(here)
        };
        main.define(Box::new(FnUnit::new([session.intern(name)], function))).unwrap();
    }
}

/// Lookups of a unit's function waited until their symbols were Ready, and so for each other if the functions called each
/// other. Only a unit with both steps of its responsibility could be written for that.
#[test]
fn functions_that_call_each_other_are_each_told_where_the_other_will_be() {
    for workers in [0, 1, 2] {
        let session = match workers {
            0 => ExecutionSession::new(),
            workers => {
                let pool = WorkStealingTaskDispatcher::builder().workers(workers).build().unwrap();
                ExecutionSession::builder().dispatcher(Arc::new(pool)).build()
            }
        };
        let main = session.create_jit_dylib("main").unwrap();
        define_even_and_odd(&main, true);
        assert_eq!(address_of(&main, "even"), Ok(HERE), "{workers} workers");
        assert_eq!(address_of(&main, "odd"), Ok(ExecutorAddr::new(0x20)));
        session.close().unwrap();
    }
}

#[test]
fn functions_that_call_each_other_and_do_not_resolve_are_told_so() {
    let (_session, main) = session();
    define_even_and_odd(&main, false);
    let error = address_of(&main, "even").unwrap_err();
    assert!(error.contains("the lookup would never end"), "{error}");
}

#[test]
fn what_was_resolved_is_not_answered_otherwise() {
    let (session, main) = session();
    let moves = FnUnit::new([session.intern("f")], |request| {
        request.resolve(&request.addresses([("f", HERE)])?)?;
        request.addresses([("f", ExecutorAddr::new(0x20))])
    });
    main.define(Box::new(moves)).unwrap();
    let error = address_of(&main, "f").unwrap_err();
    assert!(error.ends_with("unit `f` answered otherwise than it had resolved: `f`"), "{error}");
}

#[test]
fn what_was_resolved_fails_if_the_function_does() {
    let (session, main) = session();
    let gives_up = FnUnit::new([session.intern("f")], |request| -> Result<_, Box<dyn Error + Send + Sync>> {
        request.resolve(&request.addresses([("f", HERE)])?)?;
        Err("the branch is too long".into())
    });
    main.define(Box::new(gives_up)).unwrap();
    let error = address_of(&main, "f").unwrap_err();
    assert!(error.ends_with("the branch is too long"), "{error}");
}

#[test]
fn what_the_function_calls_itself_is_ready() {
    let (session, main) = session();
    define_absolute(&main, "helper", 0x30);
    let [middle, helper] = ["middle", "helper"].map(|name| session.intern(name));
    let needs = helper.clone();
    let unit = FnUnit::new([middle.clone()], move |request| -> Result<_, Box<dyn Error + Send + Sync>> {
        request.lookup([needs])?;
        Ok(request.addresses([("middle", HERE)])?)
    });
    main.define(Box::new(unit)).unwrap();
    let unit =
        FnUnit::new([session.intern("top")], move |request| -> Result<_, Box<dyn Error + Send + Sync>> {
            let (session, order) = (request.session().clone(), request.dylib().link_order());
            session.lookup_symbol(&order, &middle)?;
            request.lookup([middle.clone()])?;
            let ready = session.ready_symbol(&order, &middle);
            Ok(request.addresses([("top", ready.ok_or("not Ready")?.address)])?)
        });
    main.define(Box::new(unit)).unwrap();
    assert_eq!(address_of(&main, "top"), Ok(HERE));
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
