//! The common part of the fuzz targets: an input is a file as it is, or choices from which a file is crafted.
//!
//! The generator and the way through the linker are those of `pipeline/tests/link/crafted_files.rs`, which tries a little of
//! both in every run of the tests.

#[path = "../../pipeline/tests/crafted/mod.rs"]
mod crafted;

use std::sync::OnceLock;

use crafted::choices::{self, Choices};
use crafted::drive;
use uruk_pipeline::memory::InProcessMemoryManager;

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
