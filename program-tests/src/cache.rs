//! Keeps what compilers made, so that a second run of the suite compiles nothing.
//!
//! An entry is a directory `target/program-cache/<key>` that a command filled. The key covers the command line, the
//! compiler's version and the contents of every input, so a changed source is another entry; nothing is ever
//! overwritten. Test processes may share the cache: an entry is made under its lock file and renamed into place whole.

use std::collections::hash_map::DefaultHasher;
use std::fs::{self, File};
use std::hash::{Hash as _, Hasher as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use crate::sources;

/// Collects what an artefact depends on.
#[derive(Clone, Debug)]
pub struct CacheKey {
    // Two hashers with different first bytes: 128 bits, so that a collision needs no thought.
    low: DefaultHasher,
    high: DefaultHasher,
}

/// Why an artefact could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// The compiler ran and refused.
    #[error("{command}\nfailed with {status}:\n{output}")]
    Tool {
        /// The command line.
        command: String,
        /// Its exit status.
        status: std::process::ExitStatus,
        /// Its output.
        output: String,
    },
    /// The compiler could not be started, or a file not be read or written.
    #[error("{what}: {source}")]
    Io {
        /// The file or command.
        what: String,
        /// The operating system's error.
        source: std::io::Error,
    },
    /// A source library is missing.
    #[error(transparent)]
    Source(#[from] sources::SourceError),
}

impl CacheKey {
    /// A key for an artefact that `tool`, in its present version, makes.
    ///
    /// # Errors
    /// [`BuildError::Io`] if the tool cannot be run.
    pub fn new(tool: &str) -> Result<Self, BuildError> {
        let mut key = Self { low: DefaultHasher::new(), high: DefaultHasher::new() };
        key.high.write_u8(1);
        key.text(&tool_version(tool)?);
        Ok(key)
    }

    /// Adds a piece of text, a command line argument for example.
    pub fn text(&mut self, text: &str) -> &mut Self {
        text.hash(&mut self.low);
        text.hash(&mut self.high);
        self
    }

    /// Adds the contents of a file.
    ///
    /// # Errors
    /// [`BuildError::Io`] if it cannot be read.
    pub fn file(&mut self, path: &Path) -> Result<&mut Self, BuildError> {
        let contents = fs::read(path).map_err(io(path.display()))?;
        contents.hash(&mut self.low);
        contents.hash(&mut self.high);
        Ok(self)
    }

    /// Returns the directory of the artefact, made by `make` in a fresh directory if it was not there yet.
    ///
    /// # Concurrency
    /// Threads and processes that want the same artefact wait for the one that makes it.
    ///
    /// # Errors
    /// What `make` returns; [`BuildError::Io`] if the cache cannot be written.
    pub fn get_or_make(
        &self,
        make: impl FnOnce(&Path) -> Result<(), BuildError>,
    ) -> Result<PathBuf, BuildError> {
        let name = format!("{:016x}{:016x}", self.high.finish(), self.low.finish());
        let root = cache_directory()?;
        let entry = root.join(&name);
        if entry.is_dir() {
            return Ok(entry);
        }
        let lock = File::create(root.join(format!("{name}.lock"))).map_err(io(root.display()))?;
        lock.lock().map_err(io(root.display()))?;
        if entry.is_dir() {
            return Ok(entry);
        }
        let making = root.join(format!("{name}.making"));
        // The unfinished files of an earlier run that was killed; its lock died with it.
        if making.exists() {
            fs::remove_dir_all(&making).map_err(io(making.display()))?;
        }
        fs::create_dir_all(&making).map_err(io(making.display()))?;
        make(&making)?;
        fs::rename(&making, &entry).map_err(io(entry.display()))?;
        Ok(entry)
    }
}

/// Runs a command to its end; its output is kept for the error alone.
///
/// # Errors
/// [`BuildError::Tool`] if it fails, [`BuildError::Io`] if it cannot be started.
pub fn run_tool(command: &mut Command) -> Result<(), BuildError> {
    let output = command.output().map_err(io(command_line(command)))?;
    if output.status.success() {
        return Ok(());
    }
    let text = [output.stdout, output.stderr].concat();
    Err(BuildError::Tool {
        command: command_line(command),
        status: output.status,
        output: String::from_utf8_lossy(&text).into_owned(),
    })
}

/// The command as one could type it.
pub fn command_line(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| quote(&word.to_string_lossy())).collect::<Vec<_>>().join(" ")
}

/// The workspace's `target` directory.
///
/// # Errors
/// [`BuildError::Source`] if cargo does not say.
pub fn target_directory() -> Result<PathBuf, BuildError> {
    Ok(sources::target_directory()?)
}

/// An [`std::io::Error`] with the file or command it belongs to.
pub fn io(what: impl ToString) -> impl FnOnce(std::io::Error) -> BuildError {
    let what = what.to_string();
    move |source| BuildError::Io { what, source }
}

fn cache_directory() -> Result<PathBuf, BuildError> {
    let directory = target_directory()?.join("program-cache");
    fs::create_dir_all(&directory).map_err(io(directory.display()))?;
    Ok(directory)
}

/// The tools of this package. Each is asked for its version once per process.
const TOOLS: [&str; 4] = ["clang-22", "clang++-22", "llvm-ar-22", "rustc"];

fn tool_version(tool: &str) -> Result<String, BuildError> {
    static VERSIONS: [OnceLock<String>; TOOLS.len()] = [const { OnceLock::new() }; TOOLS.len()];
    let known = TOOLS.iter().position(|&known| known == tool).map(|index| &VERSIONS[index]);
    if let Some(version) = known.and_then(OnceLock::get) {
        return Ok(version.clone());
    }
    let version = ask_version(tool)?;
    Ok(known.map_or(version.clone(), |known| known.get_or_init(|| version).clone()))
}

fn ask_version(tool: &str) -> Result<String, BuildError> {
    let output = Command::new(tool).arg("--version").output().map_err(io(tool))?;
    Ok(format!("{tool} {}", String::from_utf8_lossy(&output.stdout)))
}

fn quote(word: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./=+,:@%".contains(&byte);
    if !word.is_empty() && word.bytes().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_tell_their_inputs_apart() {
        let name = |texts: &[&str]| {
            let mut key = CacheKey::new("rustc").expect("rustc is there");
            for text in texts {
                key.text(text);
            }
            (key.low.finish(), key.high.finish())
        };
        assert_eq!(name(&["a", "b"]), name(&["a", "b"]));
        assert_ne!(name(&["a", "b"]), name(&["ab", ""]));
        assert_ne!(name(&["a", "b"]), name(&["b", "a"]));
    }

    #[test]
    fn command_lines_can_be_pasted_into_a_shell() {
        let mut command = Command::new("uruk");
        command.args(["run", "a file.bc", "it's", ""]);
        assert_eq!(command_line(&command), r"uruk run 'a file.bc' 'it'\''s' ''");
    }
}
