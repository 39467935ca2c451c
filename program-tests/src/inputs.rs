//! Small inputs made from text, and broken ones made from those.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::cache::{BuildError, CacheKey, command_line, io, run_tool};
use crate::forms::clang;

/// Writes `contents` as a file called `name` in a directory of its own.
///
/// # Errors
/// [`BuildError::Io`] if it cannot be written.
pub fn file(name: &str, contents: &[u8]) -> Result<PathBuf, BuildError> {
    let mut key = CacheKey::new("clang-22")?;
    key.text(name).text(&format!("{contents:?}"));
    let made = key.get_or_make(|directory| {
        fs::write(directory.join(name), contents).map_err(io(directory.display()))
    })?;
    Ok(made.join(name))
}

/// Compiles `text`, the contents of a file called `source`, with `flags`; the extension of `output` is free.
///
/// # Errors
/// [`BuildError`] if the compiler refuses.
pub fn compile(source: &str, text: &str, flags: &[&str], output: &str) -> Result<PathBuf, BuildError> {
    clang_in_directory(source, text, &[flags, &["-c"]].concat(), output)
}

/// Compiles and links `text` as the shared library `output`.
///
/// # Errors
/// [`BuildError`] if the compiler or the linker refuses.
pub fn shared_library(source: &str, text: &str, output: &str) -> Result<PathBuf, BuildError> {
    linked(source, text, &["-O1", "-fPIC", "-shared"], output)
}

/// Compiles and links `text` as `flags` say.
///
/// # Errors
/// [`BuildError`] if the compiler or the linker refuses.
pub fn linked(source: &str, text: &str, flags: &[&str], output: &str) -> Result<PathBuf, BuildError> {
    clang_in_directory(source, text, flags, output)
}

/// Bitcode of a C file.
///
/// # Errors
/// [`BuildError`] if the compiler refuses.
pub fn bitcode(source: &str, text: &str) -> Result<PathBuf, BuildError> {
    compile(source, text, &["-O1", "-emit-llvm"], &with_extension(source, "bc"))
}

/// A position independent object of a C file.
///
/// # Errors
/// [`BuildError`] if the compiler refuses.
pub fn object(source: &str, text: &str) -> Result<PathBuf, BuildError> {
    compile(source, text, &["-O1", "-fPIC"], &with_extension(source, "o"))
}

/// An archive of `members`, called `name`.
///
/// # Errors
/// [`BuildError`] if the archiver refuses.
pub fn archive(name: &str, members: &[&Path]) -> Result<PathBuf, BuildError> {
    let mut key = CacheKey::new("llvm-ar-22")?;
    key.text(name);
    members.iter().for_each(|member| _ = key.text(&member.display().to_string()));
    let made = key.get_or_make(|directory| {
        run_tool(Command::new("llvm-ar-22").arg("rcs").arg(directory.join(name)).args(members))
    })?;
    Ok(made.join(name))
}

/// The lengths at which to cut a file of `length` bytes: every boundary that headers have, and a spread over the rest.
pub fn cuts(length: usize) -> Vec<usize> {
    let header = [1, 2, 3, 4, 5, 7, 8, 12, 15, 16, 20, 24, 28, 31, 32, 40, 48, 60, 63, 64, 68, 72];
    let spread = (1..32).map(|part| length * part / 32);
    let mut cuts: Vec<usize> = header.into_iter().chain(spread).chain([length - 8, length - 4]).collect();
    cuts.retain(|&cut| cut < length);
    cuts.sort_unstable();
    cuts.dedup();
    cuts
}

/// Whether LLVM's own tools survive optimizing and compiling this bitcode: what kills them may kill any process that
/// links LLVM.
///
/// # Errors
/// [`BuildError::Io`] if the tools cannot be run.
pub fn llvm_survives(path: &Path) -> Result<bool, BuildError> {
    let optimized = path.with_extension("opt.bc");
    let mut optimize = Command::new("opt-22");
    optimize.args(["-passes=default<O2>", "-o"]).arg(&optimized).arg(path);
    let output = optimize.output().map_err(io(command_line(&optimize)))?;
    match output.status.code() {
        None => return Ok(false),
        // Refused in an orderly way; its crash handler's exit codes lie above 128.
        Some(code) if code != 0 => return Ok(code < 128),
        Some(_) => {}
    }
    let mut compile = Command::new("llc-22");
    compile.args(["-O2", "-filetype=obj", "-o", "/dev/null"]).arg(&optimized);
    let output = compile.output().map_err(io(command_line(&compile)))?;
    Ok(output.status.code().is_some_and(|code| code < 128))
}

fn clang_in_directory(source: &str, text: &str, flags: &[&str], output: &str) -> Result<PathBuf, BuildError> {
    let tool = clang(source.ends_with(".cpp"));
    let mut key = CacheKey::new(tool)?;
    key.text(source).text(text).text(output);
    flags.iter().for_each(|flag| _ = key.text(flag));
    let made = key.get_or_make(|directory| {
        fs::write(directory.join(source), text).map_err(io(directory.display()))?;
        run_tool(Command::new(tool).current_dir(directory).args(flags).args([source, "-o", output]))
    })?;
    Ok(made.join(output))
}

fn with_extension(source: &str, extension: &str) -> String {
    Path::new(source).with_extension(extension).display().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cuts_are_shorter_than_the_file_and_many() {
        for length in [100, 3000, 1_000_000] {
            let cuts = cuts(length);
            assert!(cuts.iter().all(|&cut| cut < length) && cuts.len() > 40, "{cuts:?}");
        }
    }
}
