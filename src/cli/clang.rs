//! C and C++ sources on the command line: clang turns them into bitcode, the engine does the rest.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read as _, Seek as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use uruk::Jit;
use uruk::pipeline::arch::Architecture;
use uruk::pipeline::executor::Executor as _;
use uruk::pipeline::ir::OptimizationLevel;
use uruk::pipeline::memory::TemporaryFile;
use uruk::pipeline::object::is_script;
use uruk_core::in_span;

/// The names clang goes by, newest first. Bitcode of a newer clang than the engine's LLVM may not parse,
/// so the matching version comes before the unversioned name.
const CLANGS: [&str; 2] = ["clang-22", "clang"];

/// The language of a source file, by its extension; `None` for what is not a source.
pub(crate) fn language(path: &Path) -> Option<&'static str> {
    match path.extension().and_then(OsStr::to_str)? {
        "c" => Some("c"),
        "cc" | "cpp" | "cxx" | "C" => Some("c++"),
        _ => None,
    }
}

/// How sources are compiled.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SourceOptions<'p> {
    pub(crate) optimize: OptimizationLevel,
    pub(crate) with_lines: bool,
    /// The processor whose instructions are used; clang's own choice is the oldest.
    pub(crate) processor: Option<&'p str>,
    /// The architecture that runs the code.
    pub(crate) architecture: Architecture,
}

impl SourceOptions<'_> {
    /// Without lines, for an engine that runs the code in this process.
    pub(crate) fn here(optimize: OptimizationLevel) -> Self {
        Self { optimize, with_lines: false, processor: None, architecture: Architecture::HOST }
    }

    /// The same for the place where an engine runs the code.
    pub(crate) fn of_engine(jit: &Jit, optimize: OptimizationLevel) -> Self {
        let here = Self::here(optimize);
        let architecture = jit.executor().map_or(here.architecture, |executor| executor.architecture());
        Self { architecture, ..here }
    }
}

/// Why a source did not become bitcode.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ClangError {
    #[error("{}: compiling a source needs clang, and none of {} is on the PATH; install clang-22, or pass bitcode", path.display(), CLANGS.join(", "))]
    NotFound { path: PathBuf },
    #[error("{}: cannot be read", path.display())]
    Read { path: PathBuf, source: std::io::Error },
    #[error("{}: clang could not be started", path.display())]
    Start { path: PathBuf, source: std::io::Error },
    #[error("{}: clang reported errors:\n{}", path.display(), messages.trim_end())]
    Rejected { path: PathBuf, messages: String },
}

/// Compiles one source to bitcode in memory.
///
/// Clang's own IR passes are left out: the engine runs its pipeline on the module anyway. The module is
/// made position independent, which is what the linker places anywhere.
pub(crate) fn compile_to_bitcode(
    path: &Path,
    language: &str,
    options: SourceOptions<'_>,
) -> Result<Vec<u8>, ClangError> {
    let script = script(path).map_err(|source| ClangError::Read { path: path.to_owned(), source })?;
    let mut command = command(path, language, options)?;
    let Some(text) = script else {
        command.arg(&*no_option(path));
        return bitcode(path, command, Command::output);
    };
    // Files that it includes lie beside it.
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    command.arg("-iquote").arg(directory.unwrap_or(Path::new("."))).arg("-");
    bitcode(path, command, |command| output_of_input(command, &text))
}

/// The same of a text that lies in no file, and is called `name`.
pub(crate) fn compile_text(
    name: &Path,
    text: &[u8],
    language: &str,
    options: SourceOptions<'_>,
) -> Result<Vec<u8>, ClangError> {
    let mut command = command(name, language, options)?;
    command.arg("-");
    bitcode(name, command, |command| output_of_input(command, text))
}

fn command(path: &Path, language: &str, options: SourceOptions<'_>) -> Result<Command, ClangError> {
    let SourceOptions { optimize, with_lines, processor, architecture } = options;
    let clang = found().ok_or_else(|| ClangError::NotFound { path: path.to_owned() })?;
    let mut command = Command::new(clang);
    if with_lines {
        command.arg("-g");
    }
    if architecture != Architecture::HOST {
        command.arg(format!("--target={}", architecture.triple()));
    }
    // Each function says which processor it is for.
    let mut words = processor.unwrap_or_default().split(',').filter(|word| !word.is_empty());
    command.args(words.next().map(|name| format!("-march={name}")));
    command.args(words.map(|word| match word.split_at(1) {
        ("-", name) => format!("-mno-{name}"),
        (_, name) => format!("-m{name}"),
    }));
    command.args(["-x", language, "-fPIC", "-emit-llvm", "-c", "-o", "-"]).args([
        &format!("-{optimize}"),
        "-Xclang",
        "-disable-llvm-passes",
    ]);
    if optimize == OptimizationLevel::O0 {
        // Functions that are called often may be optimized later.
        command.args(["-Xclang", "-disable-O0-optnone"]);
    }
    Ok(command)
}

/// The output of a command that compiles this source.
fn bitcode(
    path: &Path,
    mut command: Command,
    output: impl FnOnce(&mut Command) -> io::Result<Output>,
) -> Result<Vec<u8>, ClangError> {
    let output = in_span(uruk_core::phase!("clang.compile", unit = %path.display()), || output(&mut command));
    let output = output.map_err(|source| ClangError::Start { path: path.to_owned(), source })?;
    if output.status.success() {
        Ok(output.stdout)
    } else {
        let messages = String::from_utf8_lossy(&output.stderr).into_owned();
        Err(ClangError::Rejected { path: path.to_owned(), messages })
    }
}

/// The name of the clang that is there.
pub(crate) fn found() -> Option<&'static str> {
    CLANGS.into_iter().find(|name| on_path(name))
}

/// The text of a source that is a script, as clang takes it: without the line that says what runs it.
fn script(path: &Path) -> io::Result<Option<Vec<u8>>> {
    let mut beginning = Vec::new();
    let mut file = File::open(path)?;
    (&file).take(2).read_to_end(&mut beginning)?;
    if !is_script(&beginning) {
        return Ok(None);
    }
    // The marker keeps lines and the name as they are.
    let name = path.display().to_string().replace('\\', r"\\").replace('"', "\\\"");
    let mut text = format!("# 1 \"{name}\"\n//").into_bytes();
    file.read_to_end(&mut text)?;
    Ok(Some(text))
}

/// The output of a command that reads `input`. That is a file: so no writer waits for a reader that stops early.
fn output_of_input(command: &mut Command, input: &[u8]) -> io::Result<Output> {
    let file = TemporaryFile::with(|file| {
        let mut contents = file.file();
        contents.write_all(input)?;
        contents.rewind()?;
        contents.try_clone()
    })?;
    command.stdin(file).output()
}

/// A path as clang takes it: what begins with a dash would be an option.
fn no_option(path: &Path) -> Cow<'_, Path> {
    match path.as_os_str().as_encoded_bytes() {
        [b'-', ..] => Path::new(".").join(path).into(),
        _ => path.into(),
    }
}

fn on_path(name: &str) -> bool {
    std::env::var_os("PATH")
        .is_some_and(|path| std::env::split_paths(&path).any(|directory| directory.join(name).is_file()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_are_known_by_their_extension() {
        assert_eq!(language(Path::new("a/b.c")), Some("c"));
        assert_eq!(language(Path::new("b.cpp")), Some("c++"));
        assert_eq!(language(Path::new("b.bc")), None);
        assert_eq!(language(Path::new("c")), None);
    }
}
