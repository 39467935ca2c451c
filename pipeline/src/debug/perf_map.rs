//! perf's map of names: a line for each function, with its address and size in hexadecimal digits.

use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};

use super::code::NamedCode;

/// The map of this process. It stays when the process has ended: `perf report` reads it then.
pub(super) struct PerfMap {
    process: u32,
    /// `None` once it could not be written.
    file: Option<File>,
}

impl PerfMap {
    pub(super) fn create() -> io::Result<Self> {
        use std::os::unix::fs::OpenOptionsExt as _;
        let process = std::process::id();
        // In a directory that all may write to: a link of another user's is not followed.
        let mut options = OpenOptions::new();
        options.create(true).append(true).custom_flags(libc::O_NOFOLLOW);
        let file = options.open(format!("/tmp/perf-{process}.map"))?;
        Ok(Self { process, file: Some(file) })
    }

    pub(super) fn add(&mut self, piece: &NamedCode) {
        let Some(file) = &mut self.file else { return };
        // The child of a fork has a copy of this, and the file is its parent's.
        if self.process != std::process::id() {
            return;
        }
        let mut lines = String::new();
        for symbol in piece.symbols.iter().filter(|symbol| symbol.is_code && symbol.size > 0) {
            let name = piece.told_name(&symbol).replace(['\n', '\r'], "?");
            _ = writeln!(lines, "{:x} {:x} {name}", symbol.start, symbol.size);
        }
        if file.write_all(lines.as_bytes()).is_err() {
            self.file = None;
        }
    }
}
