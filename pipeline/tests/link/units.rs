//! Units of objects and archives in a session, with a layer in the linker's place. Needs no LLVM.

use std::process::Command;
use std::sync::Arc;

use crate::layers::{Linked, RecordingLayer};
use crate::support::{Scratch, open, run};
use uruk_core::sync::{Latch, Mutex};
use uruk_core::{
    ExecutionSession, InPlaceTaskDispatcher, JitDylib, LookupRequest, LookupResult, LookupSet, SearchOrder,
    SharedError, SymbolFlags, Task, TaskDispatcher, WaitError,
};
use uruk_pipeline::object::ObjectLayer;
use uruk_pipeline::object::{
    ArchiveIndex, CommonError, CommonExtent, CommonSymbols, ObjectBuffer, ObjectInterface,
    ObjectMaterializationUnit, StaticArchiveGenerator, define_object,
};

struct Program {
    session: ExecutionSession,
    dylib: JitDylib,
    recording: Arc<RecordingLayer>,
    layer: Arc<dyn ObjectLayer>,
}

impl Program {
    fn new() -> Self {
        let session = ExecutionSession::new();
        let dylib = session.create_jit_dylib("main").expect("new");
        let recording = Arc::new(RecordingLayer::default());
        Self { session, dylib, layer: recording.clone(), recording }
    }

    fn define(&self, object: uruk_pipeline::object::ObjectBuffer) -> Result<(), SharedError> {
        define_object(&self.dylib, &self.layer, object)
    }

    fn lookup(&self, names: &[&str]) -> Result<LookupResult, uruk_core::LookupError> {
        let order = SearchOrder::of(&self.dylib);
        self.session.lookup(LookupRequest::new(
            &order,
            LookupSet::required(names.iter().map(|name| self.session.intern(name))),
        ))
    }

    fn linked(&self) -> Vec<Linked> {
        self.recording.take()
    }
}

#[test]
fn an_object_is_linked_once_when_the_first_of_its_symbols_is_wanted() {
    let scratch = Scratch::new("unit");
    let program = Program::new();
    let object = scratch.compile("cc", "pair.c", "int one = 1; int two(void) { return one; }", &[]);
    program.define(object).expect("defined");
    assert!(program.linked().is_empty(), "nobody has asked yet");
    let found = program.lookup(&["two"]).expect("found");
    assert_eq!(found.len(), 1);
    program.lookup(&["one", "two"]).expect("found");
    let linked = program.linked();
    assert_eq!(linked.len(), 1);
    assert!(linked[0].unit.ends_with("pair.c.out"), "{}", linked[0].unit);
    assert_eq!(linked[0].symbols, ["one", "two"]);
    assert!(!linked[0].has_initializer);
}

#[test]
fn a_definition_that_yields_is_promised_no_longer() {
    let scratch = Scratch::new("yield");
    let program = Program::new();
    let source = |value: u32| {
        format!(
            "__attribute__((weak)) int shared = {value}; __attribute__((weak)) int function{value}(void) {{ return shared; }}"
        )
    };
    program.define(scratch.compile("cc", "first.c", &source(1), &["-fPIC"])).expect("defined");
    program.define(scratch.compile("cc", "second.c", &source(2), &["-fPIC"])).expect("defined");
    program.lookup(&["function1", "function2", "shared"]).expect("found");
    let linked = program.linked();
    assert_eq!(linked.len(), 2);
    let promised_by = |name: &str| {
        let linked = linked.iter().find(|linked| linked.unit.contains(name)).expect("linked");
        let mut symbols = linked.symbols.clone();
        symbols.sort_unstable();
        symbols
    };
    assert_eq!(promised_by("first.c"), ["function1", "shared"]);
    assert_eq!(promised_by("second.c"), ["function2"]);
}

