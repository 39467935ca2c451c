//! Every member of static archives, linked without running anything: what linkers accept is accepted here.
//!
//! Names that a member does not define get made-up addresses close by. Ordinarily these are the archives of the C and
//! C++ compilers. `URUK_ARCHIVES` names others, or directories to search: every archive that Debian's -dev packages
//! have put on the machine is linked, and what is refused listed, by
//!
//! ```sh
//! URUK_ARCHIVES=/usr/lib cargo test --release -p uruk-pipeline --test link archives -- --nocapture
//! ```
//!
//! It fails if anything for x86-64 is refused that a static linker accepts.

use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use object::read::elf::{ElfFile64, FileHeader as _};
use object::{LittleEndian, Object as _, ObjectSymbol as _, SymbolKind, elf as format};
use uruk_core::{ExecutorAddr, ExecutorSymbolDef, SymbolFlags};
use uruk_pipeline::executor::{RuntimeEntries, TlsPlacement};
use uruk_pipeline::link::{Link, LinkEnvironment, LinkError, LinkOptions, elf};
use uruk_pipeline::memory::{InProcessMemoryManager, MemoryManager, SegmentKind, SegmentRequest};
use uruk_pipeline::object::{ArchiveIndex, FileKind, ObjectBuffer, ObjectError, ObjectInterface};

#[derive(Default)]
struct Outcome {
    linked: usize,
    /// By reason: how many, whether it is known, and one of them.
    refused: BTreeMap<String, (usize, bool, String)>,
}

#[test]
fn members_of_archives_link() {
    let mut outcome = Outcome::default();
    let archives = archives();
    let memory = InProcessMemoryManager::new().expect("address space");
    for path in &archives {
        let archive = ObjectBuffer::open(path).expect("the archive can be read");
        let index = match ArchiveIndex::read(&archive) {
            Ok(index) => index,
            Err(error) => {
                outcome.refuse(&error, is_known_object(&error));
                continue;
            }
        };
        for member in index.members() {
            link_member(member.contents(), &memory, &mut outcome);
        }
    }
    let Outcome { linked, refused } = outcome;
    report(&format!("{linked} members of {} archives linked", archives.len()));
    for (reason, (count, known, example)) in &refused {
        let known = if *known { "known" } else { "NOT KNOWN" };
        report(&format!("{count:6} refused, {known}: {reason}; such as: {example}"));
    }
    assert!(linked > 500, "{linked} members linked: are the compilers' archives there?");
    let unknown: Vec<_> = refused.iter().filter(|(_, (_, known, _))| !known).collect();
    assert!(unknown.is_empty(), "refused without a known reason: {unknown:#?}");
}

fn link_member(object: &ObjectBuffer, memory: &InProcessMemoryManager, outcome: &mut Outcome) {
    if FileKind::of(object.bytes()) != FileKind::Object {
        return;
    }
    if let Err(error) = ObjectInterface::read(object) {
        return outcome.refuse(&error, is_known_object(&error));
    }
    let near = || memory.allocate("made up", &[MADE_UP]).expect("memory").address(0);
    let low = || memory.allocate_low("made up", &[MADE_UP]).expect("memory below 2 GiB").address(0);
    // An object that is not position-independent lies low, and what it refers to has to lie there too.
    let linked = match link(object, memory, near()) {
        Err(LinkError::OutOfRange { .. }) => link(object, memory, low()),
        linked => linked,
    };
    match linked {
        Ok(()) => outcome.linked += 1,
        Err(error) => outcome.refuse(&error, false),
    }
}

/// Whether the object is not for this linker.
fn is_known_object(error: &ObjectError) -> bool {
    matches!(
        error,
        ObjectError::ForeignMachine { .. }
            | ObjectError::IntermediateOnly { .. }
            | ObjectError::ThinArchive { .. }
    )
}

