//! What the programs share: objects of the system's compilers, and tests that run in a process of their own.

use std::process::{Command, Output};
use std::sync::atomic::{AtomicU64, Ordering};

use uruk::Jit;
use uruk::pipeline::object::ObjectBuffer;

/// An object that `c++` makes of `source`.
pub(crate) fn cpp(name: &str, source: &str) -> ObjectBuffer {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    // Relaxed: only the numbers must differ.
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let stem = std::env::temp_dir().join(format!("uruk-embed-{}-{number}", std::process::id()));
    let (input, output) = (stem.with_extension("cpp"), stem.with_extension("o"));
    std::fs::write(&input, source).expect("the temporary directory is writable");
    let mut compiler = Command::new("c++");
    let compiled = compiler.args(["-O1", "-fPIC", "-c"]).arg(&input).arg("-o").arg(&output).output();
    let compiled = compiled.expect("c++ starts");
    let bytes = std::fs::read(&output);
    let _ = (std::fs::remove_file(input), std::fs::remove_file(output));
    assert!(compiled.status.success(), "{name}: {}", String::from_utf8_lossy(&compiled.stderr));
    ObjectBuffer::new(name, bytes.expect("the compiler wrote an object"))
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
    let mut command = Command::new(std::env::current_exe().expect("this test"));
    command.args(["--exact", name, "--test-threads=1", "--nocapture"]).env(ALONE, "1");
    command.output().expect("this test starts")
}
