//! Link: objects become the parts of an image, at addresses that count from the start of its memory.

use std::collections::{HashMap, HashSet};
use std::sync::OnceLock;

use uruk_core::sync::Arc;
use uruk_core::{ExecutorAddr, ExecutorSymbolDef, SymbolFlags};

use super::format::{ImageFlags, ImageLayout, PAGE_BYTES, SymbolTraits, ThreadLocals};
use super::host::HostParts;
use super::package::BuiltUnit;
use super::plain_memory::PlainMemory;
use crate::arch::{Architecture, Class, CodeNeeds, Features, ProcessorTarget};
use crate::debug::{NamedCode, NamedSymbol};
use crate::executor::{Initializers, TlsPlacement, TlsShape};
use crate::link::graph::SymbolId;
use crate::link::{
    Allocated, CodeOrder, GraphVersions, Link, LinkEnvironment, LinkError, LinkGraph, LinkOptions, Rebase,
    RebaseTarget, parts,
};
use crate::memory::{FileSegment, MemoryError, SegmentKind, SegmentRequest};
use crate::object::{DEFINED_FOR_PROGRAM, ObjectBuffer, level_of};

/// How far before the image imports are during the link. Tables and stubs lead to them wherever instructions allow that; a distance that code holds
/// itself fits, and is noted.
const IMPORTS_BEFORE: u64 = 1 << 30;
/// How far apart they are then.
const IMPORT_STEP: u64 = 64;
/// Placements of thread-local variables during the link. All of them are replaced when the image is bound.
const OWN_MODULE: u64 = 1;
const OTHER_MODULE: u64 = 2;

/// A linked image, before it is a file.
#[derive(Debug, Default)]
pub struct BuiltImage {
    pub(super) layout: ImageLayout,
    pub(super) segments: Vec<FileSegment>,
    pub(super) contents: Vec<Vec<u8>>,
    /// Addresses of words that hold addresses of the image.
    pub(super) relative: Vec<u32>,
    /// The same for those of imports, with the numbers of these.
    pub(super) import_words: Vec<(u32, u32)>,
    pub(super) fields: Vec<Rebase>,
    pub(super) imports: Vec<(Box<str>, SymbolTraits)>,
    pub(super) symbols: Vec<BuiltSymbol>,
    pub(super) functions: Vec<BuiltFunction>,
    pub(super) indirect: Vec<u32>,
    pub(super) descriptors: Vec<(u32, u32)>,
    pub(super) units: Vec<Box<str>>,
    pub(super) targets: Vec<BuiltTarget>,
    /// The instruction sets that its code uses, also where it asks for them itself.
    pub(super) all_needs: CodeNeeds,
    pub(super) versions: Vec<BuiltVersion>,
    pub(super) packed: Vec<BuiltUnit>,
    pub(super) host: HostParts,
}

/// Processors with code for them. The base comes first.
#[derive(Clone, Debug, Default)]
pub(super) struct BuiltTarget {
    pub(super) target: ProcessorTarget,
    pub(super) needs: CodeNeeds,
}

/// The code of a function for one of the targets, and the word that calls go by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BuiltVersion {
    pub(super) slot: u32,
    pub(super) target: u32,
    pub(super) code: u32,
}

/// A symbol, before it is a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct BuiltSymbol {
    pub(super) name: Box<str>,
    pub(super) unit: u32,
    pub(super) traits: SymbolTraits,
    pub(super) size_bytes: u64,
    pub(super) address: u64,
}

/// A function to run before or after the program.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct BuiltFunction {
    pub(super) when: u32,
    pub(super) priority: i32,
    /// Where it is, or which import it is.
    pub(super) target: Result<u64, u32>,
}