#[test]
fn two_strong_definitions_are_refused_and_both_files_named() {
    let scratch = Scratch::new("twice");
    let program = Program::new();
    program.define(scratch.compile("cc", "first.c", "int twice = 1;", &[])).expect("defined");
    let error =
        program.define(scratch.compile("cc", "second.c", "int twice = 2;", &[])).expect_err("duplicate");
    let message = error.to_string();
    for part in ["twice", "first.c", "second.c"] {
        assert!(message.contains(part), "{message}");
    }
}

#[test]
fn code_that_runs_before_or_after_the_program_has_a_symbol_that_stands_for_it() {
    let scratch = Scratch::new("unit-init");
    let program = Program::new();
    for source in [
        "__attribute__((constructor)) static void f(void) {}",
        "__attribute__((destructor)) static void f(void) {}",
    ] {
        // Twice in one dylib, under one name: the symbols must differ.
        for _ in 0..2 {
            let object = scratch.compile("cc", "init.c", source, &[]);
            let unit = ObjectMaterializationUnit::new(&program.session, program.layer.clone(), object)
                .expect("an object");
            let interface = uruk_core::MaterializationUnit::interface(&unit);
            let initializer = interface.initializer.expect("a symbol");
            assert_eq!(
                interface.symbols.get(&initializer),
                Some(&SymbolFlags::MATERIALIZATION_SIDE_EFFECTS_ONLY)
            );
            program.dylib.define(Box::new(unit)).expect("defined");
        }
    }
}

fn archive_of(scratch: &Scratch, sources: &[(&str, &str)]) -> ArchiveIndex {
    let path = scratch.path("lib.a");
    for (name, source) in sources {
        let object = scratch.compile("cc", &format!("{name}.c"), source, &["-fno-common"]);
        let member = scratch.write(&format!("{name}.o"), object.bytes());
        run(Command::new("ar").arg("qcs").arg(&path).arg(member));
    }
    ArchiveIndex::read(&open(&path)).expect("an archive")
}

fn serve(program: &Program, index: ArchiveIndex) {
    let layer = program.layer.clone();
    let generator =
        StaticArchiveGenerator::new(index, move |dylib, member| define_object(dylib, &layer, member));
    program.dylib.add_generator(Arc::new(generator));
}

#[test]
fn members_of_an_archive_take_part_only_when_wanted_and_once() {
    let scratch = Scratch::new("members");
    let program = Program::new();
    serve(
        &program,
        archive_of(
            &scratch,
            &[
                ("alpha", "int alpha = 1, shared = 1;"),
                ("beta", "int beta = 2; int also_beta = 3;"),
                ("gamma", "int gamma_ = 1, shared = 2;"),
            ],
        ),
    );
    program.lookup(&["also_beta"]).expect("found");
    program.lookup(&["beta"]).expect("found");
    let linked = program.linked();
    assert_eq!(linked.len(), 1);
    assert!(linked[0].unit.ends_with("lib.a(beta.o)"), "{}", linked[0].unit);
    program.lookup(&["shared"]).expect("found");
    let linked = program.linked();
    assert_eq!(linked.len(), 1);
    assert!(linked[0].unit.ends_with("(alpha.o)"), "the first that defines it: {}", linked[0].unit);
    let error = program.lookup(&["missing"]).expect_err("nowhere").to_string();
    assert!(error.contains("missing"), "{error}");
    let error = program.lookup(&["gamma_"]).expect_err("defines `shared` again");
    let chain = crate::layers::chain(&error);
    assert!(chain.contains("shared") && chain.contains("gamma.o"), "{chain}");
}

#[test]
fn a_weak_reference_does_not_pull_a_member_in() {
    let scratch = Scratch::new("weak-reference");
    let program = Program::new();
    serve(&program, archive_of(&scratch, &[("only", "int only = 1;")]));
    let order = SearchOrder::of(&program.dylib);
    let weakly = LookupSet::weakly_referenced([program.session.intern("only")]);
    assert!(program.session.lookup(LookupRequest::new(&order, weakly)).expect("absent is fine").is_empty());
    assert!(program.linked().is_empty());
    program.lookup(&["only"]).expect("found");
}

