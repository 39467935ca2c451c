//! Functions that are compiled when they are called, in another process: its first calls ask this one.
//!
//! This program is its own executor: the engine starts it with the name of one of its tests, [`executor`].

use std::os::fd::AsFd as _;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Signal, getpid, kill_process};
use uruk::core::WithCauses;
use uruk::pipeline::peer::{Channel, PeerProgram, ProcessEnd, receive_descriptors};
use uruk::pipeline::remote::{ExecutorAddress, ExecutorListener, RemoteProgram, serve_executor_watched};
use uruk::pipeline::tiers::CallCounting;
use uruk::{Jit, JitBuilder, JitError, OnCall};

/// The messages of first calls.
const MESSAGES: [(u16, &str); 4] = [(18, "first call"), (19, "first called"), (20, "lead"), (3, "publish")];

/// The executor, when an engine has started this program; otherwise nothing. `kill=MESSAGE` has it end at a message, `lie=NAME` has it tell of a
/// call that there was not.
#[test]
fn executor() {
    let argument =
        |name: &str| std::env::args().find_map(|argument| Some(argument.strip_prefix(name)?.to_owned()));
    if argument("as-executor").is_none() {
        return;
    }
    if let Some(lie) = argument("lie=") {
        return tell_of_a_call(&lie);
    }
    let kill: Option<u16> = argument("kill=").map(|message| message.parse().expect("a number"));
    let watch = move |message| {
        if kill == Some(message) {
            kill_process(getpid(), Signal::KILL).expect("it is this process");
        }
    };
    if let Err(error) = serve_executor_watched(watch) {
        panic!("{error}");
    }
}

/// An executor that has no code, and calls some.
fn tell_of_a_call(lie: &str) {
    let stdin = std::io::stdin().as_fd().try_clone_to_owned().expect("there is a stdin");
    let mut channel = Channel::new(stdin);
    receive_descriptors(channel.stream()).expect("they come");
    channel.receive().expect("a greeting");
    // Process 1 of x86-64, in pages of 4 KiB. Memory begins at 0x10000.
    let ready = [&[6, 1, 62, 0x80, 0x20, 0x80, 0x80, 0x04][..], &[0; 8]].concat();
    channel.send(2, 0, &ready, &[]).expect("the host is there");
    let request = channel.receive().expect("a request");
    let (kind, body): (_, &[u8]) = match lie {
        "half" => (18, &[1]),
        "half counted" => (21, &[1; 19]),
        _ => (18, &[7, 3, 0x80, 0x80, 0x04, 0]),
    };
    channel.send(kind, 7, body, &[]).expect("the host is there");
    if lie == "unknown" {
        let answer = channel.receive().expect("an answer");
        // Nowhere, and no references.
        assert_eq!((answer.kind, answer.id, answer.body()), (19, 7, &[0, 0][..]));
        channel.send(7, request.id, &[1, 0], &[]).expect("the host is there");
    }
    let _ = channel.receive();
}

fn program(arguments: &[&str]) -> RemoteProgram {
    let program = RemoteProgram::new(std::env::current_exe().expect("a program"));
    let first = ["--exact", "executor", "--nocapture", "--quiet", "as-executor"];
    first.iter().chain(arguments).fold(program, |program, argument| program.argument(*argument))
}

fn engine(program: RemoteProgram) -> JitBuilder {
    Jit::builder().threads(2).compile_on_call(OnCall::Function).executor(program)
}

/// This program as one that listens, in a thread that goes on to the end.
fn listening(address: &str) -> ExecutorAddress {
    let listener = ExecutorListener::bind(&address.parse().expect("an address")).expect("it is free");
    let address = listener.address().expect("it has one");
    let arguments = ["--exact", "executor", "--nocapture", "--quiet", "as-executor"].map(Into::into).into();
    let program = PeerProgram { path: std::env::current_exe().expect("a program"), arguments };
    std::thread::spawn(move || listener.serve(&program));
    address
}

