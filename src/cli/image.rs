//! `uruk image`: a program is compiled and linked ahead, and its file is described. `uruk run` runs it.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use uruk::core::Readable;
use uruk::pipeline::image::{
    ImageFile, ImageReader, ImageSymbol, Rejection, SymbolTraits, Validation, readable_id,
};
use uruk::pipeline::ir::Partition;
use uruk::pipeline::lazy::CompileTrace;
use uruk::pipeline::memory::SegmentKind;
use uruk::pipeline::object::{ArchiveIndex, FileKind, ObjectBuffer, PROFILE_RUNTIME};
use uruk::pipeline::runtime::process::ProcessSymbols;
use uruk::{CacheOptions, EmitForm, ImageBuilder, Jit, JitError};

use super::clang::{self, SourceOptions};
use super::image_args::{EmitArg, ImageBuildArgs, ImageInfoArgs, ImageSources, ImageVerifyArgs};
use super::memory_limit::{self, NoThreads};
use super::observe::{Observers, TraceError};
use super::order::{self, OrderError};
use super::record::{self, RecordError};
use super::run::{RunError, add_file};
use super::shared::SharedError;
use super::stats_report::ReportForm;
use super::{cache, profile, report, shared};

/// Into how many parts large modules are divided: the same on every machine, because that changes the image.
const PARTS: usize = 16;

