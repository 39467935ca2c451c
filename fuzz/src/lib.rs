//! The common part of the fuzz targets: an input is a file as it is, or choices from which a file is crafted.
//!
//! The generator and the way through the linker are those of `pipeline/tests/link/crafted_files.rs`, which tries a little of
//! both in every run of the tests.

#[path = "../../pipeline/tests/image/ask.rs"]
mod ask;
#[path = "../../pipeline/tests/crafted/mod.rs"]
mod crafted;

use std::io::Write as _;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::thread;
use std::time::Duration;

use crafted::choices::{self, Choices};
use crafted::drive;
use uruk_core::{ExecutorAddr, SymbolFlags};
use uruk_pipeline::arch::ProcessorLevel;
use uruk_pipeline::image::{BuiltInstance, BuiltUnit, HostParts, ImageReader, link_image, package, seal};
use uruk_pipeline::memory::InProcessMemoryManager;
use uruk_pipeline::object::ObjectBuffer;
use uruk_pipeline::peer::{Channel, FrameLimits, FrameReader, receive_descriptors};
use uruk_pipeline::remote::{RemoteExecutor, RemoteProgram};

/// An input begins with this where the rest is a file as it is. `scripts/fuzz.sh` writes such inputs to begin with.
const FILE: u8 = b'F';