/// Memory is shared, or sent; the executor is started, or listens on a port. If `make aarch64` has built one, it runs in an emulator too.
fn ways() -> Vec<(&'static str, RemoteProgram)> {
    let port = RemoteProgram::listening_at(listening("localhost:0"));
    let mut ways = vec![("started", program(&[])), ("sent", program(&[]).sends_memory(true)), ("port", port)];
    ways.extend(std::env::var_os("URUK_AARCH64_EXECUTOR").map(|executor| {
        let emulator = RemoteProgram::new("qemu-aarch64").argument("-L").argument("/usr/aarch64-linux-gnu");
        ("AArch64", emulator.argument(executor))
    }));
    ways
}

fn told(error: &JitError) -> String {
    WithCauses(error).to_string()
}

fn end_of(error: &JitError) -> Option<ProcessEnd> {
    match error {
        JitError::Remote(error) => error.process_end(),
        _ => None,
    }
}

/// Functions that call each other, and one that is called through a pointer.
const PROGRAM: &str = "
    declare i64 @llabs(i64)
    @table = global ptr @double
    define i64 @double(i64 %x) { %y = mul i64 %x, 2 ret i64 %y }
    define i64 @through(i64 %x) { %f = load ptr, ptr @table %y = call i64 %f(i64 %x) ret i64 %y }
    define i64 @far(i64 %x) { %y = sub i64 0, %x %z = call i64 @llabs(i64 %y) ret i64 %z }
    define i64 @all(i64 %x) {
        %a = call i64 @through(i64 %x)
        %b = call i64 @far(i64 %a)
        %c = add i64 %a, %b
        ret i64 %c
    }
    define i64 @never(i64 %x) { ret i64 %x }
    define i64 @same() {
        %f = load ptr, ptr @table
        %is = icmp eq ptr %f, @double
        %x = zext i1 %is to i64
        ret i64 %x
    }
";

fn scene(jit: &Jit) -> Result<Vec<u64>, JitError> {
    jit.add_ir_text("program.ll", PROGRAM)?;
    let mut results = Vec::new();
    for (name, argument) in [("all", 5_u64), ("all", 6), ("same", 0), ("double", 21)] {
        results.push(jit.call_there(name, (argument,))?);
    }
    Ok(results)
}

#[test]
fn functions_are_compiled_when_they_are_called_there() {
    for (way, program) in ways() {
        let jit = engine(program).build().expect(way);
        assert_eq!(scene(&jit).expect(way), [20, 24, 1, 42], "{way}");
    }
}

/// The same files with `OnCall::Module`.
#[test]
fn files_are_compiled_when_a_function_of_theirs_is_called_there() {
    let jit = engine(program(&[])).compile_on_call(OnCall::Module).build().expect("an engine");
    assert_eq!(scene(&jit).expect("it runs"), [20, 24, 1, 42]);
}