/// Links whole objects, in this order, as an image for the processors of `targets`, of which the first is the base. `is_discarded` says of which names the definitions do not count, and
/// `import` gives the flags of the definition of a name elsewhere, if there is one.
///
/// The memory begins at `base` during the link; the result is the same for every base.
///
/// # Errors
/// [`LinkError`]: of a name without a definition that is not weak, and of objects that are not position-independent.
pub fn link_image(
    objects: &[ObjectBuffer],
    is_discarded: &dyn Fn(&str) -> bool,
    import: &dyn Fn(&str) -> Option<SymbolFlags>,
    targets: &[ProcessorTarget],
    base: u64,
) -> Result<BuiltImage, LinkError> {
    link_image_in_order(objects, is_discarded, import, targets, base, None)
}

/// The same, with some functions before all others, or without others.
///
/// # Errors
/// As there.
pub fn link_image_in_order(
    objects: &[ObjectBuffer],
    is_discarded: &dyn Fn(&str) -> bool,
    import: &dyn Fn(&str) -> Option<SymbolFlags>,
    targets: &[ProcessorTarget],
    base: u64,
    order: Option<CodeOrder<'_>>,
) -> Result<BuiltImage, LinkError> {
    let graphs = objects.iter().map(parts::parse).collect::<Result<Vec<_>, _>>()?;
    let mut graph = LinkGraph::merge(graphs)?;
    graph.check_imageable()?;
    let versions = graph.choose_versions(targets, is_discarded)?;
    let taken = graph.functions_with_taken_addresses();
    let whole = graph.name();
    let requests = Arc::<OnceLock<Vec<_>>>::default();
    let memory = PlainMemory { base, requests: requests.clone() };
    let options = LinkOptions { is_discarded, is_rebasable: true, order, ..LinkOptions::default() };
    let mut link = Link::new(graph, &options)?.allocate(&memory)?;
    let shape = link.tls_shape();
    link.place_tls(TlsPlacement { module: OWN_MODULE, offset: 0 });
    let descriptors = link.tls_descriptors();
    let descriptors = descriptors
        .iter()
        .map(|(address, place)| ((address.value() - base) as u32, place.offset as u32))
        .collect();
    let address = |symbol| link.address_of(symbol).map(|address| (address.value() - base) as u32);
    let version_code: Vec<_> =
        versions.code.iter().filter_map(|&(target, code)| Some((address(code)?, target))).collect();
    let versions = built_versions(&versions, address);
    let names = link.names();
    let mut symbols = symbols(&link, &names, base);
    for symbol in symbols.iter_mut().filter(|symbol| symbol.is_global() && taken.contains(&symbol.name)) {
        symbol.traits |= SymbolTraits::TAKEN;
    }
    let externals: Vec<(Box<str>, bool)> =
        link.externals().map(|(name, is_weak)| (name.into(), is_weak)).collect();
    let numbers: HashMap<&str, u64> = externals.iter().map(|(name, _)| &**name).zip(0..).collect();
    let define = |name: &str| {
        let number = numbers.get(name)?;
        // Symbols around a program are within reach when it is loaded, too: the manager of memory keeps a place for it there.
        let is_around = DEFINED_FOR_PROGRAM.contains(&name);
        let before = base.wrapping_sub(IMPORTS_BEFORE);
        let address = if is_around { base + 1 + number } else { before + number * IMPORT_STEP };
        Some(ExecutorSymbolDef::new(ExecutorAddr::new(address), import(name)?))
    };
    let environment = LinkEnvironment {
        tls_placement: &|_| Some(TlsPlacement { module: OTHER_MODULE, offset: 0 }),
        tls_distance: &|_| Ok(-64),
        ..LinkEnvironment::default()
    };
    let (mut memory, linked) = link.resolve(define, environment)?.fix()?.into_parts();
    let requests = requests.get().cloned().unwrap_or_default();
    let contents = (0..requests.len()).map(|segment| memory.working(segment).to_vec()).collect();
    let thread_locals =
        linked.actions.tls.zip(shape).map(|(image, TlsShape { needs_static, .. })| ThreadLocals {
            address: image.address.value() - base,
            image_bytes: image.image_bytes,
            total_bytes: image.total_bytes,
            align: image.align,
            needs_static,
        });
    let eh_frame_hdr = linked.actions.unwind.map_or(0, |unwind| unwind.eh_frame_hdr - base);
    let code = (names.code.start.saturating_sub(base), names.code.end.saturating_sub(base));
    let rebases = linked.rebases.unwrap_or_else(|| unreachable!("the options asked for them"));
    let mut image = BuiltImage {
        layout: ImageLayout {
            flags: ImageFlags::SYSTEM.bits(),
            memory_bytes: memory_bytes(&requests, base),
            memory_align: requests.iter().map(|(_, request)| request.align as u64).fold(PAGE_BYTES, u64::max),
            got: (rebases.got().0.into(), rebases.got().1),
            thread_locals: thread_locals.unwrap_or_default(),
            code: if code.0 == 0 { (0, 0) } else { code },
            eh_frame_hdr,
        },
        contents,
        symbols,
        functions: functions(linked.initializers, base),
        indirect: linked
            .indirect_functions
            .iter()
            .map(|(_, descriptor)| (descriptor.value() - base) as u32)
            .collect(),
        descriptors,
        units: names.units.to_vec(),
        ..BuiltImage::default()
    };
    if !image.functions.is_empty() {
        image.layout.flags |= ImageFlags::RUNS.bits();
    }
    let close = close_imports(&rebases.fields);
    image.imports = externals
        .into_iter()
        .zip(0..)
        .map(|((name, is_weak), number)| {
            let mut traits = SymbolTraits::of_flags(import(&name).unwrap_or_default());
            traits.set(SymbolTraits::WEAK, is_weak);
            let is_around = DEFINED_FOR_PROGRAM.contains(&&*name);
            traits.set(SymbolTraits::CLOSE, close.contains(&number) && !is_around);
            (name, traits)
        })
        .collect();
    image.place(&requests, base);
    image.sort_fields(rebases.fields, base).map_err(|()| not_position_independent(&whole))?;
    image.versions = versions;
    let level = objects.iter().map(level_of).fold(0, |all, one| all | one);
    image.add_targets(targets, &version_code, Features::from_bits(level));
    Ok(image)
}

