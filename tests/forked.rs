//! The child of a fork: it hung when it linked more, for the threads of the pool are its parent's. Now it is told, and goes on with
//! what was linked before.
//!
//! Each test runs in a process of its own, forks, and has the system end a child that hangs.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::Command;

use uruk::{AfterFork, Jit, JitError};
use uruk_core::sync::{Arc, Latch};
use uruk_core::{CloseError, ExecutorAddr, FnUnit, LookupError, LookupRequest, LookupSet, WaitError};
use uruk_pipeline::object::ObjectBuffer;

const ALONE: &str = "URUK_TEST_ALONE";
const CHILD_SECONDS_MAX: u32 = 60;

/// Runs the test `name` again in a process of its own; true in that process.
fn alone(name: &str) -> bool {
    if std::env::var_os(ALONE).is_some() {
        return true;
    }
    let mut command = Command::new(std::env::current_exe().expect("this test"));
    command.args(["--exact", name, "--test-threads=1", "--nocapture"]).env(ALONE, "1");
    let output = command.output().expect("this test starts");
    let passed = String::from_utf8_lossy(&output.stdout).contains("1 passed");
    assert!(output.status.success() && passed, "{}", String::from_utf8_lossy(&output.stderr));
    false
}

/// Forks; the child does `work` and ends. Waits for its good end.
fn in_a_child(work: impl FnOnce()) {
    // SAFETY: the child uses what is tested here and leaves by `_exit`.
    let pid = match unsafe { libc::fork() } {
        0 => {
            // SAFETY: concerns this process alone.
            unsafe { libc::alarm(CHILD_SECONDS_MAX) };
            let status = i32::from(catch_unwind(AssertUnwindSafe(work)).is_err());
            // SAFETY: no destructor and no handler of the parent runs.
            unsafe { libc::_exit(status) }
        }
        pid => pid,
    };
    assert!(pid > 0, "fork: {}", std::io::Error::last_os_error());
    let mut status = 0;
    // SAFETY: the child is ours and no other thread waits for it.
    assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
    assert_eq!(status, 0, "the child failed or hung (status {status:#x})");
}

/// An engine with so many threads, whose functions `f` and `g` answer 1 and 2.
fn engine(threads: usize) -> Jit {
    with_functions(Jit::builder().threads(threads).build().expect("an engine for this machine"))
}

fn with_functions(jit: Jit) -> Jit {
    for (name, answer) in [("f", 1), ("g", 2)] {
        let stem = std::env::temp_dir().join(format!("uruk-forked-{}-{name}", std::process::id()));
        let (source, object) = (stem.with_extension("c"), stem.with_extension("o"));
        std::fs::write(&source, format!("int {name}(void) {{ return {answer}; }}"))
            .expect("a temporary file");
        let compiled = Command::new("cc").args(["-fPIC", "-c"]).arg(&source).arg("-o").arg(&object).status();
        assert!(compiled.expect("cc starts").success());
        let bytes = std::fs::read(&object).expect("the compiler wrote an object");
        let _ = (std::fs::remove_file(source), std::fs::remove_file(object));
        jit.add_object(ObjectBuffer::new(name, bytes)).expect("a new name");
    }
    jit
}

fn call(jit: &Jit, name: &str) -> Result<i32, JitError> {
    // SAFETY: both functions have this signature, and the engine outlives the call.
    let function: extern "C" fn() -> i32 = unsafe { jit.function(name) }?;
    Ok(function())
}

#[test]
fn a_child_is_told_that_the_threads_of_the_pool_are_its_parents() {
    if !alone("a_child_is_told_that_the_threads_of_the_pool_are_its_parents") {
        return;
    }
    let jit = engine(1);
    assert_eq!(call(&jit, "f").expect("linked"), 1);
    in_a_child(|| {
        assert_eq!(call(&jit, "f").expect("linked before the fork"), 1);
        let error = call(&jit, "g").expect_err("nobody links it");
        assert!(matches!(error, JitError::Lookup(LookupError::Wait(WaitError::Forked))), "{error}");
        assert!(error.to_string().contains("child of a fork"), "{error}");
        let closed = jit.session().close();
        assert!(matches!(closed, Err(CloseError::Wait(WaitError::Forked))), "{closed:?}");
    });
    assert_eq!(call(&jit, "g").expect("the parent goes on"), 2);
}