/// Sixteen threads there make the same first calls, and others of their own.
#[test]
fn many_threads_there_make_first_calls_at_once() {
    let threads = "
        declare i32 @pthread_create(ptr, ptr, ptr, ptr)
        declare i32 @pthread_join(i64, ptr)
        define ptr @work(ptr %number) {
            %x = ptrtoint ptr %number to i64
            %shared = call i64 @shared(i64 %x)
            %slot = urem i64 %x, 4
            %at = getelementptr [4 x ptr], ptr @own, i64 0, i64 %slot
            %f = load ptr, ptr %at
            %y = call i64 %f(i64 %shared)
            %result = inttoptr i64 %y to ptr
            ret ptr %result
        }
        @own = constant [4 x ptr] [ptr @own0, ptr @own1, ptr @own2, ptr @own3]
        define i64 @shared(i64 %x) { %y = mul i64 %x, 10 ret i64 %y }
        define i64 @own0(i64 %x) { %y = add i64 %x, 0 ret i64 %y }
        define i64 @own1(i64 %x) { %y = add i64 %x, 1 ret i64 %y }
        define i64 @own2(i64 %x) { %y = add i64 %x, 2 ret i64 %y }
        define i64 @own3(i64 %x) { %y = add i64 %x, 3 ret i64 %y }
        define i64 @run() {
            %ids = alloca [16 x i64]
            br label %start
        start:
            %i = phi i64 [ 0, %0 ], [ %next, %start ]
            %id = getelementptr [16 x i64], ptr %ids, i64 0, i64 %i
            %number = inttoptr i64 %i to ptr
            call i32 @pthread_create(ptr %id, ptr null, ptr @work, ptr %number)
            %next = add i64 %i, 1
            %more = icmp ult i64 %next, 16
            br i1 %more, label %start, label %wait
        wait:
            %j = phi i64 [ 0, %start ], [ %after, %wait ]
            %sum = phi i64 [ 0, %start ], [ %added, %wait ]
            %at = getelementptr [16 x i64], ptr %ids, i64 0, i64 %j
            %thread = load i64, ptr %at
            %place = alloca ptr
            call i32 @pthread_join(i64 %thread, ptr %place)
            %one = load i64, ptr %place
            %added = add i64 %sum, %one
            %after = add i64 %j, 1
            %again = icmp ult i64 %after, 16
            br i1 %again, label %wait, label %done
        done:
            ret i64 %added
        }";
    for (way, program) in ways() {
        let jit = engine(program).build().expect(way);
        jit.add_ir_text("threads.ll", threads).expect("the names are new");
        // Ten times the sum of 0 to 15, and four times 0, 1, 2 and 3.
        assert_eq!(jit.call_there::<u64>("run", ()).expect(way), 1_200 + 24, "{way}");
    }
}

#[test]
fn a_function_that_cannot_be_compiled_ends_the_executor_or_goes_where_the_host_says() {
    let broken = "
        declare i64 @is_nowhere()
        define i64 @instead() { ret i64 5 }
        define i64 @broken() { %x = call i64 @is_nowhere() ret i64 %x }
        define i64 @run() { %x = call i64 @broken() ret i64 %x }";
    let jit = engine(program(&[])).build().expect("an engine");
    jit.add_ir_text("broken.ll", broken).expect("the names are new");
    let error = jit.call_there::<u64>("run", ()).expect_err("it ends there");
    assert_eq!(end_of(&error), Some(ProcessEnd::Signal(Signal::ABORT.as_raw())), "{}", told(&error));

    static INSTEAD: AtomicUsize = AtomicUsize::new(0);
    let instead = |_: &_| uruk::core::ExecutorAddr::new(INSTEAD.load(Ordering::SeqCst) as u64);
    let jit = engine(program(&[])).on_lazy_failure(instead).build().expect("an engine");
    jit.add_ir_text("broken.ll", broken).expect("the names are new");
    INSTEAD.store(jit.lookup("instead").expect("it is there").address.value() as usize, Ordering::SeqCst);
    for _ in 0..2 {
        assert_eq!(jit.call_there::<u64>("run", ()).expect("it goes on"), 5);
    }
}

