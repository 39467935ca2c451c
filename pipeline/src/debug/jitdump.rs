//! perf's dump of code that was made while a program ran.
//!
//! ```text
//!   header   magic, version, size, machine, 0, process, time, flags                              40 bytes
//!   record   kind (0 code, 2 lines, 3 end), size, time                                            16 bytes
//!     lines  address, count, then for each: address, line, 0, file and a zero
//!     code   process, thread, address, address, size, number, name and a zero, instructions
//! ```
//! All numbers are little-endian. The lines of a function stand before its code.
//!
//! A record has one name, so each function has one. They come when their slab is mapped already, and a slab is mapped once: the system
//! notes a mapping after the code that is in it for no code, which would hide it.
//!
//! perf finds the file by a page of it that the process has mapped as code.

use std::fs::File;
use std::io::{self, Write as _};
use std::path::PathBuf;

use rustix::mm::{MapFlags, ProtFlags};
use rustix::time::{ClockId, clock_gettime};

use super::code::NamedCode;
use super::{lines, memory};
use crate::arch::Architecture;

const CODE: u32 = 0;
const LINES: u32 = 2;
const END: u32 = 3;

/// The number of the architecture, as in an ELF file.
fn machine() -> u32 {
    Architecture::HOST.machine().0.into()
}

/// The dump of this process.
pub(super) struct JitDump {
    process: u32,
    /// `None` once it could not be written.
    file: Option<File>,
    marker: usize,
    functions: u64,
}

/// The mapped part of the file.
const MARKER_BYTES: usize = 4096;

impl JitDump {
    pub(super) fn create() -> io::Result<Self> {
        let process = std::process::id();
        let directory = std::env::var_os("JITDUMPDIR").map_or_else(|| PathBuf::from("."), PathBuf::from);
        // The file is read too, since it is mapped.
        let path = directory.join(format!("jit-{process}.dump"));
        let mut file = File::options().read(true).write(true).create(true).truncate(true).open(path)?;
        let mut header = Vec::with_capacity(40);
        for word in [0x4a69_5444, 1, 40, machine(), 0, process] {
            header.extend_from_slice(&word.to_le_bytes());
        }
        header.extend_from_slice(&now().to_le_bytes());
        header.extend_from_slice(&0_u64.to_le_bytes());
        file.write_all(&header)?;
        // SAFETY: a new mapping, which is never read or run.
        let marker = unsafe {
            let protection = ProtFlags::READ | ProtFlags::EXEC;
            rustix::mm::mmap(std::ptr::null_mut(), MARKER_BYTES, protection, MapFlags::PRIVATE, &file, 0)?
        };
        Ok(Self { process, file: Some(file), marker: marker.expose_provenance(), functions: 0 })
    }

    /// # Safety
    /// The piece is registered, and stays so until this returns.
    pub(super) unsafe fn add(&mut self, piece: &NamedCode) {
        // The child of a fork has a copy of this, and the file is its parent's.
        if self.file.is_none() || self.process != std::process::id() {
            return;
        }
        // SAFETY: the caller's obligation.
        let instructions = unsafe { memory::instructions(piece) };
        let lines = lines::of(piece);
        let time = now();
        let mut records = Vec::new();
        for symbol in piece.symbols.iter().filter(|symbol| symbol.is_code && symbol.size > 0) {
            let place = symbol.start.checked_sub(piece.code.start).and_then(|start| {
                let (start, size) = (usize::try_from(start).ok()?, usize::try_from(symbol.size).ok()?);
                instructions.get(start..start.checked_add(size)?)
            });
            let Some(code) = place else { continue };
            let range = symbol.start..symbol.start + symbol.size;
            let first = lines.partition_point(|(address, _)| *address < range.start);
            let last = lines.partition_point(|(address, _)| *address < range.end);
            if first < last {
                add_lines(&mut records, time, symbol.start, &lines[first..last]);
            }
            let mut body = Vec::new();
            body.extend_from_slice(&self.process.to_le_bytes());
            body.extend_from_slice(&thread().to_le_bytes());
            for word in [symbol.start, symbol.start, symbol.size, self.functions] {
                body.extend_from_slice(&word.to_le_bytes());
            }
            body.extend_from_slice(piece.told_name(&symbol).as_bytes());
            body.push(0);
            body.extend_from_slice(code);
            add_record(&mut records, CODE, time, &body);
            self.functions += 1;
        }
        self.write(&records);
    }

    fn write(&mut self, records: &[u8]) {
        if self.file.as_mut().is_some_and(|file| file.write_all(records).is_err()) {
            self.file = None;
        }
    }
}

impl Drop for JitDump {
    fn drop(&mut self) {
        if self.process == std::process::id() {
            let mut record = Vec::new();
            add_record(&mut record, END, now(), &[]);
            self.write(&record);
        }
        // SAFETY: `create` has mapped it, and nothing refers to it. If the system refuses, the page stays.
        _ = unsafe { rustix::mm::munmap(std::ptr::with_exposed_provenance_mut(self.marker), MARKER_BYTES) };
    }
}

fn add_lines(records: &mut Vec<u8>, time: u64, start: u64, lines: &[(u64, lines::SourcePlace)]) {
    let mut body = Vec::new();
    body.extend_from_slice(&start.to_le_bytes());
    body.extend_from_slice(&(lines.len() as u64).to_le_bytes());
    for (address, place) in lines {
        body.extend_from_slice(&address.to_le_bytes());
        body.extend_from_slice(&place.line.to_le_bytes());
        body.extend_from_slice(&0_u32.to_le_bytes());
        body.extend_from_slice(place.file.as_bytes());
        body.push(0);
    }
    add_record(records, LINES, time, &body);
}

fn add_record(records: &mut Vec<u8>, kind: u32, time: u64, body: &[u8]) {
    records.extend_from_slice(&kind.to_le_bytes());
    records.extend_from_slice(&(16 + body.len() as u32).to_le_bytes());
    records.extend_from_slice(&time.to_le_bytes());
    records.extend_from_slice(body);
}

/// The time as `perf record -k mono` notes it, in nanoseconds.
fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

fn thread() -> u32 {
    rustix::thread::gettid().as_raw_nonzero().get() as u32
}