/// Why an image was not made, or not described.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ImageCommandError {
    #[error(transparent)]
    Jit(#[from] JitError),
    #[error(transparent)]
    File(#[from] RunError),
    #[error("cannot build the image {}", path.display())]
    Build { path: PathBuf, source: JitError },
    #[error(transparent)]
    Shared(#[from] SharedError),
    #[error(transparent)]
    Order(#[from] OrderError),
    #[error(transparent)]
    Threads(#[from] NoThreads),
    #[error(transparent)]
    Trace(#[from] TraceError),
    #[error(transparent)]
    Record(#[from] RecordError),
    #[error("which file is it to be? Name it: -o FILE")]
    Unnamed,
    #[error("{}: it is one whole, which is compared with no source; leave the sources out, or build it with --package", image.display())]
    NoUnits { image: PathBuf },
    #[error(
        "sources say which units are not used, and --rejected lists these; add it, or leave the sources out"
    )]
    NotCompared,
    #[error(
        "{} of {units} units are not used with these sources: they are compiled when the image runs with them",
        rejected
    )]
    Rejected { rejected: usize, units: usize },
    #[error("cannot write to standard output")]
    Output(#[source] io::Error),
}

impl ImageCommandError {
    /// Whether the command line itself is wrong, rather than its files.
    pub(super) fn is_wrong_usage(&self) -> bool {
        matches!(self, Self::NoUnits { .. } | Self::NotCompared)
    }
}

/// Compiles and links the files, and writes the image.
pub(crate) fn build(args: &ImageBuildArgs) -> Result<(), ImageCommandError> {
    let path = output(args)?;
    let stats = args.stats.then_some(ReportForm::Tables);
    record::begin_if_read(stats)?;
    let observers = Observers::install(None, stats, false, &path.display().to_string())?;
    let built = builder(args).and_then(|builder| {
        let base = builder.base_target().to_owned();
        let source = SourceOptions { processor: Some(&base), ..SourceOptions::here(args.optimize) };
        args.on.iter().try_for_each(|lower| builder.on(lower))?;
        let mut is_instrumented = false;
        for file in &args.files {
            is_instrumented |= add_file(&builder, file, args.language.as_deref(), source)?;
        }
        let builder = if is_instrumented && args.emit == EmitArg::Image {
            profile::find_runtime(&builder)?;
            builder.wanted([PROFILE_RUNTIME])
        } else {
            builder
        };
        write(builder, args, &path)
    });
    // From here on the terminal shows an error, or nothing.
    observers.leave_terminal();
    built?;
    if let Err(error) = observers.finish() {
        report::error(&error);
    }
    Ok(())
}

/// Makes what was asked for, and writes it.
fn write(builder: ImageBuilder, args: &ImageBuildArgs, path: &Path) -> Result<(), ImageCommandError> {
    let failed = |source| ImageCommandError::Build { path: path.to_owned(), source };
    let form = match args.emit {
        EmitArg::Image => {
            let image = builder.build().map_err(failed)?;
            if image.unplaced() > 0 {
                report::warning("the image has less than the traces list", &Unplaced(image.unplaced()));
            }
            return image.write(path).map_err(failed);
        }
        EmitArg::So | EmitArg::O => EmitForm::Objects,
        EmitArg::S => EmitForm::Assembly,
        EmitArg::Bc => EmitForm::Bitcode,
    };
    let emitted = builder.emit(form).map_err(failed)?;
    match args.emit {
        EmitArg::So => Ok(shared::link(&emitted, &args.load, path)?),
        _ => emitted.write(path).map_err(failed),
    }
}

fn builder(args: &ImageBuildArgs) -> Result<ImageBuilder, ImageCommandError> {
    let process = ProcessSymbols::of_program();
    args.load.iter().try_for_each(|library| process.load_library(library)).map_err(JitError::from)?;
    let partition = match args.parts {
        Some(parts) => Partition::new(args.partition, parts.into()).of_all_modules(),
        None => Partition::new(args.partition, PARTS),
    };
    let threads = memory_limit::threads(args.jobs, &args.files, partition)?;
    let (order, only) = (trace(&args.order)?, trace(&args.only)?);
    let mut jit = Jit::builder().optimization(args.optimize).partition(partition);
    jit = jit.threads(threads).process_symbols(process);
    // A module whose object is found has no assembly.
    let is_cached = !matches!(args.emit, EmitArg::S | EmitArg::Bc);
    if let Some(directory) = cache::directory(args.cache.as_deref()).filter(|_| is_cached) {
        jit = jit.cache(CacheOptions::directory(directory));
    }
    jit = jit.function_sections(order.is_some() || only.is_some());
    let builder = ImageBuilder::for_targets(&args.cpu_targets, jit)?;
    let builder = match (&only, &order) {
        (Some(only), _) => builder.only(only),
        (None, Some(order)) => builder.order(order),
        (None, None) => builder,
    };
    let builder = if args.package { builder.package() } else { builder };
    let builder = if args.needs_all { builder.needing_all() } else { builder };
    let program = (args.emit == EmitArg::Image).then_some("main");
    let builder = builder.wanted(program.into_iter().chain(args.undefined.iter().map(String::as_str)));
    if let Some(refused) = builder.cache_refused() {
        report::warning("the image is built without a cache", refused);
    }
    Ok(builder)
}

/// The functions of all of these files.
fn trace(paths: &[PathBuf]) -> Result<Option<CompileTrace>, OrderError> {
    let mut whole = None::<CompileTrace>;
    for path in paths {
        whole.get_or_insert_default().merge(order::read_trace(path)?);
    }
    Ok(whole)
}

/// Lines of traces that do nothing, as the cause of a warning.
#[derive(Debug, thiserror::Error)]
#[error(
    "{0} functions of them have no code of their own: no file has them, or they are inlined wherever they are called"
)]
struct Unplaced(usize);

/// The file of the image. Without a name it lies in the current directory, where linkers put their output.
fn output(args: &ImageBuildArgs) -> Result<PathBuf, ImageCommandError> {
    if let Some(output) = &args.output {
        return Ok(output.clone());
    }
    let first = args.files.first().filter(|file| *file != Path::new("-"));
    let stem = first.and_then(|file| file.file_stem()).ok_or(ImageCommandError::Unnamed)?;
    Ok(Path::new(stem).with_extension(args.emit.extension()))
}

/// Describes an image.
pub(crate) fn info(args: &ImageInfoArgs) -> Result<(), ImageCommandError> {
    if !args.rejected && !args.sources.files.is_empty() {
        return Err(ImageCommandError::NotCompared);
    }
    let image = open(&args.image, &args.sources)?;
    let mut output = io::BufWriter::new(io::stdout().lock());
    let mut told = describe(&image, &mut output)?;
    if args.units {
        told = told.and_then(|()| list(&mut output, "files", image.reader().units().map(str::to_owned)));
    }
    if args.imports {
        let imports = image.reader().imports().map(|(name, traits)| {
            let weak = if traits.contains(SymbolTraits::WEAK) { "  may be missing" } else { "" };
            format!("{}{weak}", Readable(name))
        });
        told = told.and_then(|()| list(&mut output, "imports", imports));
    }
    if args.symbols {
        let mut symbols: Vec<ImageSymbol<'_>> =
            image.reader().symbols().filter(|symbol| symbol.traits.contains(SymbolTraits::GLOBAL)).collect();
        symbols.sort_unstable_by_key(|symbol| (symbol.address, symbol.name));
        let symbols = symbols.iter().map(|symbol| {
            format!("{:#10x} {:>8}  {}", symbol.address, symbol.size_bytes, Readable(symbol.name))
        });
        told = told.and_then(|()| list(&mut output, "symbols: address, bytes, name", symbols));
    }
    if args.targets {
        let here = image.reader().target_here();
        let rows = (0..).zip(image.reader().targets()).map(|(number, target)| {
            let names: Vec<_> = target.needs.features.names().collect();
            let chosen =
                if here.as_ref().is_ok_and(|(best, _)| *best == number) { ", runs here" } else { "" };
            let uses = if names.is_empty() { "nothing beyond x86-64".to_owned() } else { names.join(", ") };
            format!("{}: uses {uses}{chosen}", target.name)
        });
        told = told.and_then(|()| {
            list(&mut output, "processors, and the instruction sets that the code for them uses", rows)
        });
    }
    if args.sections {
        let sections =
            image.reader().sections().map(|(name, length)| format!("{length:>10}  {}", name.escape_debug()));
        told = told.and_then(|()| list(&mut output, "sections of the host: bytes, name", sections));
    }
    if args.rejected {
        let rejected = rejected(&image, &args.sources)?;
        let rows = rejected.iter().map(|(unit, reason)| format!("{unit}: {reason}"));
        told = told.and_then(|()| list(&mut output, "units that are not used, and why", rows));
        let mut causes = BTreeMap::<_, usize>::new();
        rejected.iter().for_each(|(_, reason)| *causes.entry(reason.cause()).or_default() += 1);
        let units = image.reader().packed().len();
        let title = format!("{} of {units} units are not used", rejected.len());
        let rows = causes.iter().map(|(cause, units)| format!("{units:>6}  {cause}"));
        told = told.and_then(|()| list(&mut output, &title, rows));
    }
    written(told.and_then(|()| output.flush()))
}

/// Checks the bytes of an image, and the units of a package.
pub(crate) fn verify(args: &ImageVerifyArgs) -> Result<(), ImageCommandError> {
    let image = open(&args.image, &args.sources)?;
    image.check_contents().map_err(JitError::from)?;
    image.check_trusted().map_err(JitError::from)?;
    image.map_sections().map_err(JitError::from)?;
    let units = image.reader().packed().len();
    let mut overused = image.overused().map_err(JitError::from)?;
    for unit in 0..units as u32 {
        overused.extend(image.unit(unit).and_then(|unit| unit.overused()).map_err(JitError::from)?);
    }
    let rejected = rejected(&image, &args.sources)?;
    let mut output = io::BufWriter::new(io::stdout().lock());
    let whole =
        format!("{}: {} bytes, as they were written", args.image.display(), image.reader().file_bytes());
    let rows = rejected.iter().map(|(unit, reason)| format!("{unit}: {reason}"));
    let beyond = overused.iter().map(|function| {
        let names: Vec<_> = function.beyond.names().collect();
        format!("{} uses {}, which {} lacks", Readable(&function.name), names.join(", "), function.target)
    });
    let mut told =
        [whole].into_iter().chain(rows).chain(beyond).try_for_each(|row| writeln!(output, "{row}"));
    told = told.and_then(|()| output.flush());
    written(told)?;
    if rejected.is_empty() {
        return Ok(());
    }
    Err(ImageCommandError::Rejected { rejected: rejected.len(), units })
}

/// Opens an image that is compared with sources, which a whole has none of.
fn open(path: &Path, sources: &ImageSources) -> Result<ImageFile, ImageCommandError> {
    let image = ImageFile::open(path).map_err(JitError::from)?;
    if !image.reader().is_package() && !sources.files.is_empty() {
        return Err(ImageCommandError::NoUnits { image: path.to_owned() });
    }
    Ok(image)
}

/// The units of a package that are not used beside these sources. Definitions of a host are taken for what they were.
fn rejected(
    image: &ImageFile,
    sources: &ImageSources,
) -> Result<Vec<(String, Rejection)>, ImageCommandError> {
    let reader = image.reader();
    let jit = Jit::builder().threads(1).optimization(sources.optimize).build()?;
    let options = SourceOptions { processor: processor(reader), ..SourceOptions::here(sources.optimize) };
    let mut keyed = Vec::new();
    for file in &sources.files {
        let Some(source) = source(file, options)? else { continue };
        let mut note = |source: &ObjectBuffer| {
            keyed.push((source.name().to_string(), jit.key_of_source(source)));
        };
        if FileKind::of(source.bytes()) == FileKind::Archive {
            let index = ArchiveIndex::read(&source).map_err(JitError::from)?;
            index.members().iter().for_each(|member| note(member.contents()));
        } else {
            note(&source);
        }
    }
    let keyed: Vec<_> = keyed.iter().map(|(name, key)| (&**name, *key)).collect();
    let mut validation = Validation::new(reader);
    validation.match_sources(reader, &keyed);
    let known = |name: &str| reader.assumptions().find(|known| known.name == name).map(|known| known.key);
    for unit in 0..reader.packed().len() as u32 {
        // The reasons are asked for together.
        let _ = validation.check(reader, unit, &known);
    }
    let names: Vec<_> = reader.packed().map(|unit| unit.name).collect();
    let named = |(unit, reason): (u32, &Rejection)| (names[unit as usize].to_owned(), reason.clone());
    Ok(validation.rejected().map(named).collect())
}

/// A file that a unit may have been compiled from; nothing for files of other kinds.
pub(super) fn source(file: &Path, options: SourceOptions<'_>) -> Result<Option<ObjectBuffer>, RunError> {
    if let Some(language) = clang::language(file) {
        let bitcode = clang::compile_to_bitcode(file, language, options)?;
        return Ok(Some(ObjectBuffer::new(file.display().to_string(), bitcode)));
    }
    let refused = |source| JitError::Read { path: file.to_owned(), source: Arc::new(source) };
    let source = ObjectBuffer::open(file).map_err(refused)?;
    let is_text = file.extension().is_some_and(|extension| extension == "ll");
    let is_source = match FileKind::of(source.bytes()) {
        FileKind::Bitcode | FileKind::TextualIr | FileKind::Object | FileKind::Archive => true,
        FileKind::Other => is_text,
        _ => false,
    };
    Ok(is_source.then_some(source))
}

/// The processors that the sources of an image are compiled for: clang writes their level into its bitcode.
pub(super) fn processor(reader: &ImageReader) -> Option<&str> {
    reader.targets().next().map(|target| target.name)
}

fn written(told: io::Result<()>) -> Result<(), ImageCommandError> {
    match told {
        // The reader has seen enough.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(ImageCommandError::Output(error)),
        _ => Ok(()),
    }
}

fn describe(image: &ImageFile, output: &mut impl Write) -> Result<io::Result<()>, JitError> {
    let reader = image.reader();
    let units = (0..reader.packed().len() as u32).map(|unit| image.unit(unit));
    let units: Vec<ImageFile> = units.collect::<Result<_, _>>()?;
    let parts = || [image].into_iter().chain(&units).map(ImageFile::reader);
    let segments = || parts().flat_map(ImageReader::segments);
    let bytes = |kind: SegmentKind| -> u64 {
        segments().filter(|segment| segment.kind == kind).map(|segment| segment.content_bytes).sum()
    };
    let zero_fill: u64 = segments().map(|segment| segment.zero_fill_bytes).sum();
    let global = reader.symbols().filter(|symbol| symbol.traits.contains(SymbolTraits::GLOBAL));
    let functions = global.filter(|symbol| symbol.traits.contains(SymbolTraits::CALLABLE)).count();
    let relocations = parts().map(ImageReader::relocations);
    let [own, imported, other] =
        relocations.fold([0; 3], |sum, part| std::array::from_fn(|kind| sum[kind] + part[kind]));
    let rows = [
        ("file", format!("{}, {} bytes", reader.path().display(), reader.file_bytes())),
        ("id", readable_id(reader.id())),
        ("processors", reader.targets().map(|target| target.name).collect::<Vec<_>>().join(", ")),
        (
            "made of",
            match reader.is_package() {
                true => format!("{} units, each validated alone", reader.packed().len()),
                false => format!("{} files", reader.units().len()),
            },
        ),
        ("defines", format!("{functions} functions for others, {} symbols in all", reader.symbols().len())),
        ("refers to", format!("{} names that it does not define", reader.imports().len())),
        ("built on", below(reader)),
        ("sections", sections(reader)),
        ("code", format!("{} bytes", bytes(SegmentKind::Code))),
        ("constants", format!("{} bytes", bytes(SegmentKind::ReadOnly))),
        (
            "data",
            format!("{} bytes, {zero_fill} of zeros", bytes(SegmentKind::Data) + bytes(SegmentKind::FarData)),
        ),
        ("addresses", format!("{own} of its own, {imported} of others, {other} other fields")),
    ];
    let mut rows = rows.into_iter().filter(|(_, value)| !value.is_empty());
    Ok(rows.try_for_each(|(name, value)| writeln!(output, "{name:<11} {value}")))
}

/// The images that have to be loaded before this one.
fn below(reader: &ImageReader) -> String {
    let named = reader.below().map(|(name, id)| format!("{} (id {})", name.escape_debug(), readable_id(&id)));
    named.collect::<Vec<_>>().join(", ")
}

fn sections(reader: &ImageReader) -> String {
    match reader.sections().len() {
        0 => String::new(),
        count => {
            let bytes = reader.sections().fold(0_u64, |sum, (_, bytes)| sum.saturating_add(bytes));
            format!("{count} of the host, {bytes} bytes")
        }
    }
}

fn list(output: &mut impl Write, title: &str, rows: impl Iterator<Item = String>) -> io::Result<()> {
    writeln!(output, "{title}")?;
    rows.into_iter().try_for_each(|row| writeln!(output, "  {row}"))
}