/// Links an object whose references lead `close_by`.
fn link(
    object: &ObjectBuffer,
    memory: &InProcessMemoryManager,
    close_by: ExecutorAddr,
) -> Result<(), LinkError> {
    let thread_local = thread_local_references(object.bytes());
    let graph = elf::parse(object.name(), object.bytes())?;
    let mut link = Link::new(graph, &LinkOptions::default())?.allocate(memory)?;
    link.place_tls(TlsPlacement { module: 7, offset: 0 });
    let lookup = |name: &str| {
        let thread_local =
            if thread_local.contains(name) { SymbolFlags::THREAD_LOCAL } else { SymbolFlags::empty() };
        // Every requested symbol exists, also functions that run before the program.
        Some(ExecutorSymbolDef::new(close_by, SymbolFlags::EXPORTED | SymbolFlags::CALLABLE | thread_local))
    };
    let environment = LinkEnvironment {
        tls_placement: &|_| Some(TlsPlacement { module: 7, offset: 64 }),
        // As in the command, which has thread-local memory for its program beside the thread pointer.
        tls_distance: &|placement| Ok(i64::try_from(placement.offset).expect("a short way") - 4096),
        entries: RuntimeEntries { ifunc_thunk: close_by, ..RuntimeEntries::default() },
    };
    let (memory, _) = link.resolve(lookup, environment)?.fix()?.into_parts();
    memory.finalize().map(drop).map_err(|source| LinkError::Memory { object: "archive".into(), source })
}

/// Memory for a name that no member defines.
const MADE_UP: SegmentRequest =
    SegmentRequest { kind: SegmentKind::Data, content_bytes: 64, zero_fill_bytes: 0, align: 64 };

/// The names that an object refers to as thread-local variables.
pub(crate) fn thread_local_references(bytes: &[u8]) -> HashSet<String> {
    let Ok(file) = ElfFile64::<LittleEndian>::parse(bytes) else { return HashSet::new() };
    assert_eq!(file.elf_header().e_type(LittleEndian), format::ET_REL);
    let undefined = file.symbols().filter(|symbol| symbol.is_undefined() && symbol.kind() == SymbolKind::Tls);
    undefined.filter_map(|symbol| symbol.name().ok().map(str::to_owned)).collect()
}

impl Outcome {
    /// Counts an error under its text without what differs from one object to the next.
    fn refuse(&mut self, error: &impl std::error::Error, known: bool) {
        let text = error.to_string();
        let reason = text.split_once(": ").map_or(&*text, |(_, reason)| reason);
        let is_name = |word: &str| word.contains(['`', '+', '/']) || word.contains("0x");
        let words = reason.split(' ').map(|word| if is_name(word) { "…" } else { word });
        let reason = words.collect::<Vec<_>>().join(" ");
        let entry = self.refused.entry(reason).or_insert_with(|| (0, known, text));
        entry.0 += 1;
    }
}

/// The archives to link.
pub(crate) fn archives() -> Vec<PathBuf> {
    let mut found = Vec::new();
    match std::env::var_os("URUK_ARCHIVES") {
        Some(places) => std::env::split_paths(&places).for_each(|place| search(&place, &mut found)),
        None => {
            for name in ["libgcc.a", "libgcc_eh.a", "libstdc++.a", "libc.a"] {
                let asked = Command::new("cc").arg(format!("-print-file-name={name}")).output();
                let path = String::from_utf8(asked.expect("cc starts").stdout).expect("a path");
                search(Path::new(path.trim()), &mut found);
            }
        }
    }
    found.sort();
    found
}

fn search(place: &Path, found: &mut Vec<PathBuf>) {
    if place.is_symlink() {
        return;
    }
    if place.is_dir() {
        let entries = std::fs::read_dir(place).into_iter().flatten().flatten();
        entries.for_each(|entry| search(&entry.path(), found));
    } else if place.extension().is_some_and(|extension| extension == "a") && place.is_file() {
        let bytes = std::fs::read(place).unwrap_or_default();
        // Some are scripts of the linker's.
        if matches!(FileKind::of(&bytes), FileKind::Archive | FileKind::ThinArchive) {
            found.push(place.to_owned());
        }
    }
}

#[expect(clippy::print_stderr, reason = "the list is what it is run for")]
pub(crate) fn report(line: &str) {
    eprintln!("{line}");
}