/// The file that an input stands for, made by `craft` if it is not there as it is.
fn file(input: &[u8], craft: impl FnOnce(&mut Choices<'_>) -> Vec<u8>) -> Vec<u8> {
    match input {
        [FILE, file @ ..] => file.to_vec(),
        _ => craft(&mut Choices::new(input)),
    }
}

/// Reads an object in all ways.
pub fn parse(input: &[u8]) {
    drive::parse(&file(input, choices::object));
}

/// Links an object alone, and as one with a crafted one, in memory of the real manager. Nothing of it runs.
pub fn link(input: &[u8]) {
    static MEMORY: OnceLock<InProcessMemoryManager> = OnceLock::new();
    let memory = MEMORY.get_or_init(|| InProcessMemoryManager::new().expect("address space"));
    let (first, second) = match input {
        [FILE, file @ ..] => (file.to_vec(), choices::object(&mut Choices::new(&[]))),
        _ => {
            let mut choices = Choices::new(input);
            (choices::object(&mut choices), choices::object(&mut choices))
        }
    };
    drive::link(&[&first, &second], memory);
}

/// Reads an archive, and its members as objects.
pub fn archive(input: &[u8]) {
    drive::archive(&file(input, choices::random_archive));
}

/// Reads an image with a right checksum, and asks everything that there is to ask: a file as it is, or a package in which bytes are changed.
pub fn image(input: &[u8]) {
    static SOUND: OnceLock<Vec<u8>> = OnceLock::new();
    let mut bytes = match input {
        [FILE, file @ ..] => file.to_vec(),
        edits => {
            let mut bytes = SOUND.get_or_init(sound_package).clone();
            for edit in edits.chunks_exact(4) {
                // The header, then the tables, are where numbers are.
                let at = usize::from(u16::from_le_bytes([edit[0], edit[1]]));
                let at = if edit[2] & 1 == 0 { 512 + at % 368 } else { bytes.len() - 1 - at % bytes.len() };
                bytes[at] = edit[3];
            }
            bytes
        }
    };
    seal(&mut bytes);
    if let Ok(reader) = ImageReader::of_bytes(Path::new("fuzzed.uim"), &bytes) {
        ask::ask(&reader);
    }
}

/// Finds frames in a stream that comes in pieces, and again in one piece: they are the same.
pub fn frames(input: &[u8]) {
    let [piece, stream @ ..] = input else { return };
    let limits = FrameLimits { body_bytes: 1 << 20, bulk_bytes: 4 << 20 };
    let found = |piece: usize| {
        let (mut reader, mut rest, mut found) = (FrameReader::new(limits), stream, Vec::new());
        while !rest.is_empty() {
            let room = reader.room();
            assert!(!room.is_empty() && room.len() <= 256 << 10);
            let taken = room.len().min(rest.len()).min(piece);
            room[..taken].copy_from_slice(&rest[..taken]);
            rest = &rest[taken..];
            match reader.filled(taken) {
                Ok(frame) => found.extend(frame.map(Ok)),
                Err(error) => {
                    found.push(Err(error));
                    break;
                }
            }
        }
        found
    };
    assert_eq!(found(usize::from(*piece).max(1)), found(usize::MAX));
}

/// Two units, of which one contains code of the other, and what a host adds.
fn sound_package() -> Vec<u8> {
    let names = ["first", "second"];
    let units = names.map(|name| {
        let object = ObjectBuffer::new(name, choices::object(&mut Choices::new(name.as_bytes())));
        let import = |_: &str| Some(SymbolFlags::EXPORTED | SymbolFlags::CALLABLE);
        let image =
            link_image(&[object], &|_| false, &import, &[ProcessorLevel::V1.into()], 0).unwrap_or_default();
        let mut unit = BuiltUnit::new(name, &image, vec![(name.into(), [1; 32])], Vec::new());
        unit.assume("first", [1; 32]);
        unit
    });
    let mut host = HostParts::default();
    let instance = BuiltInstance::new("method", "specialization", "first").assumes("other", "", [1; 32]);
    host.add_section("types".into(), vec![1; 100]).unwrap_or_default();
    host.add_below("lower.uim".into(), [1; 16]);
    host.add_instance(instance).unwrap_or_default();
    let package = package(units.into(), &ProcessorLevel::V1.into()).with_host(host, |_| true);
    package.unwrap_or_default().to_bytes()
}

/// Connects to an executor that says what the input says, and asks it for symbols, a library and a call. Errors are what there may be.
pub fn executor(input: &[u8]) {
    static LISTENER: OnceLock<(PathBuf, UnixListener)> = OnceLock::new();
    let (path, listener) = LISTENER.get_or_init(|| {
        let path = std::env::temp_dir().join(format!("uruk-fuzz-{}", std::process::id()));
        let listener = UnixListener::bind(&path).expect("the temporary directory is writable");
        (path, listener)
    });
    let limit = Duration::from_secs(1);
    let address = format!("unix:{}", path.display()).parse().expect("the address of a socket");
    let program = RemoteProgram::listening_at(address);
    let program = program.start_limit(limit).request_limit(limit).call_limit(limit);
    thread::scope(|scope| {
        scope.spawn(|| lie(listener, input));
        let Ok(executor) = RemoteExecutor::reach(&program) else { return };
        let _ = executor.find(&["getpid", "environ"]);
        let _ = executor.load_library(Path::new("/nonexistent"));
        let _ = executor.call::<u64>(ExecutorAddr::new(16), [1]);
    });
}

/// Takes one host, and sends frames: of three bytes the kind, the request and the size, and then the body. Most begin as they should.
fn lie(listener: &UnixListener, input: &[u8]) {
    // Version 6, process 1 of x86-64, pages of 4 KiB, memory from 0x10000 on without zeros behind it, entries of nothing, no reserve.
    const READY: [u8; 16] = [6, 1, 62, 0x80, 0x20, 0x80, 0x80, 0x04, 0, 0, 0, 0, 0, 0, 0, 0];
    let Ok((stream, _)) = listener.accept() else { return };
    let Ok(mut raw) = stream.try_clone() else { return };
    let mut channel = Channel::new(stream);
    let _ = receive_descriptors(channel.stream());
    let _ = channel.receive();
    let (&first, mut rest) = input.split_first().unwrap_or((&0, &[]));
    if first & 3 != 0 && channel.send(2, 0, &READY, &[]).is_err() {
        return;
    }
    while let [kind, request, size, tail @ ..] = rest {
        let (body, tail) = tail.split_at(usize::from(*size).min(tail.len()));
        if channel.send(u16::from(kind % 24), u32::from(request % 8), body, &[]).is_err() {
            return;
        }
        rest = tail;
    }
    let _ = raw.write_all(rest);
}