impl BuiltImage {
    /// Makes definitions local that are not `promised`: others have their own of that name.
    pub fn promise(&mut self, promised: impl Fn(&str) -> bool) {
        for symbol in self.symbols.iter_mut().filter(|symbol| !promised(&symbol.name)) {
            symbol.traits.remove(SymbolTraits::GLOBAL);
        }
    }

    /// Has it need all instruction sets that its code uses, also those that functions ask for themselves.
    pub fn need_all(&mut self) {
        let all = self.all_needs;
        self.targets.iter_mut().for_each(|target| target.needs = target.needs.with(all));
    }

    /// Notes the targets, with what their code needs. It is decoded from the start of each symbol on, and from there to the next.
    /// `versions` has the addresses of code that is not the base's; files were compiled for `level`.
    fn add_targets(&mut self, targets: &[ProcessorTarget], versions: &[(u32, u32)], level: Features) {
        let versions: HashMap<u64, u32> =
            versions.iter().map(|&(address, target)| (address.into(), target)).collect();
        let mut needs = vec![CodeNeeds::default(); targets.len()];
        let mut all = CodeNeeds::default();
        let code =
            self.segments.iter().zip(&self.contents).filter(|(segment, _)| segment.kind == SegmentKind::Code);
        let mut starts: Vec<u64> =
            self.symbols.iter().filter(|symbol| symbol.is_code()).map(|symbol| symbol.address).collect();
        starts.sort_unstable();
        for (segment, contents) in code {
            let end = segment.address + contents.len() as u64;
            let inside = starts.iter().copied().filter(|start| (segment.address..end).contains(start));
            let (mut from, ends) = (segment.address, inside.chain([end]));
            for until in ends {
                let part = &contents[(from - segment.address) as usize..(until - segment.address) as usize];
                let target = versions.get(&from).map_or(0, |target| *target as usize);
                let code = CodeNeeds::of_code(part, targets[target].features);
                // Code beyond is the program's affair: it asks the processor before it runs that, as natively.
                let declared = targets[target].features.union(level);
                needs[target] = needs[target].with(code.within(declared));
                all = all.with(code.without_unknown());
                from = until;
            }
        }
        let base = needs[0];
        let targets = targets.iter().zip(&needs);
        self.all_needs = all;
        self.targets = targets
            .map(|(target, needs)| BuiltTarget { target: target.clone(), needs: needs.with(base) })
            .collect();
    }

