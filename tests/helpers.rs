//! Compilations in helper processes: a file that crashes its compiler, has it hang, or has it eat memory, fails alone.
//!
//! This program is its own helper: the pool starts it with the name of one of its tests, [`helper`], and with the faults to commit.

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, getpid, kill_process, pidfd_open, pidfd_send_signal};
use uruk::core::WithCauses;
use uruk::pipeline::cache::MemoryCache;
use uruk::pipeline::helpers::{Checked, HelperAnswer, HelperError, HelperPool, Helpers};
use uruk::pipeline::ir::{
    CompileError, Dump, IrCompiler, JitTargetMachineBuilder, ModuleVersion, OptimizationLevel,
    OptimizationPipeline, Partition, PartitionPolicy, PassHook, Stage, ThreadSafeModule, helper_build,
    llvm_build, serve_compiles_watched,
};
use uruk::pipeline::object::ObjectBuffer;
use uruk::pipeline::peer::{FrameError, PeerError};
use uruk::{ImageBuilder, Jit, JitBuilder, OnCall};
use uruk_tests::forms::Form;
use uruk_tests::inputs::bitcode;
use uruk_tests::program::{Language, Program, names_in};

/// The messages of the protocol, in their order.
const MESSAGES: [(u16, &str); 5] = [(1, "hello"), (2, "ready"), (3, "job"), (4, "begun"), (5, "answer")];

/// The helper, when a pool has started this program; otherwise nothing.
///
/// An argument `fault=KIND@MESSAGE:NAME` has it commit a fault at a message, while it has a job whose name has NAME in it.
#[test]
fn helper() {
    if !std::env::args().any(|argument| argument == "as-helper") {
        return;
    }
    let faults: Vec<String> =
        std::env::args().filter_map(|argument| Some(argument.strip_prefix("fault=")?.to_owned())).collect();
    let watch = move |message: u16, job: &str| {
        for fault in &faults {
            let (kind, place) = fault.split_once('@').expect("a kind and a place");
            let (at, name) = place.split_once(':').expect("a message and a name");
            if at.parse() == Ok(message) && job.contains(name) {
                commit(kind);
            }
        }
    };
    if let Err(error) = serve_compiles_watched(watch) {
        panic!("{error}");
    }
}

#[expect(clippy::print_stderr, clippy::disallowed_methods, reason = "the last words and the end of a helper")]
fn commit(fault: &str) {
    eprintln!("about to {fault}");
    match fault {
        // SAFETY: not safe at all: the process ends.
        "segv" => unsafe { std::ptr::without_provenance_mut::<u8>(8).write_volatile(1) },
        "abort" => std::process::abort(),
        "kill" => kill_process(getpid(), Signal::KILL).expect("it is this process"),
        // SAFETY: the process ends, or the call is refused.
        "raise" => _ = unsafe { libc::raise(libc::SIGKILL) },
        // The same number to the system, which takes 32 bits of it.
        // SAFETY: as before.
        "disguise" => _ = unsafe { libc::syscall(libc::SYS_kill, libc::getpid(), (1_i64 << 32) | 9) },
        "exit" => std::process::exit(3),
        "loop" => loop {
            std::hint::spin_loop();
        },
        "eat" => {
            let mut eaten = Vec::new();
            loop {
                eaten.push(vec![1u8; 1 << 20]);
            }
        }
        "leave" => {
            // The direction to the host alone, or the thread that watches that would end the process.
            rustix::net::shutdown(std::io::stdin(), rustix::net::Shutdown::Write).expect("it is a socket");
            commit("loop")
        }
        "open" => {
            eprintln!("{}", std::fs::File::open("/etc/passwd").expect_err("no file can be opened"));
            std::process::exit(4)
        }
        forbidden => {
            let done = call_forbidden(forbidden);
            eprintln!("{}", if done == 0 { "it was done".to_owned() } else { last_error() });
            std::process::exit(5)
        }
    }
}

fn last_error() -> String {
    std::io::Error::last_os_error().to_string()
}

