//! Code in another process: it runs there as it would here, and when it crashes it ends that process alone.
//!
//! This program is its own executor: the engine starts it with the name of one of its tests, [`executor`], and with the fault to commit.

use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;

use rustix::process::{Signal, getpid, kill_process};
use uruk::core::WithCauses;
use uruk::pipeline::memory::InProcessMemoryManager;
use uruk::pipeline::peer::{Channel, ProcessEnd, receive_descriptors};
use uruk::pipeline::remote::{RemoteError, RemoteProgram, serve_executor_watched};
use uruk::{Jit, JitBuilder, JitError, OnCall};

/// The messages of the protocol, as far as the scene of these tests has them.
const MESSAGES: [(u16, &str); 12] = [
    (1, "hello"),
    (2, "ready"),
    (3, "publish"),
    (4, "retire"),
    (5, "retired"),
    (6, "find"),
    (7, "found"),
    (10, "start"),
    (11, "call"),
    (13, "returned"),
    (15, "broken"),
    (16, "end"),
];

/// The executor, when an engine has started this program; otherwise nothing. `kill=MESSAGE` has it end at a message, `lie=NAME` has it send
/// what makes no sense.
#[test]
fn executor() {
    let argument =
        |name: &str| std::env::args().find_map(|argument| Some(argument.strip_prefix(name)?.to_owned()));
    if argument("as-executor").is_none() {
        return;
    }
    if let Some(lie) = argument("lie=") {
        return tell_a_lie(&lie);
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

/// An executor whose first answers are sound, but for one.
fn tell_a_lie(lie: &str) {
    let stdin = std::io::stdin().as_fd().try_clone_to_owned().expect("there is a stdin");
    let mut channel = Channel::new(UnixStream::from(stdin));
    receive_descriptors(channel.stream()).expect("they come");
    channel.receive().expect("a greeting");
    let ready = |protocol: u8, base: &[u8]| [&[protocol], base, &[0; 6]].concat();
    let sound = ready(1, &[0x80, 0x80, 0x04]); // memory begins at 0x10000
    let (kind, body) = match lie {
        "version" => (2, ready(2, &[0x80, 0x80, 0x04])),
        "base" => (2, ready(1, &[1])),
        "half" => (2, vec![1]),
        "kind" => (9, sound.clone()),
        _ => (2, sound.clone()),
    };
    channel.send(kind, 0, &body, &[]).expect("the host is there");
    let Ok(request) = channel.receive() else { return };
    let (kind, id, body): (_, _, &[u8]) = match lie {
        "few" => (7, request.id, &[0]),
        "many" => (7, request.id, &[0xff, 0xff, 0xff, 0xff, 0x0f]),
        "id" => (7, request.id + 1, &[1, 0]),
        "answer" => (13, request.id, &[0]),
        "retired" => (5, 7, &[]),
        _ => (99, request.id, &[]),
    };
    channel.send(kind, id, body, &[]).expect("the host is there");
    let _ = channel.receive();
}

fn program(arguments: &[&str]) -> RemoteProgram {
    let program = RemoteProgram::new(std::env::current_exe().expect("a program"));
    let first = ["--exact", "executor", "--nocapture", "--quiet", "as-executor"];
    first.iter().chain(arguments).fold(program, |program, argument| program.argument(*argument))
}

fn engine() -> JitBuilder {
    Jit::builder().threads(2).executor(program(&[]))
}

/// Functions that another file calls, and a thread-local variable.
const COUNTER: &str = "
    @counter = global i64 5
    @local = thread_local global i64 7
    define i64 @count() {
        %x = load i64, ptr @counter
        %y = add i64 %x, 1
        store i64 %y, ptr @counter
        ret i64 %y
    }
    define i64 @counted() { %x = load i64, ptr @counter ret i64 %x }
    define i64 @own() {
        %at = call ptr @llvm.threadlocal.address(ptr @local)
        %x = load i64, ptr %at
        %y = add i64 %x, 1
        store i64 %y, ptr %at
        ret i64 %y
    }
    declare ptr @llvm.threadlocal.address(ptr)
";

const CALLER: &str = "
    declare i64 @count()
    declare i32 @getpid()
    declare i64 @llabs(i64)
    @llvm.global_ctors = appending global [1 x { i32, ptr, ptr }] [{ i32, ptr, ptr } { i32 65535, ptr @construct, ptr null }]
    define internal void @construct() { call i64 @count() ret void }
    define i64 @twice() { %a = call i64 @count() %b = call i64 @count() ret i64 %b }
    define i64 @where() { %x = call i32 @getpid() %y = zext i32 %x to i64 ret i64 %y }
    define i64 @sum(i64 %a, i64 %b, i64 %c, i64 %d, i64 %e, i64 %f) {
        %ab = mul i64 %a, %b
        %cd = mul i64 %c, %d
        %ef = mul i64 %e, %f
        %abcd = add i64 %ab, %cd
        %all = sub i64 %ef, %abcd
        %n = call i64 @llabs(i64 %all)
        ret i64 %n
    }
";

/// Adds code to `count` to what is called when the code ends.
const ENDING: &str = "
    declare i64 @count()
    declare i32 @atexit(ptr)
    @value = global i64 10
    define internal void @end() { call i64 @count() ret void }
    define i64 @begin() {
        %r = call i32 @atexit(ptr @end)
        %x = load i64, ptr @value
        %y = add i64 %x, 1
        store i64 %y, ptr @value
        ret i64 %y
    }
";

fn told(error: &JitError) -> String {
    WithCauses(error).to_string()
}

fn end_of(error: &JitError) -> Option<ProcessEnd> {
    match error {
        JitError::Remote(error) => error.process_end(),
        _ => None,
    }
}

/// Adds the files, begins, and calls what they define.
fn scene(jit: &Jit) -> Result<Vec<u64>, JitError> {
    jit.add_ir_text("counter.ll", COUNTER)?;
    jit.add_ir_text("caller.ll", CALLER)?;
    let query = jit.create_tracker();
    jit.in_tracker(&query).add_ir_text("ending.ll", ENDING)?;
    // SAFETY: the files' own initialisers.
    unsafe { jit.initialize() }?;
    let mut results = vec![jit.call_there("twice", &[])?];
    results.push(jit.call_there("sum", &[1, 2, 3, 4, 5, 60])?);
    results.push(jit.call_there("own", &[])?);
    results.push(jit.call_there("own", &[])?);
    results.push(jit.call_there("begin", &[])?);
    results.push(jit.call_there("counted", &[])?);
    query.remove().map_err(|error| JitError::NotThere { what: error.to_string().into() })?;
    results.push(jit.call_there("counted", &[])?);
    Ok(results)
}

#[test]
fn code_runs_in_another_process_as_here() {
    let jit = engine().build().expect("an engine");
    // 5, once by the constructor and twice by `twice`; the sum; a thread-local variable; a variable, and the handler that counts once more.
    assert_eq!(scene(&jit).expect("it runs"), [8, 286, 8, 9, 11, 8, 9]);
    let pid = jit.executor().expect("there is one").pid();
    assert_eq!(jit.call_there("where", &[]).expect("it runs"), u64::from(pid));
    assert_ne!(pid, std::process::id());
}

/// Memory that was given back is used again only when the executor has forgotten the code: before the answer to a later call.
#[test]
fn removed_code_gives_its_memory_back_and_other_code_takes_it() {
    let jit = engine().build().expect("an engine");
    jit.add_ir_text("counter.ll", COUNTER).expect("the names are new");
    assert_eq!(jit.call_there("counted", &[]).expect("it runs"), 5);
    let before = jit.memory_usage();
    for round in 0..20 {
        let query = jit.create_tracker();
        jit.in_tracker(&query).add_ir_text("ending.ll", ENDING).expect("the names are free");
        let begun = jit.call_there("begin", &[]).expect("it runs");
        assert_eq!(begun, 11, "round {round}: the variable is a new one");
        query.remove().expect("nothing needs it");
        assert_eq!(jit.call_there("counted", &[]).expect("it runs"), 6 + round);
        let now = jit.memory_usage();
        assert_eq!(
            (now.code.allocated_bytes, now.data.allocated_bytes),
            (before.code.allocated_bytes, before.data.allocated_bytes)
        );
    }
}

#[test]
fn a_crash_ends_the_executor_alone_and_names_the_function() {
    let jit = engine().build().expect("an engine");
    let crash = "
        declare void @llvm.trap()
        define internal void @fall() noinline { call void @llvm.trap() ret void }
        define i64 @crash() { call void @fall() ret i64 1 }";
    jit.add_ir_text("counter.ll", COUNTER).expect("the names are new");
    jit.add_ir_text("crash.ll", crash).expect("the names are new");
    assert_eq!(jit.call_there("count", &[]).expect("it runs"), 6);
    let error = jit.call_there("crash", &[]).expect_err("it crashes");
    let pid = jit.executor().expect("there was one").pid();
    assert_eq!(end_of(&error), Some(ProcessEnd::Signal(Signal::ILL.as_raw())), "{error}");
    let told = told(&error);
    for part in [&format!("process {pid} was ended by SIGILL"), "in `fall` + 0x", "of crash.ll"] {
        assert!(told.contains(part), "no `{part}` in: {told}");
    }
    // All later requests have the same answer, and nothing hangs.
    assert_eq!(end_of(&jit.call_there("count", &[]).expect_err("it is gone")), end_of(&error));
    jit.add_ir_text(
        "late.ll",
        "declare i64 @labs(i64) define i64 @late() { %x = call i64 @labs(i64 1) ret i64 %x }",
    )
    .expect("the name is new");
    assert!(crate::told(&jit.lookup("late").expect_err("nothing can be linked")).contains("SIGILL"));
    drop(jit);
    let next = engine().build().expect("another engine");
    assert_eq!(scene(&next).expect("it runs")[0], 8);
}

#[test]
fn an_exit_of_the_code_is_told_with_its_code() {
    let jit = engine().build().expect("an engine");
    jit.add_ir_text(
        "leave.ll",
        "declare void @_exit(i32) define i64 @leave() { call void @_exit(i32 7) ret i64 0 }",
    )
    .expect("the name is new");
    let error = jit.call_there("leave", &[]).expect_err("it leaves");
    assert_eq!(end_of(&error), Some(ProcessEnd::Exited(7)), "{error}");
}

/// A call that does not end is ended with its process.
#[test]
fn a_call_that_takes_too_long_is_an_error() {
    let limited = program(&[]).call_limit(std::time::Duration::from_millis(100));
    let jit = Jit::builder().threads(1).executor(limited).build().expect("an engine");
    jit.add_ir_text("loop.ll", "define i64 @spin() { br label %again again: br label %again }")
        .expect("the name is new");
    let error = jit.call_there("spin", &[]).expect_err("it does not end");
    assert!(told(&error).contains("took more than 100ms, and was ended"), "{}", told(&error));
}

/// The executor ends at a message: the scene ends with an error that says so, or has had all that it needs.
#[test]
fn an_end_at_each_message_is_an_error_and_no_hang() {
    for (number, name) in MESSAGES {
        let killed = program(&[&format!("kill={number}")]);
        let result = Jit::builder().threads(2).executor(killed).build().and_then(|jit| scene(&jit));
        match result {
            Err(error) => assert!(told(&error).contains("was ended by SIGKILL"), "{name}: {}", told(&error)),
            // Nothing waits for the answer to these, or the scene has none of them.
            Ok(results) => assert!(["broken", "end"].contains(&name), "{name}: {results:?}"),
        }
    }
}

#[test]
fn an_executor_that_lies_is_an_error_and_is_ended() {
    let lies = [
        ("version", "it is no executor of this version"),
        ("base", "no memory begins at 0x1"),
        ("half", "it is no executor of this version"),
        ("kind", "it is no executor of this version"),
        ("few", "0 symbols for 1 names"),
        ("many", "half an answer"),
        ("id", "an answer of kind 7 to no request"),
        ("answer", "an answer of kind 13 to no request"),
        ("retired", "code has gone that was there"),
        ("nothing", "a message of kind 99"),
    ];
    for (lie, why) in lies {
        let liar = Jit::builder().threads(1).executor(program(&[&format!("lie={lie}")]));
        let error = liar.build().and_then(|jit| jit.lookup("getpid").map(drop)).expect_err(lie);
        let told = told(&error);
        assert!(told.contains("broke the protocol, and was ended") && told.contains(why), "{lie}: {told}");
    }
}

#[test]
fn a_program_that_is_no_executor_is_an_error() {
    for (path, why) in
        [("/nonexistent/executor", "cannot run code there"), ("/bin/true", "exited with code 0")]
    {
        let error = Jit::builder().executor(RemoteProgram::new(path)).build().expect_err(path);
        assert!(
            matches!(&error, JitError::Remote(RemoteError::Start { .. } | RemoteError::Gone { .. })),
            "{error:?}"
        );
        assert!(told(&error).contains(why), "{}", told(&error));
    }
}

#[test]
fn what_another_process_cannot_have_is_refused() {
    let memory = std::sync::Arc::new(InProcessMemoryManager::new().expect("address space"));
    let builders = [
        engine().compile_on_call(OnCall::Function),
        engine().memory(memory),
        engine().debugger(true),
        engine().perf(uruk::pipeline::debug::PerfFormat::Map),
    ];
    for builder in builders {
        let error = builder.build().expect_err("it is refused");
        assert!(matches!(error, JitError::NotThere { .. }), "{error:?}");
    }
    let jit = engine().build().expect("an engine");
    jit.add_ir_text("counter.ll", COUNTER).expect("the names are new");
    extern "C" fn here() {}
    let bodies = jit.create_dylib("bodies").expect("the name is new");
    // SAFETY: no pointer comes of it.
    let pointer = unsafe { jit.get::<extern "C" fn() -> i64>("count") };
    let refused = [
        pointer.map(drop),
        jit.get_data::<i64>("counter").map(drop),
        jit.define("here", here as extern "C" fn()),
        jit.add_lazy(&bodies, ["count"]),
        jit.load_image("/nonexistent/image.so", uruk::ImageOptions::new()).map(drop),
    ];
    for result in refused {
        let error = result.expect_err("it is refused");
        assert!(told(&error).contains("is not possible where another process runs the code"), "{error}");
    }
    assert_eq!(jit.call_there("count", &[]).expect("the engine goes on"), 6);
}
