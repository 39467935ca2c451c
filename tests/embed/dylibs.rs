//! Several dylibs and trackers through the `Jit`: what finds what, and what goes with whom.

use uruk::core::{JitDylibLookupFlags, RemoveError};
use uruk::{JitError, RemovalPolicy};

use crate::support::{archive, block_on, c, c_with, engine};

/// The answer of the function `symbol` of a dylib.
fn call(scope: &uruk::Scope, symbol: &str) -> i32 {
    // SAFETY: the sources here define functions of this signature alone; they are not removed while one runs.
    let function = unsafe { scope.function::<extern "C" fn() -> i32>(symbol) };
    function.unwrap_or_else(|error| panic!("{symbol}: {error}"))()
}

/// There was one dylib, wired by hand; who wanted another built the link order of the engine anew.
#[test]
fn a_dylib_finds_itself_then_what_it_is_linked_to_then_the_process() {
    let jit = engine(1);
    let (host, plugin) = (jit.create_dylib("host").unwrap(), jit.create_dylib("plugin").unwrap());
    let source = "#include <unistd.h>\nint limit(void); int run(void) { return limit() + getpid(); }";
    plugin.add_object(c("plugin.o", source)).unwrap();
    // `getpid` is the process's too, and a dylib that it is linked to comes first.
    host.add_object(c("host.o", "int limit(void) { return 40; } int getpid(void) { return 100; }")).unwrap();
    let missing = plugin.lookup("run").expect_err("nobody defines `limit`").to_string();
    assert!(missing.contains("run"), "{missing}");

    jit.remove_dylib(&plugin).unwrap();
    let plugin = jit.create_dylib("plugin").expect("the name is free again");
    plugin.link_to(&host).unwrap();
    plugin.link_to(&host).unwrap();
    let names: Vec<_> =
        plugin.dylib().link_order().iter().take(2).map(|(dylib, _)| dylib.name().to_owned()).collect();
    assert_eq!(names, ["plugin", "host"]);
    plugin.add_object(c("plugin.o", source)).unwrap();
    assert_eq!(call(&plugin, "run"), 140);
    assert!(jit.lookup("run").is_err(), "the main dylib is linked to neither");
}

#[test]
fn a_dylib_of_another_engine_is_refused() {
    let (jit, other) = (engine(0), engine(0));
    let foreign = other.create_dylib("foreign").unwrap();
    let error = jit.link_to(&foreign).expect_err("it is another session's");
    assert!(error.to_string().contains("foreign"), "{error}");
}

/// A query could be unloaded only by who had rebuilt the engine from its parts.
#[test]
fn what_was_added_with_a_tracker_goes_with_it() {
    let jit = engine(1);
    let add = |number: i32| {
        let tracker = jit.create_tracker();
        jit.in_tracker(&tracker)
            .add_object(c("query.o", &format!("int query(void) {{ return {number}; }}")))
            .expect("the name is free");
        tracker
    };
    let first = add(1);
    assert_eq!(call(&jit.in_tracker(&first), "query"), 1);
    drop(first);
    assert_eq!(jit.memory_usage().allocations, 0);
    assert!(jit.lookup("query").is_err());

    let second = add(2);
    second.remove().expect("nothing of it objects");
    let third = add(3).into_inner();
    drop(third);
    assert_eq!(call(&jit, "query"), 3, "nobody owns it");
}

/// Members were the dylib's own, even with an archive of a tracker, and the archive served lookups for ever.
#[test]
fn an_archive_goes_with_its_tracker_and_so_do_its_members() {
    let jit = engine(1);
    let members = [
        c("used.o", "int shared; int used(void) { return 1; }"),
        c("unused.o", "int unused(void) { return 2; }"),
    ];
    let archive = archive("members", &members);
    let add = || {
        let tracker = jit.create_tracker();
        jit.in_tracker(&tracker).add_archive(&archive).expect("an archive");
        tracker
    };
    for _ in 0..3 {
        let tracker = add();
        assert_eq!(call(&jit.in_tracker(&tracker), "used"), 1);
        let names = [jit.intern("used")];
        assert_eq!(jit.main_dylib().flags(names.clone()).len(), 1);
        tracker.remove().expect("nothing of it objects");
        assert_eq!(jit.main_dylib().flags(names), [], "the member went");
        assert!(jit.lookup("unused").is_err(), "the archive serves nothing more");
        assert_eq!(jit.memory_usage().allocations, 0);
    }
    // Left to the dylib, it stays and serves.
    drop(add().into_inner());
    assert_eq!(call(&jit, "unused"), 2);
}

/// A tentative definition was always the dylib's own.
#[test]
fn a_tentative_definition_goes_with_its_tracker() {
    let jit = engine(1);
    let source = "int counter; int count(void) { return ++counter; }";
    for _ in 0..2 {
        let tracker = jit.create_tracker();
        let object = c_with("count.o", source, &["-fcommon"]);
        jit.in_tracker(&tracker).add_object(object).expect("the names are free");
        assert_eq!(call(&jit.in_tracker(&tracker), "count"), 1);
    }
    assert_eq!(jit.main_dylib().flags([jit.intern("counter")]), []);
    assert_eq!(jit.memory_usage().allocations, 0);
}

#[test]
fn what_comes_too_late_for_its_tracker_is_refused_and_leaves_nothing() {
    let jit = engine(0);
    let tracker = jit.create_tracker();
    tracker.clone().remove().expect("it has nothing");
    let late = jit.in_tracker(&tracker);
    let object = c("late.o", "int late(void) { return 1; }");
    let error = late.add_object(object.clone()).expect_err("the tracker was removed").to_string();
    assert!(error.contains("late.o"), "{error}");
    let error = late.add_archive(&archive("late", &[object])).expect_err("the tracker was removed");
    assert!(error.to_string().contains("late"), "{error}");
    assert!(jit.lookup("late").is_err());
}

