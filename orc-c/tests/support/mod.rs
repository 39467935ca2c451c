//! Where things are.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The library under test, which lies beside the test.
pub(crate) fn library() -> PathBuf {
    let test = std::env::current_exe().expect("a test has a path");
    test.parent().expect("in a directory").join("liburuk_orc.so")
}

/// A directory of LLVM 22: `--includedir`, `--libdir`.
pub(crate) fn llvm_config(question: &str) -> PathBuf {
    let output = Command::new("llvm-config-22").arg(question).output().expect("LLVM 22 is installed");
    Path::new(String::from_utf8(output.stdout).expect("a path").trim()).to_owned()
}