#[test]
fn a_member_that_cannot_be_linked_fails_the_lookup_with_its_name() {
    let scratch = Scratch::new("bad-member");
    let program = Program::new();
    let object = scratch.compile("cc", "good.c", "int foreign = 1;", &[]);
    let path = scratch.path("lib.a");
    let good = scratch.write("good.o", object.bytes());
    run(Command::new("ar").arg("qcs").arg(&path).arg(&good));
    let archive = open(&path);
    let at = archive.bytes().windows(4).position(|window| window == b"\x7FELF").expect("the member");
    let mut damaged = archive.bytes().to_vec();
    damaged[at + 18] = 183;
    let damaged = uruk_pipeline::object::ObjectBuffer::new("lib.a", damaged);
    serve(&program, ArchiveIndex::read(&damaged).expect("an archive"));
    let error = program.lookup(&["foreign"]).expect_err("for another machine");
    let chain = crate::layers::chain(&error);
    assert!(chain.contains("lib.a(good.o)") && chain.contains("AArch64"), "{chain}");
}

#[test]
fn tentative_definitions_of_several_files_are_one_variable_of_the_largest_extent() {
    let scratch = Scratch::new("commons");
    let program = Program::new();
    let commons = CommonSymbols::new(program.layer.clone());
    let add = |name: &str, source: &str| {
        let object = scratch.compile("cc", name, source, &["-fcommon", "-fPIC"]);
        let unit = ObjectMaterializationUnit::new(&program.session, program.layer.clone(), object);
        let mut unit = unit.expect("an object");
        unit.share_commons(&program.dylib.default_tracker(), &commons)?;
        program.dylib.define(Box::new(unit)).expect("defined");
        Ok::<_, CommonError>(())
    };
    add("small.c", "int buffer[4]; int real; int small(void) { return buffer[0] + real; }")
        .expect("taken up");
    add("large.c", "__attribute__((aligned(64))) int buffer[1000]; int large(void) { return buffer[9]; }")
        .expect("taken up");
    add("real.c", "int real = 42;").expect("taken up");
    program.lookup(&["small", "large", "buffer", "real"]).expect("found");
    let linked = program.linked();
    assert_eq!(linked.len(), 4);
    for linked in &linked {
        let interface = ObjectInterface::read(&linked.object).expect("an object");
        match linked.symbols.join(" ").as_str() {
            "buffer" => {
                let extent = CommonExtent { size_bytes: 4000, align: 64 };
                assert_eq!(interface.defined[0].common, Some(extent));
            }
            "real" => assert!(linked.unit.ends_with("real.c.out")),
            function => {
                assert!(["small", "large"].contains(&function), "promises the variable itself: {function}");
            }
        }
    }
    add("same.c", "int buffer[1000]; int same(void) { return buffer[0]; }").expect("fits");
    let error = add("late.c", "int buffer[1001];").expect_err("in use").to_string();
    for part in ["buffer", "late.c", "4004", "4000"] {
        assert!(error.contains(part), "{error}");
    }
}

/// The generator kept a list of the members that it had added. After their removal it took them for defined, and the next lookup
/// found nothing.
#[test]
fn a_member_whose_symbols_were_removed_is_added_again() {
    let scratch = Scratch::new("member-again");
    let program = Program::new();
    serve(&program, archive_of(&scratch, &[("pair", "int one = 1, two = 2;")]));
    let name = |name: &str| program.session.intern(name);
    program.lookup(&["one"]).expect("found");
    program.dylib.clear().expect("nothing goes wrong");
    program.lookup(&["one"]).expect("found again");
    assert_eq!(program.linked().len(), 2);
    // As long as something of a member is left it is there, and what was taken from it stays away.
    program.dylib.remove(&[name("one")]).expect("defined");
    program.lookup(&["one"]).expect_err("removed, and the member is still there");
    program.dylib.remove(&[name("two")]).expect("defined");
    program.lookup(&["two", "one"]).expect("found again");
    assert_eq!(program.linked().len(), 1);
}

