//! The `uruk` command under test.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use crate::cache::{command_line, target_directory};

/// The command: `URUK_BIN` if that is set, else `target/release/uruk`, built once by this process.
///
/// # Panics
/// With what to do, if there is no such command: without it no test of this package means anything.
pub fn uruk() -> &'static Path {
    static COMMAND: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    match COMMAND.get_or_init(locate) {
        Ok(path) => path,
        Err(message) => panic!("the `uruk` command is missing: {message}"),
    }
}

fn locate() -> Result<PathBuf, String> {
    if let Some(path) = std::env::var_os("URUK_BIN").map(PathBuf::from) {
        let path = path.canonicalize().map_err(|error| format!("URUK_BIN={}: {error}", path.display()))?;
        return if path.is_file() {
            Ok(path)
        } else {
            Err(format!("URUK_BIN={} is no file", path.display()))
        };
    }
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("../Cargo.toml");
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command
        .args(["build", "--quiet", "--release", "-p", "uruk", "--features", "cli", "--manifest-path"])
        .arg(manifest);
    let output = command.output().map_err(|error| error.to_string())?;
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stderr);
        return Err(format!("{} failed:\n{text}", command_line(&command)));
    }
    let target = target_directory().map_err(|error| error.to_string())?;
    let path = target.join("release/uruk");
    if path.is_file() {
        return Ok(path);
    }
    Err(format!("`{}` made no {}", command_line(&command), path.display()))
}
