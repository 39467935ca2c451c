//! Shared parts of the programs: objects of the system's compilers, and tests that run in a process of their own.

use std::ffi::OsString;
use std::path::PathBuf;
use std::pin::pin;
use std::process::{Command, Output};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Wake};

use uruk::Jit;
use uruk::pipeline::object::ObjectBuffer;

/// An object that `c++` makes of `source`.
pub(crate) fn cpp(name: &str, source: &str) -> ObjectBuffer {
    compiled("c++", "cpp", name, source, &[])
}

/// An object that `cc` makes of `source`.
pub(crate) fn c(name: &str, source: &str) -> ObjectBuffer {
    compiled("cc", "c", name, source, &[])
}

/// The same with further flags.
pub(crate) fn c_with(name: &str, source: &str, flags: &[&str]) -> ObjectBuffer {
    compiled("cc", "c", name, source, flags)
}

fn compiled(compiler: &str, extension: &str, name: &str, source: &str, flags: &[&str]) -> ObjectBuffer {
    let stem = temporary();
    let (input, output) = (stem.with_extension(extension), stem.with_extension("o"));
    std::fs::write(&input, source).expect("the temporary directory is writable");
    let mut command = Command::new(compiler);
    let compiled =
        command.args(["-O1", "-fPIC", "-c"]).args(flags).arg(&input).arg("-o").arg(&output).output();
    let compiled = compiled.expect("the compiler starts");
    let bytes = std::fs::read(&output);
    let _ = (std::fs::remove_file(input), std::fs::remove_file(output));
    assert!(compiled.status.success(), "{name}: {}", String::from_utf8_lossy(&compiled.stderr));
    ObjectBuffer::new(name, bytes.expect("the compiler wrote an object"))
}

/// An archive that `ar` makes of objects.
pub(crate) fn archive(name: &str, members: &[ObjectBuffer]) -> ObjectBuffer {
    let directory = temporary();
    std::fs::create_dir(&directory).expect("the temporary directory is writable");
    let paths = members.iter().map(|member| {
        let path = directory.join(&**member.name());
        std::fs::write(&path, member.bytes()).expect("the temporary directory is writable");
        path
    });
    let paths: Vec<_> = paths.collect();
    let output = directory.join("archive.a");
    let made = Command::new("ar").arg("rcs").arg(&output).args(paths).status().expect("ar starts");
    let bytes = std::fs::read(output);
    let _ = std::fs::remove_dir_all(directory);
    assert!(made.success());
    ObjectBuffer::new(name, bytes.expect("ar wrote an archive"))
}

/// A path in the temporary directory of this process alone.
pub(crate) fn temporary() -> PathBuf {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    // Relaxed: only the numbers must differ.
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    std::env::temp_dir().join(format!("uruk-embed-{}-{number}", std::process::id()))
}

/// Waits for a future as a host without a runtime would.
pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    struct Thread(std::thread::Thread);

    impl Wake for Thread {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }

    let waker = Arc::new(Thread(std::thread::current())).into();
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(answer) => return answer,
            Poll::Pending => std::thread::park(),
        }
    }
}

/// An engine for this machine.
pub(crate) fn engine(threads: usize) -> Jit {
    Jit::builder().threads(threads).build().expect("an engine for this machine")
}

const ALONE: &str = "URUK_TEST_ALONE";

/// Whether this is the process that [`alone`] has started.
pub(crate) fn is_alone() -> bool {
    std::env::var_os(ALONE).is_some()
}

/// Runs the test `name` of this binary again, in a process of its own; answers how that ended.
pub(crate) fn alone(name: &str) -> Output {
    alone_with(name, &[])
}

/// The same, with variables in its environment.
pub(crate) fn alone_with(name: &str, variables: &[(&str, &str)]) -> Output {
    alone_under(&[], name, variables)
}

/// The same, run by a tool.
pub(crate) fn alone_under(tool: &[&str], name: &str, variables: &[(&str, &str)]) -> Output {
    let this = std::env::current_exe().expect("this test");
    let mut words = tool.iter().map(|word| OsString::from(*word)).chain([this.into_os_string()]);
    let mut command = Command::new(words.next().expect("a program"));
    command.args(words).args(["--exact", name, "--test-threads=1", "--nocapture"]).env(ALONE, "1");
    command.envs(variables.iter().copied());
    command.output().expect("this test starts")
}

/// How much memory the process has.
pub(crate) fn resident_bytes() -> i64 {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("the system tells");
    let pages = statm.split(' ').nth(1).expect("the second figure");
    pages.parse::<i64>().expect("a number") * 4096
}

/// The bitcode that LLVM's compiler makes of a C `source`.
#[cfg(feature = "llvm")]
pub(crate) fn ir_with(name: &str, source: &str, flags: &[&str]) -> ObjectBuffer {
    compiled("clang-22", "c", name, source, &[flags, &["-emit-llvm"]].concat())
}