    /// Gives each segment its place in the file.
    fn place(&mut self, requests: &[(u64, SegmentRequest)], base: u64) {
        let mut file_offset = PAGE_BYTES;
        for &(address, request) in requests {
            let content_bytes = request.content_bytes as u64;
            self.segments.push(FileSegment {
                kind: request.kind,
                address: address - base,
                file_offset,
                content_bytes,
                zero_fill_bytes: request.zero_fill_bytes as u64,
                is_written: false,
            });
            file_offset += content_bytes.next_multiple_of(PAGE_BYTES);
        }
    }

    /// Notes each field where the loader looks for it. Words hold, in the file, what is added to an address.
    ///
    /// # Errors
    /// If a field holds an address in 32 bits.
    fn sort_fields(&mut self, fields: Vec<Rebase>, base: u64) -> Result<(), ()> {
        let pointer = Architecture::HOST.pointer();
        for field in fields {
            if field.kind.class() == Class::LowAddress {
                return Err(());
            }
            let segment = usize::from(field.segment);
            self.segments[segment].is_written = true;
            let address = u32::try_from(self.segments[segment].address + field.offset).map_err(|_| ())?;
            let at = field.offset as usize;
            let word = &mut self.contents[segment][at..];
            match field.target {
                RebaseTarget::Relative(..) if field.kind == pointer => {
                    let word = &mut word[..8];
                    let value = u64::from_le_bytes(word.try_into().unwrap_or_default());
                    word.copy_from_slice(&value.wrapping_sub(base).to_le_bytes());
                    self.relative.push(address);
                }
                RebaseTarget::Import(import) if field.kind == pointer => {
                    word[..8].copy_from_slice(&field.addend.to_le_bytes());
                    self.import_words.push((address, import));
                }
                _ => {
                    // The value is another at each base.
                    word[..Architecture::HOST.field_bytes(field.kind)].fill(0);
                    self.fields.push(field);
                }
            }
        }
        self.relative.sort_unstable();
        self.import_words.sort_unstable();
        Ok(())
    }
}

impl SymbolTraits {
    /// Those of a definition with these flags.
    pub(super) fn of_flags(flags: SymbolFlags) -> Self {
        let pairs = [
            (SymbolFlags::EXPORTED, Self::EXPORTED),
            (SymbolFlags::CALLABLE, Self::CALLABLE),
            (SymbolFlags::THREAD_LOCAL, Self::THREAD_LOCAL),
            (SymbolFlags::ABSOLUTE, Self::ABSOLUTE),
        ];
        pairs.into_iter().filter(|(flag, _)| flags.contains(*flag)).map(|(_, own)| own).collect()
    }

    /// The flags of a definition with these traits.
    pub fn flags(self) -> SymbolFlags {
        let pairs = [
            (Self::EXPORTED, SymbolFlags::EXPORTED),
            (Self::CALLABLE, SymbolFlags::CALLABLE),
            (Self::THREAD_LOCAL, SymbolFlags::THREAD_LOCAL),
            (Self::ABSOLUTE, SymbolFlags::ABSOLUTE),
        ];
        pairs.into_iter().filter(|(own, _)| self.contains(*own)).map(|(_, flag)| flag).collect()
    }
}