/// A second program that uses the same archive by a generator of its own, or one that serves two dylibs, has members of its own.
#[test]
fn a_member_is_added_to_each_dylib_that_asks_for_it() {
    let scratch = Scratch::new("member-twice");
    let program = Program::new();
    let index = archive_of(&scratch, &[("only", "int only = 1;")]);
    let layer = program.layer.clone();
    let define = move |dylib: &JitDylib, member| define_object(dylib, &layer, member);
    let generator = Arc::new(StaticArchiveGenerator::new(index, define));
    let other = program.session.create_jit_dylib("other").expect("new");
    for dylib in [&program.dylib, &other] {
        dylib.add_generator(generator.clone());
        let only = program.session.intern("only");
        program.session.lookup_symbol(&SearchOrder::of(dylib), &only).expect("found");
    }
    assert_eq!(program.linked().len(), 2);
}

/// Runs tasks in place, and tells when a thread is about to wait.
#[derive(Debug)]
struct TellsOfWaits {
    in_place: InPlaceTaskDispatcher,
    waits: Arc<Latch>,
}

impl TaskDispatcher for TellsOfWaits {
    fn dispatch(&self, task: Task) -> Result<(), Task> {
        self.in_place.dispatch(task)
    }

    fn run_ready(&self) {
        self.in_place.run_ready();
    }

    fn blocking(&self, block: &mut dyn FnMut()) -> Result<(), WaitError> {
        self.waits.open();
        self.in_place.blocking(block)
    }

    fn shutdown(&self) {
        self.in_place.shutdown();
    }
}

/// While one thread defined a member, another that needed it too was told that it is there, and found nothing.
///
/// ```text
///   first                          second
///   define the member ...          needs it too: waits
///   ... defined                    needs it in its own dylib
/// ```
#[test]
fn a_thread_that_needs_a_member_waits_for_another_that_defines_it() {
    let scratch = Scratch::new("member-beside");
    let (defines, goes_on) = (Arc::new(Latch::new()), Arc::new(Latch::new()));
    let dispatcher = TellsOfWaits { in_place: InPlaceTaskDispatcher::default(), waits: goes_on.clone() };
    let session = ExecutionSession::builder().dispatcher(Arc::new(dispatcher)).build();
    let layer: Arc<dyn ObjectLayer> = Arc::new(RecordingLayer::default());
    let index = archive_of(&scratch, &[("only", "int only = 1;")]);
    let (here, goes) = (defines.clone(), goes_on.clone());
    let define = move |dylib: &JitDylib, member| {
        here.open();
        goes.wait();
        define_object(dylib, &layer, member)
    };
    let generator = Arc::new(StaticArchiveGenerator::new(index, define));
    let dylibs = ["first", "second"].map(|name| session.create_jit_dylib(name).expect("new"));
    dylibs.iter().for_each(|dylib| _ = dylib.add_generator(generator.clone()));
    let look_up = |dylib: &JitDylib| {
        let only = session.intern("only");
        session.lookup_symbol(&SearchOrder::of(dylib), &only)
    };
    std::thread::scope(|scope| {
        let first = scope.spawn(|| look_up(&dylibs[0]));
        defines.wait();
        let second = look_up(&dylibs[1]);
        goes_on.open(); // One that was told too early has not waited.
        first.join().expect("no panic").expect("found");
        second.expect("found, once the other has defined it");
    });
}

/// Some members give up all they define, to libraries that are loaded. Such a member came again with every lookup of what it
/// had given up, when the dylib alone was asked.
#[test]
fn a_member_that_gave_everything_up_is_added_once() {
    let scratch = Scratch::new("member-nothing");
    let program = Program::new();
    let added = Arc::new(Mutex::new(0));
    let counted = added.clone();
    let index = archive_of(&scratch, &[("given", "int given = 1;")]);
    let generator = StaticArchiveGenerator::new(index, move |_, _| {
        *counted.lock() += 1;
        Ok(())
    });
    program.dylib.add_generator(Arc::new(generator));
    for _ in 0..3 {
        program.lookup(&["given"]).expect_err("nobody defines it");
    }
    assert_eq!(*added.lock(), 1);
}