/// One by one, and together: bodies of a group are switched at one moment.
#[test]
fn functions_are_given_other_bodies_there() {
    for (way, program) in ways() {
        let jit = Jit::builder().threads(2).executor(program).build().expect(way);
        let bodies = jit.create_dylib("bodies").expect("the name is new");
        let text = "
            define i64 @one.1() { ret i64 1 } define i64 @one.2() { ret i64 2 } define i64 @one.3() { ret i64 3 }
            define i64 @two.1() { ret i64 10 } define i64 @two.2() { ret i64 20 } define i64 @two.3() { ret i64 30 }";
        bodies.add_ir_text("bodies.ll", text).expect("the names are new");
        let call = |name: &str| jit.call_there::<u64>(name, ()).expect(way);
        jit.add_lazy(&bodies, [("one", "one.1")]).expect("there is a body");
        assert_eq!(call("one"), 1, "{way}");
        jit.redefine(&bodies, [("one", "one.2")]).expect("there is another");
        assert_eq!(call("one"), 2, "{way}");
        jit.redefine_lazily(&bodies, [("one", "one.3")]).expect("and another");
        assert_eq!(call("one"), 3, "{way}");

        jit.add_lazy_group(&bodies, [("first", "one.1"), ("second", "two.1")]).expect("there are bodies");
        let both = || call("first") + call("second");
        assert_eq!(both(), 11, "{way}");
        for round in 0..3 {
            jit.redefine(&bodies, [("first", "one.2"), ("second", "two.2")]).expect("there are others");
            assert_eq!(both(), 22, "{way}, round {round}");
            jit.redefine_lazily(&bodies, [("first", "one.3"), ("second", "two.3")]).expect("and others");
            assert_eq!(both(), 33, "{way}, round {round}");
            jit.redefine(&bodies, [("second", "two.1")]).expect("one of them");
            assert_eq!(both(), 13, "{way}, round {round}");
        }
    }
}

/// Their calls are counted by code beside their stubs.
#[test]
fn functions_that_are_called_often_get_better_bodies_there() {
    const PATIENCE: Duration = Duration::from_secs(1200); // Only a hang takes so long.
    let text = "
        define internal i64 @one(i64 %x) noinline { %y = add i64 %x, 1 ret i64 %y }
        define i64 @next(i64 %x) { %y = call i64 @one(i64 %x) ret i64 %y }";
    for (way, program) in ways() {
        let counting = CallCounting::new().with_threshold(5).with_quiet(Duration::ZERO);
        let jit = Jit::builder().threads(2).tiers(counting).executor(program).build().expect(way);
        jit.add_ir_text("program.ll", text).expect("the names are new");
        let next = || assert_eq!(jit.call_there::<u64>("next", [41]).expect(way), 42, "{way}");
        let tiers = jit.tiers().expect("there are tiers");
        let begun = Instant::now();
        while tiers.stats().promoted < 2 {
            next();
            assert!(begun.elapsed() < PATIENCE, "{way}: {:?}", tiers.stats());
        }
        next();
    }
}

/// Code that goes takes its stubs along, and other code comes to lie there.
#[test]
fn functions_that_were_removed_come_anew_there() {
    let jit = engine(program(&[])).build().expect("an engine");
    for round in 0..10 {
        let query = jit.create_tracker();
        let text = format!(
            "define i64 @inner() {{ ret i64 {round} }} define i64 @query() {{ %x = call i64 @inner() ret i64 %x }}"
        );
        jit.in_tracker(&query).add_ir_text("query.ll", &text).expect("the names are free");
        assert_eq!(jit.call_there::<u64>("query", ()).expect("it runs"), round);
        query.remove().expect("nothing needs it");
    }
}

#[test]
fn an_end_at_each_message_of_a_first_call_is_an_error_and_no_hang() {
    for (number, name) in MESSAGES {
        let jit = engine(program(&[&format!("kill={number}")])).build();
        let error = jit.and_then(|jit| scene(&jit)).expect_err(name);
        assert!(told(&error).contains("was ended by SIGKILL"), "{name}: {}", told(&error));
    }
}

#[test]
fn an_executor_that_tells_of_calls_there_were_not_is_an_error() {
    for lie in ["half", "half counted", "unknown"] {
        let jit = engine(program(&[&format!("lie={lie}")])).build().expect("it greets");
        let found = jit.lookup("getpid").map(drop);
        // A call of a stub that does not exist goes nowhere, which is the executor's own affair.
        match found {
            Err(error) => {
                let told = told(&error);
                let is_lie =
                    told.contains("broke the protocol, and was ended") && told.contains("half a call");
                assert!(is_lie && lie != "unknown" || told.contains("getpid"), "{lie}: {told}");
            }
            Ok(()) => panic!("{lie}: it found nothing"),
        }
    }
}