/// The definitions for others, and the names of everything else, for debuggers.
fn symbols(link: &Link<Allocated>, names: &NamedCode, base: u64) -> Vec<BuiltSymbol> {
    let named = |symbol: &NamedSymbol| (names.symbols.name(symbol), symbol.start);
    let mut known: HashMap<(&str, u64), _> =
        names.symbols.iter().map(|symbol| (named(&symbol), symbol)).collect();
    let mut symbols: Vec<_> = link
        .definitions()
        .map(|(name, definition)| {
            let address = definition.address.value();
            let symbol = known.remove(&(name, address));
            let mut traits = SymbolTraits::of_flags(definition.flags) | SymbolTraits::GLOBAL;
            traits.set(SymbolTraits::WEAK, definition.flags.contains(SymbolFlags::WEAK));
            let is_number = traits.contains(SymbolTraits::ABSOLUTE);
            BuiltSymbol {
                name: name.into(),
                unit: symbol.map_or(0, |symbol| symbol.unit),
                traits,
                size_bytes: symbol.map_or(0, |symbol| symbol.size),
                address: if is_number { address } else { address - base },
            }
        })
        .collect();
    let local = names.symbols.iter().filter(|symbol| known.contains_key(&named(symbol)));
    symbols.extend(local.map(|symbol| BuiltSymbol {
        name: names.symbols.name(&symbol).into(),
        unit: symbol.unit,
        traits: if symbol.is_code { SymbolTraits::CALLABLE } else { SymbolTraits::empty() },
        size_bytes: symbol.size,
        address: symbol.start - base,
    }));
    symbols
}

/// The imports that something reads by a distance of 32 bits: code that was built for executables, which have copies of libraries' variables.
fn close_imports(fields: &[Rebase]) -> HashSet<u32> {
    let close = fields.iter().filter(|field| Architecture::HOST.field_bytes(field.kind) < 8);
    let import = |field: &Rebase| match field.target {
        RebaseTarget::Import(import) => Some(import),
        _ => None,
    };
    close.filter_map(import).collect()
}

/// The versions that are there, at their addresses.
fn built_versions(versions: &GraphVersions, address: impl Fn(SymbolId) -> Option<u32>) -> Vec<BuiltVersion> {
    let mut built = Vec::new();
    for (slot, versions) in &versions.functions {
        let Some(slot) = address(*slot) else { continue };
        let version = |&(target, code): &_| Some(BuiltVersion { slot, target, code: address(code)? });
        built.extend(versions.iter().filter_map(version));
    }
    built
}

/// The functions of all objects, in the order in which the parts of one file would have them.
fn functions(objects: Vec<Initializers>, base: u64) -> Vec<BuiltFunction> {
    let function = |when, priority, address: ExecutorAddr| {
        // Nothing of the image comes before its base.
        let target = match address.value().wrapping_sub(base.wrapping_sub(IMPORTS_BEFORE)) {
            distance @ 0..IMPORTS_BEFORE => Err((distance / IMPORT_STEP) as u32),
            _ => Ok(address.value() - base),
        };
        BuiltFunction { when, priority, target }
    };
    let mut functions = Vec::new();
    for Initializers { preinitializers, initializers, finalizers } in objects {
        functions.extend(preinitializers.into_iter().map(|address| function(0, 0, address)));
        functions.extend(initializers.into_iter().map(|(priority, address)| function(1, priority, address)));
        functions.extend(finalizers.into_iter().map(|(priority, address)| function(2, priority, address)));
    }
    functions.sort_by_key(|function| (function.when, function.priority));
    functions
}

fn memory_bytes(requests: &[(u64, SegmentRequest)], base: u64) -> u64 {
    let end = |(address, request): &(u64, SegmentRequest)| {
        (address - base + (request.content_bytes + request.zero_fill_bytes) as u64)
            .next_multiple_of(PAGE_BYTES)
    };
    requests.last().map_or(PAGE_BYTES, end)
}

fn not_position_independent(object: &str) -> LinkError {
    LinkError::Memory { object: object.into(), source: MemoryError::NotLow { owner: object.into() } }
}
