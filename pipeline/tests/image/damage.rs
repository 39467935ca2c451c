//! Damaged images: an error or a sound image, never a panic, an endless loop or memory out of proportion.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use uruk_core::{ExecutionSession, LookupRequest, LookupSet, MaterializationUnit};
use uruk_pipeline::image::{ImageError, ImageFile, ImageReader, seal};
use uruk_pipeline::linking::{ObjectLinkingLayer, image_units};
use uruk_pipeline::memory::InProcessMemoryManager;
use uruk_pipeline::platform::Platform;
use uruk_pipeline::runtime::in_process::InProcessExecutor;
use uruk_pipeline::runtime::process::{ProcessSymbols, ProcessSymbolsGenerator};

use crate::ask::ask;
use crate::sources::{image, package_of, program};

/// Where the header begins, and how long it is.
const HEADER: std::ops::Range<usize> = 512..880;

fn bytes() -> Vec<u8> {
    image(&program(&["-fPIC", "-O2"]), 0).expect("links").to_bytes()
}

fn read(bytes: &[u8]) -> Result<ImageReader, ImageError> {
    ImageReader::of_bytes(Path::new("damaged.uim"), bytes)
}

fn number(bytes: &[u8], at: usize) -> usize {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes")) as usize
}

/// The places of the header and of the tables.
fn metadata(bytes: &[u8]) -> Vec<usize> {
    let (start, size) = (number(bytes, HEADER.start + 24), number(bytes, HEADER.start + 32));
    HEADER.chain(start..start + size).collect()
}

#[test]
fn every_truncation_is_an_error() {
    let bytes = bytes();
    for length in 0..bytes.len() {
        assert!(read(&bytes[..length]).is_err(), "cut off at {length}");
    }
    assert!(read(&[&*bytes, b"more"].concat()).is_err());
    assert!(read(&bytes).is_ok());
}

#[test]
fn a_changed_bit_of_the_metadata_is_noticed() {
    let mut bytes = bytes();
    for at in metadata(&bytes) {
        let bit = 1 << (at % 8);
        bytes[at] ^= bit;
        assert!(read(&bytes).is_err(), "{bit:#x} at {at:#x}");
        bytes[at] ^= bit;
    }
}

/// With a checksum that is right, as an attacker would have it.
#[test]
fn changed_metadata_is_an_error_or_can_be_asked() {
    let mut bytes = bytes();
    let original = bytes.clone();
    let mut refused = 0;
    for at in metadata(&bytes) {
        bytes[at] ^= [0x01, 0x80, 0xff][at % 3];
        seal(&mut bytes);
        match read(&bytes) {
            Ok(reader) => ask(&reader),
            Err(_) => refused += 1,
        }
        bytes.copy_from_slice(&original);
    }
    assert!(refused > 100, "{refused}: the numbers are not checked");
}

/// In its code and data too: the checksum covers the tables alone, and reading changed contents does no harm.
#[test]
fn ten_thousand_changed_bits_are_errors_or_can_be_asked() {
    for original in [bytes(), package_of(&program(&["-fPIC", "-O2"])).to_bytes()] {
        let mut bytes = original.clone();
        let bits = 8 * bytes.len();
        let mut outcomes = [0, 0];
        for number in 0..10_000 {
            // A step that has no factor of two goes through all bits.
            let bit = (number * 7_919 + number * number * 2) % bits;
            bytes[bit / 8] ^= 1 << (bit % 8);
            if number % 2 == 0 {
                seal(&mut bytes);
            }
            let asked = read(&bytes).map(|reader| ask(&reader));
            outcomes[usize::from(asked.is_ok())] += 1;
            bytes.copy_from_slice(&original);
        }
        let [refused, asked] = outcomes;
        assert!(refused > 50 && asked > 1_000, "{refused} refused, {asked} asked");
    }
}

#[test]
fn a_package_with_changed_metadata_is_an_error_or_its_units_are_read_or_refused() {
    let original = package_of(&program(&["-fPIC", "-O2"])).to_bytes();
    let path = std::env::temp_dir().join(format!("uruk-damaged-package-{}.uim", std::process::id()));
    let mut bytes = original.clone();
    let mut outcomes = [0, 0];
    for at in metadata(&original).into_iter().step_by(11) {
        bytes[at] ^= [0x01, 0x80, 0xff][at % 3];
        seal(&mut bytes);
        fs::write(&path, &bytes).expect("the temporary directory is writable");
        if let Ok(image) = ImageFile::open(&path) {
            ask(image.reader());
            if let Ok(sections) = image.map_sections() {
                let read = |name| {
                    sections
                        .get(image.reader(), name)
                        .map_or(0, |bytes| bytes.iter().map(|byte| u64::from(*byte)).sum())
                };
                assert!(read("types") + read("source") < u64::MAX);
            }
            for unit in 0..image.reader().packed().len().min(100) as u32 {
                outcomes[usize::from(image.unit(unit).is_ok())] += 1;
            }
            assert!(at < 4096 || image.check_contents().is_err(), "a changed byte at {at:#x}");
        }
        bytes.copy_from_slice(&original);
    }
    let _ = fs::remove_file(&path);
    let [refused, read] = outcomes;
    assert!(refused > 1 && read > 10, "{refused} refused, {read} read");
}

/// Nothing of them runs: they are mapped, bound and removed.
#[test]
fn changed_metadata_is_bound_or_refused() {
    let mut bytes = bytes();
    let original = bytes.clone();
    let path = std::env::temp_dir().join(format!("uruk-damaged-{}.uim", std::process::id()));
    let places = metadata(&bytes);
    let mut outcomes = [0, 0];
    // A step that shares no factor with the size of a row.
    for at in places.iter().step_by(7) {
        bytes[*at] ^= 0x11;
        seal(&mut bytes);
        outcomes[usize::from(load(&path, &bytes))] += 1;
        bytes.copy_from_slice(&original);
    }
    assert!(load(&path, &original));
    let _ = fs::remove_file(&path);
    let [refused, loaded] = outcomes;
    assert!(refused > 10 && loaded > 10, "{refused} refused, {loaded} loaded");
}

/// Loads an image without running anything of it; says whether that went well.
fn load(path: &Path, bytes: &[u8]) -> bool {
    fs::write(path, bytes).expect("the temporary directory is writable");
    let session = ExecutionSession::new();
    let (dylib, libraries) = (session.create_jit_dylib("main"), session.create_jit_dylib("process"));
    let (dylib, libraries) = (dylib.expect("new"), libraries.expect("new"));
    libraries.add_generator(Arc::new(ProcessSymbolsGenerator::new(Arc::new(ProcessSymbols::new()))));
    dylib.add_to_link_order(&libraries, Default::default()).expect("both are there");
    let memory = Arc::new(InProcessMemoryManager::new().expect("address space"));
    let executor = Arc::new(InProcessExecutor::new(memory));
    let layer = Arc::new(ObjectLinkingLayer::new(executor, Arc::new(Platform::new())));
    let units = ImageFile::open(path).and_then(|image| image_units(image, &dylib, &layer, None));
    let Ok((unit, _, generator)) = units else { return false };
    let names: Vec<_> = unit.interface().symbols.keys().cloned().collect();
    dylib.define(Box::new(unit)).expect("the name is new");
    dylib.add_generator(Arc::new(generator));
    let whole = session.lookup(LookupRequest::along(&dylib, LookupSet::required(names)));
    let visit = session.lookup(LookupRequest::along(&dylib, LookupSet::one(session.intern("visit"))));
    let is_loaded = whole.is_ok() && visit.is_ok();
    session.close().expect("nothing goes wrong");
    is_loaded
}