/// A member that was pulled in by name alone is given back with the last of its symbols, whichever tracker added it.
#[test]
fn removal_by_name_gives_the_code_of_a_unit_back() {
    let jit = engine(1);
    let tracker = jit.create_tracker();
    let object = c("pair.o", "int one(void) { return 1; } int two(void) { return 2; }");
    jit.in_tracker(&tracker).add_object(object).expect("the names are free");
    assert_eq!(call(&jit.in_tracker(&tracker), "one"), 1);
    let remove = |name: &str| jit.main_dylib().remove(&[jit.intern(name)]).expect("it is Ready");
    remove("one");
    assert_eq!(jit.memory_usage().allocations, 1, "`two` is left");
    remove("two");
    assert_eq!(jit.memory_usage().allocations, 0);
}

#[test]
fn units_of_ones_own_reach_the_layers() {
    let jit = engine(0);
    let object = c("layer.o", "int layered(void) { return 5; }");
    let unit = uruk::pipeline::object::ObjectMaterializationUnit::new(
        jit.session(),
        jit.object_layer().clone(),
        object,
    );
    jit.add_unit(Box::new(unit.expect("an object"))).expect("the name is free");
    assert_eq!(call(&jit, "layered"), 5);
}

/// It went through everything that there was: some hundred lines, more with each file.
#[test]
fn an_engine_prints_itself_in_a_few_lines() {
    let jit = engine(2);
    for number in 0..50 {
        let source = format!("int f{number}(void) {{ return 0; }}");
        let object = c(&format!("f{number}.o"), &source);
        jit.add_object(object).expect("the names differ");
    }
    let printed = format!("{jit:#?}");
    assert!(printed.lines().count() <= 10, "{printed}");
    assert_eq!(
        printed.lines().map(str::trim).take(2).collect::<Vec<_>>(),
        ["Jit {", "main_dylib: \"main\","],
        "{printed}"
    );
}

/// A lookup that does not block, awaited without any runtime.
#[test]
fn lookups_are_futures_too() {
    let jit = engine(1);
    jit.add_object(c("async.o", "int later(void) { return 6; }")).expect("the name is free");
    let found = block_on(jit.lookup_async("later")).expect("it links");
    assert_eq!(found.address, jit.lookup("later").expect("it is Ready").address);
    let missing = block_on(jit.lookup_async("missing")).expect_err("nobody defines it");
    assert!(missing.to_string().contains("missing"), "{missing}");
}

/// Remembered link orders and names must not answer for definitions that are gone.
#[test]
fn lookups_follow_what_changes() {
    let jit = engine(1);
    let [old, new] = ["old", "new"].map(|name| {
        let dylib = jit.create_dylib(name).expect("a new name");
        let value = if name == "old" { 1 } else { 2 };
        let source = format!("int shared(void) {{ return {value}; }}");
        dylib.add_object(c("shared.o", &source)).expect("a new name");
        dylib
    });
    let main = &jit;
    main.link_to(&old).expect("both are there");
    assert_eq!((call(main, "shared"), call(main, "shared")), (1, 1));
    let exported = JitDylibLookupFlags::MatchExportedSymbolsOnly;
    assert!(
        jit.main_dylib().replace_in_link_order(old.dylib(), new.dylib(), exported).expect("both are there")
    );
    assert_eq!((call(main, "shared"), call(main, "shared")), (2, 2));
    jit.main_dylib().remove_from_link_order(new.dylib());
    assert!(jit.lookup("shared").is_err());
    // The same text in another engine is another name.
    let other = engine(1);
    other.add_object(c("shared.o", "int shared(void) { return 3; }")).expect("a new name");
    let there = &other;
    main.link_to(&old).expect("both are there");
    assert_eq!((call(there, "shared"), call(main, "shared"), call(there, "shared")), (3, 1, 3));
    drop(other);
    assert_eq!(call(main, "shared"), 1);
    // Its own comes first, until it does not stand there itself.
    jit.add_object(c("own.o", "int own(void) { return 4; }")).expect("a new name");
    assert_eq!((call(main, "own"), call(main, "own")), (4, 4));
    jit.main_dylib().remove_from_link_order(jit.main_dylib());
    assert!(jit.lookup("own").is_err());
}

/// A handle of another engine was accepted: files were defined in its session, and linked by the layers of this one.
#[test]
fn handles_of_another_engine_are_refused() {
    let (jit, other) = (engine(1), engine(1));
    let tracker = other.create_tracker();
    let refused = |what: &str, use_it: &dyn Fn()| {
        let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(use_it)).expect_err(what);
        let message = panic.downcast_ref::<String>().expect("a text");
        assert!(message.contains("`main` is another engine's"), "{what}: {message}");
    };
    refused("in_dylib", &|| _ = jit.in_dylib(other.main_dylib()));
    refused("in_tracker", &|| _ = jit.in_tracker(&tracker));
    let is_foreign = |refused: Result<(), RemoveError>| matches!(refused, Err(RemoveError::Foreign { .. }));
    assert!(is_foreign(jit.remove_tracker(&tracker).map(drop)));
    assert!(is_foreign(jit.remove_tracker_with(&tracker, RemovalPolicy::Refuse).map(drop)));
    // SAFETY: nothing was added.
    assert!(is_foreign(unsafe { jit.remove_tracker_now(&tracker) }));
    assert!(is_foreign(jit.remove_dylib(&other).map(drop)));
    let lazy = jit.add_lazy(&other, ["f"]);
    assert!(matches!(lazy, Err(JitError::Lookup(_))), "{lazy:?}");
    assert!(!tracker.is_defunct());
}
