//! Code in another process: it runs there as it would here, and when it crashes it ends that process alone.
//!
//! This program is its own executor: the engine starts it with the name of one of its tests, [`executor`], and with the fault to commit.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::fd::AsFd as _;
use std::process::{Command, Stdio};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, getpid, kill_process, pidfd_open};
use uruk::core::{ExecutorAddr, WithCauses};
use uruk::pipeline::arch::Architecture;
use uruk::pipeline::executor::{Executor as _, Startup};
use uruk::pipeline::ir::{IrCompiler, JitTargetMachineBuilder, OptimizationLevel, ThreadSafeModule};
use uruk::pipeline::memory::InProcessMemoryManager;
use uruk::pipeline::object::ObjectBuffer;
use uruk::pipeline::peer::{Channel, PeerProgram, ProcessEnd, receive_descriptors};
use uruk::pipeline::remote::{
    ExecutorAddress, ExecutorListener, RemoteError, RemoteExecutor, RemoteProgram, serve_executor_watched,
};
use uruk::{Jit, JitBuilder, JitError};

/// The messages of the protocol that an executor takes, or sends from where it is watched.
const MESSAGES: [(u16, &str); 15] = [
    (1, "hello"),
    (2, "ready"),
    (3, "publish"),
    (4, "retire"),
    (5, "retired"),
    (6, "find"),
    (7, "found"),
    (8, "load"),
    (9, "loaded"),
    (10, "start"),
    (11, "call"),
    (12, "run"),
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
    const PROTOCOL: u8 = 6;
    let stdin = std::io::stdin().as_fd().try_clone_to_owned().expect("there is a stdin");
    let mut channel = Channel::new(stdin);
    receive_descriptors(channel.stream()).expect("they come");
    channel.receive().expect("a greeting");
    // Process 1 of x86-64, in pages of 4 KiB.
    let ready = |protocol: u8, base: &[u8]| [&[protocol, 1, 62, 0x80, 0x20], base, &[0; 8]].concat();
    let sound = ready(PROTOCOL, &[0x80, 0x80, 0x04]); // memory begins at 0x10000
    let (kind, body) = match lie {
        "version" => (2, ready(1, &[0x80, 0x80, 0x04])),
        "base" => (2, ready(PROTOCOL, &[1])),
        "zeros" => (2, [&sound[..8], &[1], &[0; 7]].concat()), // no whole page
        "half" => (2, vec![PROTOCOL]),
        "machine" => (2, [&[PROTOCOL, 1, 3, 0x80, 0x20], &sound[5..]].concat()),
        "arm" => (2, [&[PROTOCOL, 1, 0xb7, 1, 0x80, 0x20], &sound[5..]].concat()),
        "pages" => (2, [&[PROTOCOL, 1, 62, 0x81, 0x20], &sound[5..]].concat()),
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
        "fault" => (14, 0, &[0; 15]),
        "ended" => (17, 0, &[0, 0]),
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

/// This program as one that listens, in a thread that goes on to the end.
fn listening(address: &str, arguments: &[&str]) -> ExecutorAddress {
    let listener = ExecutorListener::bind(&address.parse().expect("an address")).expect("it is free");
    let address = listener.address().expect("it has one");
    let first = ["--exact", "executor", "--nocapture", "--quiet", "as-executor"];
    let arguments = first.iter().chain(arguments).map(Into::into).collect();
    let program = PeerProgram { path: std::env::current_exe().expect("a program"), arguments };
    std::thread::spawn(move || listener.serve(&program));
    address
}

fn socket(name: &str) -> String {
    format!("unix:{}/uruk-{}-{name}", std::env::temp_dir().display(), std::process::id())
}

/// The ways to an executor: memory is shared, or sent; it is started, or listens on a socket or a port.
fn ways(name: &str, arguments: &[&str]) -> [(&'static str, RemoteProgram); 5] {
    let socket = RemoteProgram::listening_at(listening(&socket(name), arguments));
    let port = RemoteProgram::listening_at(listening("localhost:0", arguments));
    [
        ("started", program(arguments)),
        ("started, sent", program(arguments).sends_memory(true)),
        ("socket", socket.clone()),
        ("socket, sent", socket.sends_memory(true)),
        ("port", port),
    ]
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
    jit.load_library("libm.so.6")?;
    jit.add_ir_text("counter.ll", COUNTER)?;
    jit.add_ir_text("caller.ll", CALLER)?;
    let query = jit.create_tracker();
    jit.in_tracker(&query).add_ir_text("ending.ll", ENDING)?;
    // SAFETY: the files' own initialisers.
    unsafe { jit.initialize() }?;
    let mut results = vec![jit.call_there::<u64>("twice", ())?];
    results.push(jit.call_there::<u64>("sum", [1, 2, 3, 4, 5, 60])?);
    results.push(jit.call_there::<u64>("own", ())?);
    results.push(jit.call_there::<u64>("own", ())?);
    results.push(jit.call_there::<u64>("begin", ())?);
    results.push(jit.call_there::<u64>("counted", ())?);
    query.remove().map_err(|error| JitError::NotThere { what: error.to_string().into() })?;
    results.push(jit.call_there::<u64>("counted", ())?);
    Ok(results)
}

#[test]
fn code_runs_in_another_process_as_here() {
    for (way, program) in ways("runs", &[]) {
        let jit = Jit::builder().threads(2).executor(program).build().expect(way);
        code_runs_by(way, &jit);
    }
}

fn code_runs_by(way: &str, jit: &Jit) {
    // 5, once by the constructor and twice by `twice`; the sum; a thread-local variable; a variable, and the handler that counts once more.
    assert_eq!(scene(jit).expect(way), [8, 286, 8, 9, 11, 8, 9], "{way}");
    let pid = jit.executor().expect("there is one").pid();
    assert_eq!(jit.call_there::<u64>("where", ()).expect("it runs"), u64::from(pid));
    assert_ne!(pid, std::process::id());
}

/// Functions of numbers of all types.
const NUMBERS: &str = r#"
    @text = constant [17 x i8] c"%d %.2f %c %.1f!\00"
    @written = global [32 x i8] zeroinitializer
    declare i32 @snprintf(ptr, i64, ptr, ...)
    define double @mix(i32 signext %a, double %x, i8 zeroext %b, float %y, i64 %c) {
        %1 = sitofp i32 %a to double %2 = uitofp i8 %b to double
        %3 = fpext float %y to double %4 = sitofp i64 %c to double
        %5 = fmul double %1, %x %6 = fmul double %2, %3
        %7 = fadd double %5, %6 %8 = fadd double %7, %4
        ret double %8
    }
    define float @half(float %x) { %y = fmul float %x, 0.5 ret float %y }
    define zeroext i1 @is_less(double %a, double %b) { %is = fcmp olt double %a, %b ret i1 %is }
    define i32 @negative(i32 %x) { %y = sub i32 0, %x ret i32 %y }
    define ptr @place() { ret ptr @written }
    define i64 @first(ptr %at) { %byte = load i8, ptr %at %wide = zext i8 %byte to i64 ret i64 %wide }
    define void @clear() { store i8 0, ptr @written ret void }
"#;

/// Each kind of number goes through registers of its own, a function with variable arguments looks at both kinds, and a short result is no more than its type.
#[test]
fn numbers_of_all_types_go_there_and_back() {
    for (way, program) in ways("numbers", &[]) {
        numbers_go_there_and_back(way, &Jit::builder().threads(1).executor(program).build().expect(way));
    }
}

fn numbers_go_there_and_back(way: &str, jit: &Jit) {
    jit.add_ir_text("numbers.ll", NUMBERS).expect("the names are new");
    let mixed = jit.call_there::<f64>("mix", (-3_i32, 1.5, 200_u8, 0.25_f32, -1_i64));
    assert_eq!(mixed.expect(way), -4.5 + 50.0 - 1.0);
    assert_eq!(jit.call_there::<f32>("half", (5.0_f32,)).expect(way), 2.5);
    assert!(jit.call_there::<bool>("is_less", (1.0, 2.0)).expect(way));
    assert!(!jit.call_there::<bool>("is_less", (2.0, 1.0)).expect(way));
    assert_eq!(jit.call_there::<i32>("negative", (7_i32,)).expect(way), -7);

    let place: ExecutorAddr = jit.call_there("place", ()).expect(way);
    let text = jit.lookup("text").expect(way).address;
    let print = (place, 32_usize, text, -7_i32, 2.25_f64, u64::from(b'z'), 0.5_f64);
    let size: i32 = jit.call_there("snprintf", print).expect(way);
    let byte = |at: i32| jit.call_there::<u8>("first", (place.value() + at as u64,)).expect(way);
    assert_eq!((0..size).map(byte).collect::<Vec<_>>(), b"-7 2.25 z 0.5!", "{way}");
    jit.call_there::<()>("clear", ()).expect(way);
    assert_eq!(jit.call_there::<u64>("first", (place,)).expect(way), 0);
}

/// The process that has started an executor says how it ended: the end of a connection alone does not.
#[test]
fn the_end_of_an_executor_that_listens_is_told_as_that_of_one_that_was_started() {
    let ends = "
        declare void @llvm.trap()
        declare void @_exit(i32)
        define i64 @crash() { call void @llvm.trap() ret i64 1 }
        define i64 @fault() { %x = load volatile i64, ptr null ret i64 %x }
        define i64 @leave() { call void @_exit(i32 7) ret i64 0 }";
    for (way, program) in ways("ends", &[]) {
        let ends_of = [
            ("crash", ProcessEnd::Signal(Signal::ILL.as_raw())),
            ("fault", ProcessEnd::Signal(Signal::SEGV.as_raw())),
            ("leave", ProcessEnd::Exited(7)),
        ];
        for (name, end) in ends_of {
            let jit = Jit::builder().threads(1).executor(program.clone()).build().expect(way);
            jit.add_ir_text("ends.ll", ends).expect("the names are new");
            let error = jit.call_there::<u64>(name, ()).expect_err("it ends");
            assert_eq!(end_of(&error), Some(end), "{way}: {}", told(&error));
            let is_told = told(&error).contains(&format!("in `{name}` + 0x"));
            assert_eq!(is_told, name != "leave", "{way}: {}", told(&error));
        }
    }
}

/// An executor that is killed while it sends, or takes, any message.
#[test]
fn an_end_of_an_executor_that_listens_is_an_error_at_each_message() {
    for (number, name) in MESSAGES {
        let address = listening(&socket(&format!("kill-{name}")), &[&format!("kill={number}")]);
        for sends_memory in [false, true] {
            let program = RemoteProgram::listening_at(address.clone()).sends_memory(sends_memory);
            let jit = Jit::builder().threads(2).executor(program).build();
            match jit.and_then(|jit| scene(&jit)) {
                Err(error) => assert!(told(&error).contains("ended by SIGKILL"), "{name}: {}", told(&error)),
                Ok(_) => assert!(["run", "broken", "end"].contains(&name), "{name}"),
            }
        }
    }
}

#[test]
fn no_executor_at_an_address_is_an_error() {
    for address in ["unix:/nonexistent/executor", "localhost:1"] {
        let program = RemoteProgram::listening_at(address.parse().expect("an address"));
        let error = Jit::builder().executor(program).build().expect_err(address);
        assert!(matches!(&error, JitError::Remote(RemoteError::Connect { .. })), "{error:?}");
        let told = told(&error);
        assert!(told.contains("no executor runs code for this process there"), "{told}");
    }
    // A program that is no executor ends at once.
    let path = socket("false");
    let listener = ExecutorListener::bind(&path.parse().expect("an address")).expect("it is free");
    let address = listener.address().expect("it has one");
    std::thread::spawn(move || {
        listener.serve(&PeerProgram { path: "/bin/false".into(), arguments: Vec::new() })
    });
    let error =
        Jit::builder().executor(RemoteProgram::listening_at(address)).build().expect_err("no executor");
    assert!(told(&error).contains("its process exited with code 1 before it was ready"), "{}", told(&error));
}

/// A socket among the files is replaced when no process listens on it any more, and not before.
#[test]
fn a_socket_that_was_left_over_is_replaced() {
    use std::os::unix::fs::PermissionsExt as _;
    let path = std::env::temp_dir().join(format!("uruk-{}-left", std::process::id()));
    drop(std::os::unix::net::UnixListener::bind(&path).expect("it is free"));
    let address = ExecutorAddress::Unix(path.clone());
    let listener = ExecutorListener::bind(&address).expect("it was left over");
    let mode = std::fs::metadata(&path).expect("it is there").permissions().mode();
    assert_eq!(mode & 0o077, 0, "it is for its owner alone");
    ExecutorListener::bind(&address).expect_err("it is in use");
    drop(listener);
    assert!(!path.exists());
    std::fs::write(&path, "a file of the user's").expect("it is free");
    ExecutorListener::bind(&address).expect_err("it is no socket");
    assert_eq!(std::fs::read(&path).expect("it is there"), b"a file of the user's");
    std::fs::remove_file(&path).expect("it is there");
}

/// The host of [`an_executor_does_not_outlive_its_host`], when that has started this program; otherwise nothing.
#[test]
fn host() {
    let argument =
        |name: &str| std::env::args().find_map(|argument| Some(argument.strip_prefix(name)?.to_owned()));
    let Some(address) = argument("as-host=") else { return };
    let program = match address.as_str() {
        "" => program(&[]),
        address => RemoteProgram::listening_at(address.parse().expect("an address")),
    };
    let jit = Jit::builder().threads(1).executor(program).build().expect("an engine");
    jit.add_ir_text("loop.ll", "define i64 @spin() { br label %again again: br label %again }")
        .expect("the name is new");
    jit.lookup("spin").expect("it links");
    let pid = jit.executor().expect("there is one").pid();
    writeln!(std::io::stdout(), "executor {pid}").expect("it is read");
    let error = jit.call_there::<u64>("spin", ()).expect_err("it does not end");
    panic!("{error}");
}

/// A host that is killed says no farewell. Its executor is gone within a second, also in the middle of a call.
#[test]
fn an_executor_does_not_outlive_its_host() {
    let socket = listening(&socket("outlives"), &[]).to_string();
    let port = listening("localhost:0", &[]).to_string();
    for address in ["", &socket, &port] {
        let mut command = Command::new(std::env::current_exe().expect("a program"));
        command.args(["--exact", "host", "--nocapture", "--quiet", &format!("as-host={address}")]);
        let mut host = command.stdout(Stdio::piped()).spawn().expect("it starts");
        let lines = BufReader::new(host.stdout.take().expect("a pipe")).lines();
        let mut numbers =
            lines.map_while(Result::ok).filter_map(|line| line.strip_prefix("executor ")?.parse().ok());
        let number: i32 = numbers.next().expect("it has an executor");
        let executor = Pid::from_raw(number).expect("a process");
        let executor = pidfd_open(executor, PidfdFlags::empty()).expect("it runs");
        host.kill().expect("it runs");
        let limit = Timespec { tv_sec: 10, tv_nsec: 0 };
        let mut ended = [PollFd::new(&executor, PollFlags::IN)];
        assert_eq!(poll(&mut ended, Some(&limit)), Ok(1), "`{address}`: it runs on");
        host.wait().expect("it was started here");
    }
}

/// Memory that was given back is used again only when the executor has forgotten the code: before the answer to a later call.
#[test]
fn removed_code_gives_its_memory_back_and_other_code_takes_it() {
    let jit = engine().build().expect("an engine");
    jit.add_ir_text("counter.ll", COUNTER).expect("the names are new");
    assert_eq!(jit.call_there::<u64>("counted", ()).expect("it runs"), 5);
    let before = jit.memory_usage();
    for round in 0..20 {
        let query = jit.create_tracker();
        jit.in_tracker(&query).add_ir_text("ending.ll", ENDING).expect("the names are free");
        let begun = jit.call_there::<u64>("begin", ()).expect("it runs");
        assert_eq!(begun, 11, "round {round}: the variable is a new one");
        query.remove().expect("nothing needs it");
        assert_eq!(jit.call_there::<u64>("counted", ()).expect("it runs"), 6 + round);
        let now = jit.memory_usage();
        assert_eq!(
            (now.code.allocated_bytes, now.data.allocated_bytes),
            (before.code.allocated_bytes, before.data.allocated_bytes)
        );
    }
}

/// An executor that is stopped answers nothing.
#[test]
fn linking_waits_for_no_answer() {
    let program = program(&[]).request_limit(std::time::Duration::from_secs(5));
    let jit = Jit::builder().threads(2).executor(program).build().expect("an engine");
    let pid = Pid::from_raw(jit.executor().expect("there is one").pid().cast_signed()).expect("a process");
    kill_process(pid, Signal::STOP).expect("it runs");
    let names: Vec<String> = (0..300).map(|number| format!("f{number}")).collect();
    for name in &names {
        jit.add_ir_text(name, &format!("define i64 @{name}() {{ ret i64 7 }}")).expect("the name is new");
    }
    let found: Vec<_> = names.iter().map(|name| jit.lookup(name)).collect();
    kill_process(pid, Signal::CONT).expect("it is there");
    assert!(found.iter().all(Result::is_ok), "{found:?}");
    for name in &names {
        assert_eq!(jit.call_there::<u64>(name, ()).expect("it runs"), 7);
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
    assert_eq!(jit.call_there::<u64>("count", ()).expect("it runs"), 6);
    let error = jit.call_there::<u64>("crash", ()).expect_err("it crashes");
    let pid = jit.executor().expect("there was one").pid();
    assert_eq!(end_of(&error), Some(ProcessEnd::Signal(Signal::ILL.as_raw())), "{error}");
    let told = told(&error);
    for part in [&format!("process {pid} was ended by SIGILL"), "in `fall` + 0x", "of crash.ll"] {
        assert!(told.contains(part), "no `{part}` in: {told}");
    }
    // All later requests have the same answer, and nothing hangs.
    assert_eq!(end_of(&jit.call_there::<u64>("count", ()).expect_err("it is gone")), end_of(&error));
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
    let error = jit.call_there::<u64>("leave", ()).expect_err("it leaves");
    assert_eq!(end_of(&error), Some(ProcessEnd::Exited(7)), "{error}");
}

/// A call that does not end is ended with its process.
#[test]
fn a_call_that_takes_too_long_is_an_error() {
    let limited = program(&[]).call_limit(std::time::Duration::from_millis(100));
    let jit = Jit::builder().threads(1).executor(limited).build().expect("an engine");
    jit.add_ir_text("loop.ll", "define i64 @spin() { br label %again again: br label %again }")
        .expect("the name is new");
    let error = jit.call_there::<u64>("spin", ()).expect_err("it does not end");
    assert!(told(&error).contains("took more than 100ms, and was ended"), "{}", told(&error));
}

/// The executor ends at a message: the scene ends with an error that says so, or has had all that it needs.
#[test]
fn an_end_at_each_message_is_an_error_and_no_hang() {
    for (number, name) in MESSAGES {
        let killed = program(&[&format!("kill={number}")]);
        let jit = Jit::builder().threads(2).executor(killed).build();
        let result = jit.and_then(|jit| {
            let results = scene(&jit)?;
            // It calls its host back no more: it becomes the program, which returns the value of the counter.
            let main = jit.lookup("counted")?.address;
            let end = jit.executor().expect("there is one").run_program(
                &Startup::default(),
                main,
                &[],
                None,
                Box::new(|_| Default::default()),
            );
            match end.process_end() {
                Some(ProcessEnd::Exited(code)) => Ok((results, code)),
                _ => Err(end.into()),
            }
        });
        match result {
            Err(error) => assert!(told(&error).contains("was ended by SIGKILL"), "{name}: {}", told(&error)),
            // Nothing waits for the answer to these, or the scene has none of them.
            Ok(results) => {
                assert!(["broken", "end"].contains(&name) && results.1 == 9, "{name}: {results:?}")
            }
        }
    }
}

#[test]
fn an_executor_that_lies_is_an_error_and_is_ended() {
    let lies = [
        ("version", "it is no executor of this version"),
        ("base", "no memory begins at 0x1"),
        ("zeros", "no memory begins at 0x10000 in pages of 4096 bytes"),
        ("half", "it is no executor of this version"),
        ("kind", "it is no executor of this version"),
        ("machine", "it runs code of machine 3, which is not linked here"),
        ("pages", "no memory begins at 0x10000 in pages of 4097 bytes"),
        ("few", "0 symbols for 1 names"),
        ("many", "half an answer"),
        ("id", "an answer of kind 7 to no request"),
        ("answer", "an answer of kind 13 to no request"),
        ("retired", "code has gone that was there"),
        ("fault", "half a fault"),
        ("ended", "it says that it has ended"),
        ("nothing", "a message of kind 99"),
    ];
    for (lie, why) in lies {
        let liar = program(&[&format!("lie={lie}")]).sends_memory(lie == "pages");
        let liar = Jit::builder().threads(1).executor(liar);
        let error = liar.build().and_then(|jit| jit.lookup("getpid").map(drop)).expect_err(lie);
        let told = told(&error);
        assert!(told.contains("broke the protocol, and was ended") && told.contains(why), "{lie}: {told}");
    }
}

#[test]
fn objects_are_for_the_architecture_of_the_executor() {
    let jit = Jit::builder().threads(1).executor(program(&["lie=arm"])).build().expect("an engine");
    let executor = jit.executor().expect("there is one");
    assert_eq!(executor.architecture(), Architecture::AArch64);
    let compiler = IrCompiler::host(OptimizationLevel::O0).expect("this processor");
    let module = ThreadSafeModule::parse(&ObjectBuffer::new("here.ll", COUNTER)).expect("a module");
    let object = compiler.compile(module).expect("an object");
    let error = jit.add_object(object).expect_err("it is for this process");
    let told = told(&error);
    for part in ["for x86-64", "links AArch64", "--target=aarch64-linux-gnu"] {
        assert!(told.contains(part), "no `{part}` in: {told}");
    }
}

/// IR is compiled for an executor in an emulator, which `make aarch64` names.
#[test]
fn an_engine_compiles_for_its_executor_in_an_emulator() {
    let Some(executor) = std::env::var_os("URUK_AARCH64_EXECUTOR") else {
        writeln!(
            std::io::stderr(),
            "skipped: URUK_AARCH64_EXECUTOR names no executor; `make aarch64` builds one"
        )
        .expect("standard error");
        return;
    };
    let program = RemoteProgram::new("qemu-aarch64").argument("-L").argument("/usr/aarch64-linux-gnu");
    let jit = Jit::builder().threads(2).executor(program.argument(executor)).build();
    let jit = jit.unwrap_or_else(|error| panic!("{}", told(&error)));
    assert_eq!(jit.executor().map(RemoteExecutor::architecture), Some(Architecture::AArch64));
    assert_eq!(scene(&jit).unwrap_or_else(|error| panic!("{}", told(&error)))[0], 8);
    numbers_go_there_and_back("in an emulator", &jit);
}

#[test]
fn a_target_of_another_architecture_than_the_code_runs_on_is_refused() {
    let target = JitTargetMachineBuilder::of_architecture(Architecture::AArch64).expect("a target");
    let error = Jit::builder().target(target).build().expect_err("the code runs here");
    let told = told(&error);
    assert!(told.contains("aarch64-unknown-linux-gnu") && told.contains("runs on x86-64"), "{told}");
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
    let builders = [engine().memory(memory)];
    for builder in builders {
        let error = builder.build().expect_err("it is refused");
        assert!(matches!(error, JitError::NotThere { .. }), "{error:?}");
    }
    let jit = engine().build().expect("an engine");
    jit.add_ir_text("counter.ll", COUNTER).expect("the names are new");
    extern "C" fn here() {}
    // SAFETY: no pointer comes of it.
    let pointer = unsafe { jit.get::<extern "C" fn() -> i64>("count") };
    let refused = [
        pointer.map(drop),
        jit.get_data::<i64>("counter").map(drop),
        jit.define("here", here as extern "C" fn()),
        jit.load_image("/nonexistent/image.so", uruk::ImageOptions::new()).map(drop),
    ];
    for result in refused {
        let error = result.expect_err("it is refused");
        assert!(told(&error).contains("is not possible where another process runs the code"), "{error}");
    }
    assert_eq!(jit.call_there::<u64>("count", ()).expect("the engine goes on"), 6);
}
