//! Sources of test inputs: snippets compiled when the test runs.

use std::path::{Path, PathBuf};
use std::process::Command;

use uruk_pipeline::object::ObjectBuffer;

/// A directory of its own, gone when it is dropped.
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    /// `test` tells the directories of tests that run at the same time apart.
    pub(crate) fn new(test: &str) -> Self {
        let path = std::env::temp_dir().join(format!("uruk-pipeline-{}-{test}", std::process::id()));
        std::fs::create_dir_all(&path).expect("temporary directory");
        Self(path)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    pub(crate) fn write(&self, name: &str, contents: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        std::fs::write(&path, contents).expect("temporary file");
        path
    }

    /// Compiles `source`, whose extension says what it is, with `arguments`, and opens the result.
    pub(crate) fn compile(
        &self,
        compiler: &str,
        name: &str,
        source: &str,
        arguments: &[&str],
    ) -> ObjectBuffer {
        let input = self.write(name, source);
        let output = self.path(&format!("{name}.out"));
        run(Command::new(compiler).arg("-c").args(arguments).arg(&input).arg("-o").arg(&output));
        open(&output)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

pub(crate) fn run(command: &mut Command) {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}:\n{}", String::from_utf8_lossy(&output.stderr));
}

pub(crate) fn open(path: &Path) -> ObjectBuffer {
    ObjectBuffer::open(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}
