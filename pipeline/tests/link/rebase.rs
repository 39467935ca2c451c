//! A graph that was linked at one place and moved to another is the graph that would have been linked there, byte by byte.

use std::collections::HashMap;
use std::hash::Hasher as _;
use std::sync::OnceLock;

use rustc_hash::FxHasher;

use uruk_core::{ExecutorAddr, ExecutorSymbolDef, SymbolFlags};
use uruk_pipeline::executor::{RuntimeEntries, TlsPlacement, TlsResolvers};
use uruk_pipeline::link::{
    Link, LinkEnvironment, LinkError, LinkOptions, RebaseTarget, RebaseTo, Rebases, RuntimeEntry, TlsFact,
    elf,
};
use uruk_pipeline::memory::{Backing, InFlightAlloc, MemoryError, MemoryManager, SegmentRequest};

use uruk_pipeline::object::{ArchiveIndex, FileKind, ObjectBuffer};

use crate::archives::{archives, report, thread_local_references};
use crate::link_support::{Tool, compile, compilers};
use crate::running::{CATCHER, THROWER};

/// Data that points, calls in and out, a table of jumps, constructors, a function that chooses its implementation.
const POINTERS: &str = "
    #include <stdio.h>
    extern int elsewhere, weak_elsewhere __attribute__((weak));
    extern int called(int), called_weakly(int) __attribute__((weak));
    static int mine; int shown = 3; const char *text = \"text\"; int *chain[3] = {&mine, &shown, &elsewhere};
    static const char *const names[] = {\"a\", \"b\", \"c\"};
    int (*const calls[])(int) = {called, called_weakly};
    static int one(void) { return 1; }
    static void *choose(void) { return (void *)one; }
    int chosen(void) __attribute__((ifunc(\"choose\")));
    __attribute__((constructor)) static void begin(void) { mine = 7; }
    __attribute__((destructor(200))) static void finish(void) { puts(text); }
    static int local(int x) { return x + mine; }
    int run(int x) {
        switch (x) {
            case 0: return called(3); case 1: return elsewhere; case 2: return local(shown);
            case 3: return names[x % 3][0]; case 4: return chosen(); case 5: return calls[0](2);
            case 6: return puts(\"six\"); case 7: return &weak_elsewhere ? weak_elsewhere : 0;
            default: return *chain[x % 3];
        }
    }
    int (*chosen_pointer)(void) = chosen;
";

/// Thread-local variables: own, hidden, and of others.
const THREAD_LOCALS: &str = "
    extern __thread int thread_elsewhere;
    __thread int exported = 4; static __thread int own = 5; static __thread long zero[8];
    int sum(void) { return thread_elsewhere + exported + own + (int)zero[own & 7]; }
    int *address(int x) { return x ? &thread_elsewhere : &own; }
";

/// A place for a graph, and what it meets there.
#[derive(Clone, Copy)]
struct Scene {
    segments: u64,
    imports: u64,
    tls: TlsPlacement,
    distance: i64,
    entries: u64,
}

const HERE: Scene = Scene {
    segments: 0x7000_0000_0000,
    imports: 0x7000_2000_0000, // near
    tls: TlsPlacement { module: 77, offset: 0x100 },
    distance: -4096,
    entries: 0x7000_3000_0000,
};
const THERE: Scene = Scene {
    segments: 0x5555_4000_0000,
    imports: 0x7fff_0000_0000, // far
    tls: TlsPlacement { module: 5, offset: 0x4_0000 },
    distance: -64,
    entries: 0x4000_0000,
};

/// For objects of position-independent executables, which need the variables of others near.
const THERE_AND_NEAR: Scene = Scene { imports: 0x5555_6000_0000, ..THERE };

impl Scene {
    fn entries(self) -> RuntimeEntries {
        let at = |offset| ExecutorAddr::new(self.entries + offset);
        RuntimeEntries {
            tls_resolvers: TlsResolvers { fixed: at(0), dynamic: at(16), absent: at(32) },
            ifunc_thunk: at(48),
            ..RuntimeEntries::default()
        }
    }

    /// Some names have no definition.
    fn import(self, name: &str) -> Option<u64> {
        const PLACES: u64 = 1 << 20;
        let mut hasher = FxHasher::default();
        hasher.write(name.as_bytes());
        (!name.contains("weak")).then(|| self.imports + hasher.finish() % PLACES * 64)
    }

    fn import_tls(self, name: &str) -> (TlsPlacement, i64) {
        let TlsPlacement { module, offset } = self.tls;
        let offset = offset + name.len() as u64;
        (TlsPlacement { module: module + 1, offset }, self.distance - 1000)
    }
}

impl MemoryManager for Scene {
    fn allocate(&self, _: &str, segments: &[SegmentRequest]) -> Result<InFlightAlloc, MemoryError> {
        let contents = segments.iter().map(|request| vec![0; request.content_bytes]).collect();
        Ok(InFlightAlloc::new(Box::new(Contents { base: self.segments, contents })))
    }
}

struct Contents {
    base: u64,
    contents: Vec<Vec<u8>>,
}

impl Backing for Contents {
    fn address(&self, segment: usize) -> ExecutorAddr {
        ExecutorAddr::new(self.base + ((segment as u64) << 24))
    }

    fn working(&mut self, segment: usize) -> &mut [u8] {
        &mut self.contents[segment]
    }

    fn finalize(&mut self) -> Result<(), MemoryError> {
        Ok(())
    }
}

/// The contents of an object's segments, and what moves them.
type Moving = (Vec<Vec<u8>>, Rebases);

/// Links an object to be moved.
fn link(object: &[u8], scene: Scene) -> Moving {
    try_link(object, scene).unwrap_or_else(|error| panic!("{error}"))
}

fn try_link(object: &[u8], scene: Scene) -> Result<Moving, LinkError> {
    let thread_local = thread_local_references(object);
    let graph = elf::parse("moved.o", object)?;
    let options = LinkOptions { is_rebasable: true, ..LinkOptions::default() };
    let mut link = Link::new(graph, &options)?.allocate(&scene)?;
    link.place_tls(scene.tls);
    let descriptors: HashMap<u64, String> =
        link.externals().filter_map(|(name, _)| Some((scene.import(name)?, name.to_owned()))).collect();
    let placement =
        |descriptor: ExecutorAddr| descriptors.get(&descriptor.value()).map(|name| scene.import_tls(name).0);
    let distance = |placement: TlsPlacement| {
        let own = placement.module == scene.tls.module;
        Ok(if own { scene.distance } else { scene.distance - 1000 })
    };
    let environment =
        LinkEnvironment { tls_placement: &placement, tls_distance: &distance, entries: scene.entries() };
    let lookup = |name: &str| {
        let kind = match thread_local.contains(name) {
            true => SymbolFlags::THREAD_LOCAL,
            false => SymbolFlags::CALLABLE,
        };
        let address = ExecutorAddr::new(scene.import(name)?);
        Some(ExecutorSymbolDef::new(address, SymbolFlags::EXPORTED | kind))
    };
    let (mut memory, linked) = link.resolve(lookup, environment)?.fix()?.into_parts();
    let contents = (0..linked.ranges.len()).map(|segment| memory.working(segment).to_vec()).collect();
    Ok((contents, linked.rebases.expect("asked for")))
}

/// Moves what was linked for `HERE`.
fn moved(contents: &[Vec<u8>], rebases: &Rebases, there: Scene) -> Vec<Vec<u8>> {
    let mut contents = contents.to_vec();
    let segments: Vec<u64> = (0..contents.len() as u64).map(|at| there.segments + (at << 24)).collect();
    let name = |import: u32| &*rebases.imports[import as usize];
    let to = RebaseTo {
        segments: &segments,
        import: &|import| there.import(name(import)).unwrap_or(0),
        entries: there.entries(),
        tls: Some((there.tls, there.distance)),
        import_tls: &|import| Some(there.import_tls(name(import))),
    };
    let mut views: Vec<&mut [u8]> = contents.iter_mut().map(Vec::as_mut_slice).collect();
    rebases.apply(&mut views, &to).expect("everything is in reach");
    contents
}

/// An object with its name, and a place that its code reaches everything from.
type Object = (String, Vec<u8>, Scene);

/// Every source, for each compiler and a choice of code models and thread-local models.
fn objects() -> &'static [Object] {
    static OBJECTS: OnceLock<Vec<Object>> = OnceLock::new();
    OBJECTS.get_or_init(make_objects)
}

fn make_objects() -> Vec<Object> {
    const MODELS: [&[&str]; 6] = [
        &["-fPIC"],
        &["-fPIC", "-O2"],
        &["-fPIC", "-O2", "-fno-plt", "-ffunction-sections"],
        &["-fPIC", "-O1", "-mcmodel=large"],
        &["-fPIE", "-O2"],
        &["-fPIC", "-O2", "-fvisibility=hidden"],
    ];
    let mut objects = Vec::new();
    for (name, language, source) in [
        ("pointers", "c", POINTERS),
        ("thread locals", "c", THREAD_LOCALS),
        ("thrower", "cpp", THROWER),
        ("catcher", "cpp", CATCHER),
    ] {
        let tools = if language == "c" { compilers() } else { vec![Tool("c++")] };
        for (tool, flags) in tools.iter().flat_map(|tool| MODELS.map(|flags| (*tool, flags))) {
            let object = compile(tool, language, source, flags);
            let there = if flags[0] == "-fPIE" { THERE_AND_NEAR } else { THERE };
            objects.push((format!("{name} {tool:?} {flags:?}"), object, there));
        }
    }
    let dialect = ["-fPIC", "-O2", "-mtls-dialect=gnu2"];
    objects.push(("descriptors".into(), compile(Tool("cc"), "c", THREAD_LOCALS, &dialect), THERE));
    objects
}

#[test]
fn a_moved_graph_has_the_bytes_of_one_that_was_linked_there() {
    for (name, object, place) in objects() {
        let (here, rebases) = link(object, HERE);
        let (there, _) = link(object, *place);
        assert_ne!(here, there, "{name}: the two places tell nothing");
        assert_eq!(difference(&moved(&here, &rebases, *place), &there), None, "{name}");
    }
}

/// The first byte that differs, with the number of its segment.
fn difference(moved: &[Vec<u8>], there: &[Vec<u8>]) -> Option<(usize, usize)> {
    let mut segments = moved.iter().zip(there).enumerate();
    segments.find_map(|(segment, (moved, there))| {
        let offset = moved.iter().zip(there).position(|(moved, there)| moved != there)?;
        Some((segment, offset))
    })
}

/// The same for what other compilers and assemblers made: every member of the [archives] that links at both places.
#[test]
fn members_of_archives_move() {
    let (mut moved_count, mut changed, mut refused, mut different) = (0, 0, 0, Vec::new());
    for path in archives() {
        let archive = ObjectBuffer::open(&path).expect("the archive can be read");
        let Ok(index) = ArchiveIndex::read(&archive) else { continue };
        for member in index.members() {
            let object = member.contents();
            if FileKind::of(object.bytes()) != FileKind::Object {
                continue;
            }
            let (here, there) = (try_link(object.bytes(), HERE), try_link(object.bytes(), THERE_AND_NEAR));
            match (here, there) {
                (Ok((here, rebases)), Ok((there, _))) => {
                    moved_count += 1;
                    changed += usize::from(here != there);
                    let difference = difference(&moved(&here, &rebases, THERE_AND_NEAR), &there);
                    different.extend(difference.map(|at| (object.name().to_owned(), at)));
                }
                _ => refused += 1,
            }
        }
    }
    report(&format!(
        "{moved_count} members moved, {changed} of them changed; {refused} refused at one of the places"
    ));
    assert!(changed > 500, "{changed} members changed: are the compilers' archives there?");
    assert!(different.is_empty(), "{} differ: {different:?}", different.len());
}

/// Each kind of target is needed by some object: without its fields the bytes are others.
#[test]
fn no_kind_of_target_can_be_left_out() {
    type IsOfKind = fn(RebaseTarget) -> bool;
    let kinds: [(&str, IsOfKind); 8] = [
        ("imports", |target| matches!(target, RebaseTarget::Import(_))),
        ("places", |target| matches!(target, RebaseTarget::Relative(..))),
        ("thunk", |target| target == RebaseTarget::Entry(RuntimeEntry::IfuncThunk)),
        ("resolver", |target| target == RebaseTarget::Entry(RuntimeEntry::TlsDynamic)),
        ("module", |target| matches!(target, RebaseTarget::OwnTls(TlsFact::Module, _))),
        ("offset", |target| matches!(target, RebaseTarget::OwnTls(TlsFact::Offset, _))),
        ("distance", |target| matches!(target, RebaseTarget::OwnTls(TlsFact::Distance, _))),
        ("distance of others", |target| matches!(target, RebaseTarget::ImportTls(TlsFact::Distance, _))),
    ];
    let linked: Vec<_> = objects()
        .iter()
        .map(|(_, object, place)| (link(object, HERE), link(object, *place).0, *place))
        .collect();
    for (name, is_of_kind) in kinds {
        let is_missed = linked.iter().any(|((here, rebases), there, place)| {
            let mut fewer = rebases.clone();
            fewer.fields.retain(|field| !is_of_kind(field.target));
            fewer.fields.len() < rebases.fields.len() && moved(here, &fewer, *place) != *there
        });
        assert!(is_missed, "{name}: nothing of it is in the objects");
    }
}

/// A graph that stays where it was linked notes nothing, and reaches what is near directly.
#[test]
fn a_graph_that_stays_notes_nothing() {
    let object = compile(Tool("cc"), "c", POINTERS, &["-fPIC", "-O2"]);
    let graph = elf::parse("stays.o", &object).expect("an object");
    let link = Link::new(graph, &LinkOptions::default()).and_then(|link| link.allocate(&HERE)).expect("fits");
    let lookup = |name: &str| {
        let address = ExecutorAddr::new(HERE.import(name)?);
        Some(ExecutorSymbolDef::new(address, SymbolFlags::EXPORTED | SymbolFlags::CALLABLE))
    };
    let environment = LinkEnvironment { entries: HERE.entries(), ..LinkEnvironment::default() };
    let (mut memory, linked) =
        link.resolve(lookup, environment).and_then(|link| link.fix()).expect("links").into_parts();
    assert!(linked.rebases.is_none());
    assert_ne!(memory.working(0), self::link(&object, HERE).0[0], "calls go through stubs only there");
}