/// Does what no compilation has to; 0 when the system has done it.
fn call_forbidden(call: &str) -> i64 {
    let (path, null) = (c"/tmp/uruk-helper-was-here", std::ptr::null_mut::<libc::c_void>());
    // SAFETY: paths are C strings; the memory is new; what the calls do to this process is of no matter, since it ends.
    unsafe {
        match call {
            "write" => i64::from(libc::open(path.as_ptr(), libc::O_WRONLY | libc::O_CREAT, 0o600).min(0)),
            "unlink" => i64::from(libc::unlinkat(libc::AT_FDCWD, path.as_ptr(), 0)),
            "pipe" => i64::from(libc::pipe2([0; 2].as_mut_ptr(), 0)),
            "socket" => i64::from(libc::socket(libc::AF_INET, libc::SOCK_STREAM, 0).min(0)),
            "fork" => i64::from(libc::fork().min(0)),
            "thread" => i64::from(std::thread::Builder::new().spawn(|| ()).is_err()),
            "exec" => i64::from(libc::execv(c"/bin/true".as_ptr(), [std::ptr::null()].as_ptr())),
            "ptrace" => libc::ptrace(libc::PTRACE_DETACH, libc::getppid(), null, null),
            "signal" => i64::from(libc::kill(libc::getppid(), 0)),
            "limit" => {
                let most = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
                i64::from(libc::setrlimit(libc::RLIMIT_AS, &raw const most))
            }
            "code" => {
                let (protection, flags) =
                    (libc::PROT_READ | libc::PROT_EXEC, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
                i64::from(libc::mmap(null, 4096, protection, flags, -1, 0) == libc::MAP_FAILED)
            }
            "other channel" => libc::write(0, c"it".as_ptr().cast(), 2).min(0) as i64,
            other => panic!("no fault {other}"),
        }
    }
}

/// Helpers of this program that commit `faults`.
fn helpers(faults: &[&str]) -> Helpers {
    let helpers = Helpers::new(std::env::current_exe().expect("a program"));
    let helpers =
        ["--exact", "helper", "--nocapture", "as-helper"].into_iter().fold(helpers, Helpers::argument);
    let helpers = faults.iter().fold(helpers, |helpers, fault| helpers.argument(format!("fault={fault}")));
    helpers.count(2).time_limit(Duration::from_secs(60))
}

fn engine(helpers: Helpers) -> JitBuilder {
    Jit::builder().threads(2).optimization(OptimizationLevel::O1).compile_in(helpers)
}

/// A file that defines a function of this name, which gives `value`.
fn file(name: &str, value: usize) -> ObjectBuffer {
    let text = format!("define i64 @{name}() {{\n  %x = add i64 {value}, 0\n  ret i64 %x\n}}\n");
    ObjectBuffer::new(format!("{name}.ll"), text.into_bytes())
}

/// Calls a function that takes nothing.
fn call(jit: &Jit, name: &str) -> i64 {
    // SAFETY: the test's functions all have this type.
    let function = unsafe { jit.get::<extern "C" fn() -> i64>(name) };
    function.unwrap_or_else(|error| panic!("{name}: {}", WithCauses(&error)))()
}

fn message(error: &(dyn std::error::Error + 'static)) -> String {
    WithCauses(error).to_string()
}

#[test]
fn a_program_is_compiled_in_helpers() {
    let jit = engine(helpers(&[])).build().expect("an engine");
    jit.add_buffer(file("seven", 7)).expect("text");
    let user = "declare i64 @seven()\ndefine i64 @user() {\n  %x = call i64 @seven()\n  %y = mul i64 %x, 6\n  ret i64 %y\n}\n";
    let module = ThreadSafeModule::parse(&ObjectBuffer::new("user.ll", user.as_bytes())).expect("valid");
    jit.add_module(module).expect("a module in memory");
    assert_eq!(call(&jit, "user"), 42);
    let stats = jit.helpers().expect("it has some").stats();
    assert_eq!((stats.failed, stats.not_begun), (0, 0), "{stats:?}");
    assert!(stats.answered >= 3, "an interface and two objects: {stats:?}");
}

#[test]
fn errors_of_llvm_are_those_of_this_process() {
    let sources = [
        ("prose.ll", "it was a dark and stormy night"),
        (
            "order.ll",
            "define i32 @f(i1 %c) {\n  br i1 %c, label %a, label %b\na:\n  %x = add i32 1, 2\n  br label %b\nb:\n  ret i32 %x\n}\n",
        ),
        ("machine.ll", "target triple = \"aarch64-unknown-linux-gnu\"\ndefine void @f() {\n  ret void\n}\n"),
        (
            "assembly.ll",
            "define void @f() {\n  call void asm \"no such instruction\", \"\"()\n  ret void\n}\n",
        ),
    ];
    for (name, text) in sources {
        let fail = |builder: JitBuilder| {
            let jit = builder.build().expect("an engine");
            let added = jit.add_buffer(ObjectBuffer::new(name, text.as_bytes()));
            message(&added.and_then(|()| jit.lookup("f").map(drop)).expect_err(name))
        };
        let here = fail(Jit::builder().threads(1).optimization(OptimizationLevel::O1));
        assert_eq!(fail(engine(helpers(&[]))), here);
    }
}

/// Each file is one that its helper dies of, in its own way, beside ten that it does not.
#[test]
fn a_fault_fails_its_own_unit_and_says_how() {
    let faults = [
        "segv@4:bad",
        "abort@4:bad",
        "kill@4:bad",
        "raise@4:bad",
        "disguise@4:bad",
        "exit@4:bad",
        "eat@4:bad",
        "loop@4:bad",
        "open@4:bad",
    ];
    let ends = [
        "was ended by SIGSEGV",
        "was ended by SIGABRT",
        // Of a confined helper SIGKILL comes from outside alone.
        "was ended by SIGSYS",
        "was ended by SIGSYS",
        "was ended by SIGSYS",
        "exited with code 3",
        "was ended by SIGABRT",
        "took more than 5s, and was ended",
        "Permission denied",
    ];
    for (fault, end) in faults.into_iter().zip(ends) {
        let limits = helpers(&[fault]).memory(256 << 20).time_limit(Duration::from_secs(5));
        let jit = engine(limits).build().expect("an engine");
        let good: Vec<String> = (0..10).map(|number| format!("good_{number}")).collect();
        let names = good.iter().map(String::as_str).enumerate();
        for (value, name) in names.clone() {
            jit.add_buffer(file(name, value)).expect("text");
        }
        // Its interface is known, so that only its compilation is at fault.
        let bad = file("bad", 0);
        let target = JitTargetMachineBuilder::host().expect("this machine");
        let module = ThreadSafeModule::parse(&bad).expect("it is valid");
        let interface = uruk::pipeline::ir::ModuleInterface::of_module(&module, &target).expect("valid");
        jit.add_ir_with_interface(bad, &interface).expect("nothing is read yet");
        let error = jit.lookup("bad").expect_err(fault);
        let told = message(&error);
        let kind = fault.split('@').next().expect("a kind");
        for part in ["bad.ll", end, &format!("it said: about to {kind}")] {
            assert!(told.contains(part), "{fault}: no `{part}` in: {told}");
        }
        assert_eq!(told.matches(end).count(), 1, "{fault}: said once: {told}");
        names.for_each(|(value, name)| assert_eq!(call(&jit, name), value as i64));
        let stats = jit.helpers().expect("it has some").stats();
        // Its helper had worked before, which leaves a doubt.
        assert_eq!((stats.failed, stats.quarantined), (1, 0), "{fault}: {stats:?}");
    }
}

/// The last is a control: without confinement the helper lives to say how its calls went.
#[test]
fn a_helper_that_calls_what_no_compilation_needs_is_ended_and_says_which() {
    let pipe = format!("not allowed system call {}", libc::SYS_pipe2);
    let calls = [
        ("write", "not allowed to call openat"),
        ("unlink", "not allowed to call unlinkat"),
        ("socket", "not allowed to call socket"),
        ("fork", "not allowed to call clone"),
        // Whose signals are blocked while one starts, so that nothing more is said.
        ("thread", "about to thread"),
        ("exec", "not allowed to call execve"),
        ("ptrace", "not allowed to call ptrace"),
        ("signal", "not allowed to call kill"),
        ("limit", "not allowed to call prlimit64"),
        ("pipe", &pipe),
        ("code", "not allowed to call mmap"),
        ("other channel", "not allowed to call write"),
    ];
    let compile = |helpers: Helpers, name: &str| {
        let pool = Arc::new(HelperPool::new(helpers.count(1), helper_build()));
        let compiler = IrCompiler::host(OptimizationLevel::O1).expect("this machine");
        let compiler = compiler.with_helpers(pool.clone()).expect("no hooks");
        let compiled = compiler.compile(ThreadSafeModule::parse(&file(name, 1)).expect("valid"));
        (compiled.map_err(|error| message(&error)), pool.stats())
    };
    for (call, told) in calls {
        let fault = format!("{call}@4:bad");
        let (failed, stats) = compile(helpers(&[&fault]), "bad");
        let failed = failed.expect_err(call);
        for part in ["bad.ll", "was ended by SIGSYS", told] {
            assert!(failed.contains(part), "{call}: no `{part}` in: {failed}");
        }
        assert_eq!((stats.failed, stats.unconfined), (1, 0), "{call}: {stats:?}");
        let (failed, stats) = compile(helpers(&[&fault]).unconfined(), "bad");
        let failed = failed.expect_err(call);
        assert!(failed.contains("exited with code"), "{call}, unconfined: {failed}");
        assert!(stats.unconfined > 0, "{call}: {stats:?}");
    }
}

/// A helper that is killed before it has begun a job is not the job's fault.
#[test]
fn an_end_at_each_message_of_the_protocol_loses_no_job_that_had_not_begun() {
    let compiler = |helpers: Helpers| {
        let compiler = IrCompiler::host(OptimizationLevel::O1).expect("this machine");
        let pool = Arc::new(HelperPool::new(helpers.count(1), helper_build()));
        (compiler.with_helpers(pool.clone()).expect("no hooks"), pool)
    };
    let compile = |compiler: &IrCompiler, name: &str| {
        let module = ThreadSafeModule::parse(&file(name, 1)).expect("valid");
        compiler.compile(module)
    };
    for (number, name) in MESSAGES {
        // Every helper ends there: none ever begins the job, or the first that does fails it.
        let (broken, pool) = compiler(helpers(&[&format!("kill@{number}:")]).unconfined());
        let error = compile(&broken, "f").expect_err(name);
        let told = message(&error);
        let (stats, has_begun) = (pool.stats(), number >= 4);
        assert!(told.contains("was ended by SIGKILL"), "{name}: {told}");
        assert_eq!(told.contains("no helper can be had"), !has_begun, "{name}: {told}");
        assert_eq!(
            (stats.failed, stats.quarantined),
            (2 * u64::from(has_begun), has_begun.into()),
            "{name}: {stats:?}"
        );
        // The job is not to blame, so it may be tried again.
        let again = message(&compile(&broken, "f").expect_err(name));
        assert_eq!(again.contains("is not tried again"), has_begun, "{name}: {again}");
        assert!(pool.stats().started < 20, "helpers that end at once are not started over and over");
    }
    // From outside, while it is idle: the next job has another helper, and does not see it.
    let (compiler, pool) = compiler(helpers(&[]));
    for round in 0..5 {
        compile(&compiler, &format!("f{round}")).expect("it compiles");
        let idle = pool.idle();
        assert_eq!(idle.len(), 1);
        kill_process(pid(idle[0]), Signal::KILL).expect("it is idle");
    }
    compile(&compiler, "last").expect("it compiles");
    assert_eq!(pool.stats().failed, 0);
}

fn pid(number: u32) -> Pid {
    Pid::from_raw(i32::try_from(number).expect("a number of a process")).expect("not zero")
}

#[test]
fn what_has_ended_a_helper_is_not_tried_again() {
    let compiler = IrCompiler::host(OptimizationLevel::O1).expect("this machine");
    let pool = Arc::new(HelperPool::new(helpers(&["segv@4:bad"]), helper_build()));
    let compiler = compiler.with_helpers(pool.clone()).expect("no hooks");
    let compile = |name| compiler.compile(ThreadSafeModule::parse(&file(name, 1)).expect("valid"));
    let first = message(&compile("bad").expect_err("it ends its helper"));
    let started = pool.stats().started;
    for _ in 0..3 {
        let error = compile("bad").expect_err("it is known");
        assert!(matches!(error, CompileError::Helper { .. }), "{error:?}");
        let told = message(&error);
        assert!(told.contains("is not tried again") && told.contains("SIGSEGV"), "{told}");
        assert!(!first.contains("is not tried again"), "{first}");
    }
    compile("good").expect("others are compiled");
    let stats = pool.stats();
    assert_eq!((stats.failed, stats.refused), (1, 3));
    assert!(stats.started <= started + 1, "{stats:?}");
}

/// A helper that has worked may have been damaged by another job.
#[test]
fn a_job_is_known_for_bad_when_a_fresh_helper_ends_too() {
    let compiler = IrCompiler::host(OptimizationLevel::O1).expect("this machine");
    let pool = Arc::new(HelperPool::new(helpers(&["segv@4:bad"]).count(1), helper_build()));
    let compiler = compiler.with_helpers(pool.clone()).expect("no hooks");
    let compile = |name| compiler.compile(ThreadSafeModule::parse(&file(name, 1)).expect("valid"));
    compile("good").expect("it compiles");
    for (failed, quarantined, refused) in [(1, 0, 0), (2, 1, 0), (2, 1, 1)] {
        compile("bad").expect_err("it ends its helper");
        let stats = pool.stats();
        assert_eq!((stats.failed, stats.quarantined, stats.refused), (failed, quarantined, refused));
    }
}

/// An error of LLVM may leave damage, and an answer that makes no sense shows it.
#[test]
fn a_helper_whose_job_failed_gets_no_other() {
    let compiler = IrCompiler::host(OptimizationLevel::O1).expect("this machine");
    let pool = Arc::new(HelperPool::new(helpers(&[]).count(1), helper_build()));
    let compiler = compiler.with_helpers(pool.clone()).expect("no hooks");
    let compile = |text: &'static str| {
        let source = ObjectBuffer::new("f.ll", text.as_bytes());
        compiler.compile(ThreadSafeModule::parse(&source).expect("valid"))
    };
    let sound = "define void @f() {\n  ret void\n}\n";
    compile(sound).expect("it compiles");
    let first = pool.idle();
    let broken = "define void @f() {\n  call void asm \"no such instruction\", \"\"()\n  ret void\n}\n";
    compile(broken).expect_err("LLVM refuses it");
    let second = pool.idle();
    assert_ne!(first, second, "another is started at once");
    assert_eq!((pool.stats().failed, pool.stats().recycled), (0, 1));
    let doubted = pool.ask(&[0; 32], b"", b"", &|_| Err("it is nothing".to_owned()), &|_| ());
    let error = doubted.expect_err("the answer makes no sense");
    assert!(matches!(error, HelperError::Failed(_)), "{error}");
    assert!(error.to_string().contains("broke the protocol, and was ended: it is nothing"), "{error}");
    assert_ne!(pool.idle(), second);
    compile(sound).expect("it compiles");
}

/// As many compilations as `URUK_COMPILATIONS` says, in a process of its own, so that all descriptors and children are those of its helpers.
#[test]
#[expect(clippy::print_stdout, reason = "the figures of a long run")]
fn killed() {
    if !std::env::args().any(|argument| argument == "as-killed") {
        return;
    }
    let count = std::env::var("URUK_COMPILATIONS").map_or(200, |count| count.parse().expect("a number"));
    let (before, start) = (leftovers(), Instant::now());
    let pool = Arc::new(HelperPool::new(helpers(&[]).count(1), helper_build()));
    let compiler = IrCompiler::host(OptimizationLevel::O0).expect("this machine");
    let apart = compiler.clone().with_helpers(pool.clone()).expect("no hooks");
    for number in 0..count {
        let is_killed = number % 50 == 49;
        // One that takes a while, so that the end comes in its middle.
        let functions = if is_killed { 300 } else { 1 };
        let text: String = (0..functions)
            .map(|function| format!("define i64 @f{function}() {{\n  ret i64 {number}\n}}\n"))
            .collect();
        let source = ObjectBuffer::new(format!("f{number}.ll"), text.into_bytes());
        let module = || ThreadSafeModule::parse(&source).expect("valid");
        let there = std::thread::scope(|scope| {
            if let Some(&idle) = pool.idle().first()
                && is_killed
            {
                let process = pidfd_open(pid(idle), PidfdFlags::empty()).expect("it is alive");
                let pool = &pool;
                scope.spawn(move || {
                    while !pool.idle().is_empty() {
                        std::thread::yield_now();
                    }
                    // From at once to a third of a job later.
                    let late = Duration::from_micros(number * 61 % 3_000);
                    let _ = poll(
                        &mut [PollFd::new(&process, PollFlags::IN)],
                        Some(&Timespec::try_from(late).expect("short")),
                    );
                    _ = pidfd_send_signal(&process, Signal::KILL);
                });
            }
            apart.compile(module())
        });
        // The first of the two helpers alone is killed, so that each has its object.
        let there = there.unwrap_or_else(|error| panic!("{}", message(&error)));
        assert!(
            there.bytes() == compiler.compile(module()).expect("it compiles").bytes(),
            "{number} differs"
        );
    }
    let stats = pool.stats();
    println!("{count} compilations in {:.1} s: {stats:?}", start.elapsed().as_secs_f64());
    assert_eq!((stats.answered, stats.quarantined), (count, 0), "a job that was killed is not suspected");
    assert!(stats.failed > 0 && stats.failed + stats.not_begun <= count / 50, "{stats:?}");
    drop((apart, pool));
    assert_eq!(leftovers(), before, "descriptors and children");
}

/// How many descriptors and children this process has.
fn leftovers() -> (usize, usize) {
    let descriptors = std::fs::read_dir("/proc/self/fd").expect("the system's files").count();
    let threads = std::fs::read_dir("/proc/self/task").expect("the system's files");
    let children =
        threads.flatten().filter_map(|thread| std::fs::read_to_string(thread.path().join("children")).ok());
    (descriptors, children.map(|children| children.split_whitespace().count()).sum())
}

/// `make soak` has it be ten thousand.
#[test]
fn compilations_outlive_helpers_that_are_killed() {
    let mut command = Command::new(std::env::current_exe().expect("a program"));
    let run = command.args(["--exact", "killed", "--nocapture", "as-killed"]).output().expect("it starts");
    let said = [run.stdout, run.stderr].map(|said| String::from_utf8_lossy(&said).into_owned()).concat();
    assert!(run.status.success() && said.contains(" compilations in "), "{said}");
}

/// Only the first helper ends, with its first job, which proves the job guilty unless the end comes from outside.
#[test]
fn a_job_whose_helper_is_killed_from_outside_is_done_by_another() {
    let compiler = IrCompiler::host(OptimizationLevel::O0).expect("this machine");
    for (fault, is_done) in [("kill", true), ("segv", false)] {
        let marker = std::env::temp_dir().join(format!("uruk-{fault}-{}", std::process::id()));
        // Another process of this number may have been interrupted.
        _ = std::fs::remove_dir(&marker);
        let program = std::env::current_exe().expect("a program");
        let run = format!("exec '{}' --exact helper --nocapture as-helper", program.display());
        let script = format!("mkdir '{}' 2>/dev/null && {run} fault={fault}@4:bad; {run}", marker.display());
        // A confined one does not end itself so.
        let helpers = Helpers::new("/bin/sh").argument("-c").argument(script).count(1).unconfined();
        let pool = Arc::new(HelperPool::new(helpers, helper_build()));
        let compiler = compiler.clone().with_helpers(pool.clone()).expect("no hooks");
        let compiled = compiler.compile(ThreadSafeModule::parse(&file("bad", 1)).expect("valid"));
        std::fs::remove_dir(&marker).expect("the first helper has made it");
        let stats = pool.stats();
        assert_eq!(compiled.is_ok(), is_done, "{fault}: {stats:?}");
        assert_eq!((stats.failed, stats.quarantined), (1, usize::from(!is_done)), "{fault}: {stats:?}");
    }
}

/// It is killed for that in the end, but by its host: the job that it had is to blame.
#[test]
fn a_job_whose_helper_closes_its_channel_and_goes_on_is_not_tried_again() {
    let pool = HelperPool::new(helpers(&["leave@4:bad"]).count(1).unconfined(), helper_build());
    let pool = Arc::new(pool);
    let compiler = IrCompiler::host(OptimizationLevel::O0).expect("this machine");
    let compiler = compiler.with_helpers(pool.clone()).expect("no hooks");
    let compile = || compiler.compile(ThreadSafeModule::parse(&file("bad", 1)).expect("valid"));
    let told = message(&compile().expect_err("its helper gives no answer"));
    assert!(told.contains("it closed its channel, and went on for 1s"), "{told}");
    let stats = pool.stats();
    assert_eq!((stats.started, stats.failed, stats.quarantined), (2, 1, 1), "the second is idle: {stats:?}");
    assert!(message(&compile().expect_err("it is known")).contains("is not tried again"));
}

#[test]
fn helpers_are_replaced_in_time() {
    let compiler = IrCompiler::host(OptimizationLevel::O0).expect("this machine");
    let pool =
        HelperPool::new(helpers(&[]).count(1).recycle_after(3, Duration::from_secs(3_600)), helper_build());
    let pool = Arc::new(pool);
    let compiler = compiler.with_helpers(pool.clone()).expect("no hooks");
    for number in 0..7 {
        let module = ThreadSafeModule::parse(&file(&format!("f{number}"), number)).expect("valid");
        compiler.compile(module).expect("it compiles");
    }
    let stats = pool.stats();
    assert_eq!((stats.started, stats.recycled, stats.answered), (3, 2, 7), "{stats:?}");
    pool.retire();
    assert!(pool.idle().is_empty());
    let module = ThreadSafeModule::parse(&file("late", 1)).expect("valid");
    compiler.compile(module).expect("a retired pool starts one for a job");
    assert!(pool.idle().is_empty(), "and keeps none");
}

#[test]
fn the_second_helper_is_started_when_the_first_is_busy() {
    let pool = Arc::new(HelperPool::new(
        helpers(&["loop@4:long"]).time_limit(Duration::from_secs(6)),
        helper_build(),
    ));
    let compiler = IrCompiler::host(OptimizationLevel::O0).expect("this machine");
    let compiler = compiler.with_helpers(pool.clone()).expect("no hooks");
    let compile = |name: &str| compiler.compile(ThreadSafeModule::parse(&file(name, 1)).expect("valid"));
    compile("one").expect("it compiles");
    compile("two").expect("it compiles");
    assert_eq!(pool.stats().started, 1, "one is enough for one at a time");
    std::thread::scope(|scope| {
        let long = scope.spawn(|| compile("long").expect_err("it takes too long"));
        while !pool.idle().is_empty() {
            std::thread::yield_now();
        }
        for number in 0..3 {
            compile(&format!("beside{number}")).expect("it compiles");
        }
        assert!(!long.is_finished());
        assert_eq!(pool.stats().started, 2);
        assert!(message(&long.join().expect("no panic")).contains("took more than 6s"));
    });
}

/// ```text
///  the only worker: compile `long`, in a helper ─────────────────── until it is too late
///  another in its place:          compile `f0` to `f7` in the second helper
/// ```
#[test]
fn a_worker_whose_job_is_in_a_helper_is_replaced() {
    let helpers = helpers(&["loop@4:long"]).time_limit(Duration::from_secs(20));
    let jit = Jit::builder().threads(1).compile_in(helpers).build().expect("an engine");
    let names: Vec<String> = (0..8).map(|number| format!("f{number}")).collect();
    let target = JitTargetMachineBuilder::host().expect("this machine");
    for name in names.iter().map(String::as_str).chain(["long"]) {
        let module = ThreadSafeModule::parse(&file(name, 1)).expect("it is valid");
        let interface = uruk::pipeline::ir::ModuleInterface::of_module(&module, &target).expect("valid");
        jit.add_ir_with_interface(file(name, 1), &interface).expect("nothing is read yet");
    }
    std::thread::scope(|scope| {
        let long = scope.spawn(|| message(&jit.lookup("long").expect_err("it takes too long")));
        let pool = jit.helpers().expect("it has some");
        while !pool.idle().is_empty() {
            std::thread::yield_now();
        }
        names.iter().for_each(|name| assert_eq!(call(&jit, name), 1));
        assert!(!long.is_finished(), "they did not wait for it");
        assert!(long.join().expect("no panic").contains("took more than 20s"));
    });
}

/// An answer is memory of the host, so it has a limit too.
#[test]
fn an_object_that_is_larger_than_allowed_fails_its_job_alone() {
    let pool = Arc::new(HelperPool::new(helpers(&[]).count(1).answer(16 << 10), helper_build()));
    let compiler = IrCompiler::host(OptimizationLevel::O0).expect("this machine");
    let compiler = compiler.with_helpers(pool.clone()).expect("no hooks");
    let compile = |text: String| {
        let source = ObjectBuffer::new("f.ll", text.into_bytes());
        compiler.compile(ThreadSafeModule::parse(&source).expect("valid"))
    };
    let error = compile(format!("@large = global [65536 x i8] c\"{}\"\n", "x".repeat(65_536)));
    let error = error.expect_err("it is too large");
    let CompileError::Helper { source, .. } = &error else { panic!("{error}") };
    let HelperError::Failed(PeerError::TooMuch { why, .. }) = &**source else { panic!("{source}") };
    assert!(matches!(why, FrameError::Size { max_bytes: 16_384, .. }), "{why}");
    compile("@small = global i8 1\n".to_owned()).expect("others are compiled");
}

/// Objects of helpers are in the cache too, and a cache is asked before a helper.
#[test]
fn a_cache_is_asked_first() {
    let store = Arc::new(MemoryCache::new(64 << 20));
    let build = |helpers: Option<Helpers>| {
        let builder = Jit::builder().threads(1).cache(store.clone());
        helpers.into_iter().fold(builder, JitBuilder::compile_in).build().expect("an engine")
    };
    let apart = build(Some(helpers(&[])));
    apart.add_buffer(file("seven", 7)).expect("text");
    assert_eq!(call(&apart, "seven"), 7);
    apart.flush_cache();
    assert_eq!(apart.helpers().expect("it has some").stats().answered, 2);
    // None of these helpers can compile.
    let warm = build(Some(helpers(&["kill@1:"])));
    warm.add_buffer(file("seven", 7)).expect("text");
    assert_eq!(call(&warm, "seven"), 7);
    assert_eq!(warm.helpers().expect("it has some").stats().answered, 0);
    let here = build(None);
    here.add_buffer(file("seven", 7)).expect("text");
    assert_eq!(call(&here, "seven"), 7);
    let stats = here.cache_stats().expect("it has a cache");
    assert_eq!((stats.object_hits, stats.object_misses), (1, 0));
}

/// Objects are byte for byte those of this process.
#[test]
fn objects_of_programs_are_those_of_this_process() {
    let pool = Arc::new(HelperPool::new(helpers(&[]), helper_build()));
    let mut compared = 0;
    let names = ["c", "cxx"].into_iter().flat_map(|directory| names_in(directory).expect("programs"));
    for name in names {
        let program = Program::load(&name).expect("a program");
        let is_plain = |language: Language| matches!(language, Language::C | Language::Cxx);
        if !program.files.iter().all(|file| is_plain(file.language)) {
            continue;
        }
        for (level, partition) in [
            (OptimizationLevel::O0, Partition::default()),
            (OptimizationLevel::O2, Partition::new(PartitionPolicy::Early, 3).of_all_modules()),
        ] {
            if level == OptimizationLevel::O2 && name.starts_with("cxx") {
                continue; // They take a minute, and differ in nothing that counts here.
            }
            for path in program.build(Form::BitcodeO0).expect("clang compiles it") {
                let source = ObjectBuffer::open(&path).expect("it was just made");
                let compiler = IrCompiler::host(level).expect("this machine").with_partition(partition);
                let apart = compiler.clone().with_helpers(pool.clone()).expect("no hooks");
                let compile = |compiler: &IrCompiler| {
                    let object = compiler.compile(ThreadSafeModule::parse(&source)?)?;
                    Ok::<_, CompileError>(object.bytes().to_vec())
                };
                match (compile(&compiler), compile(&apart)) {
                    (Ok(here), Ok(there)) => assert!(here == there, "{name}: {} differs", path.display()),
                    (here, there) => assert_eq!(there, here, "{name}"),
                }
                compared += 1;
            }
        }
    }
    assert!(compared > 100, "{compared}");
}

/// LLVM's reader is not built to withstand bitcode that was changed: without helpers, some of these end the process.
#[test]
fn bitcode_that_was_changed_at_random_ends_no_host() {
    const ATTEMPTS: u64 = 400;
    let source = r#"
        struct node { struct node *next; int value; };
        static int table[4] = {1, 2, 3, 4};
        int sum(struct node *node) { int sum = 0; for (; node; node = node->next) sum += node->value * table[sum & 3]; return sum; }
        double mean(const double *values, int count) { double sum = 0; for (int i = 0; i < count; i++) sum += values[i]; return sum / count; }
    "#;
    let sound = std::fs::read(bitcode("changed.c", source).expect("it compiles")).expect("it is there");
    let jit =
        engine(helpers(&[]).time_limit(Duration::from_secs(10)).memory(1 << 30)).build().expect("an engine");
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = || {
        // Xorshift: the same changes in every run.
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random
    };
    for attempt in 0..ATTEMPTS {
        let mut changed = sound.clone();
        for _ in 0..1 + next() % 4 {
            // Behind the magic number, so that it is bitcode still.
            let at = 8 + usize::try_from(next()).expect("64 bits") % (changed.len() - 8);
            changed[at] ^= 1 << (next() % 8);
        }
        let dylib = jit.create_dylib(&format!("attempt {attempt}")).expect("a new name");
        let added = dylib.add_buffer(ObjectBuffer::new(format!("changed{attempt}.bc"), changed));
        let outcome = added.and_then(|()| dylib.lookup("sum").map(drop));
        if let Err(error) = outcome {
            assert!(!message(&error).is_empty());
        }
    }
    jit.add_buffer(file("seven", 7)).expect("text");
    assert_eq!(call(&jit, "seven"), 7);
    let stats = jit.helpers().expect("it has some").stats();
    assert!(stats.failed > 0, "no change was bad enough: {stats:?}");
}

#[test]
fn what_helpers_cannot_do_is_said_at_once() {
    let refuse = |builder: JitBuilder| message(&builder.build().expect_err("it is refused"));
    let with = || engine(helpers(&[]));
    let on_call = refuse(with().compile_on_call(OnCall::Function));
    assert!(
        on_call.contains("not possible in helper processes: functions that are compiled when"),
        "{on_call}"
    );
    let hook = PassHook::new("hook", |_| Ok::<_, String>(()));
    let pipeline = OptimizationPipeline::level(OptimizationLevel::O1);
    let hooked = refuse(with().pipeline(pipeline.hook_before(Stage::EarlySimplification, hook)));
    assert!(hooked.contains("hooks between passes"), "{hooked}");
    let passes = refuse(with().pipeline(OptimizationPipeline::passes("no-such-pass")));
    assert!(passes.contains("no-such-pass"), "{passes}");
    let image = message(&ImageBuilder::new(with()).expect_err("its sources are read here"));
    assert!(image.contains("not possible in helper processes: images"), "{image}");
    let jit = with().build().expect("an engine");
    // A file that this process does not read, or it would say that this is prose.
    let prose = ObjectBuffer::new("prose.ll", &b"it was a dark and stormy night"[..]);
    let shape = message(&jit.add_shaped_ir(&prose, None).expect_err("it would be read here"));
    assert!(
        shape.contains("not possible in helper processes: modules that are known by their shape"),
        "{shape}"
    );
    let module = ThreadSafeModule::parse(&file("f", 1)).expect("valid");
    let shaped =
        module.with_module(|module| jit.add_shaped("f", module, None)).expect("its context is there");
    assert!(message(&shaped.expect_err("it would be compiled here")).contains("known by their shape"));
    let missing = Helpers::new("/nonexistent/helper");
    let jit = engine(missing).build().expect("it is not needed yet");
    let told = message(&jit.add_buffer(file("f", 1)).expect_err("it is needed to read the file"));
    assert!(told.contains("no helper can be had from /nonexistent/helper: No such file"), "{told}");
    let sound = |_: &HelperAnswer| Ok::<_, String>(Checked::Sound);
    let small = HelperPool::new(helpers(&[]).memory(1 << 20), helper_build());
    let large = small
        .ask(&[0; 32], b"", &[0; (1 << 19) + 1], &sound, &|_| ())
        .expect_err("its helper has no memory for it");
    assert!(matches!(large, HelperError::TooLarge { .. }), "{large}");
    assert_eq!((small.stats().answered, small.stats().not_begun), (0, 0));
    let other = HelperPool::new(helpers(&[]), "another LLVM");
    let told = message(&other.ask(&[0; 32], b"", b"", &sound, &|_| ()).expect_err("it is of another build"));
    assert!(told.contains("another build") && told.contains(&helper_build()), "{told}");
    // The LLVM alone makes no build: another engine has other jobs, and makes other objects.
    let other = HelperPool::new(helpers(&[]), llvm_build());
    let told = message(&other.ask(&[0; 32], b"", b"", &sound, &|_| ()).expect_err("it is of another engine"));
    assert!(told.contains("another build"), "{told}");
    let other =
        HelperPool::new(Helpers::new("/bin/cat").start_limit(Duration::from_millis(200)), helper_build());
    let told = message(&other.ask(&[0; 32], b"", b"", &sound, &|_| ()).expect_err("it is no helper"));
    assert!(
        told.contains("no helper can be had from /bin/cat") && told.contains("took more than 200ms"),
        "{told}"
    );
}

/// A compiler that gets its helpers first, and then something that they would leave out.
#[test]
fn a_compiler_leaves_nothing_out_in_helpers() {
    let pool = Arc::new(HelperPool::new(helpers(&[]), helper_build()));
    let here = IrCompiler::host(OptimizationLevel::O0).expect("this machine");
    let apart = here.clone().with_helpers(pool.clone()).expect("no hooks");
    let target = JitTargetMachineBuilder::host().expect("this machine");
    let version = || ModuleVersion {
        name: "v3".into(),
        target: target.clone(),
        vector_bits: 256,
        base: ("v2".into(), 128),
    };
    let dump = Dump::to(std::env::temp_dir()).expect("it is there");
    let changed: [(&str, &dyn Fn(IrCompiler) -> IrCompiler); 2] = [
        ("a dump", &|compiler| compiler.with_dump(dump.clone())),
        ("code for several processors", &|compiler| compiler.with_versions([version()])),
    ];
    for (what, change) in changed {
        let module = ThreadSafeModule::parse(&file("f", 1)).expect("valid");
        let late = message(&change(apart.clone()).compile(module).expect_err(what));
        let early = message(&change(here.clone()).with_helpers(pool.clone()).expect_err(what));
        for told in [late, early] {
            assert!(told.contains(&format!("not possible in helper processes: {what}")), "{told}");
        }
    }
    assert_eq!(pool.stats().answered, 0);
}

/// A host that waits to be killed, with a helper that is idle, and one that never ends its work.
#[test]
#[expect(clippy::print_stdout, reason = "its test reads this")]
fn host() {
    if !std::env::args().any(|argument| argument == "as-host") {
        return;
    }
    let pool = Arc::new(HelperPool::new(helpers(&["loop@4:long"]), helper_build()));
    let compiler = IrCompiler::host(OptimizationLevel::O0).expect("this machine");
    let compiler = compiler.with_helpers(pool.clone()).expect("no hooks");
    let compile = |name: &str| compiler.compile(ThreadSafeModule::parse(&file(name, 1)).expect("valid"));
    compile("one").expect("it compiles");
    let busy = pool.idle()[0];
    std::thread::scope(|scope| {
        scope.spawn(|| compile("long"));
        while !pool.idle().is_empty() {
            std::thread::yield_now();
        }
        compile("two").expect("it compiles");
        println!("helpers {busy} {}", pool.idle()[0]);
    });
}

#[test]
fn no_helper_outlives_its_host() {
    let mut command = Command::new(std::env::current_exe().expect("a program"));
    command.args(["--exact", "host", "--nocapture", "as-host"]).stdout(Stdio::piped());
    let mut host = command.spawn().expect("it starts");
    let lines = BufReader::new(host.stdout.take().expect("a pipe")).lines();
    let line = lines.map_while(Result::ok).find_map(|line| Some(line.split_once("helpers ")?.1.to_owned()));
    let line = line.expect("the host has helpers");
    let helpers = line.split(' ').map(|number| pid(number.parse().expect("a number")));
    let helpers: Vec<_> =
        helpers.map(|pid| pidfd_open(pid, PidfdFlags::empty()).expect("it is alive")).collect();
    assert_eq!(helpers.len(), 2);
    host.kill().expect("it is alive");
    let killed = Instant::now();
    for helper in &helpers {
        let second = Timespec { tv_sec: 1, tv_nsec: 0 };
        let ended = poll(&mut [PollFd::new(helper, PollFlags::IN)], Some(&second)).expect("a descriptor");
        assert_eq!(ended, 1, "it is alive a second after its host");
    }
    assert!(killed.elapsed() < Duration::from_secs(2));
    host.wait().expect("it was killed");
}