/// Takes up what `source` defines tentatively, and defines the rest.
fn add_with_commons(
    program: &Program,
    commons: &CommonSymbols,
    object: &ObjectBuffer,
) -> Result<(), CommonError> {
    let unit = ObjectMaterializationUnit::new(&program.session, program.layer.clone(), object.clone());
    let mut unit = unit.expect("an object");
    unit.share_commons(&program.dylib.default_tracker(), commons)?;
    program.dylib.define(Box::new(unit)).expect("defined");
    Ok(())
}

/// The size of the variable `name` that was linked.
fn linked_extent(program: &Program, name: &str) -> Option<CommonExtent> {
    let linked = program.linked();
    let variable = linked.iter().find(|linked| linked.symbols == [name])?;
    ObjectInterface::read(&variable.object).expect("an object").defined[0].common
}

/// Variables stayed decided after their removal, by the name of a dylib that might be another by then. The next file with such a
/// variable was refused, or referred to one that was not there.
#[test]
fn a_variable_that_was_removed_is_made_again_of_any_extent() {
    let scratch = Scratch::new("common-again");
    let program = Program::new();
    let commons = CommonSymbols::new(program.layer.clone());
    let compile = |name: &str, source: &str| scratch.compile("cc", name, source, &["-fcommon", "-fPIC"]);
    let of = |count: u64| Some(CommonExtent { size_bytes: 4 * count, align: 32 });
    let source = |count: u32| format!("int shared[{count}] __attribute__((aligned(32)));");
    let (small, large) = (compile("small.c", &source(10)), compile("large.c", &source(20)));
    // Removed with its tracker and by name, before a lookup of it and after.
    let remove_all = || program.dylib.clear().expect("nothing goes wrong");
    let remove_one = || program.dylib.remove(&[program.session.intern("shared")]).expect("defined");
    for (object, extent) in [(&small, of(10)), (&large, of(20)), (&small, of(10))] {
        for remove in [&remove_all as &dyn Fn(), &remove_one] {
            add_with_commons(&program, &commons, object).expect("taken up");
            remove();
            add_with_commons(&program, &commons, object).expect("taken up again");
            program.lookup(&["shared"]).expect("found");
            assert_eq!(linked_extent(&program, "shared"), extent);
            remove();
        }
    }
}

/// A dylib was known by its name.
#[test]
fn a_dylib_that_is_made_again_has_variables_of_its_own() {
    let scratch = Scratch::new("common-dylib");
    let mut program = Program::new();
    let commons = CommonSymbols::new(program.layer.clone());
    let object = scratch.compile("cc", "shared.c", "int shared[10];", &["-fcommon", "-fPIC"]);
    for _ in 0..2 {
        add_with_commons(&program, &commons, &object).expect("taken up");
        program.lookup(&["shared"]).expect("found");
        program.session.remove_jit_dylib(&program.dylib).expect("nothing goes wrong");
        program.dylib = program.session.create_jit_dylib("main").expect("the name is free");
    }
}

/// A variable is forgotten with its definition, wherever that was by then.
#[test]
fn variables_that_are_gone_leave_nothing_behind() {
    let scratch = Scratch::new("common-memory");
    let program = Program::new();
    let commons = CommonSymbols::new(program.layer.clone());
    let object = scratch.compile("cc", "shared.c", "int shared[10];", &["-fcommon", "-fPIC"]);
    for round in 0..8 {
        add_with_commons(&program, &commons, &object).expect("taken up");
        add_with_commons(&program, &commons, &object).expect("the same variable");
        if round % 2 == 0 {
            program.lookup(&["shared"]).expect("found");
        }
        program.dylib.clear().expect("nothing goes wrong");
    }
    assert!(format!("{commons:?}").contains("rooms: {}"), "{commons:?}");
}