/// The end of the program drops the engine, which waited for the threads.
#[test]
fn a_child_may_drop_the_engine() {
    if !alone("a_child_may_drop_the_engine") {
        return;
    }
    let jit = engine(2);
    assert_eq!(call(&jit, "f").expect("linked"), 1);
    let mut jit = Some(jit);
    in_a_child(|| drop(jit.take()));
    let jit = jit.expect("the parent has its own");
    assert_eq!(call(&jit, "g").expect("the parent goes on"), 2);
}

#[test]
fn a_child_links_where_no_thread_is_missing() {
    if !alone("a_child_links_where_no_thread_is_missing") {
        return;
    }
    // In place, and on a pool that nothing was given to yet.
    let (in_place, unused) = (engine(0), engine(1));
    assert_eq!(call(&in_place, "f").expect("linked"), 1);
    in_a_child(|| {
        assert_eq!(call(&in_place, "g").expect("linked in the child"), 2);
        assert_eq!(call(&unused, "g").expect("linked in the child"), 2);
        // An engine of its own.
        let own = engine(1);
        assert_eq!(call(&own, "f").expect("linked in the child"), 1);
        drop((own, unused));
    });
    assert_eq!(call(&in_place, "g").expect("the parent has its own"), 2);
}

/// `multiprocessing` of Python forks a process whose engine has compiled before.
#[test]
fn a_child_goes_on_in_place_if_that_was_asked_for() {
    if !alone("a_child_goes_on_in_place_if_that_was_asked_for") {
        return;
    }
    let jit = Jit::builder().threads(2).after_fork(AfterFork::InPlace).build();
    let jit = with_functions(jit.expect("an engine for this machine"));
    assert_eq!(call(&jit, "f").expect("linked"), 1);
    #[cfg(feature = "llvm")]
    jit.add_ir_text("h.ll", "define i32 @h() { ret i32 3 }").expect("valid");
    for _ in 0..2 {
        in_a_child(|| {
            assert_eq!(call(&jit, "f").expect("linked before the fork"), 1);
            assert_eq!(call(&jit, "g").expect("linked in the child"), 2);
            #[cfg(feature = "llvm")]
            assert_eq!(call(&jit, "h").expect("compiled in the child"), 3);
            jit.session().close().expect("nothing is left");
        });
    }
    assert_eq!(call(&jit, "g").expect("the parent goes on"), 2);
    let mut jit = Some(jit);
    in_a_child(|| drop(jit.take()));
}

/// The unit's thread is the parent's: its symbols would never come.
#[test]
fn a_child_of_a_fork_amidst_a_task_is_refused() {
    if !alone("a_child_of_a_fork_amidst_a_task_is_refused") {
        return;
    }
    let jit = Jit::builder().threads(2).after_fork(AfterFork::InPlace).build();
    let jit = with_functions(jit.expect("an engine for this machine"));
    let (begun, end) = (Arc::new(Latch::new()), Arc::new(Latch::new()));
    let unit = {
        let (begun, end) = (begun.clone(), end.clone());
        FnUnit::new([jit.intern("slow")], move |request| {
            begun.open();
            end.wait();
            request.addresses([("slow", ExecutorAddr::new(1))])
        })
    };
    jit.main_dylib().define(Box::new(unit)).expect("a new name");
    let name = LookupSet::one(jit.intern("slow"));
    jit.session().lookup_async(LookupRequest::along(jit.main_dylib(), name), |_| ());
    begun.wait();
    in_a_child(|| {
        let error = call(&jit, "g").expect_err("a task is under way");
        assert!(matches!(error, JitError::Lookup(LookupError::Wait(WaitError::Forked))), "{error}");
    });
    end.open();
    assert_eq!(call(&jit, "g").expect("the parent goes on"), 2);
}
